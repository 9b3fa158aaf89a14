"""A training function on one batch, again and again: the rate of a model that never waits, and none of its variables
changed by it.

The function is Keras's own, as `fit` calls it: TensorFlow's takes batches, JAX's takes the state first and returns it,
torch's takes a list of one batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import keras

from autopipe import frameworks
from autopipe.measure.probe import wait_for_device
from autopipe.workload.workload import standing_in

# -------------------- augmentation
# Layers of a model that draw random changes of its input in training, and the model without them.


_OTHERS = {"AugMix", "CutMix", "MixUp", "RandAugment"}  # that Keras ships besides those called Random...


def augmenting_layers(model: Any) -> list[Any]:
    """Return the layers of the Random* kind in a model, at any depth, that let everything pass when not in training."""
    return [
        layer
        for layer in frameworks.layers(model)
        if any(kind.__name__.startswith("Random") or kind.__name__ in _OTHERS for kind in type(layer).__mro__)
        and "training" in inspect.signature(layer.call).parameters
    ]


@contextlib.contextmanager
def turned_off(layers: Sequence[Any]) -> Iterator[None]:
    """Let these layers do in training what they do when a model predicts."""
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(standing_in(layer, "call", _as_in_prediction(layer.call)))
        yield


def _as_in_prediction(call: Callable[..., Any]) -> Callable[..., Any]:
    def predicting(*inputs: Any, **others: Any) -> Any:
        return call(*inputs, **{**others, "training": False})

    return predicting


# -------------------- alone


_WARM_UP_STEPS = 2
_WINDOWS = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What was seen of the calls of a function."""

    first_seconds: float  # the first one, which compiles if that was not done
    rates: tuple[float, ...]  # calls a second, window by window, warm

    @property
    def fastest(self) -> float:
        """The median of the faster half: whoever else is busy on this machine can only slow it down."""
        return median(sorted(self.rates)[len(self.rates) // 2 :])


def calls(function: Callable[..., Any], state: tuple[Any, ...], batch: Any, seconds: float) -> Calls:
    """Call a model's function again and again, for so many seconds without compiling, and return how long that took.

    Its `state` is a copy, which may be used up, and empty where the model holds it; `batch` is what its iterator gives.
    """
    batches = itertools.repeat(batch)
    began = time.perf_counter()
    logs, state = _call(function, state, batches)
    wait_for_device(logs)
    first_seconds = time.perf_counter() - began
    rates = []
    began = time.perf_counter()
    for _ in range(_WARM_UP_STEPS):
        logs, state = _call(function, state, batches)
    wait_for_device(logs)
    step_seconds = max(time.perf_counter() - began, 1e-6) / _WARM_UP_STEPS
    windows = max(3, min(_WINDOWS, int(seconds / step_seconds)))
    count = max(1, int(seconds / windows / step_seconds))
    for _ in range(windows):
        began = time.perf_counter()
        for _ in range(count):
            logs, state = _call(function, state, batches)
        wait_for_device(logs)
        rates.append(count / max(time.perf_counter() - began, 1e-9))
    return Calls(first_seconds=first_seconds, rates=tuple(rates))


def _call(function: Callable[..., Any], state: tuple[Any, ...], batches: Iterator[Any]) -> tuple[Any, tuple[Any, ...]]:
    given = [next(batches)] if keras.backend.backend() == "torch" else batches
    result = function(*state, given)
    return (result[0], tuple(result[1:])) if state else (result, ())


def copied(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a copy of a state, whose arrays a step on JAX uses up."""
    made: tuple[Any, ...] = keras.tree.map_structure(keras.ops.copy, state)
    return made


@contextlib.contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """Put the model's variables, its optimizer's and its metrics' back to what they were."""
    kept = [(variable, variable.numpy().copy()) for variable in frameworks.held_variables(model)]
    try:
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def function_without(model: Any, layers: list[Any]) -> Callable[..., Any]:
    """Return the model's training function as Keras makes it, to be called while `layers` are turned off."""
    owners_function, step = model.train_function, model.train_step
    with standing_in(model, "train_step", lambda *given: step(*given)):  # frameworks know the first one's trace
        try:
            model.make_train_function(force=True)
            function = model.train_function
        finally:
            model.train_function = owners_function

    def without(*arguments: Any) -> Any:
        with turned_off(layers):  # it is traced at its first call
            return function(*arguments)

    return without
