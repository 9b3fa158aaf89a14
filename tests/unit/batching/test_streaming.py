from __future__ import annotations

import errno
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.assembly import build_loader
from autopipe.batching.kernel import BadSample
from autopipe.batching.slots import RowLayout, Slot, SlotPool
from autopipe.batching.stream import BatchStream
from autopipe.batching.streaming import Filled, Worker
from autopipe.core.config import PipelineConfig
from autopipe.core.order import BatchOrder
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.core.workload import Workload
from autopipe.errors import LoaderError
from autopipe.loaders.threads import Threads

SPEC = SampleSpec(Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("uint8")), None)
ORDER = BatchOrder(count=6, batch_size=2, seed=0, shuffle=False, drop_remainder=False)


class Leaves:
    """Fills nothing in, and counts the batches that were begun and not filled or forgotten."""

    begun = 0
    lost = 0

    def fill(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        self.begun -= 1
        return []

    def begin(self, indices: NDArray[np.int64]) -> None:
        self.begun += 1

    def forget(self, indices: NDArray[np.int64]) -> None:
        self.begun -= 1

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError()], ids=["descriptors", "memory"]
)
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_slot_that_cannot_be_made_is_the_batchs_error_and_the_worker_lives_on(error: Exception, ahead: int) -> None:
    class Full(SlotPool):
        failures = 0

        def acquire(self) -> Slot:
            if self.failures == 0:
                self.failures += 1
                raise error
            return super().acquire()

    pool = Full(RowLayout(SPEC, 2), keep=4)
    stream: BatchStream[Filled] = BatchStream(ORDER, queue_size=1, ahead=ahead)
    filler = Leaves()

    def consume() -> list[Any]:
        try:
            with pytest.raises(LoaderError, match="no room for another batch") as caught:
                next(stream.take_epoch(0, 0, last=True))
            assert "ulimit -n" in str(caught.value.hint)
            return list(stream.take_epoch(0, 0, last=True))
        finally:
            stream.close()

    with ThreadPoolExecutor(1) as consumer:
        taken = consumer.submit(consume)
        try:
            Worker(stream, pool, filler, ahead).work()
        finally:
            stream.close()
    assert len(taken.result()) == 3
    assert ahead == 0 or filler.begun == 0


def test_a_loader_that_the_garbage_collector_finds_in_one_of_its_own_workers_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped = threading.Event()

    class Waiting:
        """Lets the worker read its first sample, and its others once nobody holds the loader any more."""

        reads = 0

        def __len__(self) -> int:
            return 2

        def read(self, index: int) -> Any:
            self.reads += threading.current_thread().name == "autopipe-0"
            assert self.reads <= 1 or dropped.wait(30)
            return np.zeros(2, np.float32), index

    def collecting(order: BatchOrder, number: int) -> NDArray[np.int64]:
        if number == 1:  # the worker has the lock of the stream
            gc.collect()
        return usual(order, number)

    def open_and_drop() -> list[threading.Thread]:
        before = {*threading.enumerate()}
        loader: Any = build_loader(
            Workload(data=Waiting(), ops=[], batch_size=1), PipelineConfig(loader=Threads(workers=1))
        )
        batches = loader.batches(0)
        next(batches)
        loader.itself = [loader, batches]
        return [each for each in threading.enumerate() if each not in before and each.name == "autopipe-0"]

    usual = BatchOrder.epoch
    monkeypatch.setattr(BatchOrder, "epoch", collecting)
    workers = open_and_drop()
    dropped.set()
    for worker in workers:
        worker.join(20)
    assert [worker.is_alive() for worker in workers] == [False]
