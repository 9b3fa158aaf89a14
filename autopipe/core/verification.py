"""Whether configurations give the batches that the workload asks for, and whether its samples can be used at all."""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.core.config import PipelineConfig
from autopipe.core.value import Value


class Agreement(Value):
    """Whether one configuration gives the batches that the workload asks for."""

    config: PipelineConfig
    digest: str  # of all batches it gave; equal digests mean equal batches, and none that it could not run
    samples: int = pydantic.Field(ge=0)
    # between a pixel and that of the reference configuration
    largest_difference: float = pydantic.Field(default=0.0, ge=0)
    largest_value: float = pydantic.Field(default=0.0, ge=0)  # of any pixel in the reference, which tells its scale
    missing: int = pydantic.Field(default=0, ge=0)  # samples that never came
    repeated: int = pydantic.Field(default=0, ge=0)  # samples that came more than once in an epoch
    message: str | None = None  # what else differs; or why it could not run, if so

    @property
    def has_run(self) -> bool:
        """Whether it gave batches."""
        return bool(self.digest)


class Verification(Value):
    """Configurations side by side: do they give the same batches?"""

    status: Literal["verified"] = "verified"
    schema_version: Literal[1] = 1
    compared: bool = True  # whether batches were; those of a wrapped dataset were only looked at
    agreements: tuple[Agreement, ...]


class BadFile(Value):
    """A sample that a training would stop at."""

    index: int = pydantic.Field(ge=0)
    name: str  # the path of its file, or what else a person calls it
    reason: str  # what is wrong with it


class FileVerification(Value):
    """A look at every sample of a workload."""

    status: Literal["inspected"] = "inspected"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=0)  # how many there are
    resumed: int = pydantic.Field(default=0, ge=0)  # that an earlier look, which was stopped, had found good
    bad: tuple[BadFile, ...]  # those that cannot be used, in order
