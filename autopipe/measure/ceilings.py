"""Measures ceilings, which no configuration can exceed: the model alone, the loader alone, its ops and the disk.

The loader alone is timed in rounds, in each of which every worker makes a batch. Workers that begin together also end
together, so only the rate over whole rounds is meaningful.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autopipe import native
from autopipe.errors import LoaderError
from autopipe.hardware import disk, machine
from autopipe.measure import op_costs, stats
from autopipe.measure.costs import READ
from autopipe.measure.facts import LoaderCeiling, OpCost, ReadCosts
from autopipe.measure.feed import PageCache, existing
from autopipe.measure.op_costs import Clock
from autopipe.measure.outcome import Report
from autopipe.pipeline import assembly
from autopipe.pipeline import loader as job
from autopipe.pipeline.config import CACHE_SHARE, ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.values import Estimate
from autopipe.workload.data import source as data_source
from autopipe.workload.data.source import Subset
from autopipe.workload.op import Plan
from autopipe.workload.sample import Batch
from autopipe.workload.workload import Workload

_ROUND_SECONDS = 2.0  # predicted, of a loader alone; about four of them run
_PATIENCE_SECONDS = 10.0  # with a round that takes far longer than was predicted: a part of it has to do


def timed(
    batches: Iterator[Batch],
    workers: int,
    size: int,
    seconds: float,
    alive: Callable[[], object] = lambda: None,
    clock: Clock = lambda: (time.monotonic(), time.process_time()),
) -> tuple[Estimate, float]:
    """Measure images/s of endless `batches` of `size` images without a model, and the core-seconds of an image. Each of
    the `workers` makes one batch at a time. It takes at least `seconds`; `alive` is called at each batch.
    """
    began = clock()[0]
    for _ in range(workers + 2):
        next(batches)
        alive()
        if clock()[0] - began >= _PATIENCE_SECONDS:
            break
    images = 0
    wall, busy_before = clock()
    times, counts = [wall], [0]
    while times[-1] - times[0] < seconds or len(times) < 3:
        images += len(next(batches)[0])
        alive()
        now = clock()[0]
        whole = images - counts[-1] >= workers * size
        if now - times[-1] >= (0.05 if whole else _PATIENCE_SECONDS):
            times.append(now)
            counts.append(images)
    core_seconds = (clock()[1] - busy_before) / images
    spans, sums = itertools.pairwise(times), itertools.pairwise(counts)
    rates = [(after - before) / (end - begin) for (begin, end), (before, after) in zip(spans, sums, strict=True)]
    return stats.estimate(rates), core_seconds


_SAMPLES = 400  # that a loader alone goes through, again and again, and that ops and the disk are timed on
_SECONDS = 0.6  # of the loader alone
_COLD_READS = 4000  # samples that are read if none may be in memory; 64 at a time take as many in a second


def loader_ceiling(workload: Workload, plan: Plan, pages: PageCache, report: Report) -> LoaderCeiling:
    """Measure reads and ops, and run the loader alone, with and without a memory cache.

    Reads are measured in the state of the page cache in which trials find the files; all else finds them there. The
    rate of the disk is measured only if trials read from it.
    """
    part = dataclasses.replace(workload, data=Subset(workload.data, max(_SAMPLES, workload.batch_size)))
    order = np.random.default_rng(workload.seed).permutation(len(part.data)).tolist()
    report.progress(0, 0.0)  # a sign of life, here and below: a read or a batch may take seconds
    reading = _reading(workload, part, order, pages)
    report.progress(0, 0.0)
    PageCache(part.data, "warm").prepare(data_source.files(part.data))
    single, tail = op_costs.op_costs(part, plan, order[:_SAMPLES])
    report.progress(0, 0.0)
    single = op_costs.as_made(single, part, plan, order[:_SAMPLES])
    report.progress(0, 0.0)
    ops = op_costs.with_lock(single, part, plan, order, lambda: report.progress(0, 0.0))
    report.progress(0, 0.0)
    loader = _loader(workload, plan, reading)
    part = dataclasses.replace(part, batch_size=batch_size(part.batch_size, loader, ops, reading))
    if reading is not None:  # reads wait as they do in the state of the page cache in which trials find the files
        ops = (ops[0].model_copy(update={"wait_seconds_per_image": reading.wait_seconds}), *ops[1:])
    rate, whole = run(part, plan, PipelineConfig(loader=loader), _SECONDS, report)
    cached: float | None = None
    if plan.prefix or plan.source.is_fixed:
        in_time = max(part.batch_size, min(_SAMPLES, len(workload.data), int(rate.value * _SECONDS)))
        in_time -= in_time % part.batch_size  # an incomplete batch is in no cache, and read in the next epoch
        few = dataclasses.replace(part, data=data_source.part(workload.data, in_time))
        with contextlib.suppress(LoaderError):  # there is no room for it
            _, cached = run(few, plan, PipelineConfig(loader=loader, keep="memory"), 0.25, report)
    return LoaderCeiling(
        loader_images_per_second=rate,
        op_costs=op_costs.fitted(ops, whole, cached),
        not_native=native.why_not(),
        reads=reading,
        tail=tail,
        read_bytes_per_second=_read_bytes_per_second(workload, reading) if pages.regime == "cold" else None,
        compact_bytes=plan.compact.bytes,
        finished_bytes=plan.finished.bytes,
    )


def _reading(workload: Workload, part: Workload, order: list[int], pages: PageCache) -> ReadCosts | None:
    data = part.data
    if pages.regime == "cold":
        data = Subset(workload.data, max(_COLD_READS, workload.batch_size))
        order = np.random.default_rng(workload.seed).permutation(len(data)).tolist()
    prepare = functools.partial(pages.prepare, data_source.files(data))
    return op_costs.read_costs(data, order, data_source.mean_bytes(workload.data), prepare=prepare)


def _read_bytes_per_second(workload: Workload, reading: ReadCosts | None) -> float | None:
    readers = 4 if reading is None else max(4, min(op_costs.MOST_READERS, reading.at_once))
    paths = existing(dict.fromkeys(data_source.files(Subset(workload.data, _SAMPLES))))
    return disk.read_bytes_per_second(paths, readers=readers) if paths else None


def _loader(workload: Workload, plan: Plan, reading: ReadCosts | None) -> Threads:
    """Make a loader with all cores busy even if reads wait; fewer workers if memory is short."""
    read_ahead = 0 if reading is None or not reading.waits else min(op_costs.MOST_READERS, reading.at_once)
    cores, batch_bytes = machine.usable_cores(), plan.compact.bytes * workload.batch_size
    queue_size, in_hand = 4, 2  # batches that wait, and that their taker holds
    together = job.at_a_time(batch_bytes, queue_size, ModelSetup())
    room = int(CACHE_SHARE * machine.detect_memory().available_bytes / max(1, together * batch_bytes)) - in_hand
    queue_size = queue_size if room >= cores + queue_size else 1
    return Threads(workers=max(1, min(cores, room - queue_size)), queue_size=queue_size, read_ahead=read_ahead)


def batch_size(wanted: int, loader: Threads, ops: Sequence[OpCost], reading: ReadCosts | None) -> int:
    """Return the batch size of the loader alone: the wanted one, or less if a round of such batches would take long.

    Rounds are long only if an image takes milliseconds, and then it costs the same in a smaller batch. Reads count as
    waiting only if they waited when ops were timed.
    """
    ahead = loader.reads_ahead()
    made = [op.seconds_per_image if ahead and op.name == READ else op.wall_seconds_per_image for op in ops]
    rate = loader.workers / max(sum(made), 1e-9)
    if reading is not None and ops[0].wait_seconds_per_image > 0:
        rate = min(rate, reading.images_per_second(loader.reads_at_once() or loader.workers))
    return max(1, min(wanted, int(_ROUND_SECONDS * rate / loader.workers)))


def few(workload: Workload, config: PipelineConfig, pages: PageCache, rate: float | None) -> Workload:
    """Return a workload of few samples and, if a batch takes long at `rate` images/s, of smaller batches."""
    size, workers = workload.batch_size, config.loader.worker_count() or machine.usable_cores()
    if rate is not None:
        size = max(1, min(size, int(rate * 0.5 / workers)))  # all workers make a batch in half a second
    count = _COLD_READS if pages.regime == "cold" else _SAMPLES
    data = workload.data if config.kept.in_memory or config.kept.converts else Subset(workload.data, max(count, size))
    return dataclasses.replace(workload, data=data, batch_size=size)


def run(
    workload: Workload, plan: Plan, config: PipelineConfig, seconds: float, report: Report | None = None
) -> tuple[Estimate, float]:
    """Measure images/s and core-seconds an image of a loader without a model, once its caches are filled."""
    with assembly.build_loader(workload, config, plan=plan) as loader:
        batches: Iterator[Batch] = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())

        def alive() -> None:  # a batch may take seconds
            if report is not None:
                report.progress(0, 0.0)

        for _ in range(len(loader) if config.kept.in_memory and not config.kept.encoded else 0):
            next(batches)
            alive()
        return timed(batches, config.loader.worker_count() or 1, workload.batch_size, seconds, alive)
