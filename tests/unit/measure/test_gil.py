from __future__ import annotations

from collections.abc import Callable

import pytest

from autopipe.hardware import cpu
from autopipe.measure import gil
from autopipe.measure.gil import Turn, held_share, share

FREE = Turn(wall=1.0, cpu=1.0)


def test_what_scales_holds_no_lock() -> None:
    assert share(Turn(5.0, 5.0), Turn(5.1, 5.0), FREE, threads=2) == 0.0


def test_what_does_not_scale_at_all_holds_it_throughout() -> None:
    assert share(Turn(5.0, 5.0), Turn(10.0, 5.0), FREE, threads=2) == pytest.approx(1.0)


def test_of_four_threads_what_lets_two_at_a_time_through_holds_it_for_half() -> None:
    assert share(Turn(5.0, 5.0), Turn(10.0, 5.0), FREE, threads=4) == pytest.approx(0.5)


def test_a_slow_memory_is_no_lock() -> None:
    assert share(Turn(5.0, 5.0), Turn(9.0, 9.0), FREE, threads=2) == 0.0


def test_what_waits_by_itself_is_no_lock() -> None:
    assert share(Turn(20.1, 0.1), Turn(20.1, 0.1), FREE, threads=2) == 0.0


def test_what_other_programs_take_is_told_by_what_holds_no_lock() -> None:
    busy = Turn(wall=2.0, cpu=1.0)
    assert share(Turn(5.0, 5.0), Turn(10.0, 5.0), busy, threads=2) == 0.0


def test_no_share_exceeds_the_whole() -> None:
    assert share(Turn(1.0, 1.0), Turn(9.0, 1.0), FREE, threads=2) == 1.0


def test_a_call_that_takes_no_time_holds_nothing() -> None:
    assert share(Turn(0.0, 0.0), Turn(0.0, 0.0), FREE, threads=2) == 0.0


def test_what_is_cheap_is_mostly_python() -> None:
    assert held_share(lambda: None, 1e-6) == 1.0


def test_an_error_of_the_function_is_raised() -> None:
    def broken() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        held_share(broken, 0.001)


def _call() -> None:
    """Stand for a function whose calls are made up."""


class Machine:
    """Calls of a millisecond that hold the lock for a part of it, on so many cores; notes how many run at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int, held: float, waits: float = 0.0) -> None:
        self.crews: list[int] = []
        self._held, self._waits = held, waits
        monkeypatch.setattr(cpu, "usable_cores", lambda: cores)
        monkeypatch.setattr(gil, "_run", self._run)

    def _run(self, call: Callable[[], object], threads: int, seconds: float) -> Turn:
        if call is not _call:
            return FREE
        self.crews.append(threads)
        return Turn(wall=max(0.001 + self._waits, threads * self._held * 0.001), cpu=0.001)


@pytest.mark.parametrize(
    ("cores", "held", "seen", "crews"),
    [
        (1, 1.0, 0.0, []),
        (2, 1.0, 1.0, [1, 2]),
        (2, 0.15, 0.0, [1, 2]),
        (4, 0.15, 0.0, [1, 4]),
        (12, 0.15, 0.15, [1, 4, 12]),
        (64, 1.0, 1.0, [1, 4]),  # of which 64 threads would have to wait for 64 calls
        (64, 0.15, 0.15, [1, 4, 16]),
        (64, 0.03, 0.03, [1, 4, 16, 64]),
        (128, 0.001, 0.0, [1, 4, 16, 64]),
    ],
)
def test_the_more_cores_the_shorter_a_lock_is_seen(
    cores: int, held: float, seen: float, crews: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, cores, held)
    assert held_share(_call, 0.001) == pytest.approx(seen)
    assert machine.crews == crews


def test_no_more_threads_run_than_there_is_memory_for_but_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, cores=64, held=0.0)
    held_share(_call, 0.001, 20)
    held_share(_call, 0.001, 0)
    assert machine.crews == [1, 4, 16, 20, 1, 4]


def test_what_waits_by_itself_is_not_asked_for_by_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a storage that gives so much and no more, they would wait for each other as for a lock."""
    machine = Machine(monkeypatch, cores=64, held=0.15, waits=0.002)
    assert held_share(_call, 0.003) == 0.0
    assert machine.crews == [1, 4]
