"""A session: measures configurations of one workload, trial after trial, with the framework imported and the model compiled.

It lives in the process of the trials (`autopipe.trial.runner`), reports what it is doing, and raises what goes wrong; who
turns that into an outcome is there. Each trial opens and fully closes its own loader.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Literal

import keras

from autopipe import assembly
from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Ceiling, Description, Estimate, Measurement, OpCost, Phase, Verification
from autopipe.core.report import Options, Report
from autopipe.core.workload import Workload
from autopipe.hardware import cpu
from autopipe.hardware.sampler import Sampler
from autopipe.loaders.threads import Threads
from autopipe.measure import costs, describe, result, verify, windows
from autopipe.measure.bench import Bench
from autopipe.measure.options import MeasureOptions
from autopipe.measure.pages import PageCache
from autopipe.measure.parts import Parts
from autopipe.measure.probe import Probe
from autopipe.measure.result import Times
from autopipe.measure.timed import TimedLoader
from autopipe.ops.plan import make_plan

_COST_SAMPLES = 40
_LOADER_ALONE_SECONDS = 0.7


class Session:
    """Measures. Made once from the workload; see `autopipe.trial.protocol.Session`."""

    def __init__(self, workload: Workload) -> None:
        self._workload = dataclasses.replace(workload, drop_remainder=True)  # every step of a trial has equal work
        self._plan = make_plan(workload)
        self._order = assembly.batch_order(self._workload)
        self._benches: dict[tuple[int, str], Bench] = {}
        self._parts = Parts(self._workload, self._plan)
        self._pages: dict[str, PageCache] = {}
        self._costs: tuple[OpCost, ...] = ()

    def describe(self, options: Options, report: Report) -> Description:
        """Return what a search has to know of the workload."""
        report.phase(Phase.BUILD)
        return describe.describe(self._workload, self._plan, self._bench(1, "last").model)

    def measure(self, config: PipelineConfig, options: Options, report: Report) -> Measurement:
        """Train for a few seconds with this configuration."""
        wanted = MeasureOptions.model_validate(options)
        config = config.normalised()
        report.phase(Phase.BUILD)
        bench = self._bench(config.devices, config.channels)
        report.phase(Phase.WARM_UP)
        resident, _ = bench.resident(config.finish)
        workload, share = self._part_for(config, resident.rate.value)
        pages = self._page_cache(wanted.page_cache)
        pages.prepare(self._first_indices(resident.rate.value * (wanted.max_seconds + 1.0)))
        report.phase(Phase.OPEN)
        opened = time.monotonic()
        with Sampler() as sampler:
            loader = TimedLoader(assembly.build_loader(workload, config, plan=self._plan))
            try:
                report.phase(Phase.FIRST_BATCH)
                probe = self._probe(loader, config, wanted, report)
                bench.run(loader, probe, config.device_prefetch)
                ended = time.monotonic()
            finally:
                report.phase(Phase.CLOSE)
                loader.close()
        return result.measurement(
            config,
            bench,
            probe,
            loader,
            sampler.usage,
            Times(opened=opened, ended=ended, share=share, regime=pages.regime),
        )

    def ceiling(self, options: Options, report: Report) -> Ceiling:
        """Measure the model alone, the loader alone and each op."""
        devices, channels = int(str(options.get("devices", 1))), _channels(options)
        report.phase(Phase.BUILD)
        bench = self._bench(devices, channels)
        report.phase(Phase.WARM_UP)
        reading, cpu_seconds = bench.resident("device")
        self._page_cache(str(options.get("page_cache", "auto")))
        report.phase(Phase.MEASURE)
        op_costs = self._op_costs()
        cores = cpu.usable_cores()
        loader_rate = self._loader_alone(cores)
        return Ceiling.model_validate(
            {
                "model_images_per_second": reading.rate,
                "model_core_seconds_per_image": cpu_seconds,
                "loader_images_per_second": loader_rate,
                "op_costs": op_costs,
                "cores": float(cores),
                "devices": devices,
                "channels": channels,
                "warnings": reading.warnings,
            }
        )

    def verify(self, configs: Sequence[PipelineConfig], options: Options, report: Report) -> Verification:
        """Compare the batches of these configurations."""
        report.phase(Phase.MEASURE)
        return verify.verify(self._workload, configs, samples=int(str(options.get("samples", 256))), report=report)

    def close(self) -> None:
        """Let go of the models, and of what was written for trials."""
        self._parts.close()
        self._benches.clear()
        keras.backend.clear_session(free_memory=True)

    def _bench(self, devices: int, channels: Literal["last", "first"]) -> Bench:
        key = (devices, channels)
        if key not in self._benches:
            self._benches[key] = Bench(self._workload, self._plan, devices, channels)
        return self._benches[key]

    def _page_cache(self, choice: str) -> PageCache:
        if choice not in self._pages:
            self._pages[choice] = PageCache(self._workload.data, choice)
        return self._pages[choice]

    def _op_costs(self) -> tuple[OpCost, ...]:
        if not self._costs:
            chosen = self._order.epoch(0)[:_COST_SAMPLES].tolist()
            self._page_cache("warm").prepare(chosen)
            self._costs = costs.op_costs(self._workload, self._plan, chosen)
        return self._costs

    def _first_indices(self, count: float) -> list[int]:
        indices: list[int] = self._order.epoch(0)[: max(self._workload.batch_size, int(count))].tolist()
        return indices

    def _part_for(self, config: PipelineConfig, model_rate: float) -> tuple[Workload, float]:
        fixed = sum(cost.seconds_per_image for cost in self._op_costs() if cost.part == "fixed")
        return self._parts.part_for(config, makes=cpu.usable_cores() / max(fixed, 1e-6), trains=model_rate)

    def _probe(self, loader: TimedLoader, config: PipelineConfig, wanted: MeasureOptions, report: Report) -> Probe:
        workers = config.loader.worker_count() or cpu.usable_cores()
        skip = windows.discarded_steps(workers)
        if config.cache == "memory":
            skip += len(loader)
        rule = windows.StopRule(
            min_seconds=wanted.min_seconds,
            max_seconds=wanted.max_seconds,
            half_width=wanted.half_width,
            hopeless_below=wanted.hopeless_below,
        )
        return Probe(loader, rule=rule, workers=workers, skip=skip, on_window=report.progress, on_phase=report.phase)

    def _loader_alone(self, cores: int) -> Estimate:
        """Return the rate of one thread a core when nobody waits for its batches."""
        config = PipelineConfig(loader=Threads(workers=cores, queue_size=4))
        edges, images, batch_size = [], 0, self._workload.batch_size
        with assembly.build_loader(self._workload, config, plan=self._plan) as loader:
            began = before = time.monotonic()
            for epoch in range(1_000_000):
                for batch in loader.batches(epoch):
                    images += len(batch[0])
                    now = time.monotonic()
                    if now - before >= 0.05 and images >= cores * batch_size:
                        edges.append(images / (now - before))
                        before, images = now, 0
                    if now - began > _LOADER_ALONE_SECONDS:
                        return windows.estimate(edges[1:] or edges or [images / max(now - before, 1e-9)])
        raise RuntimeError("unreachable: epochs do not end")


def _channels(options: Options) -> Literal["last", "first"]:
    return "first" if options.get("channels") == "first" else "last"
