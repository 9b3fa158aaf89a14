"""The cost model: from measured costs and a configuration to the rate that each part of the machine allows. Pure.

`bounds` lists the limits that nothing can exceed, for `autopipe.measure.bottleneck` to word; no rate is predicted.
Three costs of an op are kept apart: processor time, waiting, and processor time under Python's lock (GIL), of which an
op of the native library has none. The last section compares the one-time costs of other sample forms with their savings
in each epoch.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autopipe.measure.facts import Ceiling, Description, Facts, LoaderCeiling, OpCost, ReadCosts
from autopipe.measure.outcome import ConversionCost
from autopipe.measure.stats import student_t
from autopipe.pipeline.config import STORAGES, LoaderConfig, PipelineConfig
from autopipe.values import Amount, Estimate, Positive, Value

COPY_SECONDS = 1 / 4e9  # seconds to move one byte in memory, once
_ROOM = 1.25  # times the reads or workers that would just feed the model, as some take longer than others
_MOST_AT_ONCE = 512  # reads, or workers that wait: more were never measured to bring anything
# Of Python's lock, that an op of Python costs for each other thread that runs beside it. Python ops on 16 virtual cores
# lost 9.9 us for each other thread to some eight of them an image; two cores cannot show it.
TURN_SECONDS = 1.2e-6


def known(ceilings: Sequence[Ceiling], facts: Facts | None = None) -> Ceiling:
    """Return the first ceiling with op costs, or else the first, with what the facts know of the workload."""
    measured = next((ceiling for ceiling in ceilings if ceiling.op_costs), ceilings[0])
    if facts is None:
        return measured
    of_workload = {name: getattr(facts.workload, name) for name in ("depths", "compact_bytes", "finished_bytes")}
    return measured.model_copy(update={**of_workload, "cores": measured.cores or facts.cores})


def cores_of_workers(config: PipelineConfig, costs: Ceiling) -> float:
    """The cores that the workers share; infinite if they run elsewhere on an unknown number."""
    if config.loader.works_elsewhere:
        return math.inf if costs.cores_elsewhere is None else costs.cores_elsewhere
    return costs.cores or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a loader for one image on average, with its caches filled."""

    paid: tuple[OpCost, ...]  # the ops, each with the share of the samples that goes through it
    sent_bytes: int  # handed over
    cached: float  # the share of the samples that comes from the memory cache, 0 to 1
    from_source: float  # the share that is read from the source as it is

    @property
    def core_seconds(self) -> float:
        return sum(op.seconds_per_image for op in self.paid)

    @property
    def read_wait_seconds(self) -> float:
        return sum(op.wait_seconds_per_image for op in self.paid if op.name == READ)

    @property
    def op_wait_seconds(self) -> float:
        return sum(op.wait_seconds_per_image for op in self.paid if op.name != READ)


READ, BATCHING = "read", "batching"
"""The names of what is no op among the ops: the read, and what a loader does beside them."""


def python_ops(ops: Sequence[OpCost]) -> list[OpCost]:
    """Return the read and the ops that are Python, sample by sample."""
    return [op for op in ops if not op.native and op.name != BATCHING]


def lock_seconds(ops: Sequence[OpCost], threads: int) -> float:
    """Compute the time of Python's lock that an image takes if so many threads of a process take turns."""
    python = python_ops(ops)
    return sum(op.lock_seconds_per_image for op in python) + len(python) * (threads - 1) * TURN_SECONDS


def work(config: PipelineConfig, costs: LoaderCeiling, *, filled: bool = True) -> Work:
    """Compute the work of a loader for one image, with its caches `filled` or not; samples on the device need none."""
    if filled and config.loader.keeps_on_device:
        return Work(paid=(), sent_bytes=0, cached=1.0, from_source=0.0)
    keeps = config.kept
    cached = keeps.part if filled and keeps.in_memory else 0.0
    missed, converted = 1.0 - cached, keeps.converts
    done = depth(config, costs)
    kept = costs.fixed if done == 0 else costs.fixed[1 + done :]
    # The read from a converted set does not wait: that is a few large files on this machine.
    local = {"wait_seconds_per_image": 0.0}
    prefix = [op.model_copy(update=local) if converted and op.name == READ else op for op in kept]
    spared = 1 if config.kept.encoded else len(prefix)  # a sample in memory spares the read, and the first ops
    paid = [op.times(missed) for op in prefix[:spared] if missed > 0] + prefix[spared:]
    paid += [op for op in costs.op_costs if op.part == "fresh" or (op.part == "finish" and config.finish == "host")]
    return Work(
        paid=tuple(paid),
        sent_bytes=costs.sent_bytes(config.finish),
        cached=cached,
        from_source=0.0 if converted else missed,
    )


def depth(config: PipelineConfig, costs: LoaderCeiling) -> int:
    """Return the number of ops whose result a converted set holds; 0 if `config` converts nothing."""
    keeps = config.kept
    if not keeps.converts:
        return 0
    if isinstance(keeps.cut, int):
        return keeps.cut
    deepest = max(0, len(costs.fixed) - 1) if STORAGES[keeps.form].holds_arrays else 0
    return costs.depths.get(keeps.form, deepest)


def received_core_seconds(does: Work) -> float:
    """Compute the processor time here for an image that was made elsewhere: it is received and copied once."""
    return 2 * does.sent_bytes * COPY_SECONDS


def worker_read_seconds(config: PipelineConfig, does: Work) -> float:
    """Compute a worker's waiting for the reads of one image; 0 if other threads read ahead."""
    return 0.0 if config.loader.reads_ahead() else does.read_wait_seconds


def reads_rate(config: PipelineConfig, does: Work, costs: Ceiling, *, bound: bool = False) -> float | None:
    """Compute the images/s of the storage; None if it is no limit. A `bound` is not lowered if fewer were measured."""
    limits = []
    if costs.reads is not None and does.from_source > 0 and costs.reads.wait_seconds > 0:
        rate = costs.reads.bound_images_per_second if bound else costs.reads.images_per_second
        limits.append(rate(_reads_at_once(config, costs)) / does.from_source)
    if costs.read_bytes_per_second and costs.bytes_per_image and does.from_source > 0:
        limits.append(costs.read_bytes_per_second / costs.bytes_per_image / does.from_source)
    return min(limits, default=None)


def _reads_at_once(config: PipelineConfig, costs: Ceiling) -> int:
    at_once = config.loader.reads_at_once()
    return math.ceil(costs.cores or 1) if at_once is None else max(1, at_once)


def turns(loader: LoaderConfig, cores: float) -> int:
    """Return the number of threads of one process that make samples at a time: at most one for each core."""
    most = math.ceil(cores)
    return min(loader.threads(most), most) if loader.shares_lock() else 1


def _rate(amount: float, each: float) -> float:
    return amount / each if each > 0 else math.inf


class Kind(enum.StrEnum):
    """The kinds of bottleneck. `TRANSFER` is sending a batch to a device, which a CPU does not need."""

    STORAGE_LATENCY = "storage latency"
    STORAGE_BANDWIDTH = "storage bandwidth"
    OP = "op"
    PYTHON_LOCK = "python lock"
    HAND_OVER = "hand-over"
    TRANSFER = "transfer"
    MODEL = "model"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of a configuration."""

    kind: Kind
    images_per_second: float  # the rate it allows
    op: str | None = None  # the op that takes most of it, for those kinds that ops make
    workers: bool = False  # True if it is the number of workers, and not of cores
    elsewhere: bool = False  # True if it is the cores elsewhere
    without_model: float | None = None  # the rate it would allow the loader alone, if the model takes of it, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """All limits of a configuration, with filled caches."""

    limits: tuple[Limit, ...]  # the lowest first; the model's is always among them
    work: Work  # of the loader for an image
    costs: Ceiling  # that the bounds were made of
    config: PipelineConfig

    @property
    def images_per_second(self) -> float:
        return self.limits[0].images_per_second

    @property
    def model_images_per_second(self) -> float:
        return next(each.images_per_second for each in self.limits if each.kind is Kind.MODEL)


def bounds(ceiling: Ceiling, config: PipelineConfig, facts: Facts | None = None) -> Bounds:
    """Compute the limits of a configuration from the measured ceiling of its setup."""
    costs, loader = known([ceiling], facts), config.loader
    does = work(config, costs)
    found = [Limit(kind=Kind.MODEL, images_per_second=ceiling.model_images_per_second.value)]
    if costs.op_costs and costs.cores is not None:
        found += _core_limits(config, does, costs, costs.cores)
    if (rate := reads_rate(config, does, costs, bound=True)) is not None:
        reads, at_once = costs.reads, _reads_at_once(config, costs)
        by_latency = (
            reads is not None
            and rate >= 0.99 * at_once / reads.latency_seconds / does.from_source
            and not (reads.saturated and reads.at_once <= at_once)  # more at a time were seen to bring nothing
        )
        kind = Kind.STORAGE_LATENCY if by_latency else Kind.STORAGE_BANDWIDTH
        found.append(Limit(kind=kind, images_per_second=rate))
    if ceiling.transfer_seconds_per_image and not loader.keeps_on_device:
        found.append(Limit(kind=Kind.TRANSFER, images_per_second=1 / ceiling.transfer_seconds_per_image))
    held = lock_seconds(does.paid, turns(loader, costs.cores or 1.0)) if loader.shares_lock() else 0.0
    if held > 0:
        most = max(python_ops(does.paid), key=lambda op: op.lock_seconds_per_image)
        found.append(Limit(kind=Kind.PYTHON_LOCK, images_per_second=1 / held, op=most.name))
    found.sort(key=lambda limit: limit.images_per_second)
    return Bounds(limits=tuple(found), work=does, costs=costs, config=config)


def _core_limits(config: PipelineConfig, does: Work, costs: Ceiling, cores: float) -> list[Limit]:
    loader, busy = config.loader, does.core_seconds
    here = received_core_seconds(does) if loader.works_elsewhere else busy
    op = max(does.paid, key=lambda op: op.seconds_per_image).name if does.paid else None
    kind = Kind.HAND_OVER if loader.works_elsewhere or loader.keeps_on_device else Kind.OP
    together = _rate(cores, here + costs.model_core_seconds_per_image)
    found = [Limit(kind=kind, images_per_second=together, op=op, without_model=_rate(cores, here))]
    workers, waits = loader.worker_count(), does.op_wait_seconds + worker_read_seconds(config, does)
    # Workers that wait for a quarter of their processor time or less keep the cores busy, apart from errors.
    if workers is not None and (workers < cores or waits > busy / 4 or loader.works_elsewhere):
        allowed, there = _rate(max(1, workers), busy + waits), _rate(cores_of_workers(config, costs), busy)
        if loader.works_elsewhere and there < allowed:
            return [*found, Limit(kind=Kind.OP, images_per_second=there, op=op, elsewhere=True)]
        by_reads = worker_read_seconds(config, does) > busy + does.op_wait_seconds
        kind = Kind.STORAGE_LATENCY if by_reads else Kind.OP
        waited_for = [cost for cost in does.paid if cost.name != READ or not loader.reads_ahead()]
        op = max(waited_for, key=lambda op: op.wall_seconds_per_image).name if waited_for else op
        found.append(Limit(kind=kind, images_per_second=allowed, op=None if by_reads else op, workers=True))
    return found


def one_time_seconds(config: PipelineConfig, costs: Ceiling, samples: int) -> tuple[float, float]:
    """Predict the seconds of converting the data set, and those that filling the cache adds to the first epoch."""
    cores = costs.cores or 1.0
    convert = 0.0
    if config.kept.converts:
        before = costs.fixed[: 1 + depth(config, costs)]
        busy = sum(op.seconds_per_image for op in before) / cores
        convert = samples * max(busy, sum(op.wall_seconds_per_image for op in before) / cores)
    if not config.kept.in_memory and not config.loader.keeps_on_device:
        return convert, 0.0
    made = work(config, costs, filled=False)
    fixed = [op for op in made.paid if op.part == "fixed"][: 1 if config.kept.encoded else None]
    workers = config.loader.worker_count() or cores
    busy = sum(op.seconds_per_image for op in fixed)
    if depth(config, costs) > 0:
        busy += (costs.compact_bytes or 0) * COPY_SECONDS
    waits = 0.0 if config.loader.reads_ahead() else sum(op.wait_seconds_per_image for op in fixed)
    fill = max((busy + waits) / workers, busy / min(workers, cores_of_workers(config, costs)))
    reads = reads_rate(config, made, costs)
    return convert, samples * config.kept.part * max(fill, 1 / reads if reads else 0.0)


def samples_to_make(rate: float, batch_size: int, samples: int) -> int:
    """Count the samples that a trial makes first: those of 1.5 s, in whole batches, of which it has at least four."""
    wanted = min(samples, max(int(rate * 1.5), 4 * batch_size))
    return wanted - wanted % batch_size


# -------------------- useful parallelism


def reads_at_once(ops: Sequence[OpCost], reads: ReadCosts | None, cores: float | None, model: float = math.inf) -> int:
    """Compute how many reads at a time feed the cores, or a `model` of so many images/s; 1 if reads do not wait."""
    if reads is None or not reads.waits:
        return 1
    busy = sum(op.seconds_per_image for op in ops if op.part != "finish")
    target = min((cores or 1) / max(busy, 1e-9), model)
    if reads.saturated:
        target = min(target, reads.best_images_per_second)
    return max(1, min(_MOST_AT_ONCE, math.ceil(_ROOM * target * reads.latency_seconds)))


def workers_at_once(
    ops: Sequence[OpCost], cores: float | None, model: float = math.inf, *, reading: bool = True
) -> int:
    """Compute how many workers, with or without `reading`, busy all cores although they wait, or feed a `model`."""
    there = math.ceil(cores or 1)
    busy = max(sum(op.seconds_per_image for op in ops), 1e-9)
    waits = sum(op.wait_seconds_per_image for op in ops if reading or op.name != READ)
    wanted = min(there / busy, _ROOM * model) * (busy + waits)
    return max(there, min(_MOST_AT_ONCE, math.ceil(wanted)))


class CostProfile(Value):
    """The costs of feeding a training in one way."""

    images_per_second: Positive  # its steady rate
    once_seconds: Amount = 0.0  # paid once beyond that rate: conversion, filling a cache, waiting for the first batch

    def seconds(self, epochs: float, samples: int) -> float:
        return self.once_seconds + epochs * samples / self.images_per_second


def conversion_seconds(cost: ConversionCost, samples: int) -> Estimate:
    """Estimate the seconds to convert `samples` samples, extrapolated from a part. The estimate is the part's seconds a
    sample over all its shards, times the samples, plus once the time that the part took beyond its shards. The interval
    is Student's 95 % of that ratio, from the variation of the shards; it does not cover a disk that slows down later.
    """
    seconds, counts = cost.shard_seconds, cost.shard_samples
    samples = cost.whole or samples
    per_sample = sum(seconds) / sum(counts)
    side_by_side = min(cost.workers, len(seconds))
    besides = max(0.0, cost.seconds - sum(seconds) / side_by_side)
    whole = per_sample * samples / side_by_side
    value, shards = besides + whole, len(seconds)
    if shards < 2:
        return Estimate(value=value, low=value, high=value)
    strays = [took - per_sample * count for took, count in zip(seconds, counts, strict=True)]
    spread = math.sqrt(sum(stray**2 for stray in strays) / (shards - 1))
    reach = student_t(shards - 1) * spread / math.sqrt(shards) / (sum(counts) / shards)
    reach = min(whole, reach * samples / side_by_side)
    return Estimate(value=value, low=value - reach, high=value + reach)


def epochs_to_pay(kept: CostProfile, rival: CostProfile, samples: int) -> float | None:
    """Return the epochs after which `kept` has caught up with `rival`; 0 if at once, None if never."""
    saved = saved_seconds(kept, rival, samples)
    return None if saved <= 0 else max(0.0, (kept.once_seconds - rival.once_seconds) / saved)


def saved_seconds(kept: CostProfile, rival: CostProfile, samples: int) -> float:
    """Compute the seconds saved in each epoch; negative if `kept` is slower."""
    return samples / rival.images_per_second - samples / kept.images_per_second


# -------------------- memory and disk space


def memory_bytes(config: PipelineConfig, workload: Description) -> int:
    """Return the bytes of caches and of the queues ahead of the model, as far as they are known."""
    return (cache_bytes(config, workload) or 0) + _queue_bytes(config, workload) + validation_bytes(config, workload)


def validation_bytes(config: PipelineConfig, workload: Description, workers_bytes: int = 0) -> int:
    """Return the bytes of validation's own loader, with its cache, queue and worker processes; 0 without one."""
    if not workload.validation:
        return 0
    other = config.in_evaluation(math.ceil(workload.validation / workload.batch_size))
    workers = workers_bytes * (other.loader.worker_count() or 1) // (config.loader.worker_count() or 1)
    return validation_cache_bytes(other, workload) + _queue_bytes(other, workload) + workers


def validation_cache_bytes(config: PipelineConfig, workload: Description) -> int:
    """Estimate the bytes of validation's samples in a full cache: each takes as much as one of the training."""
    return (cache_bytes(config, workload) or 0) * workload.validation // max(1, workload.samples)


def cache_bytes(config: PipelineConfig, workload: Description) -> int | None:
    """Return the bytes of the configuration's full cache; None if not known."""
    whole = whole_cache_bytes(config, workload) if config.kept.in_memory else 0
    return None if whole is None else int(whole * config.kept.part)


def whole_cache_bytes(config: PipelineConfig, workload: Description) -> int | None:
    """Return the bytes of such a cache of all samples; None if not known."""
    return int(workload.mean_bytes * workload.samples) if config.kept.encoded else workload.fixed_bytes


def kept_bytes(config: PipelineConfig, workload: Description) -> int | None:
    """Return the bytes of the configuration's converted samples on disk; None if not known."""
    keeps = config.kept
    sizes = workload.cuts.get(keeps.form, {})
    if not sizes:
        return workload.fixed_bytes if keeps.converts and STORAGES[keeps.form].holds_arrays else None
    return sizes.get(keeps.cut if isinstance(keeps.cut, int) else max(sizes))


def _queue_bytes(config: PipelineConfig, workload: Description) -> int:
    """Return the most bytes of batches and read-ahead samples in queues; 0 if not known."""
    batch_bytes = workload.batch_size * (workload.finished_bytes if config.finish == "host" else workload.compact_bytes)
    held = config.loader.held_batches(batch_bytes, config.model_setup)
    ahead = config.loader.samples_ahead(workload.batch_size)
    return 0 if held is None else held * batch_bytes + int(ahead * workload.mean_bytes)
