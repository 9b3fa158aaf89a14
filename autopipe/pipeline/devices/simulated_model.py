"""The models that stand in the place of a user's: Keras's own `fit` around steps that only take time, or around a
function of a batch.

Apart from `simulated` because it imports Keras.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from autopipe.pipeline.devices.simulated import SimulatedAccelerator, Timeline
from autopipe.pipeline.wrap import OwnStep
from autopipe.workload.sample import leaves


@dataclasses.dataclass
class _Loss:
    """A zero that is known when the step which computes it is over."""

    timeline: Timeline
    known_at: float

    def __float__(self) -> float:
        self.timeline.wait_until(self.known_at)
        return 0.0


@dataclasses.dataclass
class _Result:
    """What a user's step returned, of which an array is known when the step is over."""

    value: Any

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        detach = getattr(self.value, "detach", None)  # of torch
        return np.asarray(self.value if detach is None else detach().cpu())


@keras.saving.register_keras_serializable(package="autopipe")
class StepModel(keras.Model):
    """Calls a function of the user's with each batch from its iterator."""

    takes_arrays = True
    """Batches stay NumPy arrays on the host: the step places them."""

    def __init__(self, step: OwnStep) -> None:
        """Compile at once."""
        super().__init__()
        self.stands_for = step
        self.built = True
        self.compile(optimizer="sgd", jit_compile=False)

    def call(self, inputs: Any) -> Any:
        return keras.ops.zeros((1, 1))

    def make_train_function(self, force: bool = False) -> None:
        step = self.stands_for

        def stepped(batch: Any) -> Any:
            return {"step": keras.tree.map_structure(_Result, step.function(step.shaped(batch)))}

        self.train_function = _function(stepped)

    def get_metrics_result(self) -> dict[str, Any]:
        return {}


@keras.saving.register_keras_serializable(package="autopipe")
class SimulatedModel(keras.Model):
    """Takes each batch from its iterator and lets `seconds` go by; learns nothing."""

    def __init__(self, step_seconds: float, batch_size: int | None = None, **keras_arguments: Any) -> None:
        """Compile at once. The arguments of Keras are for a saved model that is loaded."""
        super().__init__(**keras_arguments)
        self.stands_for, self.timeline = SimulatedAccelerator(step_seconds, batch_size), Timeline()
        self.built = True
        self.compile(optimizer="sgd", jit_compile=False)

    def call(self, inputs: Any) -> Any:
        return keras.ops.zeros((keras.ops.shape(inputs)[0], 1))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | dataclasses.asdict(self.stands_for)

    def get_compile_config(self) -> None:
        """Return None: `__init__` compiles."""

    def make_train_function(self, force: bool = False) -> None:
        self.train_function = self._function(lambda x, loss: {"loss": loss})

    def make_test_function(self, force: bool = False) -> None:
        self.test_function = self._function(lambda x, loss: {"loss": loss})

    def make_predict_function(self, force: bool = False) -> None:
        self.predict_function = self._function(lambda x, loss: keras.ops.zeros((_rows(x), 1)))

    def get_metrics_result(self) -> dict[str, Any]:
        """Wait for the device, as reading a metric does."""
        self.timeline.wait()
        return {"loss": 0.0}

    def _function(self, result: Callable[[Any, _Loss], Any]) -> Callable[..., Any]:
        def step(batch: Any) -> Any:
            x = batch[0] if isinstance(batch, tuple) else batch
            first, *others = _parts(x)
            devices = len(others) + len(getattr(getattr(first, "sharding", None), "device_set", (0,)))
            ends = self.timeline.start(self.stands_for.seconds(_rows(x) // devices))
            return result(x, _Loss(self.timeline, ends))

        return _function(step)


def _function(step: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a step as the compiled function that `fit` calls."""
    if keras.backend.backend() == "jax":
        return lambda state, batches: (step(next(batches)), state)
    return lambda batches: step(batches[0] if isinstance(batches, list) else next(batches))


def _parts(x: Any) -> tuple[Any, ...]:
    """Return the first array of a batch, or its parts if tf.distribute has shared it."""
    x = leaves(x)[0]
    parts = getattr(x, "values", None)
    return parts if isinstance(parts, tuple) else (x,)


def _rows(x: Any) -> int:
    return sum(int(part.shape[0]) for part in _parts(x))
