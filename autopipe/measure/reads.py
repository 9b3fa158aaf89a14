"""How reading samples scales with the number of reads at a time: the latency of the storage, and its bandwidth.

A ladder of 1, 4, 16, 64, 256 threads reads samples until four times as many bring little more, or time is up; of
slow reads each thread makes one or two a rung, so that the ladder ends no sooner for them. If reads wait, it is noted
how long each took, and some more are read if these are too few to tell which of a hundred are slow.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autopipe.core.ceiling import FEWEST_OF_A_TAIL, STILL_GAINS, ReadCosts, ReadRung, SampleTail
from autopipe.core.sample import Source
from autopipe.errors import BadSampleError
from autopipe.measure import gil
from autopipe.measure.op_costs import CERTAIN, WAITS_SECONDS, Clock, tail_of, thread_clock
from autopipe.ops import reading

_LADDER = (4, 16, 64, 256)
_SECONDS = 2.0  # after which no other rung begins
_RUNG_SECONDS = 0.25
_ALONE_SECONDS = 0.4
_FEWEST = 3  # reads one after the other
_MOST = 400  # reads one after the other
_OF_THE_TAIL = 2 * FEWEST_OF_A_TAIL  # reads: of 200, hardly ever none is one of those that are slow once in fifty
_AT_ONCE_FOR_THE_TAIL = 64


def read_costs(
    source: Source,
    indices: Sequence[int],
    bytes_per_image: float,
    *,
    prepare: Callable[[], object] = lambda: None,
    clock: Clock = thread_clock,
    taken: Callable[[], float] = gil.taken,
) -> ReadCosts | None:
    """Measure how reading scales.

    Args:
        source: what is read; from many threads at once, as loaders do.
        indices: samples to read, in this order, and again from the start where they do not suffice.
        bytes_per_image: as they are read.
        prepare: brings them into the state of the page cache in which trials find them; called before each rung.
        clock: wall and processor seconds of a thread.
        taken: returns how long a thread that has work waits for a core, for each second that it has one.

    Returns:
        The costs, or None if no sample could be read.
    """
    turns = itertools.cycle(indices)
    prepare()
    took: list[tuple[float, int]] = []
    waits, busy = _alone(source, turns, clock, took)
    if not busy:
        return None
    cpu = float(np.mean(busy))
    certain = WAITS_SECONDS + CERTAIN * taken() * float(np.median(busy))
    wait = float(np.mean(waits)) if np.median(waits) > certain else 0.0
    latency = max(cpu + wait, 1e-7)
    rungs = [ReadRung(at_once=1, images_per_second=1 / latency)]
    tail: SampleTail | None = None
    if wait > cpu:
        read = functools.partial(_timed, source, turns, took)
        rungs += _ladder(read, prepare, latency, rungs[0].images_per_second)
        tail = _tail(source, read, took, latency)
    return ReadCosts(
        latency_seconds=latency,
        cpu_seconds=cpu,
        rungs=tuple(rungs),
        bytes_per_image=max(0.0, bytes_per_image),
        tail=tail,
    )


def _alone(
    source: Source, turns: Iterator[int], clock: Clock, took: list[tuple[float, int]]
) -> tuple[list[float], list[float]]:
    """Return the waiting and the processor seconds of reads one after the other; note how long each took."""
    waits: list[float] = []
    busy: list[float] = []
    began = clock()[0]
    for _ in range(_MOST):
        index, before = next(turns), clock()
        if not _read(source, index):
            continue
        after = clock()
        took.append((after[0] - before[0], index))
        cpu = max(0.0, after[1] - before[1])
        waits.append(max(0.0, after[0] - before[0] - cpu))
        busy.append(cpu)
        if len(busy) >= _FEWEST and after[0] - began > _ALONE_SECONDS:
            break
    return waits, busy


def _ladder(read: Callable[[], object], prepare: Callable[[], object], latency: float, rate: float) -> list[ReadRung]:
    rungs: list[ReadRung] = []
    began = time.monotonic()
    for at_once in _LADDER:
        if rungs and time.monotonic() - began > _SECONDS:
            break
        prepare()
        before, rate = rate, _rate(read, at_once, max(_RUNG_SECONDS, latency))
        rungs.append(ReadRung(at_once=at_once, images_per_second=rate))
        if rate < STILL_GAINS * before:
            break
    return rungs


def _rate(read: Callable[[], object], threads: int, seconds: float) -> float:
    """Return reads a second, all threads together."""
    took = gil.side_by_side(read, threads, seconds, fewest=1)
    return max(sum(count / wall for count, wall, _ in took), 1e-3)


def _tail(source: Source, read: Callable[[], object], took: Sequence[tuple[float, int]], latency: float) -> SampleTail:
    """Return how unequal reads are; of too few that `took` their time, more are read unless it lasts too long."""
    turns = -(-(_OF_THE_TAIL - len(took)) // _AT_ONCE_FOR_THE_TAIL)
    if turns > 0 and turns * latency <= _SECONDS:
        gil.side_by_side(read, _AT_ONCE_FOR_THE_TAIL, 0.0, fewest=turns)
    return tail_of(np.array([seconds for seconds, _ in took]), reading.sample_name(source, max(took)[1]))


def _timed(source: Source, turns: Iterator[int], took: list[tuple[float, int]]) -> None:
    """Read the next sample, and note how long it took."""
    index, began = next(turns), time.perf_counter()
    if _read(source, index):
        took.append((time.perf_counter() - began, index))


def _read(source: Source, index: int) -> bool:
    try:
        reading.read(source, index)
    except BadSampleError:
        return False
    return True
