"""How many cores others on this machine keep busy, while a training runs: the machine's own count, less this one's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

import psutil

_LEAST_SECONDS: Final = 1.0  # the kernel counts in hundredths of a second, of each core by itself
_SHARE: Final = 0.0025  # of the time, that looking may take: all processes of the machine are gone through


def busy_seconds() -> float:
    """Return the core-seconds that the whole machine was busy since it started, what was stolen from it included."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    counted = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # counted in user already
    return float(counted - idle)


def own_seconds() -> float:
    """Return the core-seconds of this process and of all it started that lives."""
    process = psutil.Process()
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            times = each.cpu_times()
            total += times.user + times.system
    return total


class Neighbours:
    """Tells how many cores others kept busy, and looks no oftener than is cheap."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = busy_seconds,
        own: Callable[[], float] = own_seconds,
    ) -> None:
        """Begin now."""
        self._clock = clock
        self._sources = (busy, own)
        self._pause = _LEAST_SECONDS
        self._cores = 0.0
        self._before = self._read()

    def cores(self) -> float:
        """Return the cores that others kept busy on average from one look to the next; 0 before the second look."""
        if self._clock() - self._before[0] >= self._pause:
            before, self._before = self._before, self._read()
            seconds, busy, own = (now - then for then, now in zip(before, self._before, strict=True))
            self._cores = max(0.0, (busy - own) / seconds)
        return self._cores

    def _read(self) -> tuple[float, ...]:
        began = self._clock()
        busy, own = (source() for source in self._sources)
        self._pause = max(_LEAST_SECONDS, (self._clock() - began) / _SHARE)
        return began, busy, own
