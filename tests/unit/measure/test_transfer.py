from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from autopipe.devices.single import SingleDevice
from autopipe.measure import transfer


class Far(SingleDevice):
    """A device to which each array takes as many seconds as it has rows."""

    def __init__(self) -> None:
        self.looks_ahead = True
        self.sent: list[int] = []
        self.seconds = 0.0

    def place(self, array: Any) -> Any:
        self.sent.append(len(array))
        return array

    def arrived(self, array: Any) -> None:
        self.seconds += len(array)


def test_an_image_takes_its_part_of_what_all_arrays_of_a_batch_take() -> None:
    far = Far()
    batch = (np.zeros((8, 4)), np.zeros(8))
    found = transfer.seconds_per_image(far, batch, far.arrived, clock=lambda: far.seconds)
    assert found == pytest.approx(2.0)
    assert set(far.sent) == {8}


def test_the_first_batch_and_a_slow_one_do_not_count() -> None:
    far = Far()
    ends = itertools.accumulate([100.0, 1.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0])
    clock = itertools.chain.from_iterable((now, now) for now in itertools.chain([0.0], ends))
    next(clock)  # the end of one is the beginning of the next
    assert transfer.seconds_per_image(far, (np.zeros(4),), far.arrived, clock=lambda: next(clock)) == 0.25


def test_where_a_batch_is_used_where_it_lies_there_is_no_transfer() -> None:
    assert transfer.seconds_per_image(SingleDevice(), (np.zeros(4),), lambda _: None) is None


def test_an_array_of_the_backend_is_there_when_it_has_arrived() -> None:
    transfer.arrived(SingleDevice().place(np.zeros(4, np.float32)))
