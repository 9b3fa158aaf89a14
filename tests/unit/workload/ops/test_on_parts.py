"""What an op does on samples of several parts; that loaders do it alike is in `tests/contract/test_loaders.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autopipe.errors import ConfigError, WorkloadError
from autopipe.workload import order
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.op import Op
from autopipe.workload.ops.colors import RandomBrightness
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.mix import MixUp
from autopipe.workload.ops.on_parts import On
from autopipe.workload.ops.planner import make_plan, normalise
from autopipe.workload.ops.sizes import CenterCrop, RandomCrop, Resize
from autopipe.workload.ops.values import OneHot
from autopipe.workload.workload import Workload

PLACES = np.arange(6 * 6, dtype=np.uint8).reshape(1, 6, 6).repeat(8, axis=0)
IMAGE = np.stack([PLACES, PLACES, PLACES], axis=-1)
TWO: dict[str, Any] = {"left": IMAGE, "numbers": np.ones((8, 4), np.float32), "right": IMAGE}


def made(data: Any, *ops: Op, index: int = 3) -> dict[str, Any]:
    """Return the parts of one sample after the ops, by their labels."""
    plan = make_plan(Workload(data=data, ops=ops, batch_size=2))
    sample = normalise(data.read(index), plan.source.structure)
    for step in plan.prefix + plan.body + plan.suffix:
        random = order.uniforms(0, 0, np.array([index]), step.stream, step.op.draws)[0]
        sample = step.op.apply(sample, step.before, random)
    return dict(zip(plan.finished.labels, sample, strict=True))


def test_an_op_on_images_acts_on_all_images_and_masks_with_the_same_numbers() -> None:
    data = Arrays(TWO, {"kind": np.arange(8), "first": PLACES, "second": PLACES, "third": PLACES})
    for index in range(8):
        found = made(data, RandomCrop(3, 3), RandomFlip(vertical=True), index=index)
        for other in ("x.right", "y.first", "y.second", "y.third"):
            np.testing.assert_array_equal(found["x.left"][..., 0], found[other].reshape(3, 3, -1)[..., 0])
        np.testing.assert_array_equal(found["x.numbers"], np.ones(4, np.float32))
        assert found["y.kind"] == index


def test_on_names_the_parts_and_each_on_draws_its_own_numbers() -> None:
    data = Arrays(TWO, np.arange(8))
    found = made(data, On("left", RandomCrop(3, 3)), On("x.right", RandomCrop(3, 3)))
    assert not np.array_equal(found["x.left"], found["x.right"])
    found = made(data, On(("left", "right"), RandomCrop(3, 3)))
    np.testing.assert_array_equal(found["x.left"], found["x.right"])
    found = made(data, On("left", Resize(2, 2)))
    assert (found["x.left"].shape, found["x.right"].shape) == ((2, 2, 3), (6, 6, 3))


def test_a_function_gets_the_parts_that_are_named_and_the_only_part_needs_no_name() -> None:
    data = Arrays(TWO, {"kind": np.arange(8), "depth": np.ones(8, np.float32)})
    scale = Map(lambda numbers, depth: (numbers * 2, depth * 3), on="both")
    found = made(data, On(("numbers", "depth"), scale), On("kind", OneHot(9)))
    assert (found["x.numbers"].tolist(), found["y.depth"], found["y.kind"].argmax()) == ([2] * 4, 3, 3)
    data = Arrays(np.ones((8, 4), np.float32), {"kind": np.arange(8)}, np.ones(8, np.float32))
    found = made(data, Map(lambda numbers: numbers + 1), OneHot(8))
    assert (found["x"].tolist(), found["y.kind"].shape) == ([2] * 4, (8,))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (OneHot(9), "`OneHot` must act on one part of y, but it cannot be told on which; the parts are `x.left`"),
        (On("lef", RandomFlip()), "`On` must name parts of the samples, which are .* but got 'lef'"),
        (On("kind", RandomFlip()), "`RandomFlip` must act on an image of x"),
        (On("left", OneHot(9)), "`OneHot` must act on one part of y"),
        (MixUp(0.2), "`MixUp` mixes x and y of whole batches, and cannot mix samples of several parts"),
    ],
)
def test_what_an_op_cannot_act_on_is_said_before_anything_starts(op: Op, message: str) -> None:
    data = Arrays(TWO, {"kind": np.arange(8), "depth": np.ones(8, np.float32)})
    with pytest.raises(WorkloadError, match=message):
        make_plan(Workload(data=data, ops=[op], batch_size=2))


def test_on_takes_names_and_an_op_and_is_refused_where_there_is_one_image() -> None:
    wrong: list[Any] = [("", RandomFlip()), ((), RandomFlip()), ("left", "flip"), ("a", On("b", RandomFlip()))]
    for arguments in wrong:
        with pytest.raises(ConfigError, match="of On must be"):
            On(*arguments)
    with pytest.raises(WorkloadError, match=r"`On` needs samples of several parts, but here they are x and y"):
        make_plan(Workload(data=Arrays(IMAGE, np.arange(8)), ops=[On("x", RandomFlip())], batch_size=2))


def reduced(name: Any, *rest: Op) -> Any:
    """Return the size to which a decoder of these parts may reduce."""
    ops = [On(name, Decode(reduce=True)), *rest]
    first: Any = Workload(data=Arrays(TWO, np.arange(8)), ops=ops, batch_size=2).ops[0]
    return first.op.reduce


BOTH = ("left", "right")


@pytest.mark.parametrize("name", ["left", "x.left", BOTH])
def test_a_decoder_takes_its_size_from_what_acts_next_on_its_part(name: Any) -> None:
    for crop in (On(("x.right", "left"), RandomCrop(4, 4)), On("x.left", RandomCrop(4, 4))):
        with pytest.raises(ConfigError, match="a resize as the next op on the image, but there is RandomCrop"):
            reduced(name, crop, On("left", Resize(2, 2)))
    assert reduced(name, On(BOTH, Resize(3, 3)), On("left", RandomBrightness(0.1))) == (3, 3)
    small, large = On("left", Resize(2, 2)), On("right", Resize(3, 3))
    assert reduced("left", small, large) == reduced(BOTH, small, On("right", Resize(2, 2))) == (2, 2)
    with pytest.raises(ConfigError, match=r"followed by the same.*reduce=\(2, 2\).* and .*reduce=\(3, 3\)"):
        reduced(BOTH, small, large)


def test_without_chance_the_same_parts_are_acted_on() -> None:
    assert On(("left", "right"), RandomCrop(3, 3)).without_chance() == On(("left", "right"), CenterCrop(3, 3))
    assert On("left", Resize(2, 2)).without_chance() == On("left", Resize(2, 2))
    assert On("left", RandomFlip()).without_chance() is None
