"""How a trial is measured: what a request may ask for beyond the configuration."""

from __future__ import annotations

from typing import Literal

import pydantic


class MeasureOptions(pydantic.BaseModel):
    """The settings of one measurement.

    Attributes:
        min_seconds: least measured time.
        max_seconds: most measured time.
        half_width: the relative half-width of the interval at which a measurement is good enough.
        hopeless_below: images/s below which a trial may end early; None: never.
        page_cache: whether the files are put into the page cache before the trial ("warm") or out of it ("cold");
            "auto" is cold if the data are larger than memory.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    min_seconds: float = pydantic.Field(default=1.0, gt=0)
    max_seconds: float = pydantic.Field(default=3.0, gt=0)
    half_width: float = pydantic.Field(default=0.03, gt=0, lt=1)
    hopeless_below: float | None = pydantic.Field(default=None, gt=0)
    page_cache: Literal["warm", "cold", "auto"] = "auto"
