from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from autopipe.errors import BadSampleError, DataError
from autopipe.measure.reads import read_costs


class Source:
    """Notes what is read, and by how many threads at a time."""

    def __init__(self, bad: set[int] | None = None) -> None:
        self.bad = bad or set()
        self.seen: list[int] = []
        self.threads: set[int] = set()

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> np.ndarray:
        self.seen.append(index)
        self.threads.add(threading.get_ident())
        if index in self.bad:
            raise BadSampleError("sample 0 is bad") if index == 0 else OSError(f"sample {index} has gone")
        return np.zeros(4, np.uint8)


def clock(wall: float, busy: float) -> Iterator[tuple[float, float]]:
    return ((number * wall, number * busy) for number in itertools.count())


def test_reads_that_do_not_wait_are_not_tried_side_by_side() -> None:
    source, ticks = Source(), clock(0.2, 0.2)
    found = read_costs(source, range(10), 4.0, clock=lambda: next(ticks), taken=lambda: 0.0)
    assert found is not None
    assert (found.latency_seconds, found.cpu_seconds) == pytest.approx((0.2, 0.2))
    assert [rung.at_once for rung in found.rungs] == [1]
    assert not found.waits
    assert len(source.threads) == 1


def test_reads_that_wait_are_tried_side_by_side() -> None:
    source, ticks = Source(), clock(0.02, 0.001)
    found = read_costs(source, range(10), 4.0, clock=lambda: next(ticks), taken=lambda: 0.0)
    assert found is not None
    assert found.wait_seconds == pytest.approx(0.019)
    assert [rung.at_once for rung in found.rungs][:2] == [1, 4]
    assert found.rungs[0].images_per_second == pytest.approx(50.0)


def test_files_are_brought_into_their_state_again_before_each_rung() -> None:
    """What was dropped from memory once has come back with the rung before."""
    ticks, reads_before = clock(0.02, 0.001), []
    source = Source()
    found = read_costs(
        source,
        range(10),
        4.0,
        prepare=lambda: reads_before.append(len(source.seen)),
        clock=lambda: next(ticks),
        taken=lambda: 0.0,
    )
    assert found is not None
    assert len(reads_before) == len(found.rungs)
    assert reads_before[0] == 0
    assert reads_before == sorted(set(reads_before))


def test_reads_of_seconds_are_tried_side_by_side_too() -> None:
    ticks = clock(2.5, 0.001)
    found = read_costs(Source(), range(10), 4.0, clock=lambda: next(ticks), taken=lambda: 0.0)
    assert found is not None
    assert found.most_at_once > 1
    assert found.waits


def test_reads_that_are_put_aside_on_a_busy_machine_do_not_wait() -> None:
    ticks = clock(0.004, 0.001)
    found = read_costs(Source(), range(10), 4.0, clock=lambda: next(ticks), taken=lambda: 2.0)
    assert found is not None
    assert found.latency_seconds == pytest.approx(0.001)


def test_bad_samples_are_passed_over() -> None:
    ticks = clock(0.2, 0.2)
    found = read_costs(Source(bad={0, 1}), range(3), 4.0, clock=lambda: next(ticks), taken=lambda: 0.0)
    assert found is not None
    ticks = clock(0.2, 0.2)
    assert read_costs(Source(bad={0}), [0], 4.0, clock=lambda: next(ticks), taken=lambda: 0.0) is None


def test_an_error_that_is_not_the_fault_of_a_sample_is_raised() -> None:
    class Gone(Source):
        def read(self, index: int) -> np.ndarray:
            raise DataError("access is denied")

    with pytest.raises(DataError, match="denied"):
        read_costs(Gone(), range(3), 4.0)


class SeldomSlow(Source):
    """Reads that wait 5 ms, and one in fifty 200 ms."""

    def __len__(self) -> int:
        return 400

    def read(self, index: int) -> np.ndarray:
        threading.Event().wait(0.2 if index % 50 == 7 else 0.005)
        return super().read(index)

    def name(self, index: int) -> str:
        return f"photo {index}"


def test_reads_that_wait_are_enough_to_tell_of_one_in_fifty_that_takes_long() -> None:
    found = read_costs(SeldomSlow(), range(400), 4.0, taken=lambda: 0.0)
    assert found is not None
    assert found.tail is not None
    assert found.tail.samples >= 200
    assert found.tail.heavy
    assert found.tail.p99_seconds >= 0.2
    assert int(found.tail.slowest.removeprefix("photo ")) % 50 == 7
