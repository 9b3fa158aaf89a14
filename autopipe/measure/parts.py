"""Which part of the data a trial uses: all of it, or, where something has to be made first, as much as is made in time.

A cache is filled, and a storage form written, for that part only; what is written is kept for later trials of the
session.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

from autopipe import assembly
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.outcome import ConversionCost
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.hardware import cpu
from autopipe.measure.subset import Subset
from autopipe.storage.convert import Converted, convert

_SECONDS = 1.5  # how long filling a cache, or writing a part, may take


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a trial trains on."""

    workload: Workload  # with that part of the data
    share: float = 1.0  # of the data, 0 to 1
    conversion: ConversionCost | None = None  # what writing it took, if it was converted


class Parts:
    """Makes the workloads of trials. Close it to remove what was written."""

    def __init__(self, workload: Workload, plan: Plan) -> None:
        self._workload = workload
        self._plan = plan
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._written: dict[tuple[str, int, int], tuple[Workload, ConversionCost]] = {}

    def part_for(
        self, config: PipelineConfig, *, makes: Callable[[], float], trains: float, folder: str | None = None
    ) -> Part:
        """Return what a trial trains on.

        Args:
            config: what is tried.
            makes: returns images/s at which the cores can make samples; called where something has to be made first.
            trains: images/s that the model takes; a cache is filled while it trains, on the same cores if need be.
            folder: where converted samples are written; None for the temporary folder.
        """
        count = len(self._workload.data)
        converts = STORAGES[config.storage].converts
        if config.cache == "none" and not converts:
            return Part(workload=self._workload)
        rate = makes() if converts else 1 / (1 / makes() + 1 / trains)
        wanted = min(count, max(int(rate * _SECONDS), 4 * self._workload.batch_size))
        wanted -= wanted % self._workload.batch_size  # what an epoch leaves over is no cache's, and read in the next
        part = self._workload
        if wanted < count:
            part = dataclasses.replace(part, data=Subset(part.data, wanted))
        part, conversion = self._converted(part, config, folder) if converts else (part, None)
        return Part(workload=part, share=wanted / count, conversion=conversion)

    def close(self) -> None:
        """Remove what was written."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._written.clear()

    def _converted(self, part: Workload, config: PipelineConfig, folder: str | None) -> tuple[Workload, ConversionCost]:
        """Return the workload with its samples written in the configuration's storage form; once for each cut."""
        storage = STORAGES[config.storage]
        conversion = assembly.conversion_of(part, self._plan, storage, config.cut)
        key = (config.storage, conversion.cut, len(part.data))
        if key not in self._written:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="autopipe-trial-", dir=folder)
            root = Path(self._folder.name) / "-".join(map(str, key))
            done = convert(conversion, storage, root, workers=cpu.usable_cores())
            self._written[key] = dataclasses.replace(part, converted=str(root)), cost_of(done, conversion.cut)
        return self._written[key]


def cost_of(done: Converted, cut: int) -> ConversionCost:
    """Return what a whole conversion, whose samples are kept after `cut` ops, has taken."""
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
