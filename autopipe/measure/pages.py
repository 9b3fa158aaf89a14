"""The page cache before a trial: the files that it will read are put into memory, or out of it, and which is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from autopipe.core.sample import Source
from autopipe.data import source as data_source
from autopipe.hardware import memory, pagecache

_PATIENCE_SECONDS = 20.0  # reading files ahead of a trial must not take longer


class PageCache:
    """Prepares files for trials, and remembers which have been read already.

    Attributes:
        regime: "warm" or "cold", for all trials of a session.
    """

    def __init__(self, source: Source, choice: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Decide the regime; `choice` is "warm", "cold" or "auto"."""
        data_bytes = int(data_source.mean_bytes(source) * len(source))
        self.regime = pagecache.regime(choice, data_bytes, memory.detect().usable_bytes)
        self._source = source
        self._clock = clock
        self._warm = np.zeros(len(source), np.bool_)

    def prepare(self, indices: Sequence[int]) -> None:
        """Bring the files of some samples into the regime's state."""
        if self.regime == "cold":
            pagecache.drop(self._paths(indices))
            return
        began = self._clock()
        chosen = np.asarray(indices)
        for part in np.array_split(chosen[~self._warm[chosen]], max(1, len(chosen) // 256)):
            if self._clock() - began > _PATIENCE_SECONDS:
                return
            pagecache.warm(self._paths(part.tolist()))
            self._warm[part] = True

    def _paths(self, indices: Sequence[int]) -> list[Path]:
        return [path for name in data_source.files(self._source, indices) if (path := Path(name)).is_file()]
