"""The true time of a step in training, evaluation and prediction: on a batch that is there, compiled once and warm."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras

from autopipe import frameworks
from autopipe.core import stats
from autopipe.core.mode import Mode
from autopipe.core.step_time import StepTime
from autopipe.core.value import Estimate
from autopipe.measure import alone
from autopipe.measure.resident import ResidentLoader

_KINDS = {Mode.TRAIN: "train", Mode.EVALUATE: "test", Mode.PREDICT: "predict"}
_CHANGES: dict[Mode, tuple[str, ...]] = {
    Mode.TRAIN: ("optimizer", "metrics"),
    Mode.EVALUATE: ("metrics",),
    Mode.PREDICT: (),
}


def step_time(model: keras.Model, loader: ResidentLoader, mode: Mode, seconds: float) -> StepTime:
    """Return how long a step takes, by so many seconds of steps, without compiling. Training changes the model.

    It is compiled, with its steps ready to take the loader's batches.
    """
    kind = _KINDS[mode]
    getattr(model, f"make_{kind}_function")()
    function = getattr(model, f"{kind}_function")
    per_call = model.steps_per_execution
    if mode is Mode.PREDICT and keras.backend.backend() == "tensorflow":
        function = _of_lists(function, per_call)
    state = alone.copied(frameworks.step_state(model, *_CHANGES[mode]))
    batch = loader.spec.packed(next(iter(loader.batches(0))))
    seen = alone.calls(function, state, batch if mode is not Mode.PREDICT else (batch[0],), seconds)
    rate = stats.estimate([per_call * each for each in seen.rates])
    return StepTime(
        mode=mode,
        batch_size=loader.batch_size,
        step_seconds=Estimate(value=1 / rate.value, low=1 / rate.high, high=1 / rate.low),
        first_call_seconds=seen.first_seconds,
        backend=keras.backend.backend(),
    )


def _of_lists(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return Keras's function for predictions on TensorFlow, which takes a list of batches, as one of an iterator."""

    def predict(batches: Iterator[Any]) -> Any:
        return function(list(itertools.islice(batches, count)))

    return predict
