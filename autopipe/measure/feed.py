"""The feed of a trial: one of autopipe's loaders over the part of the data that a trial can use.

If something has to be made first, that part is as large as can be made in time: a cache is filled, and a storage form
written, for it only. Written samples are kept for later trials of the session. Foreign code as a feed is
`autopipe.measure.foreign`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autopipe.hardware import machine
from autopipe.hardware.disk import Regime
from autopipe.measure.bench import Bench
from autopipe.measure.costs import samples_to_make
from autopipe.measure.measurement import MeasureOptions
from autopipe.measure.meter import AUTOTUNE_SECONDS, MOST_BEFORE_SECONDS, Meter, Start
from autopipe.measure.outcome import ConversionCost
from autopipe.measure.probe import Probe, TracedLoader
from autopipe.measure.reads import Subset
from autopipe.pipeline import assembly
from autopipe.pipeline.batching.traced import TraceLog
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.devices.monitor import TimedLoader
from autopipe.pipeline.storage.convert import Converted, convert
from autopipe.pipeline.storage.shard import place
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Plan
from autopipe.workload.workload import Workload

_ENDLESS = 10**9  # epochs; the probe ends the training


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of the data that a trial trains on."""

    workload: Workload  # with that part of the data
    share: float = 1.0  # of the data, 0 to 1
    conversion: ConversionCost | None = None  # of writing it, if it was converted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An open feed."""

    meter: Meter
    train: Callable[[Probe], None]  # until the probe has seen enough
    loader: TimedLoader | None = None  # None for foreign code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """The data of a trial, ready to be opened."""

    config: PipelineConfig
    opened: Callable[[], contextlib.AbstractContextManager[Open]]
    files: Sequence[str]  # that the training reads
    part: Part
    alone: float | None  # images/s of the model on a batch that is already there, if that is known
    tunes_itself: bool  # tf.data chooses settings while the training runs
    once: int | None = None  # epochs that may be read if each file has to come from the disk; None: any number

    @property
    def rereads(self) -> bool:
        """True if samples are not kept, so that their files come from the disk again in each epoch."""
        return self.once == 2


def loader_feed(config: PipelineConfig, wanted: MeasureOptions, bench: Bench, part: Part, regime: Regime) -> Feed:
    """Make the feed of a configuration, for a bench that has measured the model alone."""
    alone = bench.alone(config.model_setup).reading.rate.value
    log = None if wanted.trace is None else TraceLog(wanted.trace)
    once = None
    if regime == "cold" and (config.cache == "none" or config.cache_fraction < 1):
        once = 1 if config.cache == "none" else 2

    @contextlib.contextmanager
    def opened() -> Iterator[Open]:
        own = assembly.build_loader(part.workload, config, plan=bench.plan, trace=wanted.trace)
        loader = TimedLoader(own) if log is None else TracedLoader(own, log)

        def train(probe: Probe) -> None:
            steps, epochs = max(1, round(len(loader) / part.share)), _ENDLESS
            if once is not None:
                steps, epochs = once * len(loader), 1
            setup, ahead = config.model_setup, config.device_prefetch
            with bench.noted(log):
                bench.run(loader, probe, setup, device_prefetch=ahead, steps=steps, epochs=epochs)

        try:
            yield Open(meter=meter_for(loader, config, wanted), train=train, loader=loader)
        finally:
            loader.close()

    files = _files(part.workload, config, int(alone * (wanted.max_seconds + MOST_BEFORE_SECONDS)))
    return Feed(
        config=config, opened=opened, files=files, part=part, alone=alone, tunes_itself=_tunes_itself(config), once=once
    )


def _files(workload: Workload, config: PipelineConfig, samples: int) -> list[str]:
    if STORAGES[config.storage].converts:
        root = place(workload.converted)
        return [str(path) for path in root.rglob("*")] if isinstance(root, Path) else []
    first: list[int] = assembly.batch_order(workload).epoch(0)[: max(samples, workload.batch_size)].tolist()
    return data_source.files(workload.data, first)


def meter_for(loader: TimedLoader, config: PipelineConfig, wanted: MeasureOptions) -> Meter:
    """Make the meter of a trial with the properties of its loader."""
    start = Start(
        fill_steps=len(loader) if config.cache == "memory" else 1,
        settle_seconds=AUTOTUNE_SECONDS if _tunes_itself(config) else 0.0,
    )
    at_once = loader.batches_at_once or config.loader.worker_count() or 1
    return Meter(loader.batch_size, at_once, wanted.stop_rule, start)


def _tunes_itself(config: PipelineConfig) -> bool:
    return "auto" in config.loader.model_dump().values()


class Parts:
    """Makes the workloads of trials. `close` removes what they wrote."""

    def __init__(self, workload: Workload, plan: Plan) -> None:
        self._workload = workload
        self._plan = plan
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._written: dict[tuple[str, int, int], tuple[Workload, ConversionCost]] = {}

    def part_for(
        self, config: PipelineConfig, *, makes: Callable[[], float], trains: float, folder: str | None = None
    ) -> Part:
        """Choose the part of the data for a trial; converted samples go to `folder` (None: the temporary one).

        `makes` returns the images/s that the cores can make, and is called only if something has to be made first. The
        model
        `trains` images/s; a cache is filled during training, possibly on the same cores.
        """
        count = len(self._workload.data)
        converts = STORAGES[config.storage].converts
        if config.cache == "none" and not converts:
            return Part(workload=self._workload)
        rate = makes() if converts else 1 / (1 / makes() + 1 / trains)
        wanted = samples_to_make(rate, self._workload.batch_size, count)
        part = self._workload
        if wanted < count:
            part = dataclasses.replace(part, data=Subset(part.data, wanted))
        part, conversion = self._converted(part, config, folder) if converts else (part, None)
        return Part(workload=part, share=wanted / count, conversion=conversion)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._written.clear()

    def _converted(self, part: Workload, config: PipelineConfig, folder: str | None) -> tuple[Workload, ConversionCost]:
        """Write the samples in the configuration's storage form, once for each cut; return the workload with them."""
        storage = STORAGES[config.storage]
        conversion = assembly.conversion_of(part, self._plan, storage, config.cut)
        key = (config.storage, conversion.cut, len(part.data))
        if key not in self._written:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="autopipe-trial-", dir=folder)
            root = Path(self._folder.name) / "-".join(map(str, key))
            done = convert(conversion, storage, root, workers=machine.usable_cores())
            self._written[key] = dataclasses.replace(part, converted=str(root)), cost_of(done, conversion.cut)
        return self._written[key]


def cost_of(done: Converted, cut: int) -> ConversionCost:
    """Compute the cost of a whole conversion, whose samples are kept after `cut` ops."""
    assert done.manifest is not None
    return ConversionCost(
        cut=cut,
        samples=done.samples,
        bytes=done.manifest.bytes,
        workers=done.workers,
        seconds=done.seconds,
        shard_samples=done.shard_samples,
        shard_seconds=done.shard_seconds,
    )
