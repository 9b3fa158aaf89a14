from __future__ import annotations

import pytest

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
