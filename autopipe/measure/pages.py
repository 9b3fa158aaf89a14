"""The page cache before a trial: the files that it will read are put into memory, or out of it, and which is
recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autopipe.core.sample import Source
from autopipe.data import source as data_source
from autopipe.hardware import memory, pagecache

_PATIENCE_SECONDS = 20.0  # dropping files ahead of a trial, and reading them ahead of all trials, must not take longer
_AT_ONCE = 8  # files: a network, or an SSD, gives one reader a part of what it can give
_PART = 64  # files between two looks at the clock


class PageCache:
    """Prepares files for trials, and remembers which have been read already."""

    def __init__(self, source: Source, choice: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Decide the regime, "warm" or "cold" for all trials of a session; `choice` is one of them, or "auto"."""
        data_bytes = int(data_source.mean_bytes(source) * len(source))
        self.regime = pagecache.regime(choice, data_bytes, memory.detect().usable_bytes)
        self._clock = clock
        self._warm: set[str] = set()
        self._left = _PATIENCE_SECONDS

    def prepare(self, files: Iterable[str]) -> bool:
        """Bring files into the regime's state, and return whether there was time for all of them.

        What is no file, or was read before, costs nothing.
        """
        cold, ready = self.regime == "cold", True
        names = [name for name in dict.fromkeys(files) if name not in self._warm]
        change = pagecache.drop if cold else pagecache.warm
        began = self._clock()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for part in (names[begin : begin + _PART] for begin in range(0, len(names), _PART)):
                if self._clock() - began > self._left:
                    ready = False
                    break
                list(pool.map(lambda name: change(existing([name])), part))
                self._warm.update(() if cold else part)
        if not cold:
            self._left = max(0.0, self._left - (self._clock() - began))
        return ready


def existing(names: Iterable[str]) -> list[Path]:
    """Return those that are files."""
    return [path for name in names if (path := Path(name)).is_file()]
