from __future__ import annotations

import itertools
from typing import Any

import pytest

from autopipe.measure.meter import Edge, Meter, Reading, overall, read, window_steps
from autopipe.measure.outcome import MeasureOptions, StopRule, Window
from autopipe.measure.session import meter_for
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.loaders.tfdata import TfData
from tests.fakes.facts import known
from tests.fakes.loader import ArrayLoader, blobs
from tests.fakes.pipeline import Pipeline, run

BATCH = 32
SEARCH = StopRule(min_seconds=0.8, max_seconds=2.0)


def measured(
    pipeline: Pipeline, rule: StopRule = SEARCH, *, blind: bool = False, **start: Any
) -> tuple[Reading, Meter, float]:
    meter = Meter(BATCH, pipeline.workers, rule, **start)
    ended = run(meter, pipeline, blind=blind)
    return known(meter.reading), meter, ended


def true_rate(pipeline: Pipeline) -> float:
    return BATCH * pipeline.batches_per_second


@pytest.mark.parametrize("filled", [0, 64])
@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("shortfall", [0.03, 0.05, 0.1, 0.3, 0.6])
def test_a_loader_slower_than_the_model_is_found_out_behind_a_queue_of_64(
    shortfall: float, workers: int, filled: int
) -> None:
    pipeline = Pipeline(
        producer_seconds=0.010 / (1 - shortfall), consumer_seconds=0.010, workers=workers, queue=64, filled=filled
    )
    reading, _, _ = measured(pipeline)
    assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.03)


@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("consumer_seconds", [0.0001, 0.005, 0.011])
def test_bursts_of_workers_who_began_together_do_not_show(workers: int, consumer_seconds: float) -> None:
    pipeline = Pipeline(producer_seconds=0.012, consumer_seconds=consumer_seconds, workers=workers, queue=8)
    reading, _, _ = measured(pipeline)
    assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.03)
    assert reading.stable


@pytest.mark.parametrize("rule", [SEARCH, StopRule(min_seconds=1.5, max_seconds=1.5)])
@pytest.mark.parametrize("workers", [48, 64])
@pytest.mark.parametrize("blind", [True, False])
def test_many_workers_who_deliver_together_and_then_pause_are_seen_pausing(
    rule: StopRule, workers: int, *, blind: bool
) -> None:
    pipeline = Pipeline(producer_seconds=3.2 / workers, consumer_seconds=0.032, workers=workers)
    _, meter, ended = measured(pipeline, rule, blind=blind)
    assert meter.overall.value == pytest.approx(true_rate(pipeline), rel=0.15)  # a part of a burst more or less
    assert ended < 15


@pytest.mark.parametrize("producer_seconds", [0.35, 0.5, 0.79])
@pytest.mark.parametrize("consumer_seconds", [0.345, 0.48])
def test_a_queue_that_empties_within_a_burst_says_nothing_of_what_the_loader_makes(
    producer_seconds: float, consumer_seconds: float
) -> None:
    """16 workers deliver together, and then not for seconds, in which the model takes one batch after the other."""
    pipeline = Pipeline(producer_seconds=producer_seconds, consumer_seconds=consumer_seconds, workers=16, queue=1)
    reading, _, _ = measured(pipeline)
    assert true_rate(pipeline) * 0.99 <= reading.rate.value <= BATCH / consumer_seconds * 1.01
    assert not reading.stable
    assert "in one burst" in " ".join(reading.warnings)


@pytest.mark.parametrize("producer_seconds", [0.5, 0.79, 1.2])
def test_a_trial_holds_a_whole_burst_of_a_loader_whose_queue_is_not_seen(producer_seconds: float) -> None:
    pipeline = Pipeline(producer_seconds=producer_seconds, consumer_seconds=0.35, workers=16, queue=1)
    _, meter, ended = measured(pipeline, StopRule(min_seconds=1.5, max_seconds=1.5), blind=True)
    assert meter.overall.value == pytest.approx(true_rate(pipeline), rel=0.1)
    assert ended < 60


def test_a_trial_does_not_go_on_for_bursts_that_wait_already() -> None:
    pipeline = Pipeline(producer_seconds=0.002, consumer_seconds=0.1, workers=64)
    _, meter, ended = measured(pipeline)
    assert ended - (meter.began_at or 0.0) < 2 * SEARCH.max_seconds - 0.5


@pytest.mark.parametrize("workers", [1, 4])
def test_a_loader_faster_than_the_model_reads_as_the_model(workers: int) -> None:
    pipeline = Pipeline(producer_seconds=0.004, consumer_seconds=0.010, workers=workers)
    reading, _, _ = measured(pipeline)
    assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.01)
    assert reading.stable
    assert sum(window.waiting_seconds for window in reading.windows) == 0.0
    window = measured(Pipeline(producer_seconds=0.010, consumer_seconds=0.004, workers=1))[0].windows[0]
    assert window.waiting_seconds / window.seconds == pytest.approx(0.6)


def test_what_a_loader_takes_from_the_model_while_its_queue_fills_is_left_out_and_cuts_no_trial_short() -> None:
    pipeline = Pipeline(
        producer_seconds=0.008,
        consumer_seconds=0.010,
        queue=64,
        consumer_slowness=lambda now: 2.0 if now < 0.85 else 1.0,  # 64 batches, at 1 / 0.008 - 1 / 0.020 a second
    )
    for hopeless_below in (None, 0.9 * true_rate(pipeline)):
        rule = StopRule(min_seconds=0.8, max_seconds=2.0, hopeless_below=hopeless_below)
        reading, meter, _ = measured(pipeline, rule)
        assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.01)
        assert reading.left_out > 0
        assert meter.discarded_batches > reading.left_out // BATCH
        assert not reading.cut_short


def test_a_queue_that_is_still_filling_at_the_end_is_said() -> None:
    reading, _, _ = measured(Pipeline(producer_seconds=0.008, consumer_seconds=0.010, queue=1000))
    assert not reading.stable
    assert "still filling" in " ".join(reading.warnings)


@pytest.mark.parametrize("slow_first", [True, False])
@pytest.mark.parametrize("share", [0.35, 0.5, 0.65])
@pytest.mark.parametrize("blind", [True, False])
def test_a_noisy_neighbour_in_a_part_of_the_trial_is_said(share: float, *, slow_first: bool, blind: bool) -> None:
    rule = StopRule(min_seconds=2.0, max_seconds=2.0)
    until = 2.1 * share
    pipeline = Pipeline(
        producer_seconds=0.010, consumer_seconds=0.002, slowness=lambda now: 1.4 if (now < until) == slow_first else 1.0
    )
    reading, _, _ = measured(pipeline, rule, blind=blind)
    assert not reading.stable
    assert {"drifting", "unstable"} & {warning.partition(":")[0] for warning in reading.warnings}


def test_a_short_hiccup_changes_nothing() -> None:
    pipeline = Pipeline(
        producer_seconds=0.010, consumer_seconds=0.002, slowness=lambda now: 10.0 if 0.5 < now < 0.6 else 1.0
    )
    reading, _, _ = measured(pipeline)
    assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.01)


def test_a_slower_second_half_behind_a_full_queue_is_not_hidden() -> None:
    pipeline = Pipeline(
        producer_seconds=0.008,
        consumer_seconds=0.010,
        queue=100,
        filled=100,
        slowness=lambda now: 1.0 if now < 1.0 else 2.0,
        consumer_slowness=lambda now: 1.0 if now < 1.0 else 0.5,
    )
    reading, _, _ = measured(pipeline, StopRule(min_seconds=2.0, max_seconds=2.0))
    assert not reading.stable


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_steps_of_three_seconds_end_soon_and_are_called_unstable(workers: int) -> None:
    pipeline = Pipeline(producer_seconds=0.01, consumer_seconds=3.0, workers=workers)
    reading, _, ended = measured(pipeline)
    assert ended < 13
    assert not reading.stable
    assert "unstable" in reading.warnings[0]
    assert reading.rate.value == pytest.approx(BATCH / 3)


@pytest.mark.parametrize("workers", [2, 16])
@pytest.mark.parametrize("consumer_seconds", [0.01, 0.0001])
def test_a_loader_that_takes_a_second_a_batch_ends_in_reasonable_time(consumer_seconds: float, workers: int) -> None:
    pipeline = Pipeline(producer_seconds=1.0, consumer_seconds=consumer_seconds, workers=workers)
    reading, _, ended = measured(pipeline)
    assert ended <= 4 * workers + 1  # each burst of all workers takes as many seconds as there are workers
    assert not reading.stable


def test_steps_of_20_microseconds_are_looked_at_ten_times_a_second() -> None:
    pipeline = Pipeline(producer_seconds=0.000_01, consumer_seconds=0.000_02)
    reading, _, ended = measured(pipeline, StopRule(min_seconds=0.3, max_seconds=0.6))
    assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.01)
    assert ended < 1.0
    assert min(window.seconds for window in reading.windows) > 0.05


def test_a_steady_trial_stops_at_the_least_time() -> None:
    _, meter, ended = measured(Pipeline(producer_seconds=0.010, consumer_seconds=0.002))
    assert 0.8 <= ended - known(meter.began_at) < 1.0


def test_a_trial_that_cannot_win_is_cut_short_and_one_that_can_is_not() -> None:
    pipeline = Pipeline(producer_seconds=0.010, consumer_seconds=0.002)
    for times, cut in ((1.05, True), (0.95, False)):
        rule = StopRule(min_seconds=1.5, max_seconds=3.0, hopeless_below=times * true_rate(pipeline))
        reading, _, ended = measured(pipeline, rule)
        assert (reading.cut_short, reading.warnings, ended < 1.0) == (cut, (), cut)


def test_the_first_windows_begin_when_the_cache_is_full() -> None:
    pipeline = Pipeline(producer_seconds=0.001, consumer_seconds=0.005, slowness=lambda now: 20.0 if now < 1.0 else 1.0)
    reading, meter, _ = measured(pipeline, fill_steps=50)
    assert meter.filled_at == pytest.approx(1.2, abs=0.1)
    assert meter.discarded_batches >= 50
    assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.01)


def test_a_loader_that_tunes_itself_gets_its_time_before_the_windows() -> None:
    pipeline = Pipeline(producer_seconds=0.010, consumer_seconds=0.002)
    _, meter, _ = measured(pipeline, settle_seconds=1.0, blind=True)
    assert 1.0 <= known(meter.began_at) - known(meter.filled_at) < 1.5


@pytest.mark.parametrize("steps", [2, 3, 5, 20])
def test_data_that_end_early_give_what_they_can(steps: int) -> None:
    pipeline = Pipeline(producer_seconds=0.010, consumer_seconds=0.002, workers=1)
    meter = Meter(BATCH, 1, SEARCH)
    run(meter, pipeline, steps=steps)
    if steps < 5:
        assert meter.reading is None
    else:
        reading = known(meter.reading)
        assert (reading.done, reading.stable) == (True, False)
        assert reading.rate.value == pytest.approx(true_rate(pipeline), rel=0.03)


def test_steps_that_run_several_at_once_are_counted_all() -> None:
    pipeline = Pipeline(producer_seconds=0.002, consumer_seconds=0.005)
    meter = Meter(BATCH, pipeline.workers, SEARCH)
    run(meter, pipeline, at_once=7)
    assert known(meter.reading).rate.value == pytest.approx(true_rate(pipeline), rel=0.01)
    assert known(meter.reading).stable


def trained(meter: Meter, *, step_seconds: float, pause_seconds: float) -> float:
    """Train epoch after epoch, with a pause before each but the first, until the meter has enough; return when."""
    epoch_steps, seconds = known(meter.epoch_steps), 0.0
    for number in itertools.count(1):
        seconds += step_seconds + (pause_seconds if number > 1 and (number - 1) % epoch_steps == 0 else 0.0)
        if meter.step(number, None, seconds) and not meter.look(seconds, 0.0):
            break
    return seconds


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("epoch_steps", [1, 7, 31, 64, 130])
def test_the_rate_of_short_epochs_is_that_of_whole_ones_with_a_pause_each(epoch_steps: int, workers: int) -> None:
    meter = Meter(BATCH, workers, SEARCH)
    meter.epoch_steps = epoch_steps
    trained(meter, step_seconds=0.004, pause_seconds=0.1)
    assert meter.overall.value == pytest.approx(epoch_steps * BATCH / (epoch_steps * 0.004 + 0.1))


@pytest.mark.parametrize("epoch_steps", [300, 360, 450])
@pytest.mark.parametrize("rule", [SEARCH, StopRule(min_seconds=1.5, max_seconds=1.5)])
def test_a_pause_is_not_too_large_a_part_of_an_epoch_that_does_not_fit_in(epoch_steps: int, rule: StopRule) -> None:
    """As of tf.data, which begins to tune itself anew with each epoch; a trial begins where its first one ends."""
    meter = Meter(BATCH, 1, rule, settle_seconds=1.0)
    meter.epoch_steps = epoch_steps
    trained(meter, step_seconds=0.004, pause_seconds=0.9)
    assert meter.began_at == pytest.approx(0.004 * epoch_steps)
    assert meter.overall.value == pytest.approx(epoch_steps * BATCH / (epoch_steps * 0.004 + 0.9))


def test_where_a_queue_empties_all_windows_count_also_if_some_look_like_whole_epochs() -> None:
    pipeline = Pipeline(producer_seconds=0.0125, consumer_seconds=0.010, queue=64, filled=64)
    meter = Meter(2, pipeline.workers, SEARCH)
    meter.epoch_steps = 1
    run(meter, pipeline)
    reading = known(meter.reading)
    assert reading.emptied
    assert meter.overall == overall(reading.windows) != overall(reading.windows, 2)
    assert meter.overall.value == pytest.approx(2 * pipeline.batches_per_second, rel=0.03)


def test_a_first_epoch_that_is_short_is_left_out() -> None:
    short, long = Meter(BATCH, 2, SEARCH), Meter(BATCH, 2, SEARCH)
    short.epoch_steps, long.epoch_steps = 200, 2000
    for meter in (short, long):
        trained(meter, step_seconds=0.004, pause_seconds=0.1)
    assert short.began_at == pytest.approx(0.8)
    assert long.began_at == pytest.approx(0.02)


def test_a_steady_trial_goes_on_until_it_has_seen_an_epoch_if_one_fits_in() -> None:
    ended = {}
    for epoch_seconds in (1.6, 16.0):
        meter = Meter(BATCH, 1, SEARCH)
        meter.epoch_steps = round(epoch_seconds / 0.004)
        ended[epoch_seconds] = trained(meter, step_seconds=0.004, pause_seconds=0.0) - (meter.began_at or 0.0)
        assert known(meter.reading).stable
    assert ended == pytest.approx({1.6: 1.6, 16.0: 0.8}, abs=0.15)


def test_a_trial_of_one_window_has_a_rate_even_while_the_queue_fills() -> None:
    edges = [Edge(seconds=0.0, images=0, queued=0.0), Edge(seconds=2.0, images=100, queued=900.0)]
    reading = known(read(edges, SEARCH, burst=64, final=True))
    assert (reading.rate.value, reading.stable) == (50.0, False)


def test_batches_that_waited_in_a_queue_do_not_make_one_window_of_all_that_follow() -> None:
    meter = Meter(BATCH, 2, SEARCH)
    run(meter, Pipeline(producer_seconds=0.2, consumer_seconds=0.004, filled=9), blind=True)
    reading = known(meter.reading)
    assert len(reading.windows) >= 5
    assert reading.rate.value == pytest.approx(BATCH / 0.2, rel=0.02)


@pytest.mark.parametrize(("at_once", "workers"), [(None, 3), (1, 1), (8, 8)])
def test_windows_begin_when_batches_that_are_made_side_by_side_have_spread_out(
    at_once: int | None, workers: int
) -> None:
    source = ArrayLoader(*blobs(), 4)
    source.batches_at_once = at_once
    config = PipelineConfig(loader=TfData(num_parallel_calls=3, prefetch=1))
    meter = meter_for(TimedLoader(source), config, MeasureOptions())
    for step in itertools.count(1):
        if meter.step(step, None, step * 0.001):
            meter.look(step * 0.001, 0.0)
        if meter.began_at is not None:
            break
    assert meter.discarded_batches == 1 + workers + 2


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
    found = known(read(edges, StopRule(ends_at=100.25)))
    assert (found.done, found.stable) == (True, False)
    assert found.rate.value == pytest.approx(100.0)


def test_the_rate_of_all_windows_counts_a_pause_that_falls_into_one() -> None:
    steady = [Window(images=100, seconds=0.1) for _ in range(9)]
    found = overall([*steady, Window(images=100, seconds=0.6)])
    assert found.value == pytest.approx(1000 / 1.5)
    assert found.low < found.value < found.high <= 1000
    one = overall([Window(images=100, seconds=0.1)])  # says nothing of its spread
    assert one.value == pytest.approx(1000)
    assert not one.has_interval
    assert overall([Window(images=100, seconds=0.1)] * 2).has_interval


STEADY, PAUSED = Window(images=100, seconds=0.1), Window(images=100, seconds=0.5)
EPOCH = [STEADY] * 3 + [PAUSED]
BEGUN = Window(images=120, seconds=0.52)  # a part of an epoch, whose pause does not count
LATE = Window(images=100, seconds=1.0)


@pytest.mark.parametrize(
    ("windows", "known", "rate"),
    [
        ([*EPOCH[2:], *EPOCH, *EPOCH], {"epoch_images": 400}, 400 / 0.8),
        ([*EPOCH, *EPOCH, BEGUN], {"epoch_images": 400}, 400 / 0.8),
        (EPOCH, {"epoch_images": 900}, 400 / 0.8),
        ([STEADY, LATE, STEADY], {"images_before": 2850}, 1000 / 1.9),  # an epoch that begins within a window
        ([STEADY] * 5, {"images_before": 100}, 1000),  # without a pause
        ([STEADY], {"images_before": 3000}, 1000),  # with nothing else
    ],
)
def test_whole_epochs_are_counted_with_as_many_pauses(
    windows: list[Window], known: dict[str, int], rate: float
) -> None:
    assert overall(windows, **{"epoch_images": 1000, **known}).value == pytest.approx(rate)


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
