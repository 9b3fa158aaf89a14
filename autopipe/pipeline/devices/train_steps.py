"""Runs the cheap last ops of a workload inside the compiled step, while a Keras call lasts.

While `applied()` is entered, the model's `train_step`, `test_step` and `predict_step` finish the batch first; after it
the model is unchanged, so that saving, pickling and calling `fit` on other data are unaffected. Within a `fit`,
callbacks may evaluate and predict on data of their own, so there `validated()` finishes the data that `fit` itself
evaluates. Compiled functions are kept here between calls, so that the next `fit`, or the next trial on the same model,
compiles nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.frameworks.hooks import standing_in
from autopipe.hardware import processes
from autopipe.pipeline.devices.feed import Placement, Stream
from autopipe.pipeline.loader import Finish, Loader
from autopipe.workload.op import ArrayNamespace
from autopipe.workload.sample import leaves

# -------------------- several steps by one call of a compiled function
# Keras's function for several steps loops over a `tf.data` iterator inside the graph. A dataset made here takes batches
# from Python in stacks, one call for several of them, and cuts them apart again; it holds nothing back, so that all
# batches taken from the loader have been trained when the call returns.


_log = logging.getLogger(__name__)
_HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_KNOW_BETTER = ("keras", "autopipe")  # packages whose callbacks count several steps at once


def together(model: keras.Model, wanted: int, callbacks: Iterable[Any]) -> int | None:
    """Return the number of batches that one call trains; None for the number that the model was compiled for. A model
    that was compiled for several keeps its own number, and so does one with a user's callback after each batch. On
    torch Keras trains one batch at a time, and so may a custom training function.
    """
    is_usual = type(model).make_train_function is keras.Model.make_train_function
    fits = model.steps_per_execution == 1 and not model.run_eagerly and keras.backend.backend() != "torch"
    if wanted == 1 or not fits or not is_usual:
        return None
    watching = next((callback for callback in callbacks if _looks_at_batches(callback)), None)
    if watching is not None:
        _log.warning("steps_per_execution=%d is left at 1: `%s` looks at each batch.", wanted, type(watching).__name__)
        return None
    return wanted


def _looks_at_batches(callback: Any) -> bool:
    methods = (vars(callback).get(hook) or getattr(type(callback), hook, None) for hook in _HOOKS)
    return any((getattr(each, "__module__", None) or "").partition(".")[0] not in _KNOW_BETTER for each in methods)


def placement(usual: Placement, loader: Loader) -> Placement:
    """Return the placement of batches for several steps at once: left to the loop inside TensorFlow, which runs if
    batches come from Python and stay on the host.
    """
    on_host = usual.strategy.devices == 1 and not usual.strategy.looks_ahead and not loader.has_dataset
    return dataclasses.replace(usual, on_host=on_host and keras.backend.backend() == "tensorflow")


def feed(stream: Stream, loader: Loader, steps: int, count: int | None) -> Any:
    """Return Keras's data for an epoch of so many steps, `count` by one call."""
    if count is None or not stream.placement.on_host:
        return frameworks.data_adapter(lambda: stream.take(steps), steps)
    make = functools.partial(_dataset, loader=loader, weighted=stream.placement.class_weight is not None)
    return frameworks.data_adapter(lambda: stacked(stream.take(steps), count), steps, make)


def stacked(batches: Iterator[tuple[Any, ...]], count: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches of NumPy arrays in stacks of up to `count` of one shape, which have a new first axis."""
    while group := list(itertools.islice(batches, count)):
        for _, alike in itertools.groupby(group, key=lambda batch: leaves(batch[0])[0].shape):
            yield keras.tree.map_structure(lambda *parts: stack(parts), *alike)


def stack(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays of one shape as one with a new first axis; without a copy if they are adjacent in memory."""
    first = parts[0]
    if first.base is None or not all(part.base is first.base and part.flags.c_contiguous for part in parts):
        return np.stack(parts)
    starts = [part.__array_interface__["data"][0] for part in parts]
    if starts != [starts[0] + number * first.nbytes for number in range(len(parts))]:
        return np.stack(parts)
    shape, strides = (len(parts), *first.shape), (first.nbytes, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def _dataset(open_epoch: Callable[[], Iterator[tuple[Any, ...]]], loader: Loader, *, weighted: bool) -> Any:
    """Return the stacks of an epoch as a `tf.data.Dataset` of batches, with the weights of samples if there are any."""
    import tensorflow as tf

    rows = loader.batch_size if loader.last_batch_samples == loader.batch_size else None
    parts = loader.spec.packed([
        None if field is None else tf.TensorSpec((None, rows, *(field.shape or ())), field.dtype)
        for field in loader.spec.columns
    ])  # fmt: skip
    weights = (tf.TensorSpec((None, rows), tf.float32),) if weighted else ()
    signature = (*(part for part in parts if part is not None), *weights)

    def begun() -> Iterator[tuple[Any, ...]]:
        processes.keep_again()  # which a dataset of a generator changes
        return open_epoch()

    made = tf.data.Dataset.from_generator(begun, output_signature=signature).unbatch()
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False  # a batch is taken when it is trained, not before
    return made.with_options(options)


# -------------------- finished steps


KERAS_OPS = ArrayNamespace(
    keras.ops.cast,
    keras.ops.convert_to_tensor,
    lambda ids, classes, dtype: keras.ops.one_hot(ids, classes, dtype=dtype),
    keras.ops.transpose,
)
"""For batchable ops: compiled or eager."""
_KINDS = ("train", "test", "predict")


class FinishedSteps:
    """The steps of one model, with the finish of the batches before them."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        # Of each compiled function its kind, finish and number of steps, and the object of the last `compile()`, of
        # which each call makes another.
        self._compiled: list[tuple[tuple[str, Finish, int], Any, Any]] = []

    @contextlib.contextmanager
    def applied(self, *, train: Finish, test: Finish, together: int | None = None) -> Iterator[None]:
        """Let the model's steps take compact batches; `test` is for evaluation and prediction. One call trains
        `together` batches; None: the number that the model was compiled for.
        """
        model = self._model
        owners = model.steps_per_execution
        with contextlib.ExitStack() as stack:
            if together is not None:
                stack.callback(setattr, model, "steps_per_execution", owners)
                model.steps_per_execution = together
            for kind, finish in zip(_KINDS, (train, test, test), strict=True):
                if not finish.is_identity or model.steps_per_execution != owners:
                    stack.enter_context(self._finishing(kind, finish))
            yield

    @contextlib.contextmanager
    def validated(self, feed: Any, finish: Finish) -> Iterator[None]:
        """Let a `fit` finish the batches of `feed`, its validation data, when it evaluates the model on them."""
        evaluate = self._model.evaluate

        @functools.wraps(evaluate)
        def finishing(*arguments: Any, **named: Any) -> Any:
            if named.get("x") is not feed:  # a callback's own
                return evaluate(*arguments, **named)
            with contextlib.nullcontext() if finish.is_identity else self._finishing("test", finish):
                return evaluate(*arguments, **named)

        with standing_in(self._model, "evaluate", finishing):
            yield

    @contextlib.contextmanager
    def _finishing(self, kind: str, finish: Finish) -> Iterator[None]:
        model, step, function = self._model, f"{kind}_step", f"{kind}_function"
        owners_function = getattr(model, function)
        with standing_in(model, step, _finished(getattr(model, step), finish)):
            setattr(model, function, self._find(kind, finish))
            try:
                yield
            finally:
                self._keep(kind, finish, getattr(model, function))
                setattr(model, function, owners_function)

    def _find(self, kind: str, finish: Finish) -> Any:
        made_by = frameworks.compilation(self._model)
        self._compiled = [entry for entry in self._compiled if entry[1] is made_by]
        wanted = kind, finish, self._model.steps_per_execution
        return next((function for key, _, function in self._compiled if key == wanted), None)  # else Keras makes it

    def _keep(self, kind: str, finish: Finish, function: Any) -> None:
        if isinstance(getattr(function, "__self__", None), keras.callbacks.Callback):
            return  # it stands there in the function's place, because an error kept it from being told of the end
        if function is not None and self._find(kind, finish) is None:
            key = kind, finish, self._model.steps_per_execution
            self._compiled.append((key, frameworks.compilation(self._model), function))


def _finished(step: Callable[..., Any], finish: Finish) -> Callable[..., Any]:
    def finished_step(*arguments: Any) -> Any:
        *state, data = arguments  # the batch comes last on every backend; JAX puts the state before it
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        x, y, sample_weight = finish.step_data(x, y, sample_weight, KERAS_OPS)
        return step(*state, keras.utils.pack_x_y_sample_weight(x, y, sample_weight))

    return finished_step
