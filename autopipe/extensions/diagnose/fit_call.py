"""What a call of `fit` tells before it trains: numbers of batches that do not fit, and what Keras 3 does not take.

No framework is imported here, and nothing is read.
"""

from __future__ import annotations

import inspect
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autopipe.frameworks import hooks

_OF_KERAS_2 = ("workers", "use_multiprocessing", "max_queue_size")  # arguments of `fit`
_MANY, _SHORT = 10, 1.0  # calls, and seconds of one
HINTS = {  # by patterns of errors: what Keras 3 wants in place of what it refuses, or what is left of a notebook
    "name 'get_ipython'": "Leave out lines that only a notebook runs, or give `fit` callbacks=[ap.Diagnose()] there.",
    "a symbolic tf.Tensor": "`map` runs a keras.Sequential on TensorFlow only, a keras.layers.Pipeline on JAX, too.",
    "no attribute '(fit|evaluate|predict)_generator'": "In Keras 3, `fit`, `evaluate` and `predict` take generators.",
    "no attribute 'reset_states'": "Keras 3 calls it `reset_state`.",
    "has DataType bool not in": "Keras 3 takes no booleans as y: tf.cast(y, tf.float32), or y.astype('float32').",
    "x=<zip object": "Keras 3 takes no `zip`, but a generator: `(batch for batch in zip(...))`.",
    "found <class 'list'>": "Keras 3 takes several inputs or targets as a tuple, and not as a list: `(a, b), y`.",
    "must have the same rank": "If y are classes as numbers, their loss is sparse_categorical_crossentropy.",
    "where an element of shape": "On TensorFlow, Keras takes the shapes of a generator's or a PyDataset's batches from "
    "the first two: a side that has one length in both must have it in all. Pad each to the longest of all, or give "
    "`fit` tf.data.Dataset.from_generator(..., output_signature=...) with None for such sides.",
    r"Expected shape \(None, ([^)]*)\), but input has incompatible shape \(\1\)": "x has no axis of samples: "
    "`.batch(32)` at the end of a tf.data.Dataset makes batches, and x[None] is a batch of one.",
    "SymbolicTensor' object has no attribute 'numpy'": "`map` runs its function once, without values, to trace it. "
    "tf.numpy_function(function, [path], tf.float32) calls Python for each element; tf.io and tf.image need no Python.",
    "'images' contains no shape": "tf.io.decode_image may give a film: with expand_animations=False it is an image.",
    r"Unrecognized data type: x=\[": "`fit` takes no list of samples, but one array: np.stack(images).",
    "Received a label value of": "Classes are numbered from 0: if y begins with 1, subtract 1, and else give the model "
    "an output for each class. On a GPU there is no such error, but a loss of NaN.",
    r"rank \(ndim\) `target.ndim - 1`": "If y is one-hot, its loss is categorical_crossentropy, which is not sparse.",
}


def refused(named: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return why `fit` does not take some arguments of Keras 2, and what to do; None if it has got none."""
    old = ", ".join(f"{name}={named[name]!r}" for name in _OF_KERAS_2 if name in named)
    hint = f"In Keras 3 pass it to the PyDataset: `super().__init__({old})` in its `__init__`."
    return (f"`fit` of Keras 3 does not take {old}.", hint) if old else None


def endless(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that the validation of `fit` never ends, and what to do; None if it does, or may."""
    if given.get("validation_steps") is not None or batches(given.get("validation_data")) != math.inf:
        return None
    said = "The validation data go on without an end, and so the validation after the first epoch does."
    return said, "Give `fit` validation_steps=, or repeat less."


def renumbered(one: Mapping[str, int], other: Mapping[str, int]) -> str | None:
    """Say that a class of two folders has two numbers, if so."""
    for name, number in one.items():
        if other.get(name, number) != number:
            return (
                f"The class `{name}` has number {number} in one folder, and {other[name]} in another: a folder that "
                "lacks a class moves the numbers of those after it. If a model trains on one and is validated on the "
                "other, give both the same list: class_names= of `image_dataset_from_directory`, classes= of "
                "`flow_from_directory`."
            )
    return None


def predicted(validation: Any, text: str, *, shuffles: bool) -> Iterator[str]:
    """Say that a script predicts on its validation data, whose order is another one each time, if so."""
    names = set(re.findall(r"validation_data\s*=\s*(\w+)", text))
    if names.isdisjoint(re.findall(r"\.predict\(\s*(\w+)", text)):
        return
    if shuffles or (hasattr(validation, "class_indices") and getattr(validation, "shuffle", False)):
        yield (
            "`predict` gets the validation data, which come in another order each time that they are read: labels from "
            "elsewhere, such as `classes` or `[y for x, y in data]`, belong to other samples. shuffle=False keeps one "
            "order."
        )


def faults(given: Mapping[str, Any]) -> Iterator[str]:
    """Say that an epoch of `fit` never ends or has too few batches, or that classes differ from the validation's."""
    x, steps, validation = (given.get(name) for name in ("x", "steps_per_epoch", "validation_data"))
    count, epochs = batches(x), given.get("epochs", 1)
    if count == math.inf and steps is None:
        yield "The data go on without an end, and `fit` has no steps_per_epoch: its first epoch never ends."
    if inspect.isgenerator(x) and steps is None and epochs > 1:
        yield (
            "The data are a generator, and `fit` has no steps_per_epoch: the first epoch is all that it ever gives, "
            "and never ends if it does not. Give steps_per_epoch=, and a generator that goes on for ever."
        )
    for name, limit, data in (("x", "steps_per_epoch", x), ("validation_data", "validation_steps", validation)):
        if (held := batches(data)) == 0:
            yield (
                f"`{name}` has no batches: drop_remainder=True leaves none of fewer samples than a batch has, and "
                "`take`, `skip` or `len(samples) // batch_size` may leave none, either."
            )
        if (wanted := given.get(limit)) is not None and wanted > held:
            yield (
                f"{limit}={wanted}, but the data have {held} batches: Keras says that they ran out, and an epoch is "
                "those. Leave it out, or repeat."
            )
    classes = (getattr(data, "class_indices", {}) for data in (x, validation))  # of `flow_from_directory`
    yield from filter(None, [renumbered(*classes)])
    if steps is not None and steps < count < steps * epochs and count % steps:
        yield (
            f"steps_per_epoch={steps}, but the data have {count} batches: Keras goes on where the epoch before ended, "
            f"so that 1 of {math.ceil(count / steps)} epochs has {count % steps}. Leave it out, or repeat."
        )


def last_weights(model: Any) -> bytes:
    """Return the values of a model's last trainable variable, which tell whether its weights were set back."""
    to_numpy = sys.modules["keras"].ops.convert_to_numpy
    return b"".join(to_numpy(each).tobytes() for each in model.trainable_variables[-1:])


def timed(owner: Any, name: str) -> list[float]:
    """Return a list that holds the seconds of each call of a method from now on."""
    took = list[float]()

    @hooks.around(owner, name)
    def called(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return method(*arguments, **named)
        finally:
            took.append(time.monotonic() - began)

    return took


def predictions(took: Sequence[float], seconds: float) -> tuple[str, str] | None:
    """Return a sentence on short calls of `predict` within `seconds`, and a hint; None if there were few calls."""
    if len(took) < _MANY or statistics.median(took) > _SHORT:
        return None
    return (
        f"The script calls `predict` {len(took)} times, which took {sum(took):.1f} of its {seconds:.1f} s: each call "
        "sets up a loop over its data anew.",
        "Give one call all images, or a dataset of them in batches; for a batch at a time, call the model itself: "
        "model(x, training=False).",
    )


def batches(data: Any) -> float:
    """Return the number of batches of a tf.data.Dataset or PyDataset: infinite if it has no end, nan if unknown."""
    counts = getattr(data, "cardinality", None)
    counts = counts() if callable(counts) else counts  # no function of what a strategy distributes
    if counts is not None:
        return {-1: math.inf, -2: math.nan}.get(count := int(counts), count)
    found = getattr(data, "num_batches", math.nan)
    return math.inf if found is None else found
