"""How many cores others keep busy while a training runs, of those that it may use: their own count, less this one's.

Where a process is held to some cores of a machine (taskset, a container's cpuset), what others do on the rest is no
business of its training; nor is it, under a CPU quota, on as many cores as the quota leaves idle.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from autopipe.hardware import cpu, mounts, process_tree

_LEAST_SECONDS: Final = 1.0  # the kernel counts in hundredths of a second, of each core by itself
_SHARE: Final = 0.0025  # of the time, that looking may take: all processes of the machine are gone through


_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_BUSY: Final = (0, 1, 2, 5, 6, 7)  # user, nice, system, interrupts and what was stolen; guests are in the first two


def busy_seconds(proc: Path = process_tree.PROC) -> float:
    """Return the core-seconds that the cores which this process may use were busy since the machine started.

    What a hypervisor has stolen from them is included. Read from /proc/stat (`man 5 proc`), line by line of a core.
    """
    ours = {f"cpu{core}" for core in cpu.allowed()}
    lines = (line.split() for line in mounts.text_of(proc / "stat").splitlines() if line.startswith("cpu"))
    ticks = (int(counts[field]) for name, *counts in lines if name in ours for field in _BUSY if field < len(counts))
    return sum(ticks) / _TICKS_PER_SECOND


def own_seconds() -> float:
    """Return the core-seconds of this process and of all it started, of the dead if they were waited for."""
    process = psutil.Process()
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


class Neighbours:
    """Tells how many cores others kept busy, and looks no oftener than is cheap."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = busy_seconds,
        own: Callable[[], float] = own_seconds,
        spare: Callable[[], float] = cpu.spare_cores,
    ) -> None:
        """Begin now."""
        self._clock = clock
        self._sources = (busy, own)
        self._spare = spare
        self._pause = _LEAST_SECONDS
        self._cores = 0.0
        self._before = self._read()

    def cores(self) -> float:
        """Return the cores that others kept busy on average from one look to the next; 0 before the second look."""
        if self._clock() - self._before[0] >= self._pause:
            before, self._before = self._before, self._read()
            seconds, busy, own = (now - then for then, now in zip(before, self._before, strict=True))
            self._cores = max(0.0, (busy - own) / seconds - self._spare())
        return self._cores

    def _read(self) -> tuple[float, ...]:
        began = self._clock()
        busy, own = (source() for source in self._sources)
        self._pause = max(_LEAST_SECONDS, (self._clock() - began) / _SHARE)
        return began, busy, own
