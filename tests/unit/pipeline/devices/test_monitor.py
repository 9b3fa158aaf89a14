from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autopipe.errors import ModelError
from autopipe.hardware.processes import Neighbours, Sample
from autopipe.pipeline.devices.callbacks import EpochFigures, EpochMonitor
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.loader import Loader
from autopipe.workload.sample import Batch
from tests.fakes.loader import ArrayLoader, Clock


class SlowLoader(ArrayLoader):
    """Takes so many seconds for each batch of four, and for the first of an epoch, by the given clock."""

    def __init__(self, clock: Clock, seconds: float = 2.0, first: float = 2.0) -> None:
        super().__init__(np.zeros((20, 1), np.float32), None, 4, shuffle=False)
        self._clock, self._seconds, self._first = clock, seconds, first

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number, batch in enumerate(super().batches(epoch, start, last=last)):
            self._clock.now += self._seconds if number else self._first
            yield batch

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        return list(itertools.chain.from_iterable(self.batches(number) for number in range(epoch, epoch + epochs)))


def test_waiting_and_the_restart_of_epochs_are_noted() -> None:
    clock = Clock()
    loader = TimedLoader(SlowLoader(clock, 1, first=5), clock)
    assert loader.first_taken is None
    for epoch in range(3):
        for _ in loader.batches(epoch):
            clock.now += 100  # the model's own time does not count
    first: float | None = loader.first_taken
    assert (loader.waited_seconds, loader.taken, first, loader.restarts) == (27, 15, 5, [5, 5])
    assert len(list(loader.native_dataset(0, 3))) == 15  # which goes through all epochs
    assert len(loader.restarts) == 4


class OneTrainer:
    def __init__(self, loader: Loader, clock: Clock) -> None:
        self.loader = loader
        self._clock = clock

    def fit(self, monitor: EpochMonitor, epochs: int) -> list[dict[str, Any]]:
        monitor.set_trainer(self)
        monitor.on_train_begin()
        history: list[dict[str, Any]] = []
        for epoch in range(epochs):
            monitor.on_epoch_begin(epoch)
            for number, _ in enumerate(self.loader.batches(epoch)):
                self._clock.now += 3.0
                monitor.on_train_batch_end(number)
            self._clock.now += 100.0  # validation
            logs: dict[str, Any] = {"loss": 1.0}
            monitor.on_epoch_end(epoch, logs)
            history.append(logs)
        monitor.on_train_end()
        return history


ALONE = Neighbours(Sample, clock=lambda: 0.0)


def _watched(clock: Clock) -> tuple[EpochMonitor, list[tuple[int, EpochFigures]]]:
    judged: list[tuple[int, EpochFigures]] = []
    return EpochMonitor(lambda trainer, epoch, figures: judged.append((epoch, figures)), clock, lambda: ALONE), judged


def test_an_epoch_is_timed_from_its_first_batch_to_its_last() -> None:
    clock = Clock()
    monitor, judged = _watched(clock)
    history = OneTrainer(SlowLoader(clock), clock).fit(monitor, epochs=2)
    expected = EpochFigures(images_per_second=4 / 5.0, data_wait_share=2 / 5.0)
    assert judged == [(0, expected), (1, expected)]
    assert history[1] == {"loss": 1.0, **dataclasses.asdict(expected)}


def test_workers_that_were_lost_are_counted_since_the_epoch_before() -> None:
    class Losing(SlowLoader):
        lost = 2  # before the training

        def lost_workers(self) -> int:
            return self.lost

        def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
            self.lost += 1 + epoch
            return super().batches(epoch, start, last=last)

    monitor, judged = _watched(clock := Clock())
    history = OneTrainer(Losing(clock), clock).fit(monitor, epochs=3)
    assert [figures.lost_workers for _, figures in judged] == [logs["lost_workers"] for logs in history] == [1, 2, 3]


def test_a_training_after_one_that_was_cut_is_timed_once() -> None:
    monitor, judged = _watched(clock := Clock())
    trainer = OneTrainer(SlowLoader(clock), clock)
    monitor.set_trainer(trainer)
    monitor.on_train_begin()  # and no end
    trainer.fit(monitor, epochs=1)
    assert judged[0][1].data_wait_share == pytest.approx(0.4)


def test_what_is_seen_through_the_monitor_is_the_loader() -> None:
    monitor, _ = _watched(clock := Clock())
    trainer = OneTrainer(loader := SlowLoader(clock), clock)
    monitor.set_trainer(trainer)
    monitor.on_train_begin()
    seen = trainer.loader
    assert seen is not loader
    assert (len(seen), seen.identity, seen.batch_size, seen.occupancy()) == (5, "arrays", 4, None)
    seen.close()
    assert loader.closed


def test_a_training_without_a_trainer_is_refused() -> None:
    monitor, _ = _watched(Clock())
    with pytest.raises(ModelError, match=r"plain `model\.fit`"):
        monitor.on_train_begin()


def test_an_epoch_of_one_batch_is_not_judged() -> None:
    monitor, judged = _watched(Clock())
    monitor.set_trainer(OneTrainer(SlowLoader(Clock()), Clock()))
    monitor.on_train_begin()
    monitor.on_train_batch_end(0)
    logs: dict[str, Any] = {}
    monitor.on_epoch_end(0, logs)
    assert (judged, logs) == ([], {})
