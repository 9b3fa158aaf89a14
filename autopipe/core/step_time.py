"""How long one step of a model takes when it never waits, in training, evaluation or prediction. A value."""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.core.mode import Mode
from autopipe.core.value import Estimate, Value


class StepTime(Value):
    """The steps of a model on one batch that is already on the device.

    Attributes:
        mode: what a step does.
        batch_size: samples in a step.
        step_seconds: one step, compiled and warm.
        first_call_seconds: the first call of all, which traces and compiles, and then does a step.
        backend: of Keras.
    """

    status: Literal["step"] = "step"
    schema_version: Literal[1] = 1
    mode: Mode
    batch_size: int = pydantic.Field(ge=1)
    step_seconds: Estimate
    first_call_seconds: float = pydantic.Field(ge=0)
    backend: str

    @property
    def images_per_second(self) -> float:
        """The rate of such steps."""
        return self.batch_size / self.step_seconds.value
