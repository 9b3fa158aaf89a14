"""What the base class does for every loader: positions, states and the finish. Real loaders: tests/contract."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autopipe.core.finish import Finish
from autopipe.core.loader import Loader
from autopipe.core.sample import Batch, Field, FieldKind, SampleSpec
from autopipe.errors import ConfigError


class Three(Loader):
    """Three batches an epoch: their epoch and number."""

    spec = SampleSpec(Field(FieldKind.ARRAY, (), np.dtype(np.int64)), None)
    finish = Finish()
    batch_size = 1
    buffered_batches = 0
    closed = False

    def __len__(self) -> int:
        return 3

    @property
    def identity(self) -> str:
        return "three"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number in range(start, 3):
            yield np.array([epoch, number]), None

    def close(self) -> None:
        self.closed = True


def numbers(batches: Iterator[tuple[Any, Any]]) -> list[tuple[int, int]]:
    return [tuple(x.tolist()) for x, _ in batches]


def test_a_state_names_the_next_batch() -> None:
    loader = Three()
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (0, 0)
    epoch = loader.epoch(4)
    next(epoch)
    next(epoch)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (4, 2)
    next(epoch)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (5, 0)


def test_an_epoch_may_be_a_number_of_numpy() -> None:
    loader = Three()
    assert numbers(loader.epoch(np.int64(4))) == [(4, 0), (4, 1), (4, 2)]  # type: ignore[arg-type]  # as of np.arange
    assert loader.state_dict()["epoch"] == 5


def test_a_loaded_state_holds_for_its_own_epoch_once() -> None:
    loader = Three()
    loader.load_state_dict({"schema_version": 1, "epoch": 2, "batch": 1, "identity": "three"})
    assert loader.state_dict()["batch"] == 1
    assert numbers(loader.epoch(2)) == [(2, 1), (2, 2)]
    assert numbers(loader.epoch(2)) == [(2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identity": "four"}, "another workload"),
        ({"batch": 3}, "has 3 batches"),
        ({"batch": -1}, "cannot be read"),
        ({"extra": 1}, "cannot be read"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Three().load_state_dict({"schema_version": 1, "epoch": 2, "batch": 1, "identity": "three", **changes})


class Watchful(Three):
    """Notes which of its batches are still held when it is asked for the next."""

    def __init__(self) -> None:
        self.held: list[bool] = []

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number in range(start, 3):
            array = np.array([epoch, number])
            made = weakref.ref(array)
            yield array, None
            del array
            self.held.append(made() is not None)


def test_a_batch_that_the_consumer_has_done_with_is_not_held_while_the_next_is_made() -> None:
    loader = Watchful()
    epoch = loader.epoch(0)
    while next(epoch, None) is not None:
        pass
    assert loader.held == [False] * 3


def test_leaving_the_with_block_closes() -> None:
    with Three() as loader:
        assert not loader.closed
    assert loader.closed
