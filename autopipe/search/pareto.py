"""Speed against memory against processor time: the configurations that no other beats in all three. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement
from autopipe.core.stats import median
from autopipe.search.objective import merged
from autopipe.search.record import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRow:
    """One configuration that is the best for somebody. None where it was not measured."""

    config: PipelineConfig
    images_per_second: float
    memory_bytes: float | None
    cpu_percent: float | None


def pareto_rows(trials: Iterable[Row]) -> list[ParetoRow]:
    """Return the configurations that none exceeds in speed with no more memory and no more processor time.

    Fastest first; several measurements of one configuration count as one.
    """
    points: dict[str, list[tuple[PipelineConfig, Measurement]]] = {}
    for trial in trials:
        if isinstance(trial.outcome, Measurement):
            points.setdefault(trial.key, []).append((trial.config, trial.outcome))
    rows = [_row(point) for point in points.values()]
    best = [row for row in rows if not any(_beats(other, row) for other in rows)]
    return sorted(best, key=lambda row: -row.images_per_second)


def _row(point: list[tuple[PipelineConfig, Measurement]]) -> ParetoRow:
    took = [measurement.resources for _, measurement in point]
    memory = [float(each.peak_rss_bytes) for each in took if each.peak_rss_bytes is not None]
    cpu = [each.cpu_percent for each in took if each.cpu_percent is not None]
    return ParetoRow(
        config=point[0][0],
        images_per_second=merged([measurement for _, measurement in point]).value,
        memory_bytes=median(memory) if memory else None,
        cpu_percent=median(cpu) if cpu else None,
    )


def _beats(one: ParetoRow, other: ParetoRow) -> bool:
    mine = (one.images_per_second, -(one.memory_bytes or 0.0), -(one.cpu_percent or 0.0))
    theirs = (other.images_per_second, -(other.memory_bytes or 0.0), -(other.cpu_percent or 0.0))
    return mine != theirs and all(a >= b for a, b in zip(mine, theirs, strict=True))
