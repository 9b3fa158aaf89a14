"""The question of the batch size: the rate and the memory of the model alone, without a loader, at several sizes.

The batch size is a part of what is trained, so nothing here changes it or recommends one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pydantic

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import ModelSetup
from autopipe.values import Estimate, JsonObject, Value


class OfBatchSize(Value):
    """The model alone with one batch size; `failure` if that could not be measured."""

    batch_size: int = pydantic.Field(ge=1)  # over all devices together
    images_per_second: Estimate | None = None
    peak_rss_bytes: int | None = None  # of the training's processes
    gpu_memory_bytes: int | None = None  # taken on the training's cards; None if it trains on none
    failure: TrialFailure | None = None


class BatchSizes(Value):
    """The answer: a row for each size, the smallest first."""

    schema_version: Literal[1] = 1
    batch_size: int = pydantic.Field(ge=1)  # of the workload
    rows: tuple[OfBatchSize, ...]

    def times(self, row: OfBatchSize) -> float | None:
        """Return a row's rate over that of the workload's own size; None if one of the two was not measured."""
        own = next((each.images_per_second for each in self.rows if each.batch_size == self.batch_size), None)
        return None if own is None or row.images_per_second is None else row.images_per_second.value / own.value


def by_batch_size(runner: TrialRunner, setup: ModelSetup, batch_size: int, sizes: Sequence[int]) -> BatchSizes:
    """Measure the model alone at these sizes, in two rounds, of which the faster reading counts; the workload has
    `batch_size`.

    Memory is that of the first round, which goes from the smallest to the largest: a process keeps what it has taken.
    After a size for which memory is too small, larger ones are not tried.
    """
    rows: dict[int, OfBatchSize] = {}
    full: int | None = None
    for size in sorted(set(sizes)):
        if full is not None:
            message = f"not tried, because a batch of {full} takes too much memory"
            failure = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message=message)
            rows[size] = OfBatchSize(batch_size=size, failure=failure)
            continue
        rows[size] = _row(size, _alone(runner, setup, size, resources=True))
        if (failed := rows[size].failure) is not None and failed.kind is FailureKind.OUT_OF_MEMORY:
            full = size
    for size, row in rows.items():
        if row.images_per_second is None:
            continue
        again = _alone(runner, setup, size, again=True)  # other load can only slow a model down
        if isinstance(again, Ceiling) and again.model_images_per_second.value > row.images_per_second.value:
            rows[size] = row.model_copy(update={"images_per_second": again.model_images_per_second})
    return BatchSizes(batch_size=batch_size, rows=tuple(rows.values()))


def _alone(
    runner: TrialRunner, setup: ModelSetup, size: int, *, resources: bool = False, again: bool = False
) -> Ceiling | TrialFailure:
    options: JsonObject = {"model_only": True, "samples": size, "resources": resources, "again": again}
    return runner.ceiling(setup, options)


def _row(size: int, answer: Ceiling | TrialFailure) -> OfBatchSize:
    if isinstance(answer, TrialFailure):
        return OfBatchSize(batch_size=size, failure=answer)
    used = answer.resources
    return OfBatchSize(
        batch_size=size,
        images_per_second=answer.model_images_per_second,
        peak_rss_bytes=None if used is None else used.peak_rss_bytes,
        gpu_memory_bytes=None if used is None else used.gpu_memory_bytes,
    )
