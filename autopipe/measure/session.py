"""A session: measures one workload, trial after trial, with the framework imported and the model compiled.

It lives in the process of the trials (`autopipe.measure.trial.runner`), which turns its exceptions into outcomes. Each
trial opens and closes its own feed: foreign code, or one of autopipe's loaders over the part of the data that a trial
can use. All are timed by the same meter. If something has to be made first, the part is as large as can be made in
time: a cache is filled, and a storage form written, for it only. Written samples are kept for later trials.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from autopipe.errors import LoaderError, WorkloadError
from autopipe.hardware import machine, processes
from autopipe.hardware.disk import Regime
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.processes import Sampler, Usage
from autopipe.measure import description, outcome, verify
from autopipe.measure.bench import ENDLESS, FEWEST_EPOCHS, Bench, EpochWatch, Probe, gradient_exchange
from autopipe.measure.costs import samples_to_make
from autopipe.measure.description import PageCache
from autopipe.measure.facts import Ceiling, Description, LoaderCeiling
from autopipe.measure.foreign import ForeignCode
from autopipe.measure.lines import LineWatch
from autopipe.measure.meter import AUTOTUNE_SECONDS, MOST_BEFORE_SECONDS, Meter
from autopipe.measure.outcome import FEWEST_VERIFIED, ConversionCost, Measurement, Options, Phase, Report, Resources
from autopipe.pipeline import assembly
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.trace import Trace
from autopipe.pipeline.config import CACHE_SHARE, STORAGES, PipelineConfig
from autopipe.pipeline.devices import strategy as strategies
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.devices.simulated import NO_MODEL
from autopipe.pipeline.loader import Shared
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Folder
from autopipe.pipeline.wrap import WrappedData
from autopipe.values import count_text
from autopipe.workload.data import source as data_source
from autopipe.workload.data.source import Subset
from autopipe.workload.mode import Mode
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload


class TrialSession:
    """Measures one workload. A request of `autopipe.measure.trial.child` names one of its methods."""

    def __init__(
        self,
        workload: Workload,
        code: str | Callable[[], Any] | None = None,
        name: str = "",
        *,
        mode: Mode = Mode.TRAIN,
    ) -> None:
        """Measure the workload's configurations; or foreign `code`, a form of plain code or a function of the user's
        called `name`, in a process without our settings. In another `mode`, evaluate or predict samples in order.
        """
        if code is None and not isinstance(workload.data, WrappedData):  # which may have to run as it is
            processes.keep_freed_memory()  # before the model runs alone, as it is when it trains
        self._asked, self._mode, self._served = workload, mode, workload
        self.own_model = workload.model  # beside one that is simulated in its place
        if mode is not Mode.TRAIN:
            if isinstance(workload.data, WrappedData):
                raise WorkloadError("A wrapped dataset is made for training: it cannot be tuned for evaluation.")
            self._served = assembly.for_evaluation(workload, workload.data)
        # Every step of a trial has equal work, and a trial does not write the training's list of samples.
        self._workload = dataclasses.replace(self._served, drop_remainder=True, bad_sample_log=os.devnull)
        if workload.model is None and isinstance(workload.data, WrappedData):
            self._workload = dataclasses.replace(self._workload, model=NO_MODEL)
        self._plan = make_plan(self._served)
        self._bench = functools.cache(functools.partial(Bench, self._workload, self._plan, mode=mode))
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of samples that were converted for trials
        self._written: dict[tuple[str, int, int], tuple[Workload, ConversionCost]] = {}
        self._cache: Cache | None = None  # of the trial before
        self._page_cache = functools.cache(functools.partial(PageCache, self._workload.data))
        self._loader: LoaderCeiling | None = None
        self._nvml = Nvml()
        self._foreign = None if code is None else ForeignCode(self._workload, self._plan, code, name, mode)

    def describe(self, report: Report) -> Description:
        report.phase(Phase.BUILD)
        if self._workload.model is NO_MODEL:
            report.log(
                "The dataset has no model and no step, so that reading it is measured, beside steps that take no time."
            )
        found = description.describe(self._served, self._plan, self._bench(1, "last").model)
        return found if self._mode is Mode.TRAIN else description.of_one_pass(found, self._asked)

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        report.phase(Phase.BUILD)
        wanted = outcome.MeasureOptions.model_validate(options)
        opening, watch = self._feed(config, wanted, report), LineWatch() if wanted.lines else None
        # Lines that make a dataset, once, are not those that make batches.
        with Sampler(nvml=self._nvml) as sampler, opening as feed, watch or contextlib.nullcontext():
            report.phase(Phase.FIRST_BATCH)
            feed.train(Probe(feed.meter, feed.loader, report=report, when_filled=feed.when_filled))
            ended = time.monotonic()
            if feed.cache is not None:
                feed.cache.hold()
            report.phase(Phase.CLOSE)  # not after a failure, which belongs to the phase it came in
        found = _measurement(config, feed, sampler.usage, ended)
        if feed.cache is not None and feed.cache.held:
            feed.cache.fill_seconds = found.cache_fill_seconds
        return found if watch is None else found.model_copy(update={"lines": watch.stop()})

    def loader(self, config: PipelineConfig, options: Options, report: Report) -> outcome.LoaderRate:
        """Run a loader without a model, on a part of the samples if something has to be made or kept first."""
        wanted = outcome.OnFiles.model_validate(options)
        report.phase(Phase.OPEN)
        if config.loader.keeps_freed_memory:
            processes.keep_freed_memory()
        self._require_cache_memory(config)
        part = self._workload
        if not isinstance(part.data, WrappedData):  # which reads its batches by itself
            pages = self._page_cache(wanted.page_cache)
            known = self._loader_ceiling(pages, report).loader_images_per_second
            part = self.part(config, pages, report, trains=math.inf, folder=wanted.folder).workload
            part = description.few_samples(part, config, pages, None if known is None else known.value)
            pages.prepare(data_source.files(part.data))
        report.phase(Phase.MEASURE)
        rate, _ = description.run_alone(part, self._plan, config, 0.5, report)
        return outcome.LoaderRate(images_per_second=rate)

    def epoch(self, config: PipelineConfig, options: Options, report: Report) -> outcome.EpochTime:
        """Time epochs with the workload's validation, of all samples or of a part that takes about as long as asked."""
        wanted, validation = outcome.EpochOptions.model_validate(options), self._asked.validation
        if validation is None:
            raise WorkloadError("The workload names no `validation`, so that whole epochs cannot be timed.")
        report.phase(Phase.BUILD)
        bench, size = self._bench(config.devices, config.channels), self._workload.batch_size
        whole = [len(self._workload.data) // size, math.ceil(len(validation) / size)]
        share = wanted.seconds / (1 + FEWEST_EPOCHS) * wanted.images_per_second / (sum(whole) * size)
        steps = [min(count, max(16, round(share * count))) for count in whole]  # fewer have no pace
        report.phase(Phase.MEASURE)
        watch = EpochWatch(wanted.seconds, report)
        if self._foreign is not None:
            self._foreign.train_epochs(bench, watch, steps, validation, cut=steps != whole)
            return watch.epoch_time(steps, whole)
        self._require_cache_memory(config)
        pages, trains = self._page_cache(wanted.page_cache), wanted.images_per_second
        workload = self.part(config, pages, report, trains=trains, folder=wanted.folder).workload
        if not config.kept.converts and steps[0] * size < len(workload.data):
            workload = dataclasses.replace(workload, data=Subset(workload.data, steps[0] * size))
        with assembly.make_loader(workload, config, plan=bench.plan) as loader:
            over = functools.partial(assembly.evaluation_loader, workload, config, model=bench.model)
            trainer = bench.trainer(loader, config.model_setup, config.device_prefetch, over)
            trainer.fit(ENDLESS, validation=Subset(validation, steps[1] * size), callbacks=[watch], verbose=0)
            steps[0] = len(loader)  # a cache or a set may hold fewer batches yet
        return watch.epoch_time(steps, whole)

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        wanted = outcome.CeilingOptions.model_validate(options)
        report.phase(Phase.BUILD)
        bench = self._bench(wanted.devices, wanted.channels)
        report.phase(Phase.WARM_UP)
        watching = Sampler(nvml=self._nvml) if wanted.resources else None
        with watching or contextlib.nullcontext():
            alone = bench.alone(wanted.setup, report, again=wanted.again, samples=wanted.samples)
        report.phase(Phase.MEASURE)
        trains = self._mode is Mode.TRAIN
        exchanged = gradient_exchange(bench.strategy, bench.model) if trains else {"gradient_bytes": 0}
        pages = self._page_cache(wanted.page_cache)
        # Empty if it is known already, or its costs cannot be separated.
        is_known = wanted.model_only or isinstance(self._workload.data, WrappedData)
        loader = LoaderCeiling() if is_known else self._loader_ceiling(pages, report)
        more = {
            "bytes_per_image": data_source.mean_bytes(self._workload.data),
            "cores": machine.core_time(),
            "device_bytes": next((each.memory_used_bytes for each in self._nvml.use()), None),
            "cores_elsewhere": None if wanted.elsewhere is None else wanted.elsewhere.loader.cores_elsewhere(),
            "resources": None if watching is None else _resources(watching.usage, wanted.devices),
        }
        return alone.with_loader_of(loader).model_copy(update={**more, **exchanged})

    def verify(self, configs: Sequence[PipelineConfig], options: Options, report: Report) -> outcome.Verification:
        """Compare the batches of these configurations; of a dataset of the user's, count samples that come twice."""
        report.phase(Phase.MEASURE)
        wanted = outcome.VerifyOptions.model_validate(options)
        if isinstance(self._workload.data, WrappedData):
            return verify.repeats(self._workload, configs, wanted, report, own=self.own_model)
        samples = wanted.samples or FEWEST_VERIFIED
        return verify.verify(self._workload, configs, samples=samples, report=report, own=self.own_model)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
        if self._foreign is not None:
            self._foreign.close()
        self._bench.cache_clear()
        self._nvml.close()
        keras.backend.clear_session(free_memory=True)

    def _feed(
        self, config: PipelineConfig, wanted: outcome.MeasureOptions, report: Report
    ) -> contextlib.AbstractContextManager[Feed]:
        """Warm up, and return the feed, which opens as the context is entered."""
        if config.loader.keeps_freed_memory:
            processes.keep_freed_memory()  # before the model runs alone, as it is when it trains
        bench, pages = self._bench(config.devices, config.channels), self._page_cache(wanted.page_cache)
        report.phase(Phase.WARM_UP)
        if self._foreign is not None:
            self._foreign.compile(bench)
            report.phase(Phase.OPEN)
            return _foreign_feed(self._foreign, wanted, bench, pages)
        alone = bench.alone(config.model_setup, report).model_images_per_second.value
        report.phase(Phase.OPEN)
        if self._cache is None or not self._cache.held or self._cache.of != (config.keep, config.finish):
            self._cache = None  # its memory is no part of what this trial takes
            self._require_cache_memory(config)
            makes = wanted.makes_images_per_second
            part = self.part(config, pages, report, trains=alone, folder=wanted.folder, makes=makes)
            self._cache = Cache(of=(config.keep, config.finish), part=part)
        return _loader_feed(config, wanted, bench, alone, self._cache, pages)

    def part(
        self,
        config: PipelineConfig,
        pages: PageCache,
        report: Report,
        *,
        trains: float,
        folder: str | None = None,
        makes: float | None = None,
    ) -> Part:
        """Choose the part of the data for a trial. The cores can make `makes` images/s (None: that is measured if
        needed), the model `trains` so many; a cache is filled during training, possibly on the same cores.
        """
        part, pieces = self._workload, data_source.pieces(self._workload.data)
        count = len(part.data if pieces is None else pieces)
        converts, resident = config.kept.converts, config.loader.keeps_on_device
        if not (config.kept.in_memory or converts or resident):
            return Part(workload=part)
        if converts and (said := self._refused(config)) is not None:
            report.log(said)
        made = makes or self._loader_ceiling(pages, report).made_in_time(config, machine.usable_cores())
        rate = made if converts or resident else 1 / (1 / made + 1 / trains)
        wanted = samples_to_make(rate, part.batch_size, count) or count
        if wanted < count:
            part = dataclasses.replace(part, data=data_source.part(part.data, wanted))
            wanted = len(part.data) if pieces is None else len(data_source.pieces(part.data) or ())
        part, conversion = self._converted(part, config, folder) if converts else (part, None)
        if conversion is not None and pieces is not None:
            conversion = conversion.model_copy(update={"whole": count})
        return Part(workload=part, share=wanted / count, conversion=conversion)

    def _refused(self, config: PipelineConfig) -> str | None:
        """Say that a training with `config`, which converts, stops: the workload's own set is of other data or ops."""
        storage, cut = STORAGES[config.kept.form], config.kept.cut
        own = Folder.of(self._workload.converted) / assembly.set_name(storage.name, cut)
        said = f"`{own}` is of other data or ops, so a training with keep={config.keep!r} stops. Remove it, and run "
        said += "`autopipe convert` again. Here samples are converted for the trial alone."
        whole = assembly.conversion_of(self._workload, self._plan, storage, cut)
        return said if layout.is_of_another(own, whole, storage) else None

    def _converted(self, part: Workload, config: PipelineConfig, folder: str | None) -> tuple[Workload, ConversionCost]:
        """Write the samples in the configuration's storage form, once for each cut; return the workload with them."""
        storage = STORAGES[config.kept.form]
        conversion = assembly.conversion_of(part, self._plan, storage, config.kept.cut)
        key = (storage.name, conversion.cut, len(part.data))
        if key not in self._written:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="autopipe-trial-", dir=folder)
            root = Path(self._folder.name) / "-".join(map(str, key))
            done = convert(conversion, storage, root, workers=machine.usable_cores())
            assert done.record is not None
            names = ("samples", "workers", "seconds", "shard_samples", "shard_seconds")
            of_all = {name: getattr(done, name) for name in names}
            cost = ConversionCost(cut=conversion.cut, bytes=done.record.bytes, **of_all)
            self._written[key] = dataclasses.replace(part, converted=str(root)), cost
        return self._written[key]

    def _loader_ceiling(self, pages: PageCache, report: Report) -> LoaderCeiling:
        if self._loader is None:
            self._loader = description.loader_ceiling(self._workload, self._plan, pages, report)
        return self._loader

    def _require_cache_memory(self, config: PipelineConfig) -> None:
        """Refuse a cache that holds the part of a trial, but not the whole, or not validation's samples besides."""
        if not config.kept.in_memory and not config.loader.keeps_on_device:
            return
        recipe = assembly.recipe_of(self._workload, config.model_copy(update={"keep": config.kept.memory}), self._plan)
        needed, free = MemoryCache.bytes_needed(recipe), machine.detect_memory().available_bytes
        others = needed * len(self._workload.validation or ()) // len(self._workload.data)  # about, as the search knows
        both = max(needed, others) if config.loader.keeps_on_device else needed + others
        if both > CACHE_SHARE * free:
            whose = f" for training's and {machine.size_text(others)} for validation's" if others else ""
            raise LoaderError(
                f"A cache of {config.kept.part:.0%} of the samples needs {machine.size_text(needed)}{whose}, "
                f"but {machine.size_text(free)} are free, of which it may take {CACHE_SHARE:.0%}.",
                hint="Use keep='none', a part such as keep='memory:50%', or smaller images.",
            )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of the data that a trial trains on."""

    workload: Workload  # with that part of the data
    share: float = 1.0  # of the data, 0 to 1
    conversion: ConversionCost | None = None  # of writing it, if it was converted


@dataclasses.dataclass(kw_only=True)
class Cache:
    """The memory cache of a trial, which the next one of the same samples finds full, as tf.data's own does."""

    of: tuple[str, str]  # the configuration's `keep` and `finish`
    part: Part
    shared: Shared = dataclasses.field(default_factory=Shared)  # with what the loader holds
    held: tuple[MemoryCache, ...] = ()
    fill_seconds: float | None = None  # see `Measurement`; of the trial that filled it

    def hold(self) -> None:
        """Hold what is full, unless other trials could miss the memory."""
        caches = tuple(each for each in self.shared.made.values() if isinstance(each, MemoryCache))
        full = all(cache.bytes_to_fill == 0 for cache in caches)
        small = sum(cache.block.size for cache in caches) <= _HELD_SHARE * machine.detect_memory().available_bytes
        self.held = caches if full and small else ()


_HELD_SHARE = 0.1  # of the free memory


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The open data of a trial."""

    began: float  # when it was opened
    meter: Meter
    train: Callable[[Probe], None]  # until the probe has seen enough
    part: Part
    alone: float | None  # images/s of the model on a batch that is already there, if that is known
    regime: Regime  # the state of the page cache when it begins
    files_ready: bool  # all files have it
    loader: TimedLoader | None = None  # None for foreign code
    # epochs that may be read if each file has to come from the disk: 2 if a part is kept, the rest is read again; None:
    # any number
    once: int | None = None
    when_filled: Callable[[], object] | None = None  # between the steps in which caches fill and the first window
    cache: Cache | None = None


@contextlib.contextmanager
def _loader_feed(
    config: PipelineConfig, wanted: outcome.MeasureOptions, bench: Bench, alone: float, cache: Cache, pages: PageCache
) -> Iterator[Feed]:
    """Open the feed of a configuration, whose model takes so many images/s `alone`."""
    once, part, workload = None, cache.part, cache.part.workload
    resident, kept = config.loader.keeps_on_device, config.kept
    if pages.regime == "cold" and not resident and (not kept.in_memory or kept.part < 1):
        once, cache.held = 2 if kept.in_memory else 1, ()
    if kept.converts:
        root = Folder.of(workload.converted).path
        files = [] if root is None else [str(path) for path in root.rglob("*")]
    else:
        samples = max(int(alone * (wanted.max_seconds + MOST_BEFORE_SECONDS)), workload.batch_size)
        files = data_source.files(workload.data, assembly.batch_order(workload).epoch(0)[:samples].tolist())
    prepare = functools.partial(pages.prepare, files)
    ready, began = prepare(), time.monotonic()
    opened = assembly.opener(workload, plan=bench.plan, trace=wanted.trace, shared=cache.shared)
    loader = TimedLoader(opened(config))

    def train(probe: Probe) -> None:
        steps, epochs = max(1, round(len(loader) / part.share)), ENDLESS
        if once is not None:
            steps, epochs = once * len(loader), 1
        setup, ahead = config.model_setup, config.device_prefetch
        bench.run(loader, probe, setup, device_prefetch=ahead, steps=steps, epochs=epochs)

    try:
        yield Feed(
            began=began,
            meter=meter_for(loader, config, wanted, filled=bool(cache.held)),
            train=train,
            part=part,
            alone=alone,
            regime=pages.regime,
            files_ready=ready,
            loader=loader,
            once=once,
            when_filled=prepare if once == 2 else None,
            cache=cache,
        )
    finally:
        loader.close()
        if wanted.trace is not None:
            Trace(wanted.trace).span(config.short(), began, time.monotonic())


def meter_for(
    loader: TimedLoader, config: PipelineConfig, wanted: outcome.MeasureOptions, *, filled: bool = False
) -> Meter:
    """Make the meter of a trial with the properties of its loader, whose cache may be `filled` already."""
    return Meter(
        loader.batch_size,
        loader.batches_at_once or config.loader.worker_count() or 1,
        wanted,
        fill_steps=len(loader) if (config.kept.in_memory or config.loader.fills_cache) and not filled else 1,
        settle_seconds=AUTOTUNE_SECONDS if "auto" in config.loader.model_dump().values() else 0.0,
    )


@contextlib.contextmanager
def _foreign_feed(
    foreign: ForeignCode, wanted: outcome.MeasureOptions, bench: Bench, pages: PageCache
) -> Iterator[Feed]:
    workload, alone = foreign.workload, wanted.model_images_per_second
    epochs = 1 if pages.regime == "cold" else ENDLESS
    most = min(int((alone or 1e5) * (wanted.max_seconds + MOST_BEFORE_SECONDS)), len(workload.data))
    ready = pages.prepare(data_source.files(workload.data, None if workload.shuffle else range(most)))
    yield Feed(
        began=time.monotonic(),
        meter=Meter(workload.batch_size, foreign.workers, wanted, settle_seconds=foreign.settle_seconds),
        train=lambda probe: foreign.train(bench, probe, epochs),
        part=Part(workload=workload),
        alone=alone,
        regime=pages.regime,
        files_ready=ready,
    )
    gc.collect()  # a framework's iterators stop reading ahead


def _measurement(config: PipelineConfig, feed: Feed, usage: Usage, ended: float) -> Measurement:
    """Derive the measurement of a training whose last step `ended`. Raises WorkloadError if the data had before."""
    meter, loader = feed.meter, feed.loader
    reading, first = meter.reading, meter.filled_at if loader is None else loader.first_taken
    if reading is None or first is None or meter.began_at is None:
        if loader is None:
            raise WorkloadError("The pipeline gave too few batches to measure.", hint="Use more data.")
        raise WorkloadError(
            f"A cold trial reads each file once, but an epoch has {len(loader)} batches, too few to measure.",
            hint='Use page_cache="warm", or more data.',
        )
    before, usage = usage.samples[0].processes, usage.between(meter.began_at, ended)
    resources, started = _resources(usage, config.devices), max(0, (usage.peak_processes or before) - before)
    rate, stable = meter.overall, reading.stable or reading.cut_short
    shortfall = None if feed.alone is None else max(0.0, 1 - rate.value / feed.alone)
    of_loader: dict[str, Any] = {"data_wait_share": shortfall or 0.0}
    if loader is not None:
        filled, share = meter.filled_at or first, feed.part.share
        fill_seconds = max(0.0, filled - first - len(loader) * loader.batch_size / reading.rate.value) / share
        fills = config.kept.in_memory or config.loader.fills_cache or loader.on_device
        if loader.fill_seconds:
            fill_seconds = loader.fill_seconds / share
        if feed.cache is not None and feed.cache.fill_seconds is not None:
            fill_seconds = feed.cache.fill_seconds
        # If steps run asynchronously, the host waits for a batch while the device still runs the step before.
        waited = sum(each.waiting_seconds for each in reading.windows) / sum(each.seconds for each in reading.windows)
        of_loader = {
            "data_share": share,
            "epoch_restart_seconds": float(np.median(loader.restarts)) if loader.restarts else None,
            "cache_fill_seconds": fill_seconds if fills else None,
            "data_wait_share": min(waited, 1.0 if shortfall is None else shortfall),
            "conversion": feed.part.conversion,
            "hand_over_seconds": loader.hand_over_seconds,
        }
    return Measurement(
        config=config.model_dump(mode="json"),
        config_key=config.key(),
        batch_size=meter.batch_size,
        windows=reading.windows,
        images_per_second=rate,
        first_batch_seconds=first - feed.began - (0.0 if loader is None else loader.fill_seconds),
        discarded_batches=meter.discarded_batches,
        stable=stable,
        warnings=(*reading.warnings, *(() if stable else resources.warnings), *_notes(feed)),
        resources=resources,
        page_cache=feed.regime,
        files_ready=feed.files_ready,
        ran=outcome.Ran(
            threads=0 if started else config.loader.threads(machine.usable_cores()),  # as the loader says
            processes=started,
            devices=strategies.names(config.devices),
            backend=keras.backend.backend(),
            versions={name: value for name, value in machine.installed_versions().items() if value},
        ),
        **of_loader,
    )


def _resources(usage: Usage, devices: int) -> Resources:
    return Resources.of(usage, min(strategies.accelerators(), devices))  # a training has the first that CUDA shows


def _notes(feed: Feed) -> Iterator[str]:
    loader = feed.loader
    if loader is not None and feed.once is not None and loader.taken >= feed.once * len(loader):
        yield f"The trial ended with the data: cold, each file is read once, which are {len(loader)} batches."
    if loader is not None and (lost := loader.lost_workers()):
        yield f"Meanwhile {count_text(lost, 'worker')} of the loader died, and had to be replaced."
    if feed.meter.settle_seconds > 0:
        yield "tf.data tunes itself for 10 to 60 s; in a longer training it may run at another rate."
