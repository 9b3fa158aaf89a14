"""From what a trial saw to its measurement. Derives nothing that is not in it; statistics are in `windows`."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement, Ran, Resources
from autopipe.hardware import cpu, machine
from autopipe.hardware.pagecache import Regime
from autopipe.hardware.usage import Usage
from autopipe.measure.bench import Bench
from autopipe.measure.probe import Probe
from autopipe.measure.timed import TimedLoader


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When a trial's parts took place, by `time.monotonic`, and on what.

    Attributes:
        opened: before the loader was opened.
        ended: after the last step.
        share: the share of the data that the trial used, 0 to 1.
        regime: the state of the page cache.
    """

    opened: float
    ended: float
    share: float
    regime: Regime


def measurement(
    config: PipelineConfig, bench: Bench, probe: Probe, loader: TimedLoader, usage: Usage, times: Times
) -> Measurement:
    """Return the measurement of a trial whose training has ended."""
    reading, began, first = probe.reading, probe.began, loader.first_taken
    if reading is None or began is None or first is None:
        raise RuntimeError("the training ended before anything could be measured")
    seconds = sum(window.seconds for window in reading.windows)
    waited = sum(window.waiting_seconds for window in reading.windows)
    fill = (began - times.opened) / times.share if config.cache == "memory" else None
    return Measurement(
        config=config.model_dump(mode="json"),
        config_key=config.key(),
        batch_size=loader.batch_size,
        windows=reading.windows,
        images_per_second=reading.rate,
        first_batch_seconds=first - times.opened,
        epoch_restart_seconds=float(np.median(loader.restarts)) if loader.restarts else None,
        cache_fill_seconds=fill,
        discarded_batches=probe.discarded,
        stable=reading.stable,
        warnings=reading.warnings,
        data_wait_share=min(1.0, waited / seconds),
        resources=_resources(usage.between(began, times.ended)),
        page_cache=times.regime,
        ran=_ran(config, bench),
    )


def _resources(usage: Usage) -> Resources:
    return Resources(
        cpu_percent=usage.cpu_percent,
        peak_rss_bytes=usage.peak_memory_bytes,
        shm_bytes=usage.peak_shm_bytes,
        gpu_percent=usage.gpu_busy_percent,
        gpu_memory_bytes=usage.peak_gpu_memory_bytes,
        gpu_watts=usage.gpu_watts,
    )


def _ran(config: PipelineConfig, bench: Bench) -> Ran:
    workers = config.loader.worker_count() or cpu.usable_cores()
    in_processes = config.loader.kind == "processes" or bool(getattr(config.loader, "use_multiprocessing", False))
    versions = {name: value for name, value in dataclasses.asdict(machine.installed_versions()).items() if value}
    return Ran(
        threads=0 if in_processes else workers,
        processes=workers if in_processes else 0,
        devices=bench.device_names,
        backend=keras.backend.backend(),
        versions=versions,
    )
