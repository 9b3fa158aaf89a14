"""Each op's TensorFlow half gives what its NumPy half gives: the same pixels, or a level away after a resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autopipe.core.op import Op
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.ops.color import RandomBrightness, RandomContrast
from autopipe.ops.crop import CenterCrop, RandomCrop
from autopipe.ops.custom import Map
from autopipe.ops.flip import RandomFlip
from autopipe.ops.mask import MaskToClass
from autopipe.ops.onehot import OneHot
from autopipe.ops.pad import Pad
from autopipe.ops.resize import Resize
from autopipe.ops.scale import Cast, Normalize, Rescale

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (37, 53, 3), np.uint8)
MASK = RNG.integers(0, 5, (37, 53), np.uint8)
COLOURS = np.array([(0, 0, 0), (255, 0, 0), (9, 8, 7), (1, 2, 3), (3, 2, 1)], np.uint8)
RANDOM = [(0.0, 0.0), (0.3, 0.7), (0.999999, 0.999999), (0.5, 0.499999)]
OPS = [
    CenterCrop(20, 31),
    RandomCrop(37, 53),
    RandomCrop(20, 30),
    RandomFlip(),
    RandomFlip(horizontal=False, vertical=True),
    RandomFlip(vertical=True),
    RandomBrightness(0.5),
    RandomBrightness(0.5, on="both"),
    RandomContrast(0.2, 1.9),
    Pad(48, 60, value=7, mask_value=4),
    Pad(20, 60),
    OneHot(4),
    Rescale(1 / 255, -0.5),
    Normalize((1, 2, 3), (4, 5, 6)),
    Cast("float16", on="both"),
    Map(lambda x: x[::2, ::3]),
    Map(lambda x, y: (255 - x, y), on="both"),
]


def spec(x: Any, y: Any, y_kind: FieldKind = FieldKind.MASK) -> SampleSpec:
    return SampleSpec(
        Field(FieldKind.IMAGE, x.shape, x.dtype, x.ndim), None if y is None else Field(y_kind, y.shape, y.dtype, y.ndim)
    )


def both_halves(op: Op, x: Any, y: Any, random: Any, *, static: bool) -> tuple[Any, Any]:
    """Return (x, y) from each half; the graph knows the shapes before the op, or just the ranks."""
    import tensorflow as tf

    from autopipe.ops.tensorflow import apply_step

    numbers = np.array(random[: op.draws])
    before = spec(x, y)
    made_x, made_y = op.apply((x, y), before, numbers)
    step = Step(op, 0, before, spec(made_x, made_y))
    shapes = (x.shape, y.shape) if static else ([None] * x.ndim, [None] * y.ndim)
    signature = [tf.TensorSpec(shape, part.dtype) for shape, part in zip(shapes, (x, y), strict=True)]
    graph = tf.function(
        lambda a, b, r: apply_step(step, (a, b), r), [*signature, tf.TensorSpec([op.draws], tf.float64)]
    )
    return (made_x, made_y), tuple(part.numpy() for part in graph(x, y, numbers))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("random", RANDOM)
@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_halves_agree_exactly(op: Op, random: tuple[float, float], static: bool) -> None:
    if op.draws == 0 and random != RANDOM[0]:
        return
    (x, y), (found_x, found_y) = both_halves(op, IMAGE, MASK, random, static=static)
    assert (x.dtype, y.dtype) == (found_x.dtype, found_y.dtype)
    np.testing.assert_array_equal(x, found_x)
    np.testing.assert_array_equal(y, found_y)


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "area", "bicubic"])
@pytest.mark.parametrize("size", [(20, 30), (74, 106), (37, 53), (224, 17)])
def test_resized_images_differ_by_a_level_at_most_and_masks_not_at_all(
    size: tuple[int, int], interpolation: Any
) -> None:
    (x, y), (found_x, found_y) = both_halves(Resize(*size, interpolation), IMAGE, MASK, (), static=False)
    assert np.abs(x.astype(int) - found_x.astype(int)).max() <= (1 if interpolation == "bilinear" else 0)
    np.testing.assert_array_equal(y, found_y)


def test_an_op_without_a_tensorflow_half_runs_through_numpy() -> None:
    colours = tuple(map(tuple, COLOURS.tolist()))
    (_, y), (_, found) = both_halves(MaskToClass(colours), IMAGE, COLOURS[MASK], (), static=False)
    np.testing.assert_array_equal(MASK, y)
    np.testing.assert_array_equal(MASK, found)
