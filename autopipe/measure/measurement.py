"""Makes the measurement of a trial from its raw readings; and the options of a request, beyond the configuration.

Statistics are in `windows`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import keras
import numpy as np
import pydantic

from autopipe.errors import WorkloadError
from autopipe.hardware import machine
from autopipe.hardware.disk import Regime
from autopipe.hardware.processes import Usage
from autopipe.measure.outcome import Measurement, Ran, Resources
from autopipe.measure.windows import Reading, StopRule
from autopipe.pipeline.config import OfSetup, PipelineConfig
from autopipe.pipeline.devices import choose
from autopipe.pipeline.devices.monitor import TimedLoader
from autopipe.values import count_text

if TYPE_CHECKING:
    from autopipe.measure.feed import Feed, Open


class _Options(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    # "warm" puts files into the page cache before a trial, "cold" removes them; "auto": cold if the data are larger
    # than memory
    page_cache: Literal["warm", "cold", "auto"] = "auto"


class MeasureOptions(_Options):
    """The settings of one measurement."""

    min_seconds: float = pydantic.Field(default=1.0, gt=0)  # least measured time
    max_seconds: float = pydantic.Field(default=3.0, gt=0)  # most measured time
    half_width: float = pydantic.Field(default=0.03, gt=0, lt=1)  # of the interval, relative, that is good enough
    hopeless_below: float | None = pydantic.Field(default=None, gt=0)  # images/s; a trial may end early. None: never
    # the `time.monotonic` reading, the same clock in all processes, at which the training ends with the windows it has
    ends_at: float | None = None
    # of the model alone, for a session that does not measure it
    model_images_per_second: float | None = pydantic.Field(default=None, gt=0)
    folder: str | None = None  # for samples that are converted for it; None: the temporary folder
    trace: str | None = None  # a folder for notes of the timeline; None: no notes

    @property
    def stop_rule(self) -> StopRule:
        return StopRule(
            min_seconds=self.min_seconds,
            max_seconds=max(self.min_seconds, self.max_seconds),
            half_width=self.half_width,
            hopeless_below=self.hopeless_below,
            ends_at=math.inf if self.ends_at is None else self.ends_at,
        )


class CeilingOptions(OfSetup, _Options):
    """The purpose of ceilings, beside a setup of the model: if trials read from the disk, its speed is one of them."""

    model_only: bool = False  # leave out the loader, its ops and the disk, which are the same in every setup
    again: bool = False  # measure the model once more, even if this process has done so
    samples: int | None = pydantic.Field(default=None, ge=1)  # of a batch, over all devices; None for the workload's
    elsewhere: PipelineConfig | None = None  # whose workers run elsewhere: count the cores that they have there
    exchange: bool = False  # also measure the exchange of gradients between the devices


class StepOptions(OfSetup):
    """The options of timing a step, beside a setup of the model."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    seconds: float = pydantic.Field(default=2.0, gt=0)  # duration, without compilation


_BUSY_NEIGHBOUR_PERCENT = 20.0  # of one core
_TUNES_ITSELF = "tf.data tunes itself for 10 to 60 s; in a longer training it may run at another rate."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The record of a training that has ended."""

    feed: Feed
    fed: Open  # the feed while it was open
    usage: Usage  # of the process tree, from before the feed was opened
    began: float  # when that was, by `time.monotonic`
    ended: float  # when the last step had ended
    regime: Regime  # the state of the page cache
    files_ready: bool  # there was time to bring all files into that state


def measurement(trained: Trained) -> Measurement:
    """Derive the measurement of a trial. With foreign code, waiting of the model shows in the rate only. Raises
    WorkloadError if the data ended before anything could be measured.
    """
    meter, loader, part = trained.fed.meter, trained.fed.loader, trained.feed.part
    reading, first = meter.reading, meter.filled_at if loader is None else loader.first_taken
    if reading is None or first is None:
        raise _too_few(loader)
    if loader is None:
        return _measured(trained, reading, first)
    said = []
    if trained.feed.once is not None and loader.taken >= trained.feed.once * len(loader):
        said.append(f"The trial ended with the data: cold, each file is read once, which are {len(loader)} batches.")
    if lost := loader.lost_workers():
        said.append(f"Meanwhile {count_text(lost, 'worker')} of the loader died, and had to be replaced.")
    filled = meter.filled_at or first
    fill_seconds = max(0.0, filled - first - len(loader) * loader.batch_size / reading.rate.value) / part.share
    return _measured(trained, reading, first, said).model_copy(
        update={
            "data_share": part.share,
            "epoch_restart_seconds": float(np.median(loader.restarts)) if loader.restarts else None,
            "cache_fill_seconds": fill_seconds if trained.feed.config.cache == "memory" else None,
            "data_wait_share": _data_wait_share(reading, trained.feed.alone),
            "conversion": part.conversion,
            "hand_over_seconds": loader.hand_over_seconds,
        }
    )


def _too_few(loader: TimedLoader | None) -> WorkloadError:
    if loader is None:
        return WorkloadError("The pipeline gave too few batches to measure.", hint="Use more data.")
    return WorkloadError(
        f"A cold trial reads each file once, but an epoch has {len(loader)} batches, too few to measure.",
        hint='Use page_cache="warm", or more data.',
    )


def _measured(trained: Trained, reading: Reading, first: float, said: Sequence[str] = ()) -> Measurement:
    """Derive the figures that any training has; its first batch came at `first`, and waiting follows from its rate."""
    feed, meter = trained.feed, trained.fed.meter
    config, alone = feed.config, feed.alone
    assert meter.began_at is not None  # there is a reading
    # The GPUs of a training are the first ones that CUDA shows.
    gpus = min(choose.accelerators(), config.devices)
    usage = trained.usage.between(meter.began_at, trained.ended).of_gpus(gpus)
    stable = reading.stable or reading.cut_short
    rate = meter.overall
    neighbours = [] if stable else disturbed(usage)
    return Measurement(
        config=config.model_dump(mode="json"),
        config_key=config.key(),
        batch_size=meter.batch_size,
        windows=reading.windows,
        images_per_second=rate,
        first_batch_seconds=first - trained.began,
        discarded_batches=meter.discarded_batches,
        stable=stable,
        warnings=(*reading.warnings, *neighbours, *said, *([_TUNES_ITSELF] if feed.tunes_itself else [])),
        data_wait_share=0.0 if alone is None else max(0.0, 1 - rate.value / alone),
        resources=resources_of(usage),
        page_cache=trained.regime,
        files_ready=trained.files_ready,
        ran=_ran(config, usage),
    )


def _data_wait_share(reading: Reading, alone: float | None) -> float:
    """Return the share of time in which the model had no batch.

    If steps run asynchronously, the host waits for a batch while the device still runs the step before. So the waiting
    is at most the shortfall from the model's own rate.
    """
    waited = sum(window.waiting_seconds for window in reading.windows)
    share = waited / sum(window.seconds for window in reading.windows)
    return min(share, 1.0 if alone is None else max(0.0, 1 - reading.rate.value / alone))


def disturbed(usage: Usage) -> list[str]:
    """Return a warning if other processes used the same cores."""
    others = usage.others_cpu_percent
    if others is None or others <= _BUSY_NEIGHBOUR_PERCENT:
        return []
    return [f"Meanwhile other processes used {others / 100:.1f} of the cores that this one may use."]


def resources_of(usage: Usage) -> Resources:
    """Return the resources that a training took."""
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


def _ran(config: PipelineConfig, usage: Usage) -> Ran:
    """Describe the parts that ran: processes as counted, threads as the loader says."""
    processes = max(0, (usage.peak_processes or 1) - 1)
    versions = {name: value for name, value in machine.installed_versions().items() if value}
    return Ran(
        threads=0 if processes else config.loader.threads(machine.usable_cores()),
        processes=processes,
        devices=choose.names(config.devices),
        backend=keras.backend.backend(),
        versions=versions,
    )
