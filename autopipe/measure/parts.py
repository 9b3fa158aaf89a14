"""Which part of the data a trial uses: all of it, or, where something has to be made first, as much as is made in time.

A cache is filled, and a storage form written, for that part only; what is written is kept for later trials of the
session.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from autopipe import assembly
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.hardware import cpu
from autopipe.measure.subset import Subset
from autopipe.storage.convert import convert

_SECONDS = 1.5  # how long filling a cache, or writing a part, may take


class Parts:
    """Makes the workloads of trials. Close it to remove what was written."""

    def __init__(self, workload: Workload, plan: Plan) -> None:
        self._workload = workload
        self._plan = plan
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._written: dict[tuple[str, int], Workload] = {}

    def part_for(self, config: PipelineConfig, *, makes: float, trains: float) -> tuple[Workload, float]:
        """Return the workload for a trial and which share of the data it has.

        Args:
            config: what is tried.
            makes: images/s at which the cores can make samples.
            trains: images/s that the model takes; a cache cannot be filled faster.
        """
        count = len(self._workload.data)
        converts = STORAGES[config.storage].converts
        if config.cache == "none" and not converts:
            return self._workload, 1.0
        rate = makes if converts else min(makes, trains)
        wanted = min(count, max(int(rate * _SECONDS), 4 * self._workload.batch_size))
        part = self._workload
        if wanted < count:
            part = dataclasses.replace(part, data=Subset(part.data, wanted))
        return (self._converted(part, config) if converts else part), wanted / count

    def close(self) -> None:
        """Remove what was written."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._written.clear()

    def _converted(self, part: Workload, config: PipelineConfig) -> Workload:
        """Return the workload with its samples written in the configuration's storage form; once for each form."""
        key = (config.storage, len(part.data))
        if key not in self._written:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="autopipe-trial-")
            root = Path(self._folder.name) / "-".join(map(str, key))
            storage = STORAGES[config.storage]
            conversion = assembly.conversion_of(part, self._plan, storage)
            convert(conversion, storage, root, workers=cpu.usable_cores())
            self._written[key] = dataclasses.replace(part, converted=str(root))
        return self._written[key]
