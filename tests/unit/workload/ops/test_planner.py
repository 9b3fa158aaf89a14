from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from autopipe.errors import AutopipeError, BadSampleError, ConfigError, DataError, DataWarning, OpError, WorkloadError
from autopipe.workload import order
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.images import ImageFolder, ImagePairs
from autopipe.workload.data.table import Table
from autopipe.workload.op import Op
from autopipe.workload.ops.colors import RandomBrightness
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.mix import MixUp
from autopipe.workload.ops.on_parts import On
from autopipe.workload.ops.planner import make_plan, normalise, op_failure, read_failure
from autopipe.workload.ops.sizes import CenterCrop, RandomCrop, Resize
from autopipe.workload.ops.values import MaskToClass, Normalize, OneHot, Rescale
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload
from tests.fakes.sources import Made


def names(steps: Any) -> list[str]:
    return [step.op.name for step in steps]


def parts(data: Any, *ops: Op) -> tuple[list[str], list[str], list[str]]:
    plan = make_plan(Workload(data=data, ops=ops, batch_size=2))
    return names(plan.prefix), names(plan.body), names(plan.suffix)


LONG = [Decode(), Resize(8, 8), RandomFlip(), Resize(6, 6), Rescale(1 / 255), Normalize(0, 1)]


@pytest.mark.parametrize(
    ("ops", "wanted"),
    [
        (LONG, ["Decode Resize", "RandomFlip Resize", "Rescale Normalize"]),
        # a cheap op between ops on pixels stays where it is, a one-hot label goes last from wherever it stands
        ([Decode(), Rescale(1.0), Resize(8, 8), RandomFlip()], ["Decode Rescale Resize", "RandomFlip", ""]),
        ([OneHot(23), Decode(), Resize(8, 8), RandomFlip()], ["Decode Resize", "RandomFlip", "OneHot"]),
    ],
)
def test_a_list_is_split_at_the_first_random_op_and_before_the_cheap_end(
    photos: Path, ops: list[Op], wanted: list[str]
) -> None:
    plan = make_plan(Workload(data=Table(photos / "labels.csv"), ops=ops, batch_size=2))
    assert [" ".join(names(part)) for part in (plan.prefix, plan.body, plan.suffix)] == wanted
    assert all(type(step.op) is type(ops[step.stream]) for step in plan.steps)  # which names its random numbers


def test_a_function_may_give_x_as_y_where_there_is_none(photos: Path) -> None:
    ops = [Decode(), Resize(8, 8), Rescale(1 / 255), Map(lambda x, y: (x, x), on="both")]
    plan = make_plan(Workload(data=ImageFolder(photos, label_mode=None), ops=ops, batch_size=2))
    assert plan.finished.y is not None
    assert plan.finished.y.shape == plan.finished.x.shape == (8, 8, 3)


@pytest.mark.parametrize("structured", [False, True])
def test_a_label_stays_before_a_function_that_gets_it(structured: bool) -> None:
    labels = np.arange(8)
    data = Arrays(np.ones((8, 4, 4, 3), np.uint8), {"kind": labels} if structured else labels)
    assert parts(data, OneHot(8), Map(lambda x, y: (x // 2, y / 2), on="both")) == (["OneHot", "Map"], [], [])
    assert parts(data) == ([], [], [])  # no ops are a plan, too


def test_a_one_hot_mask_stays_before_ops_that_move_its_pixels(pairs: Path, palette: Any) -> None:
    data = ImagePairs(pairs / "images", pairs / "masks")
    ops = (Decode(), MaskToClass(palette), OneHot(4), Resize(8, 8))
    assert parts(data, *ops)[2] == []
    assert parts(data, *ops[:2], ops[3], ops[2])[2] == ["OneHot"]


def test_shapes_and_dtypes_are_found_by_looking(photos: Path) -> None:
    ops = [Decode(), Resize(8, 9), Rescale(1.0)]
    plan = make_plan(Workload(data=Table(photos / "labels.csv"), ops=ops, batch_size=2))
    assert plan.source.x.kind is FieldKind.ENCODED
    assert (plan.cut(1).x.shape, plan.cut(1).x.rank) == (None, 3)
    assert (plan.compact.x.shape, str(plan.compact.x.dtype)) == ((8, 9, 3), "uint8")
    assert [str(field.dtype) for field in plan.finished.fields] == ["float32", "int64"]


@pytest.mark.parametrize(
    ("ops", "error", "message"),
    [
        ([Decode()], WorkloadError, r"one size to be batched.*0\.jpg"),
        ([], WorkloadError, "still encoded"),
        ([Resize(8, 8)], OpError, r"Resize on sample 0 .*0\.jpg.*Decode"),
        ([Decode(), RandomCrop(41, 60)], BadSampleError, "41x60 out of 40x60"),
        ([Decode(), Map(lambda x: 1 / 0)], OpError, "ZeroDivisionError"),
        ([Decode(), Resize(8, 8), Map(lambda x: np.array(["a"]))], OpError, "Map.* must return an array of numbers"),
        ([Decode(), Resize(8, 8), Map(lambda x: None)], OpError, "array of numbers, but its function returned None"),
    ],
)
def test_what_cannot_be_batched_is_said_before_anything_starts(
    photos: Path, ops: list[Op], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_plan(Workload(data=Table(photos / "labels.csv"), ops=ops, batch_size=2))


X = np.zeros((4, 4, 3), np.uint8)
BOXES = [np.zeros((number % 3, 4), np.float32) for number in range(6)]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            [(X, boxes) for boxes in BOXES],
            r"targets must have one size .*Pad them .*: ap\.Map\(function, on=\"mask\"\)",
        ),
        ([(X, boxes.astype(int).tolist()) for boxes in BOXES], "targets must have one size to be batched"),
        (
            [(X, {"boxes": boxes}) for boxes in BOXES],
            r'`y\.boxes` must have .*Pad them .*: ap\.On\("y\.boxes", ap\.Map\(function, on="mask"\)\)',
        ),
        ([(X[: number + 2], 0) for number in range(6)], r"images must have one size .* Put ap\.Resize"),
        ([("photos/0.JPG", 0)] * 6, r"but one is 'photos/0\.JPG'\. .*Path\(path\)\.read_bytes"),
        ([([b"one", b"other"], 0)] * 6, r"\[b'one', b'other'\]\. .*several files as a tuple"),
        ([(X, "cat")] * 6, r"but one is 'cat'\. Number the classes"),
    ],
)
def test_parts_that_cannot_be_batched_are_named_with_the_remedy_for_their_kind(
    samples: list[Any], message: str
) -> None:
    with pytest.raises(AutopipeError, match=message):
        make_plan(Workload(data=Made(len(samples), samples.__getitem__), ops=[], batch_size=2))


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
        parts(Made(4, lambda index: value), RandomFlip())


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
    of_read, of_op = read_failure(Missing("a"), source, 3), op_failure(Missing("a"), Decode(), source, 3)
    assert (of_read.message, of_op.message) == (f"{said}: `a` is missing.", f"Decode on {said}: `a` is missing.")
    assert {(type(each), each.hint) for each in (of_read, of_op)} == {(BadSampleError, "Fetch it.")}


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
@pytest.mark.parametrize("shape", [(8, 20, 30), (8, 20, 30, 1)])
def test_what_looks_like_a_mask_and_is_taken_for_none_warns(shape: tuple[int, ...], dtype: Any) -> None:
    data = Arrays(np.zeros((8, 20, 30, 3), np.uint8), np.zeros(shape, dtype))
    with pytest.warns(DataWarning, match=rf"`RandomFlip` .* it is {dtype.__name__.rstrip('_')}\..*astype"):
        make_plan(Workload(data=data, ops=[RandomFlip()], batch_size=2))
    make_plan(Workload(data=data, ops=[RandomFlip(on="image"), RandomBrightness()], batch_size=2))


def test_a_mask_of_a_users_own_source_that_does_not_say_so_warns() -> None:
    own: Any = Made(4, lambda index: (np.zeros((20, 30, 3), np.uint8), np.zeros((20, 30), np.uint8)))
    with pytest.warns(DataWarning, match=r"it is uint8\. A source of your own .* y_kind = .*FieldKind\.MASK"):
        make_plan(Workload(data=own, ops=[RandomFlip()], batch_size=2))
    own.y_kind = FieldKind.MASK
    make_plan(Workload(data=own, ops=[RandomFlip()], batch_size=2))


def test_masks_that_lie_on_their_side_warn(tmp_path: Path) -> None:
    for folder, shape in (("images", (40, 60, 3)), ("masks", (60, 40)), ("half", (20, 30)), ("rounded", (13, 20))):
        (tmp_path / folder).mkdir()
        for number in range(3):
            cv2.imwrite(str(tmp_path / folder / f"{number}.png"), np.zeros(shape, np.uint8))
    ops = [Decode(), Resize(16, 16)]
    with pytest.warns(DataWarning, match=r"3 of 3 images .* 40x60 and 60x40 pixels.*orientation=\"exif\""):
        make_plan(Workload(data=ImagePairs(tmp_path / "images", tmp_path / "masks"), ops=ops, batch_size=2))
    for smaller in ("half", "rounded"):
        make_plan(Workload(data=ImagePairs(tmp_path / "images", tmp_path / smaller), ops=ops, batch_size=2))


def test_masks_of_numbers_with_a_palette_warn_unless_their_colours_become_classes(tmp_path: Path) -> None:
    for folder, mode in (("images", "L"), ("masks", "P")):
        (tmp_path / folder).mkdir()
        for number in range(3):
            image = Image.fromarray(np.full((8, 8), number, np.uint8))
            if mode == "P":
                image.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])  # makes it one of mode P
            image.save(tmp_path / folder / f"{number}.png")
    data = ImagePairs(tmp_path / "images", tmp_path / "masks")
    with pytest.warns(DataWarning, match=r"If the numbers are classes, put ap\.MaskToClass"):
        make_plan(Workload(data=data, ops=[Decode(), RandomFlip()], batch_size=2))
    colours = [(0, 0, 0), (128, 0, 0), (0, 128, 0)]
    plan = make_plan(Workload(data=data, ops=[Decode(), MaskToClass(colours)], batch_size=2))  # warnings are errors
    assert plan.finished.y is not None
    assert plan.finished.y.shape == (8, 8)


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
        (On("left", Map(lambda x, y: (x, y), on="both")), "`Map` must act on one part of y"),
        (Map(lambda x, y: (x, y), on="both"), "`Map` must act on one part of y"),
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
