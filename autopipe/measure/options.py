"""How things are measured: what a request may ask for beyond the configuration."""

from __future__ import annotations

from typing import Literal

import pydantic

from autopipe.core.config import OfSetup
from autopipe.measure.windows import StopRule


class _Options(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    page_cache: Literal["warm", "cold", "auto"] = "auto"


class MeasureOptions(_Options):
    """The settings of one measurement.

    Attributes:
        page_cache: whether the files are put into the page cache before the trial ("warm") or out of it ("cold");
            "auto" is cold if the data are larger than memory.
        min_seconds: least measured time.
        max_seconds: most measured time.
        half_width: the relative half-width of the interval at which a measurement is good enough.
        hopeless_below: images/s below which a trial may end early; None: never.
        model_images_per_second: of the model alone, for a session that does not measure it itself.
        trace: a folder for notes of what is done when; None: nobody takes any.
    """

    min_seconds: float = pydantic.Field(default=1.0, gt=0)
    max_seconds: float = pydantic.Field(default=3.0, gt=0)
    half_width: float = pydantic.Field(default=0.03, gt=0, lt=1)
    hopeless_below: float | None = pydantic.Field(default=None, gt=0)
    model_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    trace: str | None = None

    @property
    def stop_rule(self) -> StopRule:
        """When the measurement has seen enough."""
        return StopRule(
            min_seconds=self.min_seconds,
            max_seconds=max(self.min_seconds, self.max_seconds),
            half_width=self.half_width,
            hopeless_below=self.hopeless_below,
        )


class CeilingOptions(OfSetup, _Options):
    """What ceilings are for, beside a setup of the model.

    Attributes:
        page_cache: as in `MeasureOptions`; where trials read from the disk, its speed is a ceiling, too.
        model_only: leave out the loader, its ops and the disk, which are the same in every setup.
        again: measure the model once more, even if this process has done so.
        samples: of a batch, over all devices; None for the workload's batch size.
        exchange: measure, too, what the exchange of gradients between the devices takes.
    """

    model_only: bool = False
    again: bool = False
    samples: int | None = pydantic.Field(default=None, ge=1)
    exchange: bool = False


class StepOptions(OfSetup):
    """What a step is timed with, beside a setup of the model.

    Attributes:
        seconds: how long to look, without compiling.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    seconds: float = pydantic.Field(default=2.0, gt=0)
