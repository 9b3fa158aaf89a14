"""Workers that fill whole batches, one by one or several in one go."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import native
from autopipe.errors import BadSampleError, LoaderError
from autopipe.pipeline.batching.cache import RowLayout, Slot, SlotPool
from autopipe.pipeline.batching.kernel import BadSample
from autopipe.pipeline.batching.stream import BatchStream, Task
from autopipe.pipeline.batching.streaming import Filled, Worker
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.sources import Made

SPEC = SampleSpec(Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("uint8")), None)
ORDER = BatchOrder(count=6, batch_size=2, seed=0, shuffle=False, drop_remainder=False)


class Leaves:
    """Fills nothing in, and counts the batches that were begun and not filled or forgotten."""

    begun = 0

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        self.begun -= 1
        return []

    def begin(self, indices: NDArray[np.int64]) -> None:
        self.begun += 1

    def forget(self, indices: NDArray[np.int64]) -> None:
        self.begun -= 1

    lost, close = 0, forget


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError()])
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_slot_that_cannot_be_made_is_the_batchs_error_and_the_worker_lives_on(error: Exception, ahead: int) -> None:
    class Full(SlotPool):
        errors: ClassVar = [error]

        def acquire(self) -> Slot:
            if self.errors:
                raise self.errors.pop()
            return super().acquire()

    stream: BatchStream[Filled] = BatchStream(ORDER, queue_size=1, ahead=ahead)

    def consume() -> int:
        with contextlib.closing(stream):
            with pytest.raises(LoaderError, match="no room for another batch") as caught:
                next(stream.take_epoch(0, 0, last=True))
            assert "ulimit -n" in str(caught.value.hint)
            return len(list(stream.take_epoch(0, 0, last=True)))

    filler = Leaves()
    with ThreadPoolExecutor(1) as consumer, contextlib.closing(stream):
        taken = consumer.submit(consume)
        Worker(stream, Full(RowLayout(SPEC, 2), keep=4), filler, ahead).work()
    assert taken.result() == 3
    assert ahead == 0 or filler.begun == 0


@pytest.mark.slow
def test_a_loader_that_its_own_worker_finds_as_garbage_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, reads = threading.Event(), list[int]()
    usual = BatchOrder.batches.fget  # type: ignore[attr-defined]  # of a property

    def read(index: int) -> Any:
        if threading.current_thread().name == "autopipe-0":  # its first sample, and others once the loader is dropped
            reads.append(index)
            assert len(reads) <= 1 or dropped.wait(30)
        return np.zeros(2, np.float32), index

    def collecting(order: BatchOrder) -> Any:
        if dropped.is_set() and threading.current_thread().name == "autopipe-0":  # it has the lock of the stream
            gc.collect()
        return usual(order)

    def open_and_drop() -> list[threading.Thread]:
        before = {*threading.enumerate()}
        workload = ap.Workload(data=Made(2, read), ops=[], batch_size=1)
        loader: Any = ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=1)))
        next(batches := loader.batches(0))
        loader.itself = [loader, batches]
        return [each for each in threading.enumerate() if each not in before and each.name == "autopipe-0"]

    monkeypatch.setattr(BatchOrder, "batches", property(collecting))
    workers = open_and_drop()
    dropped.set()
    for worker in workers:
        worker.join(20)
    assert [worker.is_alive() for worker in workers] == [False]


COUNT, SIZE, TOGETHER, BAD = 54, 4, 3, 43
at_once = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 4, 4, 3), np.uint8)


class Counted(ap.Arrays):
    def __init__(self) -> None:
        super().__init__(PIXELS, np.arange(COUNT))
        self.asked: list[int] = []

    def _spans(self, indices: NDArray[np.int64]) -> Any:
        self.asked.append(len(indices))
        return super()._spans(indices)


def opened(data: Any, together: int = 1, *, queue_size: int = 8, workers: int = 1, **settings: Any) -> ap.Loader:
    workload = {name: settings.pop(name) for name in ("shuffle", "drop_remainder") if name in settings}
    loader = ap.Threads(workers=workers, queue_size=queue_size)
    return ap.build_loader(
        ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=SIZE, **workload),
        ap.PipelineConfig(loader=loader, steps_per_execution=together, **settings),
    )


def taken(loader: ap.Loader, epoch: int, start: int = 0, *, last: bool = True) -> list[tuple[Any, Any]]:
    return [(np.array(x), np.array(y)) for x, y in loader.batches(epoch, start, last=last)]


def same(found: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]) -> None:
    for part, wanted in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_they_are_the_batches_that_are_made_one_by_one(workers: int, drop_remainder: bool) -> None:
    data = ap.Arrays(PIXELS, np.arange(COUNT))
    with (
        opened(data, 1, drop_remainder=drop_remainder) as one,
        opened(data, TOGETHER, workers=workers, drop_remainder=drop_remainder) as several,
    ):
        assert len(one) == len(several)
        for epoch, start in [(0, 0), (1, 0), (1, 4), (5, len(one) - 1)]:
            expected, found = taken(one, epoch, start), taken(several, epoch, start, last=epoch != 0)
            assert len(expected) == len(one) - start
            same(found, expected)


@at_once
def test_a_call_of_the_source_fills_several() -> None:
    data = Counted()
    with opened(data, TOGETHER) as loader:
        data.asked.clear()  # the plan looked at a few
        taken(loader, 0)
        assert data.asked == [12, 12, 12, 12, 6]
        assert loader.buffered_batches % TOGETHER == 0


def test_large_batches_and_samples_made_one_by_one_come_singly() -> None:
    with opened(Made(COUNT, lambda index: (PIXELS[index], index)), TOGETHER) as loader:
        assert loader.buffered_batches == 8 + 1
    with opened(ap.Arrays(PIXELS, np.arange(COUNT)), queue_size=1) as loader:
        assert loader.buffered_batches == 1 + 1
    with opened(ap.Arrays(np.zeros((8, 1024, 512, 3), np.uint8)), TOGETHER) as loader:
        assert loader.buffered_batches == 8 + 1
    with opened(Slow(PIXELS, np.arange(COUNT)), 4, keep="memory:50%") as loader:
        assert loader.buffered_batches == 2 * 4 + 1


class Broken(ap.Arrays):
    """Fails at one sample, in one way or the other."""

    def __init__(self) -> None:
        super().__init__(PIXELS, np.arange(COUNT))

    def _spans(self, indices: NDArray[np.int64]) -> Any:
        if BAD in indices:
            raise RuntimeError("no such row")
        return super()._spans(indices)

    @property
    def spans(self) -> Any:  # beside its own `read`
        return super().spans

    def read(self, index: int) -> object:
        if index == BAD:
            raise RuntimeError("no such row")
        return super().read(index)


@pytest.mark.parametrize("together", [1, TOGETHER])
def test_a_sample_that_fails_comes_as_an_error_between_the_batches_before_it_and_those_behind(together: int) -> None:
    before, behind = list(range(BAD // SIZE * SIZE)), BAD // SIZE + 1
    assert behind % TOGETHER != 0  # it is in the group of the one that fails
    with opened(Broken(), together, shuffle=False) as loader:
        for _ in range(2):
            found: list[Any] = []
            with pytest.raises(BadSampleError, match=f"sample {BAD} .*no such row"):
                found.extend(np.array(y) for _, y in loader.batches(0, last=True))
            assert np.concatenate(found).tolist() == before
        rest = taken(loader, 0, behind, last=False)
        assert np.concatenate([y for _, y in rest]).tolist() == list(range(behind * SIZE, COUNT))
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batch": behind})
        again = [np.array(y) for _, y in loader.epoch(1)]
        assert np.concatenate(again).tolist() == list(range(behind * SIZE, COUNT))


def test_a_group_is_made_anew_for_who_goes_back_in_it_and_its_end_is_the_epochs() -> None:
    with opened(ap.Arrays(PIXELS, np.arange(COUNT)), TOGETHER) as loader:
        whole = [y.tolist() for _, y in taken(loader, 0, last=False)]
        for start in (2, 1, 0, len(loader), len(loader) - 1):
            first = itertools.islice(loader.batches(0, start), 1)
            assert [np.array(y).tolist() for _, y in first] == whole[start : start + 1]


class Slow(ap.Arrays):
    spans = None


@at_once
def test_batches_come_singly_while_a_cache_is_filled_and_then_several(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Slow(PIXELS, np.arange(COUNT))
    counts: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: []}
    with opened(data, queue_size=1) as loader:
        expected = [taken(loader, epoch) for epoch in counts]

    def deliver(stream: BatchStream[Any], task: Task, result: Any) -> None:
        counts[task.epoch].append(task.count)
        usual(stream, task, result)

    usual = BatchStream.deliver
    monkeypatch.setattr(BatchStream, "deliver", deliver)
    with opened(data, 4, keep="memory") as loader:
        for epoch, batches in enumerate(expected):
            same(taken(loader, epoch), batches)
    assert counts[0][:14] == [1] * 14
    assert counts[3] == [4, 4, 4, 2]
