"""How many cores others on this machine keep busy, while a training runs: the machine's own count, less this one's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import psutil

_LEAST_SECONDS = 1.0  # the kernel counts in hundredths of a second, of each core by itself


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
    """Tells from one call to the next how many cores others kept busy."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = busy_seconds,
        own: Callable[[], float] = own_seconds,
    ) -> None:
        """Begin now."""
        self._sources = (clock, busy, own)
        self._before = self._read()

    def cores(self) -> float:
        """Return the cores that others kept busy on average since the last call; 0 after less than a second."""
        before, self._before = self._before, self._read()
        seconds, busy, own = (now - then for then, now in zip(before, self._before, strict=True))
        return max(0.0, (busy - own) / seconds) if seconds >= _LEAST_SECONDS else 0.0

    def _read(self) -> tuple[float, ...]:
        return tuple(source() for source in self._sources)
