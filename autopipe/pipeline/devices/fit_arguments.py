"""What a trainer's `fit` is given beside its own parameters: which of Keras's arguments it takes, and the callbacks."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping
from typing import Any, Final

import keras

from autopipe.errors import ModelError, shortened

_ELSEWHERE: Final = {
    **dict.fromkeys(("x", "y", "batch_size", "shuffle"), "Set it in the workload."),
    "sample_weight": "Let the workload's samples be (x, y, sample_weight).",
    "validation_split": "Pass samples that are not trained as validation=..., such as those of "
    'ap.ImageFolder("photos", validation_split=0.2, subset="validation", seed=1).',
    "validation_data": "Pass it as validation=...",
}
"""Arguments of Keras's `fit` that a trainer has in another form, and which that is."""


def checked(epochs: int, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the epochs and the other arguments that are passed on to Keras's `fit`.

    Raises:
        ModelError: what one of them says is said elsewhere, it counts by what is no whole number, or `class_weight` has
            no numbers of classes.
    """
    for name, hint in _ELSEWHERE.items():
        if name in arguments:
            raise ModelError(
                f"`fit` of a trainer does not take `{name}`, but got {name}={shortened(arguments[name])}.", hint=hint
            )
    weights = arguments.get("class_weight")
    named = isinstance(weights, Mapping) and all(isinstance(each, numbers.Number) for each in weights)
    if weights is not None and not named:
        raise ModelError(
            f"`class_weight` must map the number of a class to its weight, but got {shortened(weights)}.",
            hint="Write class_weight=dict(enumerate(weights)); names are numbered as in `data.classes`.",
        )
    counts = {
        name: _whole_number(name, arguments[name], least)
        for name, least in (("steps_per_epoch", 1), ("initial_epoch", 0))
        if arguments.get(name) is not None
    }
    return _whole_number("epochs", epochs, least=0), {**arguments, **counts}


def _whole_number(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ModelError(f"`{name}` must be a whole number of at least {least}, but got {shortened(value)}.")
    return number


def callbacks(given: Any) -> tuple[Any, ...]:
    """Return the callbacks of what Keras takes as such: several, a `CallbackList` of them, one, or None.

    Raises:
        ModelError: one of them is a class, or None.
    """
    if isinstance(given, keras.callbacks.CallbackList):
        return tuple(given.callbacks)
    found = (given,) if isinstance(given, keras.callbacks.Callback) else tuple(given or ())
    for each in found:
        if each is None or isinstance(each, type):
            hint = "Leave it out." if each is None else f"Make one of it: {each.__name__}(...)."
            raise ModelError(f"`callbacks` must be Keras callbacks, but one is {shortened(each)}.", hint=hint)
    return found
