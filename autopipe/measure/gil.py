"""How much of a function's processor time is under Python's lock: it is run in several threads at once.

What does not scale holds the lock. Threads that wait for it take no processor time, those that share a slow memory do:
so it is the waiting beyond what one thread waits that counts, and beyond what a function waits that is known to let
go of the lock, which tells what other programs take from the threads meanwhile.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from autopipe.hardware import cpu

_SECONDS = 0.06  # of one thread, and of several
_MOST_THREADS = 4
_CHEAP_SECONDS = 0.00002  # what takes less is mostly Python's own work, all of it under the lock
_SEEN = 0.25  # of the processor time: less waiting is noise
_FREE = bytes(2**18)  # zlib lets go of the lock for so many


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """What one call took on average, in seconds: wall and processor time."""

    wall: float
    cpu: float

    @property
    def wait(self) -> float:
        """Time without a processor."""
        return max(0.0, self.wall - self.cpu)


def held_share(call: Callable[[], object], seconds: float) -> float:
    """Return the part of a function's processor time for which it holds Python's lock, 0 to 1; a call takes `seconds`.

    On one core it is 0, since nothing can be told there, nor matters.
    """
    if seconds < _CHEAP_SECONDS:
        return 1.0
    threads = min(_MOST_THREADS, cpu.usable_cores())
    if threads < 2:
        return 0.0
    length = max(_SECONDS, 3 * seconds)
    alone, together = _run(call, 1, length), _run(call, threads, length)
    free = _run(lambda: zlib.crc32(_FREE), threads, _SECONDS)
    return share(alone, together, free, threads)


def share(alone: Turn, together: Turn, free: Turn, threads: int) -> float:
    """Return the part of the processor time under the lock, 0 to 1.

    Args:
        alone: a call with no other thread.
        together: a call beside others of its kind.
        free: a call, beside others of its kind, of what holds no lock.
        threads: how many ran together. Of what holds the lock for less than one in `threads`, nothing is seen.
    """
    if together.cpu <= 0:
        return 0.0
    taken = free.wait / free.wall * together.wall if free.wall > 0 else 0.0
    waits = together.wait - alone.wait - taken
    if waits < _SEEN * together.cpu:
        return 0.0
    return min(1.0, (together.cpu + waits) / (threads * together.cpu))


def taken() -> float:
    """Return how long a thread that has work waits for a core, for each second that it has one; about 0 if idle."""
    free = _run(lambda: zlib.crc32(_FREE), 1, _SECONDS)
    return free.wait / free.cpu if free.cpu > 0 else 0.0


def _run(call: Callable[[], object], threads: int, seconds: float) -> Turn:
    """Return what a call takes on average while so many threads make calls for so long."""
    start = threading.Barrier(threads)

    def work() -> tuple[int, float, float]:
        start.wait()
        wall, busy, calls = time.perf_counter(), time.thread_time(), 0
        while calls < 2 or time.perf_counter() - wall < seconds:
            call()
            calls += 1
        return calls, time.perf_counter() - wall, time.thread_time() - busy

    with ThreadPoolExecutor(threads) as pool:
        took = [run.result() for run in [pool.submit(work) for _ in range(threads)]]
    calls = sum(each[0] for each in took)
    return Turn(sum(each[1] for each in took) / calls, sum(each[2] for each in took) / calls)
