"""All that was measured of one configuration."""

from __future__ import annotations

from dataclasses import dataclass

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement
from autopipe.core.value import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """All that was measured of one configuration.

    Attributes:
        config: the configuration.
        key: of its canonical form.
        measurements: oldest first, at least one.
        estimate: images/s over all their windows.
        value: what the study maximises.
        feasible: whether it is what the user allows, by its settings and by every measurement.
    """

    config: PipelineConfig
    key: str
    measurements: tuple[Measurement, ...]
    estimate: Estimate
    value: float
    feasible: bool
