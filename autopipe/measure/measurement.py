"""From what a trial saw to its measurement. Derives nothing that is not in it; statistics are in `windows`."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import ConversionCost, Measurement, Ran, Resources
from autopipe.devices.timed import TimedLoader
from autopipe.errors import WorkloadError
from autopipe.hardware import cpu, machine
from autopipe.hardware.pagecache import Regime
from autopipe.hardware.usage import Usage
from autopipe.measure import windows
from autopipe.measure.meter import Meter

_BUSY_NEIGHBOUR_PERCENT = 20.0  # of one core
_TUNES_ITSELF = "tf.data tunes itself for 10 to 60 s; in a longer training it may run at another rate."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A training that has ended, as it was watched.

    Attributes:
        config: what was tried.
        meter: what the training's clock said.
        loader: what fed it, closed by now.
        usage: of the process tree, from before the loader was opened.
        opened: when that was, by `time.monotonic`.
        ended: when the last step had ended.
        alone: images/s of the model on a resident batch.
        share: the share of the data that the trial used, 0 to 1.
        conversion: what writing that share in another form took, if it was.
        regime: the state of the page cache.
        limited: whether it had to end with the first epoch.
        epoch_images: images of an epoch of all of the data, after which Keras pauses.
        devices: names of the devices that trained.
        gpus: how many of them are GPUs: the first ones that CUDA shows.
    """

    config: PipelineConfig
    meter: Meter
    loader: TimedLoader
    usage: Usage
    opened: float
    ended: float
    alone: float
    share: float
    conversion: ConversionCost | None
    regime: Regime
    limited: bool
    epoch_images: int
    devices: tuple[str, ...]
    gpus: int = 0


def measurement(trial: Trial) -> Measurement:
    """Return the measurement of a trial.

    Raises:
        WorkloadError: the data came to their end before anything could be measured.
    """
    config, meter, loader = trial.config, trial.meter, trial.loader
    reading, began, first = meter.reading, meter.began_at, loader.first_taken
    if reading is None or began is None or first is None:
        raise WorkloadError(
            f"A cold trial reads each file once, but an epoch has {len(loader)} batches, too few to measure.",
            hint='Use page_cache="warm", or more data.',
        )
    usage = trial.usage.between(began, trial.ended).of_gpus(trial.gpus)
    return Measurement(
        config=config.model_dump(mode="json"),
        config_key=config.key(),
        batch_size=loader.batch_size,
        windows=reading.windows,
        images_per_second=windows.overall(reading.windows, trial.epoch_images),
        first_batch_seconds=first - trial.opened,
        epoch_restart_seconds=float(np.median(loader.restarts)) if loader.restarts else None,
        cache_fill_seconds=_fill_seconds(trial, first, reading.rate.value) if config.cache == "memory" else None,
        discarded_batches=meter.discarded_batches,
        stable=reading.stable or reading.cut_short,
        warnings=reading.warnings + _warnings(trial, usage, stable=reading.stable or reading.cut_short),
        data_wait_share=_data_wait_share(trial),
        resources=_resources(usage),
        page_cache=trial.regime,
        ran=_ran(config, usage, trial.devices),
        conversion=trial.conversion,
        hand_over_seconds=loader.hand_over_seconds,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A training on somebody else's pipeline that has ended, as it was watched.

    Attributes:
        config: that names the pipeline.
        meter: what the training's clock said.
        batch_size: of the batches.
        usage: of the process tree, from before the training began.
        opened: when that was, by `time.monotonic`.
        ended: when the last step had ended.
        alone: images/s of the model on a resident batch; None if that is not known.
        regime: the state of the page cache.
        devices: names of the devices that trained.
        gpus: how many of them are GPUs.
        tunes_itself: whether it is a tf.data pipeline.
        epoch_images: images of an epoch; None where that is not known.
    """

    config: PipelineConfig
    meter: Meter
    batch_size: int
    usage: Usage
    opened: float
    ended: float
    alone: float | None
    regime: Regime
    devices: tuple[str, ...]
    gpus: int
    tunes_itself: bool
    epoch_images: int | None


def of_foreign(trial: Foreign) -> Measurement:
    """Return the measurement of a training on somebody else's pipeline. That the model waited shows in its rate only.

    Raises:
        WorkloadError: the data came to their end before anything could be measured.
    """
    config, meter = trial.config, trial.meter
    reading, began, first = meter.reading, meter.began_at, meter.filled_at
    if reading is None or began is None or first is None:
        raise WorkloadError("The pipeline gave too few batches to measure.", hint="Use more data.")
    usage = trial.usage.between(began, trial.ended).of_gpus(trial.gpus)
    stable = reading.stable or reading.cut_short
    rate = windows.overall(reading.windows, trial.epoch_images)
    said = _disturbed(usage, stable=stable) + ([_TUNES_ITSELF] if trial.tunes_itself else [])
    return Measurement(
        config=config.model_dump(mode="json"),
        config_key=config.key(),
        batch_size=trial.batch_size,
        windows=reading.windows,
        images_per_second=rate,
        first_batch_seconds=first - trial.opened,
        discarded_batches=meter.discarded_batches,
        stable=stable,
        warnings=reading.warnings + tuple(said),
        data_wait_share=0.0 if trial.alone is None else max(0.0, 1 - rate.value / trial.alone),
        resources=_resources(usage),
        page_cache=trial.regime,
        ran=_ran(config, usage, trial.devices),
    )


def _fill_seconds(trial: Trial, first: float, rate: float) -> float:
    """Return what the first epoch takes beyond a later one, for all of the data."""
    filled = trial.meter.filled_at or first
    images = len(trial.loader) * trial.loader.batch_size
    return max(0.0, filled - first - images / rate) / trial.share


def _data_wait_share(trial: Trial) -> float:
    """Return the part of the time in which the model had no batch.

    Where steps run beside the host, the host waits for a batch while the device is still busy with the one before. So
    the model cannot have waited for longer than what is missing to its own rate.
    """
    assert trial.meter.reading is not None
    reading = trial.meter.reading
    waited = sum(window.waiting_seconds for window in reading.windows)
    share = waited / sum(window.seconds for window in reading.windows)
    return min(share, max(0.0, 1 - reading.rate.value / trial.alone), 1.0)


def _warnings(trial: Trial, usage: Usage, *, stable: bool) -> tuple[str, ...]:
    said = _disturbed(usage, stable=stable)
    if trial.limited and trial.loader.taken >= len(trial.loader):
        said.append(
            f"The trial ended with the data: cold, each file is read once, which are {len(trial.loader)} batches."
        )
    if "auto" in trial.config.loader.model_dump().values():
        said.append(_TUNES_ITSELF)
    return tuple(said)


def _disturbed(usage: Usage, *, stable: bool) -> list[str]:
    others = usage.others_cpu_percent
    if stable or others is None or others <= _BUSY_NEIGHBOUR_PERCENT:
        return []
    return [f"Meanwhile other processes of this machine used {others / 100:.1f} cores."]


def _resources(usage: Usage) -> Resources:
    cards = [each for each in usage.gpus_busy_percent if each is not None]
    return Resources(
        cpu_percent=usage.cpu_percent,
        others_cpu_percent=usage.others_cpu_percent,
        peak_rss_bytes=usage.peak_memory_bytes,
        gpu_percent=usage.gpu_busy_percent,
        gpu_busiest_percent=max(cards, default=None),
        gpu_idlest_percent=min(cards, default=None),
        gpu_memory_bytes=usage.peak_gpu_memory_bytes,
        gpu_watts=usage.gpu_watts,
    )


def _ran(config: PipelineConfig, usage: Usage, devices: tuple[str, ...]) -> Ran:
    """Say what worked: processes as they were counted, threads as the loader says."""
    loader = config.loader
    processes = max(0, (usage.peak_processes or 1) - 1)
    threads = loader.threads(cpu.usable_cores())
    versions = {name: value for name, value in dataclasses.asdict(machine.installed_versions()).items() if value}
    return Ran(
        threads=0 if processes else threads,
        processes=processes,
        devices=devices,
        backend=keras.backend.backend(),
        versions=versions,
    )
