"""Reads of trials: the state of the page cache, and the scaling of reads.

A ladder of 1, 4, 16, 64, 256 threads reads samples until four times as many bring little more, or time is up; if reads
are slow, each thread makes one or two a rung, so that the ladder does not end sooner for them. If reads wait, the time
of each is noted, and more are read if these are too few to show the slowest 1 %.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from autopipe.errors import BadSampleError
from autopipe.hardware import disk, machine
from autopipe.measure import op_costs
from autopipe.measure.facts import FEWEST_OF_A_TAIL, STILL_GAINS, ReadCosts, ReadRung, SampleTail
from autopipe.measure.op_costs import CERTAIN, WAITS_SECONDS, Clock, tail_of, thread_clock
from autopipe.workload.data import source as data_source
from autopipe.workload.ops import planner
from autopipe.workload.sample import Source

_PATIENCE_SECONDS = 20.0  # dropping files ahead of a trial, and reading them ahead of all trials, must not take longer
_AT_ONCE = 8  # files: a network, or an SSD, gives one reader a part of what it can give
_PART = 64  # files between two looks at the clock


class PageCache:
    """Prepares files for trials, and remembers those that have been read."""

    def __init__(
        self, source: Source, choice: Literal["warm", "cold", "auto"], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Set the state of the files for all trials of a session."""
        data_bytes = int(data_source.mean_bytes(source) * len(source))
        self.regime = disk.regime(choice, data_bytes, machine.detect_memory().usable_bytes)
        self._clock = clock
        self._warm: set[str] = set()
        self._left = _PATIENCE_SECONDS

    def prepare(self, files: Iterable[str]) -> bool:
        """Bring files into that state; True if there was time for all of them.

        Names that are no files, and files that were read before, are skipped.
        """
        cold, ready = self.regime == "cold", True
        names = [name for name in dict.fromkeys(files) if name not in self._warm]
        change = disk.drop if cold else disk.warm
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
    """Return the paths of those names that are files."""
    return [path for name in names if (path := Path(name)).is_file()]


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
    taken: Callable[[], float] = op_costs.taken,
) -> ReadCosts | None:
    """Measure the scaling of reads; None if no sample could be read.

    Samples are read from many threads at once, as by loaders, in the order of `indices`, and again from the start if
    they run out. `prepare` brings them into the page-cache state of trials before each rung; `taken` returns a busy
    thread's waiting for a core, for each second that it has one.
    """
    reads = _Reads(source, indices)
    prepare()
    waits, busy = _alone(reads, clock)
    if not busy:
        return None
    cpu = float(np.mean(busy))
    certain = WAITS_SECONDS + CERTAIN * taken() * float(np.median(busy))
    wait = float(np.mean(waits)) if np.median(waits) > certain else 0.0
    latency = max(cpu + wait, 1e-7)
    rungs = [ReadRung(at_once=1, images_per_second=1 / latency)]
    tail: SampleTail | None = None
    if wait > cpu:
        rungs += _ladder(reads.one, prepare, latency, rungs[0].images_per_second)
        tail = _tail(reads, latency)
    return ReadCosts(
        latency_seconds=latency,
        cpu_seconds=cpu,
        rungs=tuple(rungs),
        bytes_per_image=max(0.0, bytes_per_image),
        tail=tail,
    )


class _Reads:
    """Reads samples by turns, from any thread, and notes the time of each read; bad samples do not count."""

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        self.source, self._turns = source, itertools.cycle(indices)
        self.took: list[tuple[float, int]] = []  # seconds of a read, and the number of its sample

    def one(self, clock: Clock = thread_clock) -> tuple[float, float, float] | None:
        """Return the wall clock after a read, and its waiting and processor seconds; None if the sample is bad."""
        index, (began, busy_before) = next(self._turns), clock()
        try:
            planner.read(self.source, index)
        except BadSampleError:
            return None
        ended, busy_after = clock()
        self.took.append((ended - began, index))
        busy = max(0.0, busy_after - busy_before)
        return ended, max(0.0, ended - began - busy), busy


def _alone(reads: _Reads, clock: Clock) -> tuple[list[float], list[float]]:
    """Return the waiting and processor seconds of reads in sequence."""
    waits, busy = list[float](), list[float]()
    began = clock()[0]
    for _ in range(_MOST):
        if (read := reads.one(clock)) is None:
            continue
        waits.append(read[1])
        busy.append(read[2])
        if len(busy) >= _FEWEST and read[0] - began > _ALONE_SECONDS:
            break
    return waits, busy


def _ladder(read: Callable[[], object], prepare: Callable[[], object], latency: float, rate: float) -> list[ReadRung]:
    rungs: list[ReadRung] = []
    began = time.monotonic()
    for at_once in _LADDER:
        if rungs and time.monotonic() - began > _SECONDS:
            break
        prepare()
        took = op_costs.side_by_side(read, at_once, max(_RUNG_SECONDS, latency), fewest=1)
        before, rate = rate, max(sum(count / wall for count, wall, _ in took), 1e-3)
        rungs.append(ReadRung(at_once=at_once, images_per_second=rate))
        if rate < STILL_GAINS * before:
            break
    return rungs


def _tail(reads: _Reads, latency: float) -> SampleTail:
    """Compute the spread of reads. If there were too few, more are read, unless that lasts too long."""
    turns = -(-(_OF_THE_TAIL - len(reads.took)) // _AT_ONCE_FOR_THE_TAIL)
    if turns > 0 and turns * latency <= _SECONDS:
        op_costs.side_by_side(reads.one, _AT_ONCE_FOR_THE_TAIL, 0.0, fewest=turns)
    slowest = planner.sample_name(reads.source, max(reads.took)[1])
    return tail_of(np.array([seconds for seconds, _ in reads.took]), slowest)
