"""A session: measures one workload, trial after trial, with the framework imported and the model compiled.

It lives in the process of the trials (`autopipe.measure.trial.runner`), which turns its exceptions into outcomes. Each
trial opens and closes its own feed (`autopipe.measure.feed`): one of autopipe's loaders, or foreign code. All are timed
by the same meter. A session also describes the workload for a search.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np

from autopipe.errors import BadSampleError, LoaderError, WorkloadError
from autopipe.hardware import disk, machine, processes
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.processes import Sampler, Usage
from autopipe.measure import ceilings, fingerprint, outcome, verify
from autopipe.measure.bench import ENDLESS, FEWEST_EPOCHS, Bench, EpochWatch, Probe, gradient_exchange
from autopipe.measure.facts import CODE, Ceiling, Description, Impossible, LoaderCeiling, WrappedDataset
from autopipe.measure.feed import Feed, ForeignCode, Open, PageCache, Part, Parts, existing, loader_feed
from autopipe.measure.lines import LineWatch
from autopipe.measure.outcome import FEWEST_VERIFIED, EpochOptions, Measurement, Options, Phase, Report, Resources
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.config import CACHE_SHARE, LOADERS, STORAGES, PipelineConfig
from autopipe.pipeline.devices import strategy as strategies
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.devices.simulated import NO_MODEL
from autopipe.pipeline.eject import NAMES, module
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.convert import estimate_bytes
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.wrap import WrappedData
from autopipe.values import count_text
from autopipe.workload.data import source as data_source
from autopipe.workload.data.source import Subset
from autopipe.workload.mode import Mode
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import looked_at, make_plan, normalise
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload

_NO_MODEL = "The dataset has no model and no step, so that reading it is measured, beside steps that take no time."


class Session:
    """Measures one workload. A request of `autopipe.measure.trial.child` names one of its methods."""

    def __init__(
        self,
        workload: Workload,
        code: str | Callable[[], Any] | None = None,
        name: str = "",
        *,
        mode: Mode = Mode.TRAIN,
    ) -> None:
        """Measure the workload's configurations; or foreign `code`, called `name`, in a process without our settings.

        `code` is a form of plain code, as `autopipe eject` writes it, or a function of the user's. In another `mode`
        the samples are evaluated or predicted, in order and without chance, as by a trainer.
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
        self._parts = Parts(self._workload, self._plan)
        self._page_cache = functools.cache(functools.partial(PageCache, self._workload.data))
        self._loader: LoaderCeiling | None = None
        self._nvml = Nvml()
        self._foreign = None if code is None else ForeignCode(self._workload, self._plan, code, name, mode)

    def describe(self, report: Report) -> Description:
        report.phase(Phase.BUILD)
        if self._workload.model is NO_MODEL:
            report.log(_NO_MODEL)
        found = describe(self._served, self._plan, self._bench(1, "last").model)
        if self._mode is Mode.TRAIN:
            return found
        why = "samples are read once"
        once: list[tuple[str, str | int, str | None]] = [("keep", place, why) for place in ("memory", "encoded")]
        once += [("loader", kind, why) for kind in LOADERS if LOADERS[kind].keeps_on_device]
        once += [("steps_per_execution", 2**each, "only a training runs several") for each in range(1, 11)]
        own = fingerprint.workload_digest(self._asked, found.model)
        return found.model_copy(update={**dict(own), "impossible": (*found.impossible, *_with_reasons(once))})

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        report.phase(Phase.BUILD)
        wanted = outcome.MeasureOptions.model_validate(options)
        feed, pages = self._feed(config, wanted, report), self._page_cache(wanted.page_cache)
        prepare = functools.partial(pages.prepare, feed.files)
        ready = prepare()
        watch = LineWatch() if wanted.lines else None
        with Sampler(nvml=self._nvml) as sampler:
            began = time.monotonic()
            # Lines that make a dataset, once, are not those that make batches.
            with feed.opened() as fed, watch or contextlib.nullcontext():
                report.phase(Phase.FIRST_BATCH)
                fed.train(Probe(fed.meter, fed.loader, report=report, when_filled=prepare if feed.once == 2 else None))
                ended = time.monotonic()
                report.phase(Phase.CLOSE)  # not after a failure, which belongs to the phase it came in
        found = measurement(feed, fed, sampler.usage, began=began, ended=ended, files_ready=ready)
        return found if watch is None else found.model_copy(update={"lines": watch.stop()})

    def loader(self, config: PipelineConfig, options: Options, report: Report) -> outcome.LoaderRate:
        """Run a loader without a model, on a part of the samples if something has to be made or kept first."""
        wanted = outcome.LoaderOptions.model_validate(options)
        report.phase(Phase.OPEN)
        if config.loader.keeps_freed_memory:
            processes.keep_freed_memory()
        self._require_cache_memory(config)
        part = self._workload
        if not isinstance(part.data, WrappedData):  # which reads its batches by itself
            pages = self._page_cache(wanted.page_cache)
            known = self._loader_ceiling(pages, report).loader_images_per_second
            part = self._part(config, pages, wanted.folder, math.inf, report).workload
            part = ceilings.few(part, config, pages, None if known is None else known.value)
            pages.prepare(data_source.files(part.data))
        report.phase(Phase.MEASURE)
        rate, _ = ceilings.run(part, self._plan, config, wanted.seconds, report)
        return outcome.LoaderRate(images_per_second=rate)

    def epoch(self, config: PipelineConfig, options: Options, report: Report) -> outcome.EpochTime:
        """Time epochs with the workload's validation, of all samples or of a part that takes about as long as asked."""
        wanted, validation = EpochOptions.model_validate(options), self._asked.validation
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
        else:
            steps[0] = self._train_epochs(config, wanted, watch, steps, report)
        return watch.epoch_time(steps, whole)

    def _train_epochs(
        self, config: PipelineConfig, wanted: EpochOptions, watch: EpochWatch, steps: Sequence[int], report: Report
    ) -> int:
        """Train whole epochs of a part of the samples, and return its batches: a cache or a set may hold fewer yet."""
        bench, pages = self._bench(config.devices, config.channels), self._page_cache(wanted.page_cache)
        validation, size = self._asked.validation, self._workload.batch_size
        assert validation is not None  # else there is nothing to time
        self._require_cache_memory(config)
        workload = self._part(config, pages, wanted.folder, wanted.images_per_second, report).workload
        if not config.kept.converts and steps[0] * size < len(workload.data):
            workload = dataclasses.replace(workload, data=Subset(workload.data, steps[0] * size))
        with assembly.build_loader(workload, config, plan=bench.plan) as loader:
            over = functools.partial(assembly.evaluation_loader, workload, config, model=bench.model)
            trainer = bench.trainer(loader, config.model_setup, config.device_prefetch, over)
            trainer.fit(ENDLESS, validation=Subset(validation, steps[1] * size), callbacks=[watch], verbose=0)
            return len(loader)

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
        loader = LoaderCeiling()  # stays empty if it is known already, or its costs cannot be separated
        if not (wanted.model_only or isinstance(self._workload.data, WrappedData)):
            loader = self._loader_ceiling(pages, report)
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
        if not isinstance(self._workload.data, WrappedData):
            return verify.verify(self._workload, configs, samples=wanted.samples or FEWEST_VERIFIED, report=report)
        return verify.repeats(self._workload, configs, wanted, report, own=self.own_model)

    def close(self) -> None:
        self._parts.close()
        if self._foreign is not None:
            self._foreign.close()
        self._bench.cache_clear()
        self._nvml.close()
        keras.backend.clear_session(free_memory=True)

    def _feed(self, config: PipelineConfig, wanted: outcome.MeasureOptions, report: Report) -> Feed:
        if config.loader.keeps_freed_memory:
            processes.keep_freed_memory()  # before the model runs alone, as it is when it trains
        bench = self._bench(config.devices, config.channels)
        report.phase(Phase.WARM_UP)
        if self._foreign is not None:
            self._foreign.compile(bench)
            report.phase(Phase.OPEN)
            return self._foreign.feed(config, wanted, bench, self._page_cache(wanted.page_cache).regime)
        alone = bench.alone(config.model_setup, report).model_images_per_second.value
        report.phase(Phase.OPEN)
        self._require_cache_memory(config)
        pages = self._page_cache(wanted.page_cache)
        part = self._part(config, pages, wanted.folder, alone, report, wanted.makes_images_per_second)
        return loader_feed(config, wanted, bench, part, pages.regime)

    def _part(
        self,
        config: PipelineConfig,
        pages: PageCache,
        folder: str | None,
        trains: float,
        report: Report,
        makes: float | None = None,
    ) -> Part:
        if config.kept.converts and (said := self._parts.refused(config)) is not None:
            report.log(said)
        return self._parts.part_for(
            config,
            makes=lambda: makes or self._loader_ceiling(pages, report).made_in_time(config, machine.usable_cores()),
            trains=trains,
            folder=folder,
        )

    def _loader_ceiling(self, pages: PageCache, report: Report) -> LoaderCeiling:
        if self._loader is None:
            self._loader = ceilings.loader_ceiling(self._workload, self._plan, pages, report)
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


# -------------------- the measurement of a trial, from its raw readings

_TUNES_ITSELF = "tf.data tunes itself for 10 to 60 s; in a longer training it may run at another rate."


def measurement(
    feed: Feed, fed: Open, usage: Usage, *, began: float, ended: float, files_ready: bool = True
) -> Measurement:
    """Derive the measurement of a training that has ended; with foreign code, waiting shows in the rate only.

    The usage of the process tree starts at `began`, before the feed is opened; the last step had ended at `ended`.
    Raises WorkloadError if the data ended before anything could be measured.
    """
    meter, loader, config = fed.meter, fed.loader, feed.config
    reading, first = meter.reading, meter.filled_at if loader is None else loader.first_taken
    if reading is None or first is None or meter.began_at is None:
        raise _too_few(loader)
    before, usage = usage.samples[0].tree.processes, usage.between(meter.began_at, ended)
    resources = _resources(usage, config.devices)
    rate, stable = meter.overall, reading.stable or reading.cut_short
    shortfall = None if feed.alone is None else max(0.0, 1 - rate.value / feed.alone)
    of_loader: dict[str, Any] = {"data_wait_share": shortfall or 0.0}
    if loader is not None:
        filled, share = meter.filled_at or first, feed.part.share
        fill_seconds = max(0.0, filled - first - len(loader) * loader.batch_size / reading.rate.value) / share
        fills = config.kept.in_memory or config.loader.fills_cache or loader.on_device
        if loader.fill_seconds:
            fill_seconds = loader.fill_seconds / share
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
        first_batch_seconds=first - began - (0.0 if loader is None else loader.fill_seconds),
        discarded_batches=meter.discarded_batches,
        stable=stable,
        warnings=(
            *reading.warnings,
            *(() if stable else resources.warnings),
            *([] if loader is None else _notes(feed, loader)),
            *([_TUNES_ITSELF] if feed.tunes_itself else []),
        ),
        resources=resources,
        page_cache=feed.regime,
        files_ready=files_ready,
        ran=_ran(config, max(0, (usage.peak_processes or before) - before)),
        **of_loader,
    )


def _resources(usage: Usage, devices: int) -> Resources:
    return Resources.of(usage, min(strategies.accelerators(), devices))  # a training has the first that CUDA shows


def _too_few(loader: TimedLoader | None) -> WorkloadError:
    if loader is None:
        return WorkloadError("The pipeline gave too few batches to measure.", hint="Use more data.")
    return WorkloadError(
        f"A cold trial reads each file once, but an epoch has {len(loader)} batches, too few to measure.",
        hint='Use page_cache="warm", or more data.',
    )


def _notes(feed: Feed, loader: TimedLoader) -> list[str]:
    said = []
    if feed.once is not None and loader.taken >= feed.once * len(loader):
        said.append(f"The trial ended with the data: cold, each file is read once, which are {len(loader)} batches.")
    if lost := loader.lost_workers():
        said.append(f"Meanwhile {count_text(lost, 'worker')} of the loader died, and had to be replaced.")
    return said


def _ran(config: PipelineConfig, processes: int) -> outcome.Ran:
    """Describe the parts that ran: processes as counted since the feed was opened, threads as the loader says."""
    return outcome.Ran(
        threads=0 if processes else config.loader.threads(machine.usable_cores()),
        processes=processes,
        devices=strategies.names(config.devices),
        backend=keras.backend.backend(),
        versions={name: value for name, value in machine.installed_versions().items() if value},
    )


# -------------------- the description of a workload


def describe(workload: Workload, plan: Plan, model: Any) -> Description:
    """Describe a workload with its plan and its built model."""
    some = existing(dict.fromkeys(data_source.files(Subset(workload.data, 64))))
    resident = disk.share_in_memory(some)  # before other steps read samples
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
        found.append(
            ("keep", "memory", "no op is the same in every epoch, so encoded samples are all there is to keep")
        )
    _, of_kept = assembly.in_pieces(workload, plan)
    for form in STORAGES:
        is_held = isinstance(workload.data, WrappedData) or STORAGES[form].cuts(of_kept)
        found.append(("keep", form, None if is_held else "it cannot hold these samples"))
    if getattr(workload.data, "first_op", None) is not None and data_source.pieces(workload.data) is None:
        found += [("keep", place, "each epoch reads samples of its own") for place in ("memory", *STORAGES)]
    for kind in LOADERS:
        found.append(("loader", kind, LOADERS[kind].missing() or LOADERS[kind].against(workload.data)))
        for (name, value), reason in LOADERS[kind].impossible(plan).items():
            found.append((name, value, reason))
        if workload.on_bad_sample == "skip" and not LOADERS[kind].skips_bad_samples:
            found.append(("loader", kind, 'it cannot replace bad samples (on_bad_sample="skip")'))
    return _with_reasons(found)


def _impossible(workload: Workload, plan: Plan, model: Any) -> list[Impossible]:
    found: list[tuple[str, str | int, str | None]] = []
    found.append(("channels", "first", _no_channels_first(workload, model, plan)))
    if not plan.suffix:
        found.append(("finish", "device", "no op is left that a device could do"))
    alone, order = _one_device_only(workload, model), assembly.batch_order(workload)
    last = order.batch_samples(order.batches - 1)
    uneven = f"they cannot share the {last} samples of an epoch's last batch; drop_remainder=True leaves it out"
    for count in range(2, max(strategies.accelerators(), strategies.virtual_devices()) + 1):
        found.append(("devices", count, alone))
        found.append(("devices", count, uneven if order.has_short_batch and last % count else None))
    if not isinstance(workload.data, WrappedData):
        for form in NAMES:
            found.append((CODE, form, module.reasons_against(workload, form, plan, own=False)))
    return [*impossible_to_feed(workload, plan), *_with_reasons(found)]


def _with_reasons(found: Iterable[tuple[str, str | int, str | None]]) -> list[Impossible]:
    return [Impossible(parameter=name, value=value, reason=why) for name, value, why in found if why is not None]


def _one_device_only(workload: Workload, model: Any) -> str | None:
    several = strategies.sharing()
    if several is None:
        return f"on Keras's {keras.backend.backend()} backend autopipe trains on one device"
    if isinstance(workload.model, keras.Model):
        return "the model is built already; pass the function that builds it"
    return several.unfit(model)


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
    """Return the bytes of the whole set in each storage form, by its cuts; raises DataError for unreadable samples.

    Pieces of which samples are cut spare their first op, the cut.
    """
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
