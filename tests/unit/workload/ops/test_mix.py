from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import native
from autopipe.errors import OpError, WorkloadError
from autopipe.workload.op import Op
from autopipe.workload.ops.planner import make_plan

RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (5, 8, 10, 3), np.uint8)
TARGETS = np.eye(5, dtype=np.float32)
MASKS = RNG.integers(0, 4, (5, 8, 10), np.uint8)
RANDOM = RNG.random((5, 6))


def made(op: Op, y: NDArray[Any] | None = TARGETS) -> tuple[Any, Any]:
    return op.mix((IMAGES.copy(), None if y is None else y.copy()), RANDOM)


def partners() -> list[int]:
    """Row r is mixed with the row whose first number is the r-th smallest."""
    return sorted(range(5), key=lambda row: float(RANDOM[row, 0]))


def shares(alpha: float) -> list[float]:
    keys = [[int(number * 2**53) for number in row[2:4]] for row in RANDOM.tolist()]
    return [float(np.random.Generator(np.random.Philox(key=key)).beta(alpha, alpha)) for key in keys]


@pytest.mark.parametrize("alpha", [0.9, 0.01, 1.5])  # numpy mixes by the last two
def test_mixup_adds_image_and_target_of_another_sample_by_one_share(alpha: float) -> None:
    x, y = made(ap.MixUp(alpha))
    for row, (other, share) in enumerate(zip(partners(), shares(alpha), strict=True)):
        np.testing.assert_allclose(x[row], IMAGES[row] * share + IMAGES[other] * (1 - share), atol=0.51)
        np.testing.assert_allclose(y[row], TARGETS[row] * share + TARGETS[other] * (1 - share), atol=1e-6)
    assert x.dtype == np.uint8


@pytest.mark.parametrize("y", [TARGETS, MASKS, None], ids=["targets", "masks", "none"])
def test_cutmix_puts_a_rectangle_of_another_sample_in(y: NDArray[Any] | None) -> None:
    x, mixed = made(ap.CutMix(), y)
    for row, (other, share) in enumerate(zip(partners(), shares(1.0), strict=True)):
        tall, wide = (math.floor(side * math.sqrt(1 - share) + 0.5) for side in (8, 10))
        top, left = (math.floor(at) for at in RANDOM[row, 4:] * (8 - tall + 1, 10 - wide + 1))
        inside = np.zeros((8, 10), bool)
        inside[top : top + tall, left : left + wide] = True
        np.testing.assert_array_equal(x[row], np.where(inside[..., None], IMAGES[other], IMAGES[row]))
        if y is MASKS:
            np.testing.assert_array_equal(mixed[row], np.where(inside, MASKS[other], MASKS[row]))
        elif y is not None:
            kept = 1 - tall * wide / 80
            np.testing.assert_allclose(mixed[row], TARGETS[row] * kept + TARGETS[other] * (1 - kept), atol=1e-6)


def test_a_sample_is_mixed_by_chance() -> None:
    x, y = made(ap.MixUp(1.0, 0.5))
    same = (x == IMAGES).all((1, 2, 3)).tolist()
    assert same == ((RANDOM[:, 1] >= 0.5) | (np.array(partners()) == range(5))).tolist()
    assert 0 < sum(same) < 5
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("ops", "labels", "error", "said"),
    [
        ([ap.MixUp()], np.arange(5), OpError, r"needs targets that can be mixed, but got int64 labels.*ap\.OneHot"),
        ([ap.CutMix()], np.arange(5), OpError, r"CutMix.*ap\.OneHot"),
        ([ap.MixUp()], MASKS, OpError, "class numbers"),
        ([ap.Cast("int32"), ap.MixUp()], np.eye(5), OpError, r"mixes levels or floats, but got int32.*float32"),
        ([ap.OneHot(5), ap.MixUp(), ap.RandomFlip()], np.arange(5), WorkloadError, "behind `RandomFlip`"),
    ],
)
def test_what_cannot_be_mixed_is_refused_when_a_loader_opens(ops: Any, labels: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        make_plan(ap.Workload(data=ap.Arrays(IMAGES, labels), ops=ops, batch_size=2))


def test_what_follows_on_each_value_alone_may_run_on_the_device() -> None:
    ops = [ap.RandomFlip(), ap.OneHot(5), ap.MixUp(), ap.CutMix(), ap.Rescale(1 / 255)]
    plan = make_plan(ap.Workload(data=ap.Arrays(IMAGES, np.arange(5)), ops=ops, batch_size=2))
    assert [type(step.op) for step in plan.body] == [ap.RandomFlip, ap.OneHot, ap.MixUp, ap.CutMix]
    assert [type(step.op) for step in plan.suffix] == [ap.Rescale]


def batch_of(size: tuple[int, int, int], dtype: str, y: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    numbers = np.random.default_rng(0)
    images = numbers.integers(0, 65536 if dtype == "uint16" else 256, (*size, 3)).astype(dtype)
    targets: dict[str, NDArray[Any]] = {
        "vectors": numbers.random((size[0], 7), np.float32),
        "numbers": numbers.random(size[0], np.float32),
        "masks": numbers.integers(0, 9, size, np.uint8),
        "deep masks": numbers.random((*size, 5)),
    }
    return images, targets.get(y)


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
@pytest.mark.parametrize("size", [(1, 5, 7), (9, 1, 1), (3, 1, 4099), (4, 4099, 1), (33, 13, 11)], ids=str)
@pytest.mark.parametrize("op", [ap.MixUp(), ap.MixUp(0.06, 0.7), ap.CutMix(), ap.CutMix(0.3, 0.7)], ids=str)
def test_the_library_mixes_to_the_bits_of_numpy(op: Op, size: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [("uint8", "vectors"), ("uint16", "vectors"), ("float32", "numbers"), ("uint8", "")]
    kinds += [("uint8", "masks"), ("uint8", "deep masks")] if isinstance(op, ap.CutMix) else []
    for dtype, y in kinds:
        batch = batch_of(size, dtype, y)
        random = np.random.default_rng(1).random((size[0], 6))
        random[0, 4:] = 1 - 2**-53  # the last place
        by_library = op.mix(tuple(None if part is None else part.copy() for part in batch), random)
        with monkeypatch.context() as python:
            python.setattr(native, "mix", lambda *_: False)
            by_numpy = op.mix(tuple(None if part is None else part.copy() for part in batch), random)
        for one, two in zip(by_library, by_numpy, strict=True):
            assert (one is None and two is None) or one.tobytes() == two.tobytes()


def test_the_library_leaves_to_numpy_what_it_does_not_mix() -> None:
    for images, alpha in ((IMAGES, 0.01), (IMAGES, 1.5), (IMAGES.astype("float16"), 0.5), (IMAGES[:, ::2], 0.5)):
        assert not native.mix([(images, False)], RANDOM, alpha, 1.0)
