from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import Kernel
from autopipe.core.job import Recipe
from autopipe.core.op import Op
from autopipe.core.sample import Batch
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import BadSampleError
from autopipe.ops.custom import Map
from autopipe.ops.geometry import RandomFlip
from autopipe.ops.planner import make_plan
from autopipe.ops.sizes import Resize

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), np.uint8)


class Counted(Arrays):
    """Counts the samples that are read one by one; those before `broken` cannot be read in a batch."""

    broken: int = 0
    reads: int = 0

    def read(self, index: int) -> object:
        self.reads += 1
        if index < self.broken:
            raise BadSampleError("broken")
        return super().read(index)

    def read_many(self, indices: NDArray[np.integer[Any]], out: Batch) -> None:
        if indices.min() < self.broken:
            raise RuntimeError("one of them is broken")
        super().read_many(indices, out)


def recipe(data: Arrays, ops: list[Op], **changes: Any) -> Recipe:
    plan = make_plan(Workload(data=data, ops=ops, batch_size=4))
    settings = {
        "source": data,
        "steps": plan.prefix + plan.body,
        "fixed_steps": len(plan.prefix),
        "fixed_spec": plan.cut(len(plan.prefix)),
        "spec": plan.compact,
        "seed": 3,
        "on_bad_sample": "error",
        **changes,
    }
    return Recipe(**settings)


def filled(kernel: Kernel, indices: list[int], epoch: int = 0) -> tuple[Batch, list[Any]]:
    spec = kernel.spec
    batch = np.zeros((len(indices), *(spec.x.shape or ())), spec.x.dtype), np.zeros(len(indices), np.int64)
    return batch, kernel.fill(epoch, np.array(indices), batch)


def data() -> Counted:
    return Counted(IMAGES, np.arange(20))


def test_a_batch_of_arrays_visits_no_sample_one_by_one() -> None:
    source = data()
    kernel = Kernel(recipe(source, [RandomFlip()]))
    source.reads = 0
    (x, y), _ = filled(kernel, [7, 3, 11])
    assert (source.reads, kernel.fills_at_once) == (0, True)
    assert y is not None
    assert y.tolist() == [7, 3, 11]
    for row, index in enumerate([7, 3, 11]):
        assert x[row].tolist() in (IMAGES[index].tolist(), IMAGES[index, :, ::-1].tolist())


@pytest.mark.parametrize("op", [Map(lambda image: image), Resize(3, 3)], ids=["map", "resize"])
def test_an_op_without_a_batch_half_is_run_sample_by_sample(op: Op) -> None:
    kernel = Kernel(recipe(data(), [op, RandomFlip()]))
    assert not kernel.fills_at_once
    assert filled(kernel, [1, 2])[0][0].shape[0] == 2


def test_large_samples_are_taken_through_ops_one_by_one() -> None:
    large = Arrays(np.zeros((4, 256, 256, 3), np.uint8))
    assert not Kernel(recipe(large, [RandomFlip()])).fills_at_once
    assert Kernel(recipe(large, [])).fills_at_once


def test_a_cache_that_is_full_is_gathered_from_and_one_that_is_not_is_filled_first() -> None:
    source = data()
    made = recipe(source, [Resize(3, 3), RandomFlip()], cached=1.0)
    kernel = Kernel(made, MemoryCache.of(made))
    source.reads = 0
    first = [filled(kernel, list(range(start, start + 5)))[0] for start in (0, 5, 10, 15)]
    assert (source.reads, kernel.fills_at_once) == (20, True)
    again = [filled(kernel, list(range(start, start + 5)))[0] for start in (0, 5, 10, 15)]
    assert source.reads == 20
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_a_batch_that_cannot_be_made_at_once_is_made_sample_by_sample() -> None:
    source = data()
    kernel = Kernel(recipe(source, [RandomFlip()]))
    wanted, _ = filled(kernel, [4, 0, 2])
    source.broken = 0
    source.read_many = lambda indices, out: (_ for _ in ()).throw(RuntimeError("no"))  # type: ignore[method-assign]
    found, bad = filled(Kernel(recipe(source, [RandomFlip()])), [4, 0, 2])
    assert bad == []
    np.testing.assert_array_equal(wanted[0], found[0])


def test_a_bad_sample_of_a_batch_is_named_or_replaced() -> None:
    source = data()
    made = recipe(source, [RandomFlip()])
    source.broken = 2
    with pytest.raises(BadSampleError, match=r"sample 1 \(row 1 of"):
        filled(Kernel(made), [5, 1, 9])
    (_, y), bad = filled(Kernel(dataclasses.replace(made, on_bad_sample="skip")), [5, 1, 9])
    assert y is not None
    assert (y.tolist(), [(each.index, each.replaced_by) for each in bad]) == ([5, 2, 9], [(1, 2)])
