from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autopipe.pipeline.devices.monitor import TimedLoader
from tests.fakes.loader import ArrayLoader

X = np.arange(12, dtype=np.uint8).reshape(6, 2)


class Clock:
    """Each batch takes a second, the first of an epoch five."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowLoader(ArrayLoader):
    def __init__(self, clock: Clock) -> None:
        super().__init__(X, None, 2, shuffle=False)
        self.clock = clock

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Any]:
        for number, batch in enumerate(super().batches(epoch, start, last=last)):
            self.clock.now += 1 if number else 5
            yield batch

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        return list(itertools.chain.from_iterable(self.batches(number) for number in range(epoch, epoch + epochs)))


def test_waiting_and_the_restart_of_epochs_are_noted() -> None:
    clock = Clock()
    loader = TimedLoader(SlowLoader(clock), clock)
    for epoch in range(3):
        for _ in loader.batches(epoch):
            clock.now += 100  # the model's own time does not count
    assert loader.waited_seconds == 21
    assert loader.taken == 9
    assert loader.first_taken == 5
    assert loader.restarts == [5, 5]


def test_epochs_are_told_apart_in_a_dataset_that_goes_through_all_of_them() -> None:
    clock = Clock()
    loader = TimedLoader(SlowLoader(clock), clock)
    assert len(list(loader.native_dataset(0, 3))) == 9
    assert len(loader.restarts) == 2


def test_no_batch_is_held_while_the_next_is_waited_for() -> None:
    import weakref

    held: list[weakref.ref[Any]] = []

    class Watching(ArrayLoader):
        def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Any]:
            for number in range(3):
                assert number == 0 or held[-1]() is None
                batch = (np.zeros((2, 2)), None)
                held.append(weakref.ref(batch[0]))
                yield batch
                del batch

    stream = TimedLoader(Watching(X, None, 2)).batches(0)
    while (batch := next(stream, None)) is not None:
        del batch
    assert len(held) == 3


@pytest.mark.parametrize("taken", [0, 1])
def test_a_loader_that_gave_no_batch_has_no_first(taken: int) -> None:
    loader = TimedLoader(ArrayLoader(X[:2], None, 2))
    assert sum(1 for _ in itertools.islice(loader.batches(0), taken)) == taken
    assert (loader.first_taken is None) == (taken == 0)
