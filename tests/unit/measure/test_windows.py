from __future__ import annotations

import pytest

from autopipe.measure.windows import Edge, StopRule, read, window_steps


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("step_milliseconds", [0.3, 7, 19, 41, 90, 310])
@pytest.mark.parametrize("trial_seconds", [0.3, 2.0])
def test_a_window_is_whole_bursts_wherever_two_of_them_fit_in_a_trial(
    workers: int, step_milliseconds: float, trial_seconds: float
) -> None:
    seconds = step_milliseconds / 1000
    steps = window_steps(seconds, workers, StopRule(min_seconds=trial_seconds, max_seconds=trial_seconds))
    assert steps % workers == 0 or 2 * workers * seconds > trial_seconds
    assert steps >= workers or -(-workers // steps) * steps - workers < -(-workers // steps)  # equal parts of a burst
    assert steps == 1 or steps * seconds <= trial_seconds / 2


def test_a_trial_ends_with_what_it_has_when_the_time_for_all_is_up() -> None:
    edges = [Edge(seconds=100.0 + 0.1 * at, images=10 * at) for at in range(4)]
    assert read(edges, StopRule()) is None
    found = read(edges, StopRule(ends_at=100.25))
    assert found is not None
    assert found.done
    assert not found.stable
    assert found.rate.value == pytest.approx(100.0)
