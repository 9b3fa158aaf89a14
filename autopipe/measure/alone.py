"""The model alone: its rate on one batch that is passed to its training function over and over, with no loader.

The model's variables are as before afterwards. The training function is Keras's own, as `fit` calls it: TensorFlow's
takes batches, JAX's takes the state first and returns it, torch's takes a list of one batch. Nothing here reads data.
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

_OTHERS = {"AugMix", "CutMix", "MixUp", "RandAugment"}  # that Keras ships besides those called Random...


def augmenting_layers(model: Any) -> list[Any]:
    """Return the augmenting layers (Random*) of a model, at any depth; they change nothing outside of training."""
    return [
        layer
        for layer in frameworks.layers(model)
        if any(kind.__name__.startswith("Random") or kind.__name__ in _OTHERS for kind in type(layer).__mro__)
        and "training" in inspect.signature(layer.call).parameters
    ]


@contextlib.contextmanager
def turned_off(layers: Sequence[Any]) -> Iterator[None]:
    """Make these layers behave in training as in prediction."""
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(standing_in(layer, "call", _as_in_prediction(layer.call)))
        yield


def _as_in_prediction(call: Callable[..., Any]) -> Callable[..., Any]:
    def predicting(*inputs: Any, **others: Any) -> Any:
        return call(*inputs, **{**others, "training": False})

    return predicting


_WARM_UP_STEPS = 2
_WINDOWS = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Durations of calls of a function."""

    first_seconds: float  # the first one, which compiles if that was not done
    rates: tuple[float, ...]  # calls a second, window by window, warm

    @property
    def fastest(self) -> float:
        """The median of the faster half; other load on the machine can only make a call slower."""
        return median(sorted(self.rates)[len(self.rates) // 2 :])


def calls(function: Callable[..., Any], state: tuple[Any, ...], batch: Any, seconds: float) -> Calls:
    """Time calls of a model's function for so many seconds, compilation not included.

    Its `state` is a copy, which a call may use up, and empty if the model holds it; `batch` is an item of its iterator.
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
    """Copy a state; a step on JAX donates the arrays of the original."""
    made: tuple[Any, ...] = keras.tree.map_structure(keras.ops.copy, state)
    return made


@contextlib.contextmanager
def unchanged(model: Any) -> Iterator[None]:
    """Restore the variables of the model, its optimizer and its metrics when the block ends."""
    kept = [(variable, variable.numpy().copy()) for variable in frameworks.held_variables(model)]
    try:
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def function_without(model: Any, layers: list[Any]) -> Callable[..., Any]:
    """Make the model's training function as Keras does, for calls while `layers` are turned off."""
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
