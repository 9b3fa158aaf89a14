"""A session: measures configurations of one workload, trial after trial, with the framework imported and the model
compiled.

It lives in the process of the trials (`autopipe.trial.runner`), reports what it is doing, and raises what goes wrong;
who turns that into an outcome is there. Each trial opens and fully closes its own loader.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Sequence
from pathlib import Path

import keras

from autopipe import assembly
from autopipe.batching.trace_log import TraceLog
from autopipe.batching.wrapped_data import WrappedData
from autopipe.core import footprint
from autopipe.core.ceiling import Ceiling
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.description import Description
from autopipe.core.mode import Mode
from autopipe.core.outcome import Measurement, Phase
from autopipe.core.report import Options, Report
from autopipe.core.step_time import StepTime
from autopipe.core.verification import Verification
from autopipe.core.workload import Workload
from autopipe.data import source as data_source
from autopipe.devices.timed import TimedLoader
from autopipe.errors import LoaderError
from autopipe.hardware import cpu, memory
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.sampler import Sampler
from autopipe.measure import ceilings, describe, exchange, measurement, verify
from autopipe.measure.bench import Bench
from autopipe.measure.ceilings import LoaderCosts
from autopipe.measure.measurement import Trained
from autopipe.measure.meter import AUTOTUNE_SECONDS, MOST_BEFORE_SECONDS, Meter, Start
from autopipe.measure.options import CeilingOptions, MeasureOptions, StepOptions
from autopipe.measure.pages import PageCache
from autopipe.measure.parts import Parts
from autopipe.measure.probe import Probe
from autopipe.measure.traced_training import TracedLoader
from autopipe.ops.planner import make_plan
from autopipe.storage.place import place

_ENDLESS = 10**9  # epochs; the probe ends the training


class Session:
    """Measures. Made once from the workload; see `autopipe.trial.protocol.Session`."""

    def __init__(self, workload: Workload) -> None:
        assembly.keep_freed_memory(workload)  # before the model runs alone, as it is when it trains
        self._asked = workload
        # Every step of a trial has equal work, and what a training lists is no business of a trial's.
        self._workload = dataclasses.replace(workload, drop_remainder=True, bad_sample_log=os.devnull)
        self._plan = make_plan(workload)
        self._bench = functools.cache(functools.partial(Bench, self._workload, self._plan))
        self._parts = Parts(self._workload, self._plan)
        self._page_cache = functools.cache(functools.partial(PageCache, self._workload.data))
        self._loader_costs: LoaderCosts | None = None
        self._nvml = Nvml()

    def describe(self, report: Report) -> Description:
        """Return what a search has to know of the workload."""
        report.phase(Phase.BUILD)
        return describe.describe(self._asked, self._plan, self._bench(1, "last").model)

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        """Train for a few seconds with this configuration."""
        wanted = MeasureOptions.model_validate(options)
        report.phase(Phase.BUILD)
        bench = self._bench(config.devices, config.channels)
        report.phase(Phase.WARM_UP)
        alone = bench.alone(config.model_setup, report).reading.rate.value
        report.phase(Phase.OPEN)
        self._require_cache_memory(config)
        pages = self._page_cache(wanted.page_cache)
        at_once = None if STORAGES[config.storage].converts else config.loader.reads_at_once()
        part = self._parts.part_for(
            config,
            makes=lambda: self._costs_of_loader(pages, report).rate(at_once or cpu.usable_cores()),
            trains=alone,
            folder=wanted.folder,
        )
        workload = part.workload
        prepare = functools.partial(
            pages.prepare, _files(workload, config, int(alone * (wanted.max_seconds + MOST_BEFORE_SECONDS)))
        )
        ready, cold = prepare(), pages.regime == "cold"
        partly = cold and config.cache != "none" and config.cache_fraction < 1  # what is not kept is read again
        once = 2 if partly else 1 if cold and config.cache == "none" else None  # epochs in which each file is read once
        with Sampler(nvml=self._nvml) as sampler:
            opened = time.monotonic()
            opened_loader = assembly.build_loader(workload, config, plan=self._plan, trace=wanted.trace)
            log = None if wanted.trace is None else TraceLog(wanted.trace)
            loader = TimedLoader(opened_loader) if log is None else TracedLoader(opened_loader, log)
            try:
                report.phase(Phase.FIRST_BATCH)
                meter = meter_for(loader, config, wanted)
                probe = Probe(meter, loader, report=report, when_filled=prepare if partly else None)
                steps, epochs = max(1, round(len(loader) / part.share)), _ENDLESS
                if once is not None:
                    steps, epochs = once * len(loader), 1
                setup, ahead = config.model_setup, config.device_prefetch
                with bench.noted(log):
                    bench.run(loader, probe, setup, device_prefetch=ahead, steps=steps, epochs=epochs)
                ended = time.monotonic()
                report.phase(Phase.CLOSE)  # not after a failure, which belongs to the phase it came in
            finally:
                loader.close()
        trained = Trained(
            config=config,
            meter=meter,
            batch_size=loader.batch_size,
            usage=sampler.usage,
            opened=opened,
            ended=ended,
            alone=alone,
            regime=pages.regime,
            files_ready=ready,
            tunes_itself=_tunes_itself(config),
        )
        return measurement.measurement(trained, loader, part, most_epochs=once)

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        """Measure the model alone, the loader alone and each op."""
        wanted = CeilingOptions.model_validate(options)
        report.phase(Phase.BUILD)
        bench = self._bench(wanted.devices, wanted.channels)
        report.phase(Phase.WARM_UP)
        alone = bench.alone(wanted.setup, report, again=wanted.again, samples=wanted.samples)
        report.phase(Phase.MEASURE)
        exchanged = exchange.measure(bench.strategy, bench.model) if wanted.exchange else {}
        pages = self._page_cache(wanted.page_cache)
        opaque = wanted.model_only or isinstance(self._workload.data, WrappedData)
        made = None if opaque else self._costs_of_loader(pages, report)
        found = ceilings.ceiling(self._workload, alone, made, pages.regime, wanted)
        return found.model_copy(update=exchanged)

    def step_time(self, mode: Mode, options: Options, report: Report) -> StepTime:
        """Measure a step of the model in training, evaluation or prediction, without any loader."""
        wanted = StepOptions.model_validate(options)
        report.phase(Phase.BUILD)
        bench = self._bench(wanted.devices, wanted.channels)
        report.phase(Phase.WARM_UP)
        return bench.step_time(mode, wanted.setup, wanted.seconds)

    def verify(self, configs: Sequence[PipelineConfig], options: Options, report: Report) -> Verification:
        """Compare the batches of these configurations; of a dataset of the user's, look for samples that come twice."""
        report.phase(Phase.MEASURE)
        look = verify.repeats if isinstance(self._workload.data, WrappedData) else verify.verify
        return look(self._workload, configs, samples=int(str(options.get("samples", 256))), report=report)

    def close(self) -> None:
        """Let go of the models, and of what was written for trials."""
        self._parts.close()
        self._bench.cache_clear()
        self._nvml.close()
        keras.backend.clear_session(free_memory=True)

    def _costs_of_loader(self, pages: PageCache, report: Report) -> LoaderCosts:
        if self._loader_costs is None:
            self._loader_costs = ceilings.loader_costs(self._workload, self._plan, pages, report)
        return self._loader_costs

    def _require_cache_memory(self, config: PipelineConfig) -> None:
        """Refuse a cache that holds the part of a trial, but could not hold the whole."""
        fixed = self._plan.cut(len(self._plan.prefix))
        if config.cache == "none" or not fixed.is_fixed:
            return
        needed = int(fixed.bytes * len(self._workload.data) * config.cache_fraction)
        free = memory.detect().available_bytes
        if needed > footprint.CACHE_SHARE * free:
            raise LoaderError(
                f"A cache of {config.cache_fraction:.0%} of the samples needs {memory.size_text(needed)}, "
                f"but {memory.size_text(free)} are free, of which it may take {footprint.CACHE_SHARE:.0%}.",
                hint="Use cache='none', a smaller cache_fraction, or smaller images.",
            )


def _files(workload: Workload, config: PipelineConfig, samples: int) -> list[str]:
    """Return the files that a trial will read, if it takes so many samples."""
    if STORAGES[config.storage].converts:
        root = place(workload.converted)
        return [str(path) for path in root.rglob("*")] if isinstance(root, Path) else []
    first: list[int] = assembly.batch_order(workload).epoch(0)[: max(samples, workload.batch_size)].tolist()
    return data_source.files(workload.data, first)


def meter_for(loader: TimedLoader, config: PipelineConfig, wanted: MeasureOptions) -> Meter:
    """Return what follows the training of a trial, told of what its loader is like."""
    start = Start(
        fill_steps=len(loader) if config.cache == "memory" else 1,
        settle_seconds=AUTOTUNE_SECONDS if _tunes_itself(config) else 0.0,
    )
    at_once = loader.batches_at_once or config.loader.worker_count() or 1
    return Meter(loader.batch_size, at_once, wanted.stop_rule, start)


def _tunes_itself(config: PipelineConfig) -> bool:
    return "auto" in config.loader.model_dump().values()
