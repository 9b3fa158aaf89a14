from __future__ import annotations

import _thread
import gc
import operator
import os
import signal
import weakref
from pathlib import Path

import numpy as np
import pytest

from autopipe.pipeline.batching import cache
from autopipe.pipeline.batching.cache import RowLayout, SharedBlock, SlotPool
from autopipe.workload.sample import Field, FieldKind, SampleSpec

SPEC = SampleSpec(Field(FieldKind.IMAGE, (3, 5, 3), np.dtype("uint8")), Field(FieldKind.LABEL, (), np.dtype("int64")))


def test_fields_lie_aligned_and_apart() -> None:
    layout = RowLayout(SPEC, 7)
    block = SharedBlock(layout.size)
    x, y = layout.arrays(block)
    assert y is not None
    assert (x.shape, str(x.dtype), y.shape, str(y.dtype)) == ((7, 3, 5, 3), "uint8", (7,), "int64")
    assert x.ctypes.data % 64 == y.ctypes.data % 64 == 0
    x[:], y[:] = 255, -1
    again_x, again_y = layout.arrays(block, 4)
    assert again_y is not None
    assert (len(again_x), len(again_y), int(again_x.min()), again_y.tolist()) == (4, 4, 255, [-1] * 4)


def test_a_block_is_shared_by_its_descriptor_and_gone_with_its_arrays() -> None:
    gc.collect()  # of what tests before have left
    gc.collect()  # what earlier tests have left
    before = len(list(Path("/proc/self/fd").iterdir()))
    block = SharedBlock(100)
    other = SharedBlock(100, os.dup(block.descriptor))
    array = block.array((100,), np.dtype("uint8"))
    array[:] = 7
    assert other.array((100,), np.dtype("uint8")).tolist() == [7] * 100
    del block, other
    assert array.tolist() == [7] * 100
    del array
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_block_that_outlives_its_module_at_exit_is_closed_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework may keep a trainer until Python has set the globals of modules to None."""
    block = SharedBlock(16)
    descriptor = block.descriptor
    monkeypatch.setattr(cache, "os", None)
    del block
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_slot_comes_back_with_the_last_reference_to_its_arrays() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=3)
    slot = pool.acquire()
    x, y = pool.lend(slot, 4)
    view = x[1:, 0]
    del x
    assert pool.acquire() is not slot
    del y
    assert pool.acquire() is not slot
    del view
    assert pool.acquire() is slot


class _Tripped(weakref.ref[SharedBlock]):
    trip = staticmethod(_thread.interrupt_main)


def test_a_ctrl_c_that_comes_while_a_batch_goes_is_not_lost() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=3)
    slot, last = pool.acquire(), SharedBlock(1)
    tripped = _Tripped(last, operator.methodcaller("trip"))  # SIGINT comes as this goes: before Python runs again
    held = [(*pool.lend(slot, 4), last)]
    del last
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  it comes with any line that follows
            held.clear()
            assert tripped() is None
    finally:
        signal.signal(signal.SIGINT, before)
    assert pool.acquire() is slot


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_batch_that_a_forked_child_reads_is_not_overwritten() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=3)
    batch = pool.lend(pool.acquire(), 4)
    batch[0][:] = 7
    waiting, going_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(waiting, 1)
        os._exit(0 if batch[0].min() == batch[0].max() == 7 else 1)
    del batch
    later = pool.lend(pool.acquire(), 4)
    later[0][:] = 9
    os.write(going_on, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for descriptor in (waiting, going_on):
        os.close(descriptor)
    slot = pool.acquire()
    batch = pool.lend(slot, 4)
    del batch
    assert pool.acquire() is slot  # what was lent since then comes back


def test_no_more_unused_slots_are_kept_than_told() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=1)
    one, other = pool.acquire(), pool.acquire()
    pool.release(one)
    pool.release(other)
    assert pool.acquire() is one
    assert pool.acquire() is not other
