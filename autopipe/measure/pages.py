"""The page cache before a trial: the files that it will read are put into memory, or out of it, and which is
recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

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
        self._clock = clock
        self._warm: set[str] = set()

    def prepare(self, files: Iterable[str]) -> None:
        """Bring files into the regime's state. What is no file, or was read before, costs nothing."""
        names = dict.fromkeys(files)
        if self.regime == "cold":
            pagecache.drop(existing(names))
            return
        began = self._clock()
        for name in names:
            if name not in self._warm:
                if self._clock() - began > _PATIENCE_SECONDS:
                    return
                pagecache.warm(existing([name]))
                self._warm.add(name)


def existing(names: Iterable[str]) -> list[Path]:
    """Return those that are files."""
    return [path for name in names if (path := Path(name)).is_file()]
