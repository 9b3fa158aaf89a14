"""How things are measured: what a request may ask for beyond the configuration."""

from __future__ import annotations

import math
from typing import Literal

import pydantic

from autopipe.core.config import OfSetup
from autopipe.measure.windows import StopRule


class _Options(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    # whether files are put into the page cache before ("warm") or out of it ("cold"); "auto": cold where the data are
    # larger than memory
    page_cache: Literal["warm", "cold", "auto"] = "auto"


class MeasureOptions(_Options):
    """The settings of one measurement."""

    min_seconds: float = pydantic.Field(default=1.0, gt=0)  # least measured time
    max_seconds: float = pydantic.Field(default=3.0, gt=0)  # most measured time
    half_width: float = pydantic.Field(default=0.03, gt=0, lt=1)  # of the interval, relative, that is good enough
    hopeless_below: float | None = pydantic.Field(default=None, gt=0)  # images/s; a trial may end early. None: never
    # the reading of `time.monotonic`, one clock for all processes, at which the training ends with what it has
    ends_at: float | None = None
    # of the model alone, for a session that does not measure it itself
    model_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    folder: str | None = None  # where samples that are converted for it are written; None: the temporary folder
    trace: str | None = None  # a folder for notes of what is done when; None: nobody takes any

    @property
    def stop_rule(self) -> StopRule:
        """When the measurement has seen enough."""
        return StopRule(
            min_seconds=self.min_seconds,
            max_seconds=max(self.min_seconds, self.max_seconds),
            half_width=self.half_width,
            hopeless_below=self.hopeless_below,
            ends_at=math.inf if self.ends_at is None else self.ends_at,
        )


class CeilingOptions(OfSetup, _Options):
    """What ceilings are for, beside a setup of the model. Where trials read from the disk, its speed is one, too."""

    model_only: bool = False  # leave out the loader, its ops and the disk, which are the same in every setup
    again: bool = False  # measure the model once more, even if this process has done so
    samples: int | None = pydantic.Field(default=None, ge=1)  # of a batch, over all devices; None for the workload's
    exchange: bool = False  # measure, too, what the exchange of gradients between the devices takes


class StepOptions(OfSetup):
    """What a step is timed with, beside a setup of the model."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    seconds: float = pydantic.Field(default=2.0, gt=0)  # how long to look, without compiling
