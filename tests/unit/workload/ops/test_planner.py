from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import autopipe as ap
from autopipe.errors import AutopipeError, BadSampleError, ConfigError, DataError, DataWarning, OpError, WorkloadError
from autopipe.workload import order
from autopipe.workload.op import Op, Plan
from autopipe.workload.ops.planner import make_plan, normalise, op_failure, read_failure
from autopipe.workload.sample import FieldKind
from tests.fakes.sources import Made


def names(steps: Any) -> list[str]:
    return [step.op.name for step in steps]


def planned(data: Any, *ops: Op) -> Plan:
    return make_plan(ap.Workload(data=data, ops=ops, batch_size=2))


def parts(data: Any, *ops: Op) -> tuple[list[str], list[str], list[str]]:
    plan = planned(data, *ops)
    return names(plan.prefix), names(plan.body), names(plan.suffix)


LONG = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip(), ap.Resize(6, 6), ap.Rescale(1 / 255), ap.Normalize(0, 1)]


@pytest.mark.parametrize(
    ("ops", "wanted"),
    [
        (LONG, ["Decode Resize", "RandomFlip Resize", "Rescale Normalize"]),
        # a cheap op between ops on pixels stays where it is, a one-hot label goes last from wherever it stands
        ([ap.Decode(), ap.Rescale(1.0), ap.Resize(8, 8), ap.RandomFlip()], ["Decode Rescale Resize", "RandomFlip", ""]),
        ([ap.OneHot(23), ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()], ["Decode Resize", "RandomFlip", "OneHot"]),
    ],
)
def test_a_list_is_split_at_the_first_random_op_and_before_the_cheap_end(
    photos: Path, ops: list[Op], wanted: list[str]
) -> None:
    data = ap.Table(photos / "labels.csv")
    assert [" ".join(part) for part in parts(data, *ops)] == wanted
    steps = planned(data, *ops).steps
    assert all(type(step.op) is type(ops[step.stream]) for step in steps)  # which names its random numbers


def test_a_label_stays_before_a_function_that_gets_it_and_a_mask_before_ops_that_move_its_pixels(
    pairs: Path, palette: Any
) -> None:
    for labels in (np.arange(8), {"kind": np.arange(8)}):
        data: Any = ap.Arrays(np.ones((8, 4, 4, 3), np.uint8), labels)
        assert parts(data, ap.OneHot(8), ap.Map(lambda x, y: (x // 2, y / 2), on="both")) == (["OneHot", "Map"], [], [])
        assert parts(data) == ([], [], [])  # no ops are a plan, too
    data = ap.ImagePairs(pairs / "images", pairs / "masks")
    ops = (ap.Decode(), ap.MaskToClass(palette), ap.OneHot(4), ap.Resize(8, 8))
    assert parts(data, *ops)[2] == []
    assert parts(data, *ops[:2], ops[3], ops[2])[2] == ["OneHot"]


X = np.zeros((4, 4, 3), np.uint8)
BOXES = [np.zeros((number % 3, 4), np.float32) for number in range(6)]
TEXT, NOTHING = ap.Map(lambda x: np.array(["a"])), ap.Map(lambda x: None)
PALETTE = [(0, 0, 0), (128, 0, 0), (0, 128, 0)]


@pytest.mark.parametrize(
    ("ops", "error", "message"),
    [
        ([ap.Decode()], WorkloadError, r"one size to be batched.*0\.jpg"),
        ([], WorkloadError, "still encoded"),
        ([ap.Resize(8, 8)], OpError, r"Resize on sample 0 .*0\.jpg.*Decode"),
        ([ap.Decode(), ap.RandomCrop(41, 60)], BadSampleError, "41x60 out of 40x60"),
        ([ap.Decode(), ap.Map(lambda x: 1 / 0)], OpError, "ZeroDivisionError"),
        ([ap.Decode(), ap.Resize(8, 8), TEXT], OpError, "Map.* must return an array of numbers"),
        ([ap.Decode(), ap.Resize(8, 8), NOTHING], OpError, "array of numbers, but its function returned None"),
    ],
)
def test_what_cannot_be_batched_is_said_before_anything_starts(
    photos: Path, ops: list[Op], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planned(ap.Table(photos / "labels.csv"), *ops)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(X, boxes) for boxes in BOXES], r'targets must have one size .*Pad .*: ap\.Map\(function, on="mask"\)'),
        ([(X, boxes.astype(int).tolist()) for boxes in BOXES], "targets must have one size to be batched"),
        ([(X, {"boxes": boxes}) for boxes in BOXES], r'`y\.boxes` must .*Pad .*: ap\.On\("y\.boxes", ap\.Map\('),
        ([(X[: number + 2], 0) for number in range(6)], r"images must have one size .* Put ap\.Resize"),
        ([("photos/0.JPG", 0)] * 6, r"but one is 'photos/0\.JPG'\. .*Path\(path\)\.read_bytes"),
        ([([b"one", b"other"], 0)] * 6, r"\[b'one', b'other'\]\. .*several files as a tuple"),
        ([(X, "cat")] * 6, r"but one is 'cat'\. Number the classes"),
    ],
)
def test_parts_that_cannot_be_batched_are_named_with_the_remedy_for_their_kind(samples: Any, message: str) -> None:
    with pytest.raises(AutopipeError, match=message):
        planned(Made(len(samples), samples.__getitem__))


class Picture:
    """It may be made an array, and is none, as images of PIL and TensorFlow."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return X


DEEP = "`y` must be one part, or a tuple or a dictionary of parts"
LARGE = r"^sample 0: `y(\.id)?` is a label, .* 2\*\*63 - 1, but got {}\. Number"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        *(((X, target), DEEP) for target in (((1, 2), 3), {"label": {"first": 1}}, (None, 1), {}, {1: 2})),
        *(((X, large), LARGE.format(large)) for large in (2**63, -(2**63) - 1, 2**64)),
        ((X, {"kind": 1, "id": 2**63}), LARGE.format(2**63)),
        ([X, 1], "as a tuple"),
        ((X, "cat"), "Number the classes"),
        (None, r"numpy\.asarray"),
        ((Picture(), 1), r"numpy\.asarray\(image\)"),
    ],
    ids=range(13),
)
def test_what_read_may_not_return_is_told_with_what_it_should(value: Any, said: str) -> None:
    with pytest.raises((DataError, OpError), match=said):
        parts(Made(4, lambda index: value), ap.RandomFlip())


class Missing(BadSampleError):
    """An error of a user's own, which is told as the kind that it is one of."""

    def __init__(self, path: str) -> None:
        super().__init__(f"`{path}` is missing.", hint="Fetch it.")


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "sample 3"), ("sample 3 of set", "sample 3 of set"), ("sample 30", "sample 3 (sample 30)")],
)
def test_a_sample_without_a_name_of_its_own_is_named_once(name: str | None, said: str) -> None:
    source: Any = SimpleNamespace() if name is None else SimpleNamespace(name=lambda index: name)
    assert str(read_failure(OSError("torn"), source, 3)) == f"{said} cannot be read: OSError: torn"
    assert type(read_failure(OSError("torn"), source, 3)) is BadSampleError
    assert type(read_failure(OSError(errno.EMFILE, "too many"), source, 3)) is DataError  # no fault of the sample's
    of_read, of_op = read_failure(Missing("a"), source, 3), op_failure(Missing("a"), ap.Decode(), source, 3)
    assert (of_read.message, of_op.message) == (f"{said}: `a` is missing.", f"Decode on {said}: `a` is missing.")
    assert {(type(each), each.hint) for each in (of_read, of_op)} == {(BadSampleError, "Fetch it.")}


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
@pytest.mark.parametrize("shape", [(8, 20, 30), (8, 20, 30, 1)])
def test_what_looks_like_a_mask_and_is_taken_for_none_warns(shape: tuple[int, ...], dtype: Any) -> None:
    data = ap.Arrays(np.zeros((8, 20, 30, 3), np.uint8), np.zeros(shape, dtype))
    with pytest.warns(DataWarning, match=rf"`RandomFlip` .* it is {dtype.__name__.rstrip('_')}\..*astype"):
        planned(data, ap.RandomFlip())
    planned(data, ap.RandomFlip(on="image"), ap.RandomBrightness())
    own: Any = Made(4, lambda index: (np.zeros((20, 30, 3), np.uint8), np.zeros((20, 30), np.uint8)))
    with pytest.warns(DataWarning, match=r"it is uint8\. A source of your own .* y_kind = .*FieldKind\.MASK"):
        planned(own, ap.RandomFlip())
    own.y_kind = FieldKind.MASK
    planned(own, ap.RandomFlip())


def in_folders(root: Path, images: Any, masks: Any) -> ap.ImagePairs:
    """Write three pairs of images."""
    for folder, image in (("images", images), ("masks", masks)):
        (root / folder).mkdir(parents=True)
        for number in range(3):
            image.save(root / folder / f"{number}.png")
    return ap.ImagePairs(root / "images", root / "masks")


def test_masks_that_lie_on_their_side_warn(tmp_path: Path) -> None:
    image, upright, half, rounded = (Image.new("L", size) for size in ((60, 40), (40, 60), (30, 20), (20, 13)))
    with pytest.warns(DataWarning, match=r"3 of 3 images .* 40x60 and 60x40 pixels.*orientation=\"exif\""):
        planned(in_folders(tmp_path / "side", image, upright), ap.Decode(), ap.Resize(16, 16))
    for name, smaller in (("half", half), ("rounded", rounded)):
        planned(in_folders(tmp_path / name, image, smaller), ap.Decode(), ap.Resize(16, 16))


def test_masks_of_numbers_with_a_palette_warn_unless_their_colours_become_classes(tmp_path: Path) -> None:
    image, mask = Image.new("L", (8, 8), 1), Image.new("P", (8, 8), 1)
    mask.putpalette([level for colour in PALETTE for level in colour])
    data = in_folders(tmp_path, image, mask)
    with pytest.warns(DataWarning, match=r"If the numbers are classes, put ap\.MaskToClass"):
        planned(data, ap.Decode(), ap.RandomFlip())
    plan = planned(data, ap.Decode(), ap.MaskToClass(PALETTE))  # warnings are errors
    assert plan.finished.fields[1].shape == (8, 8)
    with pytest.raises(WorkloadError, match=r"encoded bytes.*Put ap\.Decode\(\) before ap\.MaskToClass"):
        planned(data, ap.MaskToClass(PALETTE), ap.Decode())


PLACES = np.arange(6 * 6, dtype=np.uint8).reshape(1, 6, 6).repeat(8, axis=0)
IMAGE = np.stack([PLACES, PLACES, PLACES], axis=-1)
TWO: dict[str, Any] = {"left": IMAGE, "numbers": np.ones((8, 4), np.float32), "right": IMAGE}


def made(data: Any, *ops: Op, index: int = 3) -> dict[str, Any]:
    """Return the parts of one sample after the ops, by their labels."""
    plan = planned(data, *ops)
    sample = normalise(data.read(index), plan.source.structure)
    for step in plan.prefix + plan.body + plan.suffix:
        random = order.uniforms(0, 0, np.array([index]), step.stream, step.op.draws)[0]
        sample = step.op.apply(sample, step.before, random)
    return dict(zip(plan.finished.labels, sample, strict=True))


def test_on_names_the_parts_on_which_the_same_numbers_act() -> None:
    data = ap.Arrays(TWO, {"kind": np.arange(8), "first": PLACES, "second": PLACES, "third": PLACES})
    for index in range(8):
        found = made(data, ap.RandomCrop(3, 3), ap.RandomFlip(vertical=True), index=index)
        for other in ("x.right", "y.first", "y.second", "y.third"):
            np.testing.assert_array_equal(found["x.left"][..., 0], found[other].reshape(3, 3, -1)[..., 0])
        np.testing.assert_array_equal(found["x.numbers"], np.ones(4, np.float32))
        assert found["y.kind"] == index
    data = ap.Arrays(TWO, np.arange(8))
    found = made(data, ap.On("left", ap.RandomCrop(3, 3)), ap.On("x.right", ap.RandomCrop(3, 3)))
    assert not np.array_equal(found["x.left"], found["x.right"])
    found = made(data, ap.On(("left", "right"), ap.RandomCrop(3, 3)))
    np.testing.assert_array_equal(found["x.left"], found["x.right"])
    found = made(data, ap.On("left", ap.Resize(2, 2)))
    assert (found["x.left"].shape, found["x.right"].shape) == ((2, 2, 3), (6, 6, 3))


def test_a_function_gets_the_parts_that_are_named_and_the_only_part_needs_no_name() -> None:
    data = ap.Arrays(TWO, {"kind": np.arange(8), "depth": np.ones(8, np.float32)})
    scale = ap.Map(lambda numbers, depth: (numbers * 2, depth * 3), on="both")
    found = made(data, ap.On(("numbers", "depth"), scale), ap.On("kind", ap.OneHot(9)))
    assert (found["x.numbers"].tolist(), found["y.depth"], found["y.kind"].argmax()) == ([2] * 4, 3, 3)
    data = ap.Arrays(np.ones((8, 4), np.float32), {"kind": np.arange(8)}, np.ones(8, np.float32))
    found = made(data, ap.Map(lambda numbers: numbers + 1), ap.OneHot(8))
    assert (found["x"].tolist(), found["y.kind"].shape) == ([2] * 4, (8,))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (ap.OneHot(9), "`OneHot` must act on one part of y, but it cannot be told on which; the parts are `x.left`"),
        (ap.On("lef", ap.RandomFlip()), "`On` must name parts of the samples, which are .* but got 'lef'"),
        (ap.On("kind", ap.RandomFlip()), "`RandomFlip` must act on an image of x"),
        (ap.On("left", ap.OneHot(9)), "`OneHot` must act on one part of y"),
        (ap.On("left", ap.Map(lambda x, y: (x, y), on="both")), "`Map` must act on one part of y"),
        (ap.Map(lambda x, y: (x, y), on="both"), "`Map` must act on one part of y"),
        (ap.MixUp(0.2), "`MixUp` mixes x and y of whole batches, and cannot mix samples of several parts"),
    ],
)
def test_what_an_op_cannot_act_on_is_said_before_anything_starts(op: Op, message: str) -> None:
    data = ap.Arrays(TWO, {"kind": np.arange(8), "depth": np.ones(8, np.float32)})
    with pytest.raises(WorkloadError, match=message):
        planned(data, op)


def test_on_takes_names_and_an_op_where_there_are_several_parts_also_without_chance() -> None:
    flip = ap.RandomFlip()
    wrong: list[Any] = [("", flip), ((), flip), ("left", "flip"), ("a", ap.On("b", flip))]
    for arguments in wrong:
        with pytest.raises(ConfigError, match="of On must be"):
            ap.On(*arguments)
    with pytest.raises(WorkloadError, match=r"`On` needs samples of several parts, but here they are x and y"):
        planned(ap.Arrays(IMAGE, np.arange(8)), ap.On("x", ap.RandomFlip()))
    assert ap.On(("left", "right"), ap.RandomCrop(3, 3)).without_chance() == ap.On(
        ("left", "right"), ap.CenterCrop(3, 3)
    )
    assert ap.On("left", ap.Resize(2, 2)).without_chance() == ap.On("left", ap.Resize(2, 2))
    assert ap.On("left", ap.RandomFlip()).without_chance() is None


def reduced(name: Any, *rest: Op) -> Any:
    """Return the size to which a decoder of these parts may reduce."""
    ops = [ap.On(name, ap.Decode(reduce=True)), *rest]
    first: Any = ap.Workload(data=ap.Arrays(TWO, np.arange(8)), ops=ops, batch_size=2).ops[0]
    return first.op.reduce


BOTH = ("left", "right")


@pytest.mark.parametrize("name", ["left", "x.left", BOTH])
def test_a_decoder_takes_its_size_from_what_acts_next_on_its_part(name: Any) -> None:
    for crop in (ap.On(("x.right", "left"), ap.RandomCrop(4, 4)), ap.On("x.left", ap.RandomCrop(4, 4))):
        with pytest.raises(ConfigError, match="a resize as the next op on the image, but there is RandomCrop"):
            reduced(name, crop, ap.On("left", ap.Resize(2, 2)))
    assert reduced(name, ap.On(BOTH, ap.Resize(3, 3)), ap.On("left", ap.RandomBrightness(0.1))) == (3, 3)
    small, large = ap.On("left", ap.Resize(2, 2)), ap.On("right", ap.Resize(3, 3))
    assert reduced("left", small, large) == reduced(BOTH, small, ap.On("right", ap.Resize(2, 2))) == (2, 2)
    with pytest.raises(ConfigError, match=r"followed by the same.*reduce=\(2, 2\).* and .*reduce=\(3, 3\)"):
        reduced(BOTH, small, large)
