"""What reaches the device and comes back: tensors over arrays, logs, the operations of Keras."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from autopipe.pipeline.batching.cache import RowLayout, SlotPool
from autopipe.pipeline.devices.callbacks import StepLogs
from autopipe.pipeline.devices.feed import Fault, Placement, Stream
from autopipe.pipeline.devices.strategy import SingleDevice, tensor
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec
from tests.fakes.loader import ArrayLoader


class OnDevice:
    """A number that counts how often it was fetched."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.fetched = 0

    def __float__(self) -> float:
        self.fetched += 1
        return self.value


def logs() -> tuple[StepLogs, OnDevice]:
    loss = OnDevice(0.5)
    return StepLogs({"loss": loss, "accuracy": 1.0}), loss


def test_nothing_is_fetched_until_it_is_read() -> None:
    step, loss = logs()
    assert "loss" in (step or {})
    assert (list(step), len(step), loss.fetched) == (["accuracy", "loss"], 2, 0)
    assert (step["loss"], loss.fetched) == (0.5, 1)
    assert np.asarray(step).tolist() == [1.0, 0.5]  # all are waited for
    assert loss.fetched == 2
    others = StepLogs({"words": "a", "nested": {"loss": OnDevice(2.0)}})
    assert (others["words"], others["nested"]["loss"]) == ("a", 2.0)


@pytest.mark.parametrize(
    "way",
    [
        dict,
        lambda step: {**step},
        lambda step: dict(step.items()),
        lambda step: dict(zip(step, step.values(), strict=True)),
        lambda step: step.copy(),
        lambda step: {name: step.get(name) for name in step},
        lambda step: json.loads(json.dumps(step)),
    ],
)
def test_every_way_of_reading_gives_numbers(way: Any) -> None:
    assert way(logs()[0]) == {"accuracy": 1.0, "loss": 0.5}
    assert logs()[0].get("none", 3) == 3


def aligned(shape: tuple[int, ...], dtype: str = "float32", offset: int = 0) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def shares(array: np.ndarray[Any, Any]) -> bool:
    return bool(np.shares_memory(array, np.asarray(memoryview(tensor(array)))))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (3,)])
def test_aligned_memory_is_not_copied(shape: tuple[int, ...], dtype: str) -> None:
    assert shares(aligned(shape, dtype))


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(aligned((64, 64, 64), offset=16), id="not aligned to what kernels need"),
        pytest.param(aligned((64, 64, 64))[:, ::2], id="with gaps"),
        pytest.param(np.frombuffer(aligned((64, 64, 64)).data.toreadonly(), np.float32), id="read only"),
        pytest.param(aligned((0, 4)), id="empty"),
        pytest.param(aligned((64, 64, 64), "bool"), id="bool"),
    ],
)
def test_everything_else_is_copied(array: np.ndarray[Any, Any]) -> None:
    assert not shares(array)
    assert np.array_equal(copied := tensor(array), array)
    assert tensor(copied) is copied


class SlotLoader(ArrayLoader):
    """Fills slots that come back when the last reference is gone; batch number n of all is filled with n."""

    def __init__(self, batches: int) -> None:
        super().__init__(np.zeros((4 * batches, 64, 64, 3), np.uint8), None, 4)
        spec = SampleSpec(Field(FieldKind.IMAGE, (64, 64, 3), np.dtype(np.uint8)), None)
        self.pool = SlotPool(RowLayout(spec, 4), keep=2)
        self.slots_used: set[int] = set()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number in range(start, len(self)):
            slot = self.pool.acquire()
            self.slots_used.add(slot.number)
            slot.layout.arrays(slot.block)[0][...] = number
            yield self.pool.lend(slot, 4)


def test_no_batch_in_use_is_overwritten_and_slots_come_back() -> None:
    loader = SlotLoader(batches=60)
    held: dict[int, Any] = {}
    stream = Stream(loader, Placement(SingleDevice()), Fault(), first=(0, 0), steps=60)
    for number, (x,) in enumerate(stream.take(60)):
        if number % 7 == 0:
            held[number] = x  # kept while all the others come and go
        assert int(tf.reduce_max(x)) == number
    for number, x in held.items():
        assert (x.numpy().min(), x.numpy().max()) == (number, number)
    assert len(loader.slots_used) <= len(held) + 3
