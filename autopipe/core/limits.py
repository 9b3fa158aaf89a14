"""What limits a configuration: the rate that each part of the machine allows it.

Pure arithmetic on `autopipe.core.costs`, without the corrections of a prediction: nothing can be faster than this.
Which of them is in the way, and how that is said, is `autopipe.core.bottleneck`'s.
"""

from __future__ import annotations

import dataclasses
import enum
import math

from autopipe.core import costs as cost_model
from autopipe.core.ceiling import Ceiling
from autopipe.core.config import PipelineConfig
from autopipe.core.costs import Costs, Work
from autopipe.core.facts import Facts

_MUCH = 0.25  # of the processor time: workers who wait for less keep the cores busy, but for what was measured badly


class Kind(enum.StrEnum):
    """What a bottleneck can be. `TRANSFER` is sending a batch to a device, which a CPU needs not."""

    STORAGE_LATENCY = "storage latency"
    STORAGE_BANDWIDTH = "storage bandwidth"
    OP = "op"
    PYTHON_LOCK = "python lock"
    HAND_OVER = "hand-over"
    TRANSFER = "transfer"
    MODEL = "model"
    MEMORY = "memory"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of a configuration."""

    kind: Kind
    images_per_second: float  # the rate it allows
    op: str | None = None  # the op that takes most of it, for those kinds that ops make
    workers: bool = False  # whether it is the number of workers, and not of cores
    elsewhere: bool = False  # whether it is the cores elsewhere
    without_model: float | None = None  # the rate it would allow the loader alone, where the model takes of it, too


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of a configuration; caches count as filled."""

    limits: tuple[Limit, ...]  # the lowest first; the model's is always among them
    work: Work  # what the loader does for an image
    costs: Costs  # what they were made of
    config: PipelineConfig

    @property
    def images_per_second(self) -> float:
        """The most that the configuration can reach."""
        return self.limits[0].images_per_second

    @property
    def model_images_per_second(self) -> float:
        """The model alone."""
        return next(each.images_per_second for each in self.limits if each.kind is Kind.MODEL)


def limits(ceiling: Ceiling, config: PipelineConfig, facts: Facts | None = None) -> Limits:
    """Return the limits of a configuration from what was measured in its setup of the model."""
    costs = Costs.of([ceiling], facts)
    does = cost_model.work(config, costs)
    found = [Limit(kind=Kind.MODEL, images_per_second=ceiling.model_images_per_second.value)]
    if costs.ops and costs.cores is not None:
        found += _core_limits(config, costs, does)
    found += _storage_limits(config, costs, does)
    if ceiling.transfer_seconds_per_image:
        found.append(Limit(kind=Kind.TRANSFER, images_per_second=1 / ceiling.transfer_seconds_per_image))
    held = cost_model.lock_rate(config, does)
    if held is not None:
        most = max(does.paid, key=lambda op: op.lock_seconds_per_image)
        found.append(Limit(kind=Kind.PYTHON_LOCK, images_per_second=held, op=most.name))
    found.sort(key=lambda each: each.images_per_second)
    return Limits(limits=tuple(found), work=does, costs=costs, config=config)


def _core_limits(config: PipelineConfig, costs: Costs, does: Work) -> list[Limit]:
    cores, busy, elsewhere = costs.cores or 1.0, does.core_seconds, config.loader.works_elsewhere
    op = max(does.paid, key=lambda op: op.seconds_per_image).name if does.paid else None
    here = cost_model.received_core_seconds(does) if elsewhere else busy
    kind = Kind.HAND_OVER if elsewhere else Kind.OP
    rate = _rate(cores, costs.model_core_seconds + here)
    found = [Limit(kind=kind, images_per_second=rate, op=op, without_model=_rate(cores, here))]
    workers = config.loader.worker_count()
    reads = worker_read_seconds(config, does)
    waits = reads + does.op_wait_seconds
    if workers is not None and (workers < cores or waits > _MUCH * busy or elsewhere):
        by_reads = reads > busy + does.op_wait_seconds
        kind = Kind.STORAGE_LATENCY if by_reads else Kind.OP
        waited_for = [each for each in does.paid if each.name != cost_model.READ or not config.loader.reads_ahead()]
        op = max(waited_for, key=lambda op: op.wall_seconds_per_image).name if waited_for else op
        rate, there = _rate(max(1, workers), busy + waits), _rate(costs.cores_of_workers(config), busy)
        if elsewhere and there < rate:
            most = max(does.paid, key=lambda op: op.seconds_per_image).name
            return [*found, Limit(kind=Kind.OP, images_per_second=there, op=most, elsewhere=True)]
        found.append(Limit(kind=kind, images_per_second=rate, op=None if by_reads else op, workers=True))
    return found


def worker_read_seconds(config: PipelineConfig, does: Work) -> float:
    """Return how long a worker waits for the reads of one image: not at all where others read ahead for it."""
    return 0.0 if config.loader.reads_ahead() else does.read_wait_seconds


def _storage_limits(config: PipelineConfig, costs: Costs, does: Work) -> list[Limit]:
    rate = cost_model.reads_rate(config, does, costs, bound=True)
    if rate is None:
        return []
    reads = costs.reads
    at_once = config.loader.reads_at_once() or math.ceil(costs.cores or 1)
    by_latency = (
        reads is not None
        and rate >= 0.99 * max(1, at_once) / reads.latency_seconds / does.from_source
        and not (reads.saturated and reads.at_once <= at_once)  # more at a time were seen to bring nothing
    )
    return [Limit(kind=Kind.STORAGE_LATENCY if by_latency else Kind.STORAGE_BANDWIDTH, images_per_second=rate)]


def _rate(amount: float, each: float) -> float:
    return amount / each if each > 0 else math.inf
