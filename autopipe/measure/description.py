"""The facts of a workload before its first trial, as the process of the trials finds them: its description, and the
ceilings of its loader, which no configuration can exceed: the loader alone, its ops and the disk. Files are brought
into the state of the page cache in which trials find them.

The loader alone is timed in rounds, in each of which every worker makes a batch. Workers that begin together also end
together, so only the rate over whole rounds is meaningful.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from autopipe import native
from autopipe.errors import BadSampleError, LoaderError
from autopipe.hardware import disk, machine
from autopipe.measure import fingerprint, op_costs, stats
from autopipe.measure.costs import READ
from autopipe.measure.facts import CODE, Description, Impossible, LoaderCeiling, OpCost, ReadCosts, WrappedDataset
from autopipe.measure.op_costs import Clock
from autopipe.measure.outcome import Report
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline import loader as job
from autopipe.pipeline.config import CACHE_SHARE, LOADERS, STORAGES, ModelSetup, PipelineConfig
from autopipe.pipeline.devices import strategy as strategies
from autopipe.pipeline.eject import NAMES, module
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.loaders.workers import Threads
from autopipe.pipeline.storage.convert import estimate_bytes
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.wrap import WrappedData
from autopipe.values import Estimate
from autopipe.workload.data import source as data_source
from autopipe.workload.data.source import Subset
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import looked_at, normalise
from autopipe.workload.sample import Batch, FieldKind, Source
from autopipe.workload.workload import Workload


class PageCache:
    """Prepares files for trials, and remembers those that have been read."""

    def __init__(
        self, source: Source, choice: Literal["warm", "cold", "auto"], clock: Callable[[], float] = time.monotonic
    ) -> None:
        data_bytes = int(data_source.mean_bytes(source) * len(source))
        self.regime = disk.regime(choice, data_bytes, machine.detect_memory().usable_bytes)
        self._clock = clock
        self._warm: set[str] = set()
        self._left = 20.0  # seconds, to drop files ahead of a trial, and to read them ahead of all trials

    def prepare(self, files: Iterable[str]) -> bool:
        """Bring files into that state, once each; True if there was time for all of them."""
        cold, ready = self.regime == "cold", True
        names = [name for name in dict.fromkeys(files) if name not in self._warm]
        change = disk.drop if cold else disk.warm
        began = self._clock()
        with ThreadPoolExecutor(8) as pool:  # a network, or an SSD, gives one reader a part of what it can give
            for part in (names[begin : begin + 64] for begin in range(0, len(names), 64)):
                if self._clock() - began > self._left:
                    ready = False
                    break
                list(pool.map(lambda name: change(_existing([name])), part))
                self._warm.update(() if cold else part)
        if not cold:
            self._left = max(0.0, self._left - (self._clock() - began))
        return ready


def _existing(names: Iterable[str]) -> list[Path]:
    """Return the paths of those names that are files, each once."""
    return [path for name in dict.fromkeys(names) if (path := Path(name)).is_file()]


# -------------------- the loader alone, its ops and the disk

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
    """Measure images/s of endless `batches` without a model, and the core-seconds of an image; `workers` of them are
    made at a time. It takes at least `seconds`; `alive` is called at each batch.
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
    """Measure reads and ops, and run the loader alone, with and without a memory cache. Reads are measured in the state
    of the page cache in which trials find the files; all else finds them there. The rate of the disk is measured only
    if trials read from it.
    """
    part = dataclasses.replace(workload, data=Subset(workload.data, max(_SAMPLES, workload.batch_size)))
    order = np.random.default_rng(workload.seed).permutation(len(part.data)).tolist()
    report.progress(0, 0.0)  # a sign of life, here and below: a read or a batch may take seconds
    reading = _reading(workload, part, order, pages)
    report.progress(0, 0.0)
    PageCache(part.data, "warm").prepare(data_source.files(part.data))
    single, tail = op_costs.op_costs(part, plan, order[:_SAMPLES])
    report.progress(0, 0.0)
    made = op_costs.as_made(single, part, plan, order[:_SAMPLES])
    by_python, by_loaders = (sum(op.wall_seconds_per_image for op in ops) for ops in (single, made))
    report.progress(0, 0.0)
    ops = op_costs.with_lock(made, part, plan, order, lambda: report.progress(0, 0.0))
    report.progress(0, 0.0)
    loader = _loader(workload, plan, reading)
    part = dataclasses.replace(part, batch_size=batch_size(part.batch_size, loader, ops, reading))
    if reading is not None:  # reads wait as they do in the state of the page cache in which trials find the files
        ops = (ops[0].model_copy(update={"wait_seconds_per_image": reading.wait_seconds}), *ops[1:])
    rate, whole = run_alone(part, plan, PipelineConfig(loader=loader), _SECONDS, report)
    cached: float | None = None
    if plan.prefix or plan.source.is_fixed:
        in_time = max(part.batch_size, min(_SAMPLES, len(workload.data), int(rate.value * _SECONDS)))
        in_time -= in_time % part.batch_size  # an incomplete batch is in no cache, and read in the next epoch
        few = dataclasses.replace(part, data=data_source.part(workload.data, in_time))
        with contextlib.suppress(LoaderError):  # there is no room for it
            _, cached = run_alone(few, plan, PipelineConfig(loader=loader, keep="memory"), 0.25, report)
    disk_rate: float | None = None
    if pages.regime == "cold" and (paths := _existing(data_source.files(Subset(workload.data, _SAMPLES)))):
        readers = 4 if reading is None else max(4, min(op_costs.MOST_READERS, reading.at_once))
        disk_rate = disk.read_bytes_per_second(paths, readers=readers)
    return LoaderCeiling(
        loader_images_per_second=rate,
        op_costs=op_costs.fitted(ops, whole, cached),
        not_native=native.why_not(),
        reads=reading,
        tail=tail.scaled(by_loaders / by_python) if by_python else tail,
        read_bytes_per_second=disk_rate,
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
    """Return the batch size of the loader alone: the wanted one, or less if a round of such batches would take long: if
    an image takes milliseconds, which it also does in a smaller one. Reads wait only if they did as ops were timed.
    """
    ahead = loader.reads_ahead()
    made = [op.seconds_per_image if ahead and op.name == READ else op.wall_seconds_per_image for op in ops]
    rate = loader.workers / max(sum(made), 1e-9)
    if reading is not None and ops[0].wait_seconds_per_image > 0:
        rate = min(rate, reading.images_per_second(loader.reads_at_once() or loader.workers))
    return max(1, min(wanted, int(_ROUND_SECONDS * rate / loader.workers)))


def few_samples(workload: Workload, config: PipelineConfig, pages: PageCache, rate: float | None) -> Workload:
    """Return a workload of few samples and, if a batch takes long at `rate` images/s, of smaller batches."""
    size, workers = workload.batch_size, config.loader.worker_count() or machine.usable_cores()
    if rate is not None:
        size = max(1, min(size, int(rate * 0.5 / workers)))  # all workers make a batch in half a second
    count = _COLD_READS if pages.regime == "cold" else _SAMPLES
    data = workload.data if config.kept.in_memory or config.kept.converts else Subset(workload.data, max(count, size))
    return dataclasses.replace(workload, data=data, batch_size=size)


def run_alone(
    workload: Workload, plan: Plan, config: PipelineConfig, seconds: float, report: Report | None = None
) -> tuple[Estimate, float]:
    """Measure images/s and core-seconds an image of a loader without a model, once its caches are filled."""
    with assembly.make_loader(workload, config, plan=plan) as loader:
        batches: Iterator[Batch] = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())

        def alive() -> None:  # a batch may take seconds
            if report is not None:
                report.progress(0, 0.0)

        for _ in range(len(loader) if config.kept.in_memory and not config.kept.encoded else 0):
            next(batches)
            alive()
        return timed(batches, config.loader.worker_count() or 1, workload.batch_size, seconds, alive)


# -------------------- the description of a workload


def describe(workload: Workload, plan: Plan, model: Any) -> Description:
    """Describe a workload with its plan and its built model."""
    resident = disk.share_in_memory(_existing(data_source.files(Subset(workload.data, 64))))  # before any is read
    as_it_is = wrap.as_it_is(workload)
    whole = data_source.pieces(workload.data)
    wrapped, against = None, list[tuple[str, str | int, str | None]]()
    if isinstance(workload.data, WrappedData) and as_it_is is not None:
        choices, against = workload.data.tried()
        wrapped = WrappedDataset(as_it_is=as_it_is, choices=choices, with_workers=workload.data.with_workers)
    return Description(
        **dict(fingerprint.workload_digest(workload, workload.model and fingerprint.model_digest(model))),
        fixed_bytes=fixed_bytes(workload, plan),
        compact_bytes=plan.compact.bytes,
        finished_bytes=plan.finished.bytes,
        cuts={} if isinstance(workload.data, WrappedData) else cut_sizes(workload, plan),
        first_ops=fingerprint.first_ops(plan),
        backend=keras.backend.backend(),
        cores_left=machine.usable_cores(),
        accelerators=strategies.accelerators(),
        virtual_devices=strategies.virtual_devices(),
        impossible=(*_impossible(workload, plan, model), *_with_reasons(against)),
        data_digest=data_source.first_digest(workload.data),
        pieces=None if whole is None else (len(whole), data_source.first_digest(whole)),
        resident_share=resident,
        progressive_share=_progressive_share(workload, plan),
        counted=plan.finished.counted,
        storage_kind=fingerprint.storage_of(workload.data),
        epochs=workload.epochs,
        validation=0 if workload.validation is None else len(workload.validation),
        wrapped=wrapped,
    )


def of_one_pass(found: Description, workload: Workload) -> Description:
    """Return the description of a workload whose samples are evaluated or predicted, each once, as it was `found`."""
    why = "samples are read once"
    once: list[tuple[str, str | int, str | None]] = [("keep", place, why) for place in ("memory", "encoded")]
    once += [("loader", kind, why) for kind in LOADERS if LOADERS[kind].keeps_on_device]
    once += [("steps_per_execution", 2**each, "only a training runs several") for each in range(1, 11)]
    own = fingerprint.workload_digest(workload, found.model)
    return found.model_copy(update={**dict(own), "impossible": (*found.impossible, *_with_reasons(once))})


def fixed_bytes(workload: Workload, plan: Plan) -> int | None:
    """Return the bytes of all samples after the deterministic first ops; None if that is not known."""
    workload, plan = assembly.in_pieces(workload, plan)
    fixed = plan.cut(len(plan.prefix))
    kept: float = fixed.bytes
    if not fixed.is_fixed:
        if wrap.as_it_is(workload) is not None:
            return None
        kept = assembly.kept_bytes(Recipe.of(workload, plan))
    return int(kept * len(workload.data))


def _progressive_share(workload: Workload, plan: Plan) -> float | None:
    first = next(iter(plan.steps), None)
    is_progressive = getattr(first and first.op, "is_progressive", None)  # of `Decode`
    if plan.source.x.kind is not FieldKind.ENCODED or is_progressive is None:
        return None
    found = []
    for index in looked_at(len(workload.data)):
        with contextlib.suppress(BadSampleError):
            found.append(is_progressive(normalise(workload.data.read(index), plan.source.structure)[0]))
    return sum(found) / len(found) if found else None


def impossible_to_feed(workload: Workload, plan: Plan) -> list[Impossible]:
    """List the loaders and caches that cannot feed a workload."""
    found: list[tuple[str, str | int, str | None]] = []  # setting, value and reason
    if plan.source.x.kind is not FieldKind.ENCODED:
        found.append(("keep", "encoded", "samples are read as arrays"))
    elif not plan.prefix:
        why = "no op is the same in every epoch, so encoded samples are all there is to keep"
        found.append(("keep", "memory", why))
    _, of_kept = assembly.in_pieces(workload, plan)
    for form in STORAGES:
        is_held = isinstance(workload.data, WrappedData) or STORAGES[form].cuts(of_kept)
        found.append(("keep", form, None if is_held else "it cannot hold these samples"))
    if getattr(workload.data, "first_op", None) is not None and data_source.pieces(workload.data) is None:
        found += [("keep", place, "each epoch reads samples of its own") for place in ("memory", *STORAGES)]
    for kind in LOADERS:
        found.append(("loader", kind, LOADERS[kind].missing() or LOADERS[kind].against(workload.data)))
        found += [(*setting, reason) for setting, reason in LOADERS[kind].impossible(plan).items()]
        if workload.on_bad_sample == "skip" and not LOADERS[kind].skips_bad_samples:
            found.append(("loader", kind, 'it cannot replace bad samples (on_bad_sample="skip")'))
    return _with_reasons(found)


def _impossible(workload: Workload, plan: Plan, model: Any) -> list[Impossible]:
    found: list[tuple[str, str | int, str | None]] = [("channels", "first", _no_channels_first(workload, model, plan))]
    if not plan.suffix:
        found.append(("finish", "device", "no op is left that a device could do"))
    several, order = strategies.sharing(), assembly.batch_order(workload)
    if several is None:
        alone: str | None = f"on Keras's {keras.backend.backend()} backend autopipe trains on one device"
    elif isinstance(workload.model, keras.Model):
        alone = "the model is built already; pass the function that builds it"
    else:
        alone = several.unfit(model)
    last = order.batch_samples(order.batches - 1)
    uneven = f"they cannot share the {last} samples of an epoch's last batch; drop_remainder=True leaves it out"
    for count in range(2, max(strategies.accelerators(), strategies.virtual_devices()) + 1):
        is_uneven = order.has_short_batch and last % count
        found += [("devices", count, alone), ("devices", count, uneven if is_uneven else None)]
    if not isinstance(workload.data, WrappedData):
        found += [(CODE, form, module.reasons_against(workload, form, plan, own=False)) for form in NAMES]
    return [*impossible_to_feed(workload, plan), *_with_reasons(found)]


def _with_reasons(found: Iterable[tuple[str, str | int, str | None]]) -> list[Impossible]:
    return [Impossible(parameter=name, value=value, reason=why) for name, value, why in found if why is not None]


def _no_channels_first(workload: Workload, model: Any, plan: Plan) -> str | None:
    if plan.source.structure is not None:
        return "samples of several parts are fed with channels last"
    if plan.finished.x.shape is not None and len(plan.finished.x.shape) != 3:
        return "x is no image with channels"
    if isinstance(workload.model, keras.Model):
        return "the model is built already, for channels last"
    shape, image = getattr(model, "input_shape", None), plan.finished.x.shape
    if not isinstance(shape, tuple) or len(shape) != 4 or image is None:
        return None
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        other = getattr(workload.model(), "input_shape", None)
    except Exception as error:  # noqa: BLE001  # whatever it raised, it cannot be built so
        return f"the model cannot be built so ({type(error).__name__})"
    finally:
        keras.config.set_image_data_format(before)
    height, width, channels = image
    fits = isinstance(other, tuple) and all(
        takes in (None, has) for takes, has in zip(other[1:], (channels, height, width), strict=True)
    )
    return None if fits else "the model's input is fixed to channels last"


def cut_sizes(workload: Workload, plan: Plan) -> dict[str, dict[int, int]]:
    """Return the bytes of the whole set in each storage form, by its cuts; raises DataError for unreadable samples."""
    spares = data_source.pieces(workload.data) is not None
    workload, plan = assembly.in_pieces(workload, plan)
    found = {
        name: {
            cut + spares: int(estimate_bytes(Conversion.of(workload, plan, cut), STORAGES[name]))
            for cut in STORAGES[name].cuts(plan)
        }
        for name in STORAGES
    }
    return {name: sizes for name, sizes in found.items() if sizes}
