"""The meter, on an analytic model of a training, and the bench. That its probe times a training is in
tests/integration/test_measure.py.
"""

import dataclasses
import functools
import itertools
import tracemalloc
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from autopipe.measure import bench
from autopipe.measure.bench import EpochWatch, FirstSteps, Probe, ResidentLoader, any_batch
from autopipe.measure.meter import Edge, Meter, Reading, overall, read, window_steps
from autopipe.measure.outcome import MeasureOptions, StopRule, Window
from autopipe.measure.session import meter_for
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices import feed
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.devices.strategy import SingleDevice
from autopipe.pipeline.loader import Finish
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.facts import known
from tests.fakes.loader import ArrayLoader, blobs
from tests.fakes.reports import Told

BATCH = 32
SEARCH = StopRule(min_seconds=0.8, max_seconds=2.0)


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Workers that make batches, a queue, and a model that takes them in order, on a clock of its own."""

    producer_seconds: float  # between two batches, when all workers work; each takes `workers` times as long for one
    consumer_seconds: float  # a step, once it has its batch
    workers: int = 2  # who begin together
    queue: int = 8  # finished batches that may wait
    filled: int = 0  # batches that wait already when the model begins
    slowness: Callable[[float], float] = lambda now: 1.0  # of the machine at a time, for what begins then
    consumer_slowness: Callable[[float], float] = lambda now: 1.0  # the same for the model alone

    @property
    def batches_per_second(self) -> float:
        """The true steady rate, on a quiet machine."""
        return 1 / max(self.producer_seconds, self.consumer_seconds)

    def steps(self) -> Iterator[tuple[float, float, int]]:
        """Yield, for each step, when it ended, how long the model had waited until then, and the queue's level."""
        done = [0.0] * self.filled
        taken: list[float] = []
        free = [0.0] * self.workers
        capacity = self.queue + self.workers
        now = waited = 0.0
        for number in range(10**9):
            while len(done) < number + capacity:
                worker = free.index(min(free))
                room = taken[len(done) - capacity] if len(done) >= capacity else 0.0
                start = max(free[worker], room)
                free[worker] = start + self.producer_seconds * self.workers * self.slowness(start)
                done.append(free[worker])
            began = max(now, done[number])
            waited += began - now
            taken.append(began)
            now = began + self.consumer_seconds * self.slowness(began) * self.consumer_slowness(began)
            yield now, waited, sum(end <= now for end in done[number + 1 :])


def run(meter: Meter, pipeline: Pipeline, *, at_once: int = 1, steps: int = 10**9, blind: bool = False) -> float:
    """Train until the meter has enough, or for `steps` steps, `at_once` in an execution; return when that was.

    Where `blind`, the loader cannot tell how full its queue is.
    """
    seconds = 0.0
    for number, (seconds, waited, level) in enumerate(pipeline.steps(), start=1):
        due = number % at_once == 0 and meter.step(number, None if blind else level, seconds)
        if (due and not meter.look(seconds, waited)) or number >= steps:
            meter.end(seconds, waited)
            break
    return seconds


def measured(
    pipeline: Pipeline, rule: StopRule = SEARCH, *, blind: bool = False, **start: Any
) -> tuple[Reading, Meter, float]:
    meter = Meter(BATCH, pipeline.workers, rule, **start)
    ended = run(meter, pipeline, blind=blind)
    return known(meter.reading), meter, ended


def true_rate(pipeline: Pipeline, rel: float = 0.01) -> Any:
    return pytest.approx(BATCH * pipeline.batches_per_second, rel=rel)


def at_least(seconds: float, most: float | None = None, **other: Any) -> StopRule:
    return StopRule(min_seconds=seconds, max_seconds=most or seconds, **other)


def test_a_loader_slower_than_the_model_is_found_out_behind_a_queue_of_64() -> None:
    for shortfall, workers, filled in itertools.product((0.03, 0.05, 0.1, 0.3, 0.6), (1, 2, 8), (0, 64)):
        pipeline = Pipeline(0.010 / (1 - shortfall), 0.010, workers=workers, queue=64, filled=filled)
        assert measured(pipeline)[0].rate.value == true_rate(pipeline, 0.03)


def test_bursts_of_workers_who_began_together_do_not_show() -> None:
    for workers, consumer_seconds in itertools.product((2, 3, 4, 8, 16), (0.0001, 0.005, 0.011)):
        reading = measured(pipeline := Pipeline(0.012, consumer_seconds, workers=workers))[0]
        assert (reading.rate.value, reading.stable) == (true_rate(pipeline, 0.03), True)


def test_many_workers_who_deliver_together_and_then_pause_are_seen_pausing() -> None:
    for rule, blind, workers in itertools.product((SEARCH, at_least(1.5)), (True, False), (48, 64)):
        pipeline = Pipeline(3.2 / workers, 0.032, workers=workers)
        _, meter, ended = measured(pipeline, rule, blind=blind)
        assert (meter.overall.value, ended < 15) == (true_rate(pipeline, 0.15), True)  # a part of a burst more or less
    for makes in (0.5, 0.79, 1.2):  # a trial holds a whole burst
        _, meter, ended = measured(pipeline := Pipeline(makes, 0.35, workers=16, queue=1), at_least(1.5), blind=True)
        assert (meter.overall.value, ended < 60) == (true_rate(pipeline, 0.1), True)
    _, meter, ended = measured(Pipeline(0.002, 0.1, workers=64))  # and waits for none that is there already
    assert ended - (meter.began_at or 0.0) < 2 * SEARCH.max_seconds - 0.5


def test_a_queue_that_empties_within_a_burst_says_nothing_of_what_the_loader_makes() -> None:
    """16 workers deliver together, and then not for seconds, in which the model takes one batch after the other."""
    for makes, trains in itertools.product((0.35, 0.5, 0.79), (0.345, 0.48)):
        reading = measured(pipeline := Pipeline(makes, trains, workers=16, queue=1))[0]
        assert BATCH * pipeline.batches_per_second * 0.99 <= reading.rate.value <= BATCH / trains * 1.01
        assert (reading.stable, "in one burst" in " ".join(reading.warnings)) == (False, True)


def test_a_loader_faster_than_the_model_reads_as_the_model() -> None:
    for workers in (1, 4):
        reading = measured(pipeline := Pipeline(0.004, 0.010, workers=workers))[0]
        assert (reading.rate.value, reading.stable) == (true_rate(pipeline), True)
        assert sum(window.waiting_seconds for window in reading.windows) == 0.0
    window = measured(Pipeline(0.010, 0.004, workers=1))[0].windows[0]
    assert window.waiting_seconds / window.seconds == pytest.approx(0.6)


def test_what_a_loader_takes_from_the_model_while_its_queue_fills_is_left_out_and_cuts_no_trial_short() -> None:
    # 64 batches, at 1 / 0.008 - 1 / 0.020 a second
    pipeline = Pipeline(0.008, 0.010, queue=64, consumer_slowness=lambda now: 2.0 if now < 0.85 else 1.0)
    for hopeless_below in (None, 0.9 * BATCH * pipeline.batches_per_second):
        reading, meter, _ = measured(pipeline, at_least(0.8, 2.0, hopeless_below=hopeless_below))
        assert (reading.rate.value, reading.cut_short) == (true_rate(pipeline), False)
        assert meter.discarded_batches > reading.left_out // BATCH > 0
    reading = measured(Pipeline(0.008, 0.010, queue=1000))[0]  # one that is still filling at the end
    assert (reading.stable, "still filling" in " ".join(reading.warnings)) == (False, True)


def test_a_noisy_neighbour_in_a_part_of_the_trial_is_said_and_a_short_hiccup_changes_nothing() -> None:
    for until, slow_first, blind in itertools.product(
        (0.35 * 2.1, 0.5 * 2.1, 0.65 * 2.1), (True, False), (True, False)
    ):
        slow = functools.partial(lambda until, first, now: 1.4 if (now < until) == first else 1.0, until, slow_first)
        reading = measured(Pipeline(0.010, 0.002, slowness=slow), at_least(2.0), blind=blind)[0]
        told = {"drifting", "unstable"} & {warning.partition(":")[0] for warning in reading.warnings}
        assert (reading.stable, told != set()) == (False, True)
    pipeline = Pipeline(0.010, 0.002, slowness=lambda now: 10.0 if 0.5 < now < 0.6 else 1.0)
    assert measured(pipeline)[0].rate.value == true_rate(pipeline)
    # A slower second half behind a full queue is not hidden.
    slower: dict[str, Any] = {
        "slowness": lambda now: 1.0 if now < 1.0 else 2.0,
        "consumer_slowness": lambda now: 1.0 - (now >= 1.0) / 2,
    }
    assert not measured(Pipeline(0.008, 0.010, queue=100, filled=100, **slower), at_least(2.0))[0].stable


def test_slow_steps_and_slow_loaders_end_in_reasonable_time_and_are_called_unstable() -> None:
    for workers in (1, 2, 16):
        reading, _, ended = measured(Pipeline(0.01, 3.0, workers=workers))
        assert (reading.stable, "unstable" in reading.warnings[0], ended < 13) == (False, True, True)
        assert reading.rate.value == pytest.approx(BATCH / 3)
    for consumer_seconds, workers in itertools.product((0.01, 0.0001), (2, 16)):
        reading, _, ended = measured(Pipeline(1.0, consumer_seconds, workers=workers))
        # Each burst of all workers takes as many seconds as there are workers.
        assert (reading.stable, ended <= 4 * workers + 1) == (False, True)


def test_steps_of_20_microseconds_are_looked_at_ten_times_a_second() -> None:
    reading, _, ended = measured(pipeline := Pipeline(0.000_01, 0.000_02), at_least(0.3, 0.6))
    assert reading.rate.value == true_rate(pipeline)
    assert (ended < 1.0, min(window.seconds for window in reading.windows) > 0.05) == (True, True)


def test_a_steady_trial_stops_at_the_least_time_and_one_that_cannot_win_before() -> None:
    pipeline = Pipeline(0.010, 0.002)
    _, meter, ended = measured(pipeline)
    assert 0.8 <= ended - known(meter.began_at) < 1.0
    for times, cut in ((1.05, True), (0.95, False)):
        rule = at_least(1.5, 3.0, hopeless_below=times * BATCH * pipeline.batches_per_second)
        reading, _, ended = measured(pipeline, rule)
        assert (reading.cut_short, reading.warnings, ended < 1.0) == (cut, (), cut)


def test_the_first_windows_begin_when_the_cache_is_full_and_a_loader_that_tunes_itself_had_its_time() -> None:
    pipeline = Pipeline(0.001, 0.005, slowness=lambda now: 20.0 if now < 1.0 else 1.0)
    reading, meter, _ = measured(pipeline, fill_steps=50)
    assert meter.filled_at == pytest.approx(1.2, abs=0.1)
    assert reading.rate.value == true_rate(pipeline)
    assert meter.discarded_batches >= 50
    _, meter, _ = measured(Pipeline(0.010, 0.002), settle_seconds=1.0, blind=True)
    assert 1.0 <= known(meter.began_at) - known(meter.filled_at) < 1.5


def test_data_that_end_early_give_what_they_can() -> None:
    pipeline = Pipeline(0.010, 0.002, workers=1)
    for steps in (2, 3, 5, 20):
        run(meter := Meter(BATCH, 1, SEARCH), pipeline, steps=steps)
        found = meter.reading and (meter.reading.done, meter.reading.stable, meter.reading.rate.value)
        assert found == (None if steps < 5 else (True, False, true_rate(pipeline, 0.03)))


def test_steps_that_run_several_at_once_are_counted_all() -> None:
    pipeline = Pipeline(0.002, 0.005)
    run(meter := Meter(BATCH, pipeline.workers, SEARCH), pipeline, at_once=7)
    assert (known(meter.reading).rate.value, known(meter.reading).stable) == (true_rate(pipeline), True)


def trained(pause_seconds: float, epoch_steps: int, workers: int = 1, rule: StopRule = SEARCH, **start: Any) -> Any:
    """Train for steps of 4 ms until the meter has enough, with a pause between epochs; return the meter and when."""
    meter, seconds = Meter(BATCH, workers, rule, **start), 0.0
    meter.epoch_steps = epoch_steps
    for number in itertools.count(1):
        seconds += 0.004 + (pause_seconds if number > 1 and (number - 1) % epoch_steps == 0 else 0.0)
        if meter.step(number, None, seconds) and not meter.look(seconds, 0.0):
            return meter, seconds


def test_the_rate_of_epochs_is_that_of_whole_ones_with_a_pause_each_whether_or_not_they_fit_in() -> None:
    for steps, workers in itertools.product((1, 7, 31, 64, 130), (1, 3)):
        meter, _ = trained(0.1, steps, workers)
        assert meter.overall.value == pytest.approx(steps * BATCH / (steps * 0.004 + 0.1))
    # As of tf.data, which begins to tune itself anew with each epoch; a trial begins where its first one ends.
    for steps, rule in itertools.product((300, 360, 450), (SEARCH, at_least(1.5))):
        meter, _ = trained(0.9, steps, rule=rule, settle_seconds=1.0)
        expected = 0.004 * steps, steps * BATCH / (steps * 0.004 + 0.9)
        assert (meter.began_at, meter.overall.value) == pytest.approx(expected)


def test_where_a_queue_empties_all_windows_count_also_if_some_look_like_whole_epochs() -> None:
    pipeline = Pipeline(0.0125, 0.010, queue=64, filled=64)
    meter = Meter(2, pipeline.workers, SEARCH)
    meter.epoch_steps = 1
    run(meter, pipeline)
    reading = known(meter.reading)
    assert reading.emptied
    assert meter.overall == overall(reading.windows) != overall(reading.windows, 2)
    assert meter.overall.value == pytest.approx(2 * pipeline.batches_per_second, rel=0.03)


def test_a_first_epoch_that_is_short_is_left_out_and_a_steady_trial_sees_an_epoch_if_one_fits_in() -> None:
    began = [trained(0.1, steps, workers=2)[0].began_at for steps in (200, 2000)]
    assert began == pytest.approx([0.8, 0.02])
    for steps, seconds in ((400, 1.6), (4000, 0.8)):
        meter, ended = trained(0.0, steps)
        assert (ended - meter.began_at, meter.reading.stable) == (pytest.approx(seconds, abs=0.15), True)


def test_batches_that_waited_in_a_queue_do_not_make_one_window_of_all_that_follow() -> None:
    run(meter := Meter(BATCH, 2, SEARCH), Pipeline(0.2, 0.004, filled=9), blind=True)
    reading = known(meter.reading)
    assert len(reading.windows) >= 5
    assert reading.rate.value == pytest.approx(BATCH / 0.2, rel=0.02)


def test_windows_begin_when_batches_that_are_made_side_by_side_have_spread_out() -> None:
    for at_once, workers in ((None, 3), (1, 1), (8, 8)):
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


def test_a_window_is_whole_bursts_wherever_two_of_them_fit_in_a_trial() -> None:
    step_seconds = (0.0003, 0.007, 0.019, 0.041, 0.09, 0.31)
    for workers, seconds, trial_seconds in itertools.product((1, 2, 3, 8, 64), step_seconds, (0.3, 2.0)):
        steps = window_steps(seconds, workers, at_least(trial_seconds))
        parts = -(-workers // steps)  # equal ones of a burst
        assert steps % workers == 0 or 2 * workers * seconds > trial_seconds
        assert steps >= workers or parts * steps - workers < parts
        assert steps == 1 or steps * seconds <= trial_seconds / 2


def test_a_trial_ends_with_what_it_has_when_the_time_for_all_is_up() -> None:
    edges = [Edge(seconds=0.0, images=0, queued=0.0), Edge(seconds=2.0, images=100, queued=900.0)]
    one = known(read(edges, SEARCH, burst=64, final=True))  # of one window, while the queue fills
    assert (one.rate.value, one.stable) == (50.0, False)
    edges = [Edge(seconds=100.0 + 0.1 * at, images=10 * at) for at in range(4)]
    assert read(edges, StopRule()) is None
    found = known(read(edges, StopRule(ends_at=100.25)))
    assert (found.done, found.stable, found.rate.value) == pytest.approx((True, False, 100.0))


def test_the_rate_of_all_windows_counts_a_pause_that_falls_into_one() -> None:
    steady = [Window(images=100, seconds=0.1) for _ in range(9)]
    found = overall([*steady, Window(images=100, seconds=0.6)])
    assert found.value == pytest.approx(1000 / 1.5)
    assert found.low < found.value < found.high <= 1000
    one, two = overall(steady[:1]), overall(steady[:2])  # a single one says nothing of its spread
    assert (one.value, one.has_interval, two.has_interval) == pytest.approx((1000, False, True))


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


def test_a_pause_counts_as_in_a_whole_epoch_where_none_fits_in() -> None:
    """Epochs of 1,000 images at 1,000 a second, after a pause of 0.9 s, of which 600 are seen."""
    epoch = [LATE, *[STEADY] * 9]
    for start in range(4):
        seen = [*epoch[10 - start :], *epoch[: 6 - start]]
        found = overall(seen, epoch_images=1000, images_before=3000 - 100 * start)
        assert found.value == pytest.approx(1000 / 1.9)
        assert found.low <= found.value <= found.high
        assert overall(seen, epoch_images=1000).value == pytest.approx(600 / 1.5)  # as it was seen


# ---------------------------------------------------------------- the bench

SPEC = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype("uint8")), None)


def test_the_batches_of_a_call_need_not_be_stacked() -> None:
    batch = np.arange(8, dtype=np.uint8).reshape(4, 2)
    loader = ResidentLoader((batch, None), SPEC, Finish(), 4, together=3)
    taken = [x for x, _ in itertools.islice(loader.batches(0), 6)]
    for x in taken:
        np.testing.assert_array_equal(x, batch)
    assert np.shares_memory(feed.stack(taken[:3]), taken[0])
    assert all(y is None for _, y in itertools.islice(loader.batches(0), 4))


class Far(SingleDevice):
    """A device to which each array takes as many seconds as it has rows."""

    def __init__(self) -> None:
        self.looks_ahead, self.sent, self.seconds = True, list[int](), 0.0

    def place(self, array: Any) -> Any:
        self.sent.append(len(array))
        return array

    def arrived(self, array: Any) -> None:
        self.seconds += len(array)


def test_an_image_takes_its_part_of_what_all_arrays_of_a_batch_take() -> None:
    far = Far()
    batch = (np.zeros((8, 4)), np.zeros(8))
    found = bench.transfer_seconds(far, batch, far.arrived, clock=lambda: far.seconds)
    assert found == pytest.approx(2.0)
    assert set(far.sent) == {8}
    assert bench.transfer_seconds(SingleDevice(), batch, far.arrived) is None  # a batch is used where it lies
    bench.arrived(SingleDevice().place(np.zeros(4, np.float32)))  # an array of the backend


def test_a_batch_for_the_model_alone_is_made_in_little_more_memory_than_it_takes() -> None:
    spec = SampleSpec(Field(FieldKind.ARRAY, (1 << 18,), np.dtype("uint8")), None)
    tracemalloc.start()
    try:
        x = any_batch(spec, 8)[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert x.dtype == np.uint8
    assert set(np.unique(x)) == {0, 1}
    assert peak < 3 * x.nbytes


def told_of(took: list[float], together: int = 1) -> list[str]:
    """Return what is said of steps that took so long."""
    told, now = Told(), [0.0]
    steps = FirstSteps(told, together, clock=lambda: now[0])
    for number, each in enumerate(took):
        now[0] += each
        steps.progress(0, 0.0)
        steps.progress(0, 0.0)  # a probe may tell of one step twice
        assert number > 0 or len(told.logs) == (each >= 10.0)
    assert len(told.images) == 2 * len(took)
    return told.logs


def test_steps_that_take_long_are_told_as_they_end_and_once() -> None:
    assert (told_of([1.0, *[0.1] * 4]), len(told_of([30.0, *[0.1] * 4]))) == ([], 1)
    for first, said in ((3.0, 1), (30.0, 2)):
        logs = told_of([first, *[10.0] * 4])
        assert len(logs) == said
        assert logs[-1].startswith("A training step takes 10 s without any loader, so each trial takes 40 s")
    assert told_of([5.0, 9.0, *[0.1] * 3]) == []  # one that compiles again
    assert told_of([5.0, *[9.0] * 4], together=8) == []  # of eight batches each


def counted(params: dict[str, Any], *epochs: list[int], together: int = 1) -> tuple[Meter, list[int]]:
    """Return a meter after epochs in which steps ended with these numbers, so many by one call; and its steps."""
    meter, told = Meter(8, 1, StopRule()), list[int]()
    vars(meter)["step"] = lambda steps, *_: told.append(steps)
    probe = Probe(meter)
    probe.set_model(types.SimpleNamespace(steps_per_execution=together))
    probe.set_params(params)
    probe.on_train_begin()
    for number, ends in enumerate(epochs):
        probe.on_epoch_begin(number)
        for end in ends:
            probe.on_train_batch_end(end)
    return meter, told


def test_steps_are_counted_across_epochs_whose_length_is_known_from_the_beginning_or_from_the_first_ones_end() -> None:
    named, unknown = {"epochs": 9, "steps": 10}, {"epochs": 9, "steps": None}
    assert counted(named, [3, 7, 11], [3, 7, 11], together=4)[1] == [4, 8, 10, 14, 18, 20]  # only those of the epoch
    assert counted(unknown, [0, 1], [0, 1, 2, 3])[1] == [1, 2, 3, 4, 5, 6]  # a longer one
    images = [counted(named), counted(unknown, [0, 1, 2]), counted(unknown, [0, 1, 2], [0])]
    assert [meter.epoch_images for meter, _ in images] == [80, None, 24]
    assert counted({"epochs": 1, "steps": 10}, [0, 1])[0].epoch_images is None  # there is no pause to count


def test_what_is_to_be_done_when_caches_are_full_is_done_once_between_filling_and_measuring() -> None:
    done: list[tuple[bool, bool]] = []
    meter = Meter(8, 1, StopRule(), fill_steps=3)
    probe = Probe(meter, when_filled=lambda: done.append((meter.filled_at is None, meter.began_at is None)))
    probe.set_model(types.SimpleNamespace(steps_per_execution=1))
    probe.set_params({"epochs": 1, "steps": None})
    probe.on_train_begin()
    for end in range(20):
        probe.on_train_batch_end(end)
        assert len(done) == (end >= 2)
    assert done == [(False, True)]


def watched(*epochs: tuple[float, list[float], list[float]]) -> EpochWatch:
    """Return a watch after epochs: when each ended, and when its batches of training and validation had."""
    now = [0.0]
    watch = EpochWatch(10.0, Told(), clock=lambda: now[0])
    watch.set_model(types.SimpleNamespace(stop_training=False))
    for number, (end, trained, validated) in enumerate(epochs):
        for batch, now[0] in enumerate(trained):
            watch.on_train_batch_end(batch)
        for batch, now[0] in enumerate(validated):
            watch.on_test_batch_end(batch)
        now[0] = end
        watch.on_epoch_end(number)
    return watch


def test_an_epoch_lasts_from_the_end_of_the_one_before_and_steps_alone_grow_with_the_samples() -> None:
    first = (100.0, [60.0, 80.0], [90.0])  # which does not count
    second = (110.0, [102.0, 103.0, 104.0], [107.0, 107.5])
    watch = watched(first, second, (121.0, [112.0, 113.0, 114.0], [117.0, 117.5]))
    assert watch.model.stop_training
    for whole, seconds, parts, share in (
        ([3, 2], 11.0, (3.0, 1.0, 7.0), 1.0),  # of the longer one of two
        ([300, 200], 407.0, (300.0, 100.0, 7.0), 0.01),
    ):
        found = watch.epoch_time([3, 2], whole)
        assert (found.training_seconds, found.validation_seconds, found.pause_seconds) == parts
        assert (found.seconds, found.share) == (seconds, share)
    short = watched(first, (130.0, [102.0], [107.0]))  # a single epoch, of batches that ended at once
    assert not short.model.stop_training
    assert short.epoch_time([1, 1], [1, 1]).pause_seconds == 30.0
