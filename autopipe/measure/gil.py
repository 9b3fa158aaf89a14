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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from autopipe.hardware import cpu

_SECONDS = 0.06  # of one thread, and of several
_FEW_THREADS = 4  # that begin; four times as many follow where these do not wait for each other
_MOST_THREADS = 64
_CHEAP_SECONDS = 0.00002  # what takes less is mostly Python's own work, all of it under the lock
_SEEN = 0.25  # of the processor time: less waiting is noise
_FREE_BYTES = 2**16  # for each thread that takes turns: zlib lets go of the lock for so many
_FREE = memoryview(bytes(_MOST_THREADS * _FREE_BYTES))


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """What one call took on average, in seconds: wall and processor time."""

    wall: float
    cpu: float

    @property
    def wait(self) -> float:
        """Time without a processor."""
        return max(0.0, self.wall - self.cpu)


_UNDISTURBED = Turn(wall=1.0, cpu=1.0)


def held_share(call: Callable[[], object], seconds: float, most_threads: int = _MOST_THREADS) -> float:
    """Return the part of a function's processor time for which it holds Python's lock, 0 to 1.

    On one core it is 0, since nothing can be told there, nor matters. On many, few threads come first: they see what
    holds the lock for long, which many would have to wait for in turn, and what they do not see lets more threads work.

    Args:
        call: the function.
        seconds: that a call takes.
        most_threads: that there is memory for; the first few run anyway.
    """
    if seconds < _CHEAP_SECONDS:
        return 1.0
    cores = cpu.usable_cores()
    if cores < 2:
        return 0.0
    length = max(_SECONDS, 3 * seconds)
    alone = _run(call, 1, length)
    # Where calls wait by themselves, many of them wait for each other at a storage or a server, too.
    most = _FEW_THREADS if alone.wait > alone.cpu else max(_FEW_THREADS, min(_MOST_THREADS, most_threads))
    for threads in _crews(min(cores, most)):
        together = _run(call, threads, length)
        if share(alone, together, _UNDISTURBED, threads) == 0:
            continue
        held = share(alone, together, _free(threads), threads)
        if held > 0:
            return held
    return 0.0


def _crews(most: int) -> Iterator[int]:
    threads = min(_FEW_THREADS, most)
    while threads < most:
        yield threads
        threads = min(4 * threads, most)
    yield most


def _free(threads: int) -> Turn:
    """Return a call of what holds no lock, beside others of its kind: the longer, the more there are to take turns."""
    some = _FREE[: max(_FEW_THREADS, threads) * _FREE_BYTES]
    return _run(lambda: zlib.crc32(some), threads, _SECONDS)


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
    free = _free(1)
    return free.wait / free.cpu if free.cpu > 0 else 0.0


def _run(call: Callable[[], object], threads: int, seconds: float) -> Turn:
    """Return what a call takes on average while so many threads make calls for so long."""
    took = side_by_side(call, threads, seconds, fewest=2)
    calls = sum(each[0] for each in took)
    return Turn(sum(each[1] for each in took) / calls, sum(each[2] for each in took) / calls)


def side_by_side(
    call: Callable[[], object], threads: int, seconds: float, *, fewest: int
) -> list[tuple[int, float, float]]:
    """Return how many calls each thread made, and in how many wall and processor seconds: so many `seconds` or more."""
    start = threading.Barrier(threads)

    def work() -> tuple[int, float, float]:
        start.wait()
        wall, busy, calls = time.perf_counter(), time.thread_time(), 0
        while calls < fewest or time.perf_counter() - wall < seconds:
            call()
            calls += 1
        return calls, time.perf_counter() - wall, time.thread_time() - busy

    with ThreadPoolExecutor(threads) as pool:
        return [run.result() for run in [pool.submit(work) for _ in range(threads)]]
