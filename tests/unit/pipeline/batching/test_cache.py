from __future__ import annotations

import _thread
import gc
import math
import operator
import os
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies

import autopipe as ap
from autopipe.errors import OpError
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock, SlotPool
from autopipe.pipeline.loader import Recipe
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.facts import known

IMAGE = Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("uint8"))
LABEL = Field(FieldKind.LABEL, (), np.dtype("int64"))


VARIED = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype("uint8")), Field(FieldKind.ENCODED, None, None))


SHAPES = strategies.lists(strategies.integers(0, 9), max_size=4)


@given(shapes=strategies.lists(strategies.tuples(SHAPES, strategies.binary(max_size=99)), min_size=1, max_size=20))
def test_samples_of_any_shape_come_out_as_they_went_in(shapes: list[tuple[list[int], bytes]]) -> None:
    made = [(np.arange(math.prod(shape), dtype=np.uint8).reshape(shape), data) for shape, data in shapes]
    whole = recipe(len(made), 1.0, VARIED, 9**4 + 99)
    first = MemoryCache(whole)
    second = MemoryCache(whole, first.block)
    for index, sample in enumerate(made):
        (first, second)[index % 2].put(index, *sample)
    for index, (x, y) in enumerate(made):
        kept_x, kept_y = known(second.get(index))
        assert (np.shape(kept_x), kept_y) == (x.shape, y)
        np.testing.assert_array_equal(kept_x, x)
        assert not isinstance(kept_x, np.ndarray) or not kept_x.flags.writeable


@pytest.mark.parametrize(
    ("spec", "sample"),
    [
        (VARIED, (np.zeros((2, 2), np.float32), b"")),
        (VARIED, (np.zeros((1,) * 5, np.uint8), b"")),
        (VARIED, (np.zeros(2, np.uint8), 7)),
        (SampleSpec(IMAGE, Field(FieldKind.LABEL, (), np.dtype("uint8"))), (np.zeros((2, 2, 3), np.uint8), 300)),
    ],
)
def test_samples_of_another_kind_than_the_first_are_not_kept(spec: SampleSpec, sample: Any) -> None:
    kept = MemoryCache(recipe(2, 1.0, spec, 100))
    kept.put(1, *sample)
    assert kept.get(1) is None


BOTH = SampleSpec(IMAGE, LABEL)


def recipe(count: int, cached: float, spec: SampleSpec = BOTH, sample_bytes: float = 0.0) -> Recipe:
    data = ap.Arrays(np.zeros((count, 2, 2, 3), np.uint8), np.zeros(count, np.int64))
    return Recipe(source=data, fixed_spec=spec, spec=spec, cached=cached, kept_bytes=sample_bytes)


def test_a_part_of_the_samples_is_kept_for_every_worker_and_takes_that_much_memory() -> None:
    made, count = recipe(1000, 0.3), 1000
    cache = known(MemoryCache.of(made))
    for index in range(count):
        cache.put(index, np.full((2, 2, 3), index % 256, np.uint8), index)
    for worker in (cache, known(MemoryCache.of(made, cache.block))):
        kept = {index: sample for index in range(count) if (sample := worker.get(index)) is not None}
        assert len(kept) == worker.filled == 300
        assert all((int(x[0, 0, 0]), y) == (index % 256, index) for index, (x, y) in kept.items())
        assert 100 < sum(index < count // 2 for index in kept) < 200  # spread over the data
    assert MemoryCache.bytes_needed(made) == pytest.approx(300 * (12 + 8 + 1), abs=128)


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_kept_can_only_be_read(shared: bool) -> None:
    target = Field(FieldKind.MASK, (2, 2), np.dtype("uint8"))
    whole = recipe(2, 1.0, SampleSpec(IMAGE, target))
    cache = MemoryCache(whole)
    cache.put(1, np.full((2, 2, 3), 9, np.uint8), np.full((2, 2), 5, np.uint8))
    sample = known((MemoryCache(whole, cache.block) if shared else cache).get(1))
    for part, value in zip(sample, (9, 5), strict=True):
        with pytest.raises(ValueError, match="read-only"):
            part += 1
        assert part.max() == value
    cache.put(1, np.full((2, 2, 3), 7, np.uint8), np.full((2, 2), 6, np.uint8))
    assert (sample[0].max(), sample[1].max()) == (7, 6)


def halved(image: Any) -> Any:
    image /= 2
    return image


def test_an_op_that_writes_to_a_cached_sample_is_an_error_from_the_first_epoch_on() -> None:
    ops = [ap.Map(np.copy), ap.Map(lambda image, rng: image, random=True), ap.Map(halved)]
    workload = ap.Workload(data=ap.Arrays(np.full((4, 2, 2, 3), 8.0, np.float32)), ops=ops, batch_size=4)
    config = ap.PipelineConfig(loader=ap.Threads(workers=1, queue_size=1), finish="host")
    with ap.build_loader(workload, config) as plain:
        assert next(plain.batches(0))[0].max() == 4
    with ap.build_loader(workload, config.model_copy(update={"keep": "memory"})) as cached:
        for _ in range(2):
            with pytest.raises(OpError, match=r"Map on sample .* read-only"):
                next(cached.batches(0))


SPEC = SampleSpec(Field(FieldKind.IMAGE, (3, 5, 3), np.dtype("uint8")), Field(FieldKind.LABEL, (), np.dtype("int64")))


def test_fields_lie_aligned_and_apart() -> None:
    layout = RowLayout(SPEC, 7)
    block = SharedBlock(layout.size)
    x, y = layout.arrays(block)
    assert y is not None
    assert x.ctypes.data % 64 == y.ctypes.data % 64 == 0
    x[:], y[:] = 255, -1
    again_x, again_y = map(known, layout.arrays(block, 4))
    np.testing.assert_array_equal(again_x, np.full((4, 3, 5, 3), 255, np.uint8), strict=True)
    np.testing.assert_array_equal(again_y, np.full(4, -1), strict=True)


def test_a_block_is_shared_by_its_descriptor_and_gone_with_its_arrays() -> None:
    block = SharedBlock(100)
    other = SharedBlock(100, os.dup(block.descriptor))
    descriptors = (block.descriptor, other.descriptor)
    array = block.array((100,), np.dtype("uint8"))
    array[:] = 7
    assert other.array((100,), np.dtype("uint8")).tolist() == [7] * 100
    del block, other
    assert array.tolist() == [7] * 100
    del array
    gc.collect()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_slot_comes_back_with_the_last_reference_to_its_arrays() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=1)
    slot = pool.acquire()
    x, y = pool.lend(slot, 4)
    view = x[1:, 0]
    del x
    assert pool.acquire() is not slot
    del y
    assert pool.acquire() is not slot
    del view
    assert pool.acquire() is slot
    other = pool.acquire()
    pool.release(slot)
    pool.release(other)
    assert pool.acquire() is slot
    assert pool.acquire() is not other  # no more than one unused is kept


class _Tripped(weakref.ref[SharedBlock]):
    trip = staticmethod(_thread.interrupt_main)


@pytest.mark.usefixtures("ctrl_c")
def test_a_ctrl_c_that_comes_while_a_batch_goes_is_not_lost() -> None:
    pool = SlotPool(RowLayout(SPEC, 4), keep=3)
    slot, last = pool.acquire(), SharedBlock(1)
    tripped = _Tripped(last, operator.methodcaller("trip"))  # SIGINT comes as this goes: before Python runs again
    held = [(*pool.lend(slot, 4), last)]
    del last
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  it comes with any line that follows
        held.clear()
        assert tripped() is None
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
