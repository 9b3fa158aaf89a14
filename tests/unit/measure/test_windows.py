from __future__ import annotations

import pytest

from autopipe.measure.meter import Edge, overall, read, window_steps
from autopipe.measure.outcome import StopRule, Window


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


def test_the_rate_of_all_windows_counts_a_pause_that_falls_into_one() -> None:
    steady = [Window(images=100, seconds=0.1) for _ in range(9)]
    found = overall([*steady, Window(images=100, seconds=0.6)])
    assert found.value == pytest.approx(1000 / 1.5)
    assert found.low < found.value < found.high <= 1000


def test_one_window_says_nothing_of_its_spread() -> None:
    found = overall([Window(images=100, seconds=0.1)])
    assert found.value == pytest.approx(1000)
    assert not found.has_interval
    assert overall([Window(images=100, seconds=0.1)] * 2).has_interval


def test_whole_epochs_are_counted_with_as_many_pauses() -> None:
    epoch = [Window(images=100, seconds=0.1)] * 3 + [Window(images=100, seconds=0.5)]
    assert overall([*epoch[2:], *epoch, *epoch], epoch_images=400).value == pytest.approx(400 / 0.8)
    assert overall(epoch, epoch_images=900).value == pytest.approx(400 / 0.8)


def test_of_a_part_of_an_epoch_the_pause_does_not_count() -> None:
    epoch = [Window(images=150, seconds=0.55), Window(images=150, seconds=0.15), Window(images=100, seconds=0.1)]
    begun = Window(images=120, seconds=0.52)
    assert overall([*epoch, *epoch, begun], epoch_images=400).value == pytest.approx(400 / 0.8)


@pytest.mark.parametrize("start", range(4))
def test_a_pause_counts_as_in_a_whole_epoch_where_none_fits_in(start: int) -> None:
    """Epochs of 1,000 images at 1,000 a second, after a pause of 0.9 s, of which 600 are seen."""
    epoch = [Window(images=100, seconds=1.0), *([Window(images=100, seconds=0.1)] * 9)]
    seen = [*epoch[10 - start :], *epoch[: 6 - start]]
    before = 3000 - 100 * start
    found = overall(seen, epoch_images=1000, images_before=before)
    assert found.value == pytest.approx(1000 / 1.9)
    assert found.low <= found.value <= found.high
    assert overall(seen, epoch_images=1000).value == pytest.approx(600 / 1.5)  # as it was seen


def test_an_epoch_that_begins_within_a_window_begins_in_it() -> None:
    seen = [Window(images=100, seconds=0.1), Window(images=100, seconds=1.0), Window(images=100, seconds=0.1)]
    assert overall(seen, epoch_images=1000, images_before=2850).value == pytest.approx(1000 / 1.9)


@pytest.mark.parametrize("before", [100, 3000])
def test_without_a_pause_or_with_nothing_else_all_windows_count(before: int) -> None:
    seen = [Window(images=100, seconds=0.1)] * (1 if before == 3000 else 5)
    assert overall(seen, epoch_images=1000, images_before=before).value == pytest.approx(1000)
