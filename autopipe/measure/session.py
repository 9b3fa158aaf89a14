"""A session: measures one workload, trial after trial, with the framework imported and the model compiled.

It lives in the process of the trials (`autopipe.measure.trial.runner`), which turns its exceptions into outcomes. Each
trial opens and closes its own feed: one of autopipe's loaders (`autopipe.measure.feed`) or foreign code
(`autopipe.measure.foreign`). All are timed by the same meter.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from autopipe.errors import LoaderError
from autopipe.hardware import machine
from autopipe.hardware.gpu import Nvml
from autopipe.hardware.processes import Sampler
from autopipe.measure import ceilings, describe, footprint, measurement, verify
from autopipe.measure.bench import Bench, gradient_exchange
from autopipe.measure.ceilings import LoaderCosts
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.feed import Feed, Parts, loader_feed
from autopipe.measure.foreign import ForeignCode
from autopipe.measure.measurement import CeilingOptions, MeasureOptions, StepOptions, Trained
from autopipe.measure.outcome import Measurement, Options, Phase, Report, StepTime, Verification
from autopipe.measure.probe import Probe
from autopipe.measure.reads import PageCache
from autopipe.pipeline import assembly
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.mode import Mode
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload


class Session:
    """Measures one workload. Implements `autopipe.measure.trial.protocol.Session`."""

    def __init__(self, workload: Workload, code: str | Callable[[], Any] | None = None, name: str = "") -> None:
        """Measure the workload's configurations; or foreign `code`, called `name`, in a process without our settings.

        `code` is a form of plain code, as `autopipe eject` writes it, or a function of the user's.
        """
        if code is None:
            assembly.keep_freed_memory(workload)  # before the model runs alone, as it is when it trains
        self._asked = workload
        # Every step of a trial has equal work, and a trial does not write the training's list of samples.
        self._workload = dataclasses.replace(workload, drop_remainder=True, bad_sample_log=os.devnull)
        self._plan = make_plan(workload)
        self._bench = functools.cache(functools.partial(Bench, self._workload, self._plan))
        self._parts = Parts(self._workload, self._plan)
        self._page_cache = functools.cache(functools.partial(PageCache, self._workload.data))
        self._loader_costs: LoaderCosts | None = None
        self._nvml = Nvml()
        self._foreign = None if code is None else ForeignCode(self._workload, self._plan, code, name)

    def describe(self, report: Report) -> Description:
        report.phase(Phase.BUILD)
        return describe.describe(self._asked, self._plan, self._bench(1, "last").model)

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        report.phase(Phase.BUILD)
        wanted = MeasureOptions.model_validate(options)
        feed, pages = self._feed(config, wanted, report), self._page_cache(wanted.page_cache)
        prepare = functools.partial(pages.prepare, feed.files)
        ready = prepare()
        with Sampler(nvml=self._nvml) as sampler:
            began = time.monotonic()
            with feed.opened() as fed:
                report.phase(Phase.FIRST_BATCH)
                fed.train(Probe(fed.meter, fed.loader, report=report, when_filled=prepare if feed.rereads else None))
                ended = time.monotonic()
                report.phase(Phase.CLOSE)  # not after a failure, which belongs to the phase it came in
        return measurement.measurement(
            Trained(
                feed=feed,
                fed=fed,
                usage=sampler.usage,
                began=began,
                ended=ended,
                regime=pages.regime,
                files_ready=ready,
            )
        )

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        wanted = CeilingOptions.model_validate(options)
        report.phase(Phase.BUILD)
        bench = self._bench(wanted.devices, wanted.channels)
        report.phase(Phase.WARM_UP)
        alone = bench.alone(wanted.setup, report, again=wanted.again, samples=wanted.samples)
        report.phase(Phase.MEASURE)
        exchanged = gradient_exchange(bench.strategy, bench.model) if wanted.exchange else {}
        pages = self._page_cache(wanted.page_cache)
        opaque = wanted.model_only or isinstance(self._workload.data, WrappedData)
        made = None if opaque else self._costs_of_loader(pages, report)
        found = ceilings.ceiling(self._workload, alone, made, pages.regime, wanted)
        return found.model_copy(update=exchanged)

    def step_time(self, mode: Mode, options: Options, report: Report) -> StepTime:
        wanted = StepOptions.model_validate(options)
        report.phase(Phase.BUILD)
        bench = self._bench(wanted.devices, wanted.channels)
        report.phase(Phase.WARM_UP)
        return bench.step_time(mode, wanted.setup, wanted.seconds)

    def verify(self, configs: Sequence[PipelineConfig], options: Options, report: Report) -> Verification:
        """Compare the batches of these configurations; of a dataset of the user's, count samples that come twice."""
        report.phase(Phase.MEASURE)
        samples = int(str(options.get("samples", 256)))
        if not isinstance(self._workload.data, WrappedData):
            return verify.verify(self._workload, configs, samples=samples, report=report)
        seconds = float(str(options.get("seconds", verify.EPOCH_SECONDS)))
        return verify.repeats(self._workload, configs, samples=samples, report=report, seconds=seconds)

    def close(self) -> None:
        """Free the models, and remove what was written for trials."""
        self._parts.close()
        if self._foreign is not None:
            self._foreign.close()
        self._bench.cache_clear()
        self._nvml.close()
        keras.backend.clear_session(free_memory=True)

    def _feed(self, config: PipelineConfig, wanted: MeasureOptions, report: Report) -> Feed:
        bench = self._bench(config.devices, config.channels)
        report.phase(Phase.WARM_UP)
        if self._foreign is not None:
            self._foreign.compile(bench)
            report.phase(Phase.OPEN)
            return self._foreign.feed(config, wanted, bench, self._page_cache(wanted.page_cache).regime)
        alone = bench.alone(config.model_setup, report).reading.rate.value
        report.phase(Phase.OPEN)
        self._require_cache_memory(config)
        pages = self._page_cache(wanted.page_cache)
        at_once = None if STORAGES[config.storage].converts else config.loader.reads_at_once()
        part = self._parts.part_for(
            config,
            makes=lambda: self._costs_of_loader(pages, report).rate(at_once or machine.usable_cores()),
            trains=alone,
            folder=wanted.folder,
        )
        return loader_feed(config, wanted, bench, part, pages.regime)

    def _costs_of_loader(self, pages: PageCache, report: Report) -> LoaderCosts:
        if self._loader_costs is None:
            self._loader_costs = ceilings.loader_costs(self._workload, self._plan, pages, report)
        return self._loader_costs

    def _require_cache_memory(self, config: PipelineConfig) -> None:
        """Refuse a cache that holds the part of a trial, but cannot hold the whole."""
        fixed = self._plan.cut(len(self._plan.prefix))
        if config.cache == "none" or not fixed.is_fixed:
            return
        needed = int(fixed.bytes * len(self._workload.data) * config.cache_fraction)
        free = machine.detect_memory().available_bytes
        if needed > footprint.CACHE_SHARE * free:
            raise LoaderError(
                f"A cache of {config.cache_fraction:.0%} of the samples needs {machine.size_text(needed)}, "
                f"but {machine.size_text(free)} are free, of which it may take {footprint.CACHE_SHARE:.0%}.",
                hint="Use cache='none', a smaller cache_fraction, or smaller images.",
            )
