"""The bench. That its probe times a training is in tests/integration/test_measure.py."""

from __future__ import annotations

import itertools
import tracemalloc
import types
from typing import Any

import numpy as np
import pytest

from autopipe.measure import bench
from autopipe.measure.bench import EpochWatch, FirstSteps, Probe, ResidentLoader, any_batch
from autopipe.measure.meter import Meter
from autopipe.measure.outcome import StopRule
from autopipe.pipeline.devices import feed
from autopipe.pipeline.devices.strategy import SingleDevice
from autopipe.pipeline.loader import Finish
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.reports import Told

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


def test_the_first_batch_and_a_slow_one_do_not_count() -> None:
    ends = itertools.accumulate([0.0, 100.0, 1.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0])
    clock = itertools.islice(itertools.chain.from_iterable((now, now) for now in ends), 1, None)
    seconds = bench.transfer_seconds(Far(), (np.zeros(4),), lambda _: None, clock=clock.__next__)
    assert seconds == pytest.approx(0.25 / 3)


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


@pytest.mark.parametrize(
    ("took", "together", "said"),
    [
        ([1.0, 0.1, 0.1, 0.1, 0.1], 1, 0),
        ([30.0, 0.1, 0.1, 0.1, 0.1], 1, 1),
        ([3.0, 10.0, 10.0, 10.0, 10.0], 1, 1),
        ([30.0, 10.0, 10.0, 10.0, 10.0], 1, 2),
        ([5.0, 9.0, 0.1, 0.1, 0.1], 1, 0),  # one that compiles again
        ([5.0, 9.0, 9.0, 9.0, 9.0], 8, 0),  # of eight batches each
    ],
)
def test_steps_that_take_long_are_told_as_they_end_and_once(took: list[float], together: int, said: int) -> None:
    told, now = Told(), [0.0]
    steps = FirstSteps(told, together, clock=lambda: now[0])
    for number, each in enumerate(took):
        now[0] += each
        steps.progress(0, 0.0)
        steps.progress(0, 0.0)  # a probe may tell of one step twice
        assert number > 0 or len(told.logs) == (each >= 10.0)
    assert (len(told.images), len(told.logs)) == (10, said)
    if took[-1] == 10.0:
        assert told.logs[-1].startswith("A training step takes 10 s without any loader, so each trial takes 40 s")


class Counted(Meter):
    def __init__(self) -> None:
        super().__init__(8, 1, StopRule())
        self.told: list[int] = []

    def step(self, steps: int, queued_batches: int | None, seconds: float) -> bool:
        self.told.append(steps)
        return False


def counted(params: dict[str, int | None], *epochs: list[int], together: int = 1) -> Counted:
    """Return a meter after epochs in which steps ended with these numbers, so many by one call."""
    probe = Probe(meter := Counted())
    probe.set_model(types.SimpleNamespace(steps_per_execution=together))
    probe.set_params(params)
    probe.on_train_begin()
    for number, ends in enumerate(epochs):
        probe.on_epoch_begin(number)
        for end in ends:
            probe.on_train_batch_end(end)
    return meter


def test_steps_are_counted_across_epochs_whose_length_is_known_from_the_beginning_or_from_the_first_ones_end() -> None:
    at_once = counted({"epochs": 9, "steps": 10}, [3, 7, 11], [3, 7, 11], together=4)
    assert at_once.told == [4, 8, 10, 14, 18, 20]  # only those of the epoch
    assert counted({"epochs": 9, "steps": None}, [0, 1], [0, 1, 2, 3]).told == [1, 2, 3, 4, 5, 6]  # a longer one
    assert counted({"epochs": 9, "steps": 10}).epoch_images == 80
    assert counted({"epochs": 9, "steps": None}, [0, 1, 2]).epoch_images is None
    assert counted({"epochs": 9, "steps": None}, [0, 1, 2], [0]).epoch_images == 24
    assert counted({"epochs": 1, "steps": 10}, [0, 1]).epoch_images is None  # there is no pause to count


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
