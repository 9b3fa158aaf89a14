"""What a probe tells its meter of epochs. That it times a training is in tests/integration/test_measure.py."""

from __future__ import annotations

import types

from autopipe.measure.bench import Probe
from autopipe.measure.meter import Meter
from autopipe.measure.outcome import StopRule


class Counted(Meter):
    """Keeps the steps that it is told, and never looks."""

    def __init__(self) -> None:
        super().__init__(8, 1, StopRule())
        self.told: list[int] = []

    def step(self, steps: int, queued_batches: int | None) -> bool:
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


def test_of_several_steps_at_once_only_those_of_the_epoch_count() -> None:
    meter = counted({"epochs": 9, "steps": 10}, [3, 7, 11], [3, 7, 11], together=4)
    assert meter.told == [4, 8, 10, 14, 18, 20]


def test_the_meter_knows_epochs_from_the_beginning_or_from_the_first_ones_end() -> None:
    assert counted({"epochs": 9, "steps": 10}).epoch_images == 80
    assert counted({"epochs": 9, "steps": None}, [0, 1, 2]).epoch_images is None
    assert counted({"epochs": 9, "steps": None}, [0, 1, 2], [0]).epoch_images == 24


def test_a_training_of_one_epoch_has_no_pause_to_count() -> None:
    assert counted({"epochs": 1, "steps": 10}, [0, 1]).epoch_images is None


def test_an_epoch_that_is_longer_than_the_one_before_counts_whole() -> None:
    assert counted({"epochs": 9, "steps": None}, [0, 1], [0, 1, 2, 3]).told == [1, 2, 3, 4, 5, 6]


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
