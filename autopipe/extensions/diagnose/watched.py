"""The figures of a watched training, and the verdict on them: how long its steps wait, and for what.

Values and arithmetic only. `onlooker` measures, and `report` writes.
"""

from __future__ import annotations

import enum
import math
from typing import Literal

import pydantic

from autopipe.measure.outcome import Resources
from autopipe.values import Value

MODEL_SHARE = 0.9
"""Of the model's own rate: from it on the model is called the limit."""


class Verdict(enum.StrEnum):
    """The bottleneck of a training."""

    MODEL = "model"  # its steps take as long as they do without any data
    DATA = "data"  # steps wait for batches
    CORES = "cores"  # steps take longer than they do alone, because making batches takes the same cores
    CALLBACKS = "callbacks"  # time goes between steps
    UNKNOWN = "unknown"  # the model alone was not timed


class Watched(Value):
    """Some steps of a training, and the same model on a batch in memory."""

    status: Literal["watched"] = "watched"
    schema_version: Literal[1] = 1
    data: str | None = None  # the kind of the training's data, such as "tf.data.Dataset"; None if unknown
    backend: str  # of Keras
    batch_size: int = pydantic.Field(ge=1)  # samples of a full batch
    steps: int = pydantic.Field(ge=1)  # how many were timed
    images: int = pydantic.Field(ge=1)  # samples in them
    seconds: float = pydantic.Field(gt=0)  # that they took, from the end of the step before
    waiting_seconds: float = pydantic.Field(ge=0)  # the part in which the training's thread waited for a batch
    between_seconds: float = pydantic.Field(ge=0)  # the part between steps: callbacks, the progress bar, Keras
    first_step_seconds: float = pydantic.Field(ge=0)  # the first step of all, which compiles
    # the model on one batch, repeated; None if that could not be timed
    alone_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    augmentation: tuple[str, ...] = ()  # classes of the layers in the model that draw random changes
    # the model alone with these layers passing their input on
    without_augmentation_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    cores: float = pydantic.Field(gt=0)  # that the process may use
    resources: Resources = Resources()  # of the process and all it started
    left_out: tuple[str, ...] = ()  # the user's callbacks that were left out, because they may write files
    warnings: tuple[str, ...] = ()  # doubts about the figures

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds

    @property
    def lost_share(self) -> float | None:
        """The share of the time in which the model could have trained, 0 to 1; None if its own rate is unknown."""
        if self.alone_images_per_second is None:
            return None
        return max(0.0, 1 - self.images_per_second / self.alone_images_per_second)

    @property
    def waiting_share(self) -> float:
        """The share of the time in which the model waited for data, 0 to 1.

        A device may still be busy with the step before while the host waits for a batch, so the model cannot have
        waited for longer than the difference to its own rate.
        """
        lost = self.lost_share
        return min(1.0, self.waiting_seconds / self.seconds, 1.0 if lost is None else lost)

    @property
    def between_share(self) -> float:
        lost = self.lost_share
        left = 1.0 if lost is None else lost - self.waiting_share
        return min(1.0, self.between_seconds / self.seconds, left)

    @property
    def slowed_share(self) -> float:
        """The share of the time by which steps took longer than the model takes alone, 0 to 1."""
        lost = self.lost_share
        return 0.0 if lost is None else max(0.0, lost - self.waiting_share - self.between_share)

    @property
    def possible_gain(self) -> float | None:
        """How many times as fast the training would be if data cost nothing; None if unknown."""
        if self.alone_images_per_second is None:
            return None
        left = 1 - self.waiting_share - self.slowed_share
        return 1 / left if left > 0 else math.inf

    @property
    def augmentation_share(self) -> float | None:
        """The share of the model's own time that its augmentation takes, 0 to 1; None if unknown."""
        alone, without = self.alone_images_per_second, self.without_augmentation_images_per_second
        return None if alone is None or without is None else max(0.0, 1 - alone / without)

    @property
    def verdict(self) -> Verdict:
        """The bottleneck of the training: the largest part of the lost time."""
        lost = self.lost_share
        if lost is None:
            return Verdict.UNKNOWN
        if lost <= 1 - MODEL_SHARE:
            return Verdict.MODEL
        parts = {
            Verdict.DATA: self.waiting_share,
            Verdict.CORES: self.slowed_share,
            Verdict.CALLBACKS: self.between_share,
        }
        return max(parts, key=lambda verdict: parts[verdict])
