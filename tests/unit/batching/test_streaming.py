from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.batching.kernel import BadSample
from autopipe.batching.shared_memory import RowLayout
from autopipe.batching.slots import Slot, SlotPool
from autopipe.batching.stream import BatchStream
from autopipe.batching.streaming import Filled, _work
from autopipe.core.order import BatchOrder
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.errors import LoaderError

SPEC = SampleSpec(Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("uint8")), None)
ORDER = BatchOrder(count=6, batch_size=2, seed=0, shuffle=False, drop_remainder=False)


class Leaves:
    """Fills nothing in, and counts the batches that were begun and not filled or forgotten."""

    begun = 0

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
    stream: BatchStream[Filled] = BatchStream(ORDER, capacity=2, ahead=ahead)
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
            _work(stream, pool, filler, ahead, ORDER.batch_size)
        finally:
            stream.close()
    assert len(taken.result()) == 3
    assert ahead == 0 or filler.begun == 0
