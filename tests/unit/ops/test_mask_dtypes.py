"""Masks of any dtype keep it, and their numbers, through ops that only move pixels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import OpError
from autopipe.ops.geometry import RandomAffine, RandomErasing, RandomFlip
from autopipe.ops.pixels import PixelOp
from autopipe.ops.planner import make_plan
from autopipe.ops.sizes import Pad, RandomCrop, RandomResizedCrop, Resize, ResizeKeepingAspect

IMAGE = np.zeros((6, 8, 3), np.uint8)
PLACES = np.arange(48).reshape(6, 8)
OPS = [
    RandomFlip(vertical=True),
    Pad(9, 9),
    ResizeKeepingAspect(12, 12),
    Resize(3, 4),
    RandomCrop(4, 4),
    RandomResizedCrop(4, 4),
]


def spec(dtype: str, shape: tuple[int, ...]) -> SampleSpec:
    image = Field(FieldKind.IMAGE, IMAGE.shape, IMAGE.dtype, 3)
    return SampleSpec(image, Field(FieldKind.MASK, shape, np.dtype(dtype), len(shape)))


def large(numbers: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return numbers that need all of a dtype, made of some below 64."""
    factor = 1 if dtype in ("bool", "int8", "float16") else int(np.iinfo(dtype).max) // 64
    return (numbers.astype(object) * factor).astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint32", "int64", "uint64", "float16"])
@pytest.mark.parametrize("channels", [(), (1,)])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_mask_keeps_its_dtype_and_its_numbers(op: PixelOp, channels: tuple[int, ...], dtype: str) -> None:
    usual = PLACES.astype(np.uint8).reshape(6, 8, *channels)
    mask = large(usual, dtype)
    random = np.full(op.draws, 0.25)
    _, expected = op.apply((IMAGE, usual), spec("uint8", usual.shape), random)
    _, found = op.apply((IMAGE, mask), spec(dtype, mask.shape), random)
    assert (found.dtype, found.shape) == (mask.dtype, expected.shape)
    np.testing.assert_array_equal(found, large(expected, dtype))


FILLING = [
    Pad(9, 9),
    ResizeKeepingAspect(12, 12),
    RandomAffine(shift=(0.5, 0), fill="constant"),
    RandomErasing(on="both"),
]


@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", -1), ("uint8", 256), ("uint8", 2.5), ("uint32", -1), ("uint64", -1)]
)
@pytest.mark.parametrize("op", FILLING, ids=lambda op: op.name)
def test_a_mask_is_not_filled_with_what_its_dtype_cannot_hold(op: Any, dtype: str, value: float) -> None:
    mask, random = PLACES.astype(dtype), np.full(op.draws, 0.25)
    filling = dataclasses.replace(op, mask_value=value)
    with pytest.raises(OpError, match=f"`{op.name}` cannot fill masks of {dtype} with mask_value={value}: they"):
        filling.apply((IMAGE, mask), spec(dtype, mask.shape), random)
    with_sign = dataclasses.replace(op, mask_value=-1).apply((IMAGE, PLACES), spec("int64", mask.shape), random)
    assert with_sign[1].min() == -1
    filling.apply((IMAGE, np.int64(3)), dataclasses.replace(spec(dtype, ()), y=None), random)  # no mask is filled


@pytest.mark.parametrize("op", FILLING, ids=lambda op: op.name)
def test_such_a_mask_is_refused_before_any_loader_opens(op: Any) -> None:
    data = Arrays(IMAGE[None].repeat(4, axis=0), PLACES.astype(np.uint8)[None].repeat(4, axis=0))
    workload = Workload(data=data, ops=[dataclasses.replace(op, mask_value=300)], batch_size=2)
    with pytest.raises(OpError, match="cannot fill masks of uint8 with mask_value=300"):
        make_plan(workload)


def test_a_batch_of_masks_is_not_either() -> None:
    masks = PLACES.astype("uint16")[None].repeat(3, axis=0)
    with pytest.raises(OpError, match="they hold 0 to 65535"):
        Pad(9, 9, mask_value=70_000).pixels_many(masks, FieldKind.MASK, np.empty((3, 0)))


@pytest.mark.parametrize("dtype", ["bool", "uint32", "int64", "uint64"])
def test_a_batch_of_such_masks_is_flipped_alike(dtype: str) -> None:
    op, random = RandomFlip(vertical=True), np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75]])
    masks = large(PLACES, dtype)[None].repeat(3, axis=0)
    alone = [op.pixels(mask, FieldKind.MASK, numbers, None) for mask, numbers in zip(masks, random, strict=True)]
    np.testing.assert_array_equal(op.pixels_many(masks.copy(), FieldKind.MASK, random), np.stack(alone))
