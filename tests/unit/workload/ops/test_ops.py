"""What ops refuse to be told, samples that they refuse to work on, and masks of any dtype, which keep their numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, strategies
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import AutopipeError, BadSampleError, DataWarning, OpError
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.pixels import PixelOp
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.reports import Approved, refusal

NUMBERS = itertools.count()
IMAGES = np.zeros((4, 6, 8, 3), np.uint8)


def plan(y: Any, *ops: Op, x: Any = IMAGES) -> None:
    """Look at samples as a loader does that opens."""
    make_plan(ap.Workload(data=ap.Arrays(x, y), ops=ops, batch_size=2))


def told(said: str | None) -> contextlib.AbstractContextManager[Any]:
    """Require a warning, or that there is none."""
    return pytest.warns(DataWarning, match=said) if said else contextlib.nullcontext()


IMAGE = np.zeros((6, 8, 3), np.uint8)
BYTES = np.dtype("uint8")
LABELLED = SampleSpec(Field(FieldKind.IMAGE, (6, 8, 3), BYTES), Field(FieldKind.LABEL, (), np.dtype("int64")))
MASKED = SampleSpec(LABELLED.x, Field(FieldKind.MASK, (6, 8, 3), BYTES))


SETTLED: tuple[Op, ...] = (
    ap.Decode(), ap.Resize(4, 4), ap.Pad(4, 4), ap.ResizeKeepingAspect(4, 4), ap.RandomCrop(4, 4),
    ap.RandomResizedCrop(4, 4), ap.RandomFlip(), ap.RandomAffine(), ap.RandomErasing(), ap.RandomBrightness(),
    ap.RandomContrast(), ap.RandomHue(), ap.RandomSaturation(), ap.RandomGrayscale(), ap.GaussianBlur(), ap.Rescale(1),
    ap.Normalize(0, 1), ap.Cast(), ap.MaskToClass([(0, 0, 0)]), ap.OneHot(3), ap.MixUp(), ap.CutMix(), ap.Map(abs),
)  # fmt: skip
IMPOSSIBLE = (
    "ap.Resize(224)", "ap.CenterCrop((224, 160))", "ap.Resize(0, 5)", "ap.Resize(5, 2.5)",
    "ap.Resize(5, 5, 'cubic')", "ap.Rescale('1/255')",
    "ap.RandomCrop(True, 5)", "ap.Pad(5, -1)", "ap.RandomFlip(horizontal=False)",
    "ap.RandomFlip('horizontal_and_vertical')", "ap.RandomBrightness(0)", "ap.RandomBrightness(factor=(2, 1))",
    "ap.RandomContrast(1.5, 0.5)", "ap.RandomHue(0.6)", "ap.RandomSaturation(-1, 0.5)", "ap.RandomGrayscale(0)",
    "ap.GaussianBlur(4)", "ap.GaussianBlur(3, (0, 1))", "ap.RandomErasing(area=(0.5, 1.5))",
    "ap.RandomResizedCrop(5, 0)", "ap.RandomResizedCrop(5, 5, ratio=(2, 1))", "ap.ResizeKeepingAspect(5, 5, 'cubic')",
    "ap.RandomAffine(200)", "ap.RandomAffine(zoom=1.5)", "ap.RandomAffine(shift=(2, 0))",
    "ap.RandomAffine(fill='mirror')", "ap.OneHot(0)", "ap.Normalize(0, 0)", "ap.Rescale(1, dtype='float31')",
    "ap.Cast('int')", "ap.Map(3)", "ap.Map(abs, on='label')", "ap.MaskToClass([(0, 0)])",
    "ap.MaskToClass([(0, 0, 0), (0, 0, 0)])", "ap.MaskToClass([(0, 0, 256)])", "ap.MaskToClass([])",
    "ap.MaskToClass('nowhere.csv')", "ap.MaskToClass([(0, 0, 0)], unknown=256)", "ap.MixUp(0)", "ap.MixUp(-1)",
    "ap.MixUp(0.2, 0)", "ap.MixUp(0.2, 1.5)", "ap.Decode(4)", "ap.Decode(max_pixels=0)",
    "ap.Decode(orientation='upright')", "ap.Decode(reduce=(0, 4))", "ap.Decode(reduce=(4,))",
    "ap.Decode(reduce=(4, 4, 4))", "ap.Decode(reduce=(1.5, 2))", "ap.Decode(dtype='int8')",
    "ap.Decode(dtype='uint16', reduce=(4, 4))", "ap.from_image_data_generator(featurewise_center=True)",
    "ap.from_image_data_generator(featurewise_std_normalization=True)",
    "ap.from_image_data_generator(samplewise_center=True)",
    "ap.from_image_data_generator(samplewise_std_normalization=True)",
    "ap.from_image_data_generator(zca_whitening=True)", "ap.from_image_data_generator(channel_shift_range=10.0)",
    "ap.from_image_data_generator(validation_split=0.2)", "ap.from_image_data_generator(width_shift_range=10)",
    "ap.from_image_data_generator(height_shift_range=[1, 2])", "ap.from_image_data_generator(interpolation_order=3)",
    "ap.from_image_data_generator(brightness_range=0.5)", "ap.from_image_data_generator(zoom_range='in')",
    "ap.from_image_data_generator(data_format='channels_first')", "ap.from_image_data_generator(rotation=20)",
)  # fmt: skip


def test_impossible_settings(approved: Approved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)

    def made(code: str) -> str:
        return refusal(lambda: eval(code))

    approved({code: made(code) for code in IMPOSSIBLE})


@pytest.mark.parametrize("op", [ap.On("x", ap.Cast()), *SETTLED], ids=lambda op: type(op).__name__)
def test_a_setting_of_another_kind_is_refused_in_words(op: Op) -> None:
    others: tuple[Any, ...] = (None, "x", [], {}, -1, 1.5, float("nan"), True, (None, None), ("a", "b"), object())
    for field, value in itertools.product(dataclasses.fields(op), others):
        with contextlib.suppress(AutopipeError):  # a few are taken, and no other error is raised
            dataclasses.replace(op, **{field.name: value})


UNFIT: list[tuple[Op, Any, SampleSpec]] = [
    (ap.CenterCrop(7, 7), (IMAGE, 1), LABELLED),
    (ap.RandomCrop(2, 2), (IMAGE, IMAGE[:3, :4, 0]), MASKED),
    (ap.Pad(9, 9), (IMAGE, IMAGE[:3, :4, 0]), MASKED),
    (ap.Resize(4, 4), (b"data", 1), LABELLED),
    (ap.Rescale(2.0), (b"data", 1), LABELLED),
    (ap.RandomFlip(), (3, 1), LABELLED),
    (ap.RandomContrast(), (IMAGE.astype(np.int32), 1), LABELLED),
    (ap.OneHot(3), (IMAGE, None), LABELLED),
    (ap.OneHot(2), (IMAGE, np.float32(1)), LABELLED),
    (ap.OneHot(2), (IMAGE, np.bool_(1)), LABELLED),
    (ap.OneHot(2), (IMAGE, np.eye(2)[1]), LABELLED),
    (ap.MaskToClass([(1, 1, 1)]), (IMAGE, IMAGE), MASKED),
    (ap.MaskToClass([(1, 1, 1)]), (IMAGE, IMAGE[..., 0]), MASKED),
    (ap.Map(lambda x, y: x, on="both"), (IMAGE, 1), LABELLED),
    (ap.Map(lambda x: (1, 2)), (IMAGE, 1), LABELLED),
    (ap.Map(lambda y: (1, 2), on="mask"), (IMAGE, 1), LABELLED),
    (ap.Map(lambda x, y: (x, (1, 2)), on="both"), (IMAGE, 1), LABELLED),
]


def test_samples_that_do_not_fit(approved: Approved) -> None:
    def tried(op: Op, sample: Any, spec: SampleSpec) -> str:
        return refusal(lambda: op.apply(sample, spec, np.zeros(op.draws)))

    approved({f"{number}: {row[0].name}": tried(*row) for number, row in enumerate(UNFIT)})


@pytest.mark.parametrize("shape", [(7,), (5, 8, 8, 3)])
@pytest.mark.parametrize(
    "op",
    [
        *(ap.RandomFlip(), ap.RandomFlip(on="image"), ap.Resize(4, 4), ap.CenterCrop(2, 2), ap.Pad(9, 9)),
        *(ap.RandomAffine(9), ap.RandomErasing(), ap.GaussianBlur(3), ap.RandomContrast(), ap.RandomHue(0.1)),
        *(ap.RandomGrayscale(), ap.RandomBrightness()),
    ],
    ids=lambda op: op.name,
)
def test_rows_of_numbers_and_volumes_are_refused_unless_each_pixel_is_changed_alone(
    op: PixelOp, shape: tuple[int, ...]
) -> None:
    sample = np.zeros(shape, np.uint8), 1
    if isinstance(op, ap.RandomBrightness):
        op.check(sample, LABELLED)
        return
    with pytest.raises(OpError, match=rf"`{op.name}` changes images .*{re.escape(str(shape))}\. .*ap\.Map"):
        op.check(sample, LABELLED)


@pytest.mark.parametrize(
    "text",
    [
        "name,r,g,b\nAnimal,64,128,64\nArchway,192,0,128\n",  # as CamVid ships it
        "64,128,64\n\n192,0,128\n",
        "r,g,b\n64,128,64\n192,0,128\n",
        "Red,Green,Blue,Name\n64,128,64,Animal\n192,0,128,Archway\n",
        "\ufeffname, r, g, b\n\nAnimal, 64, 128, 64\nArchway, 192, 0, 128\n",
        "Animal,64,128,64\nArchway,192,0,128\n",
    ],
)
def test_a_palette_may_be_in_a_file_with_a_header_and_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "class_dict.csv").write_text(text)
    assert ap.MaskToClass(tmp_path / "class_dict.csv") == ap.MaskToClass([(64, 128, 64), (192, 0, 128)])


@pytest.mark.parametrize("unknown", [None, 700])
def test_a_mask_of_more_than_255_colours_gets_classes_of_sixteen_bits(unknown: int | None) -> None:
    palette = [(number % 256, number // 256, 9) for number in range(1000)]
    wanted = np.random.default_rng(0).integers(0, 1000, (9, 7))
    mask = np.array(palette, np.uint8)[wanted]
    op = ap.MaskToClass(palette, unknown=unknown)
    _, found = op.apply((IMAGE, mask), MASKED, np.empty(0))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, wanted)
    mask[3, 4] = (0, 0, 1)
    if unknown is None:
        with pytest.raises(BadSampleError, match=r"\(0, 0, 1\), which is not one of the palette's 1000"):
            op.apply((IMAGE, mask), MASKED, np.empty(0))
    else:
        assert op.apply((IMAGE, mask), MASKED, np.empty(0))[1][3, 4] == unknown
    step = Step(op, 3, MASKED, MASKED)
    scope: dict[str, Any] = {"np": np, "y": np.array(palette, np.uint8)[wanted]}
    exec("\n".join([*op.plain_constants(step), *op.plain(step, "np")]), scope)
    np.testing.assert_array_equal(scope["y"], wanted)
    assert scope["y"].dtype == np.uint16


@pytest.mark.parametrize(
    ("palette", "is_told"),
    [
        ([(0, 0, 0), (1, 2, 3)], True),
        ([(0, 0, 0), (3, 2, 1)], False),
        ([(0, 0, 0), (3, 2, 1), (1, 2, 3)], False),
        ([(1, 2, 3)], False),  # some classes of many
    ],
)
def test_a_palette_in_the_order_of_opencv_is_told(palette: Any, is_told: bool) -> None:
    masks = np.zeros((4, 8, 8, 3), np.uint8)
    masks[:, 2] = (3, 2, 1)
    with told(r"colour \(3, 2, 1\), and it has" if is_told else None):
        plan(masks, ap.MaskToClass(palette, unknown=255), x=np.zeros((4, 8, 8, 3), np.uint8))


@pytest.mark.parametrize(
    ("ops", "colours", "is_told"),
    [
        ([ap.Rescale(1 / 255)], 256, True),
        ([ap.Resize(30, 30)], 256, True),
        ([ap.RandomFlip()], 256, False),  # is the same for both
        ([ap.Rescale(1 / 255), ap.Map(lambda y: y / np.float32(255), on="mask")], 256, False),
        ([ap.Rescale(1 / 255)], 4, False),  # of each channel
    ],
)
def test_targets_that_are_images_are_told_what_ops_do_with_masks(ops: Any, colours: int, is_told: bool) -> None:
    with told("more than 256 colours" if is_told else None):
        y = np.random.default_rng(0).integers(0, colours, (4, 32, 32, 3), np.uint8)
        plan(y, *ops, x=np.zeros_like(y))


@pytest.mark.parametrize("unknown", [0, 255])
def test_unknown_colours_get_the_class_that_is_named_and_unknown_classes_become_zeros(unknown: int) -> None:
    mask = np.array([[[9, 9, 9], [0, 0, 1]]], np.uint8)
    op = ap.MaskToClass([(0, 0, 0), (0, 0, 1)], unknown=unknown)
    np.testing.assert_array_equal(op.apply((IMAGE, mask), MASKED, np.empty(0))[1], [[unknown, 1]])
    _, y = ap.OneHot(3).apply((IMAGE, np.array([0, 2, 3, -1])), LABELLED, np.empty(0))
    np.testing.assert_array_equal(y, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])


PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


COINS = itertools.cycle((True, True, False))  # a real one may well fall alike as often as it is looked at


def _draws_in_vain(image: Any) -> Any:
    np.random.rand()
    random.random()
    return image


@pytest.mark.parametrize(
    ("op", "said", "mend"),
    [
        (ap.Map(lambda x: x + np.random.default_rng().normal(size=x.shape)), "would freeze it", "random=True"),
        (ap.Map(lambda x: x[:, ::-1] if next(COINS) else x), "would freeze it", "random=True"),
        (ap.Map(_draws_in_vain), "would freeze it", "random=True"),
        (ap.Map(lambda x, y: (x, next(NUMBERS)), on="both"), "would freeze it", "random=True"),
        (
            ap.Map(lambda x, rng: x + np.random.default_rng().integers(0, 100, x.shape, np.uint8), random=True),
            "same generator",
            "last argument only",
        ),
        (ap.Map(lambda x, y: x), r"called as function\(image\).*argument: 'y'", 'on="both" passes x and y'),
        (ap.Map(keras.layers.RandomFlip()), "the Keras layer RandomFlip", r"ap\.RandomFlip"),
        (ap.Map(keras.Sequential([keras.layers.RandomZoom(0.2)])), "the Keras layer RandomZoom", "put the layer into"),
    ],
)
def test_a_function_that_does_not_repeat_is_refused_when_a_loader_opens(op: ap.Map, said: str, mend: str) -> None:
    with pytest.raises(OpError, match=said) as error:
        plan(np.arange(4), op, x=PIXELS[None].repeat(4, axis=0))
    assert re.search(mend, str(error.value.hint))


def test_a_function_is_tried_once_and_only_its_copies_are_written_to() -> None:
    calls: list[Any] = []

    def invert(image: Any) -> Any:
        calls.append(image)
        return np.subtract(255, image, out=image)

    op, image = ap.Map(invert), PIXELS.copy()
    op.check((image, 1), LABELLED)
    tried = len(calls)
    op.check((image, 1), LABELLED)
    assert len(calls) == tried >= 2
    np.testing.assert_array_equal(PIXELS, image)


def test_what_repeats_is_taken_whatever_it_draws_from() -> None:
    def seeded(image: Any) -> Any:
        np.random.seed(0)
        return image + np.random.randint(0, 9, image.shape).astype(np.uint8)

    state, layer = np.random.get_state(), ap.Map(keras.layers.Rescaling(1 / 255))
    try:
        for op in (ap.Map(seeded), ap.Map(lambda x, rng: x + rng.normal(size=x.shape), random=True), layer):
            op.check((PIXELS, 1), LABELLED)
    finally:
        np.random.set_state(state)
    np.testing.assert_allclose(layer.apply((PIXELS, 1), LABELLED, np.empty(0))[0], PIXELS / np.float32(255), rtol=1e-6)


def test_class_numbers_of_any_whole_number_type_are_moved_with_their_image() -> None:
    mask = np.arange(48).reshape(6, 8) * 2**33
    _, moved = ap.RandomAffine(rotation=90).apply((IMAGE, mask), MASKED, np.array([0, 0.5, 0.5, 0.5, 0.5, 0.5]))
    assert moved.dtype == np.int64
    assert set(moved.ravel()) <= set(mask.ravel())


PLACES = np.arange(48).reshape(6, 8)
FITTED = [ap.Pad(9, 9), ap.ResizeKeepingAspect(12, 12), ap.Resize(3, 4)]
OPS = [ap.RandomFlip(vertical=True), *FITTED, ap.RandomCrop(4, 4), ap.RandomResizedCrop(4, 4)]


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


SHIFT = ap.RandomAffine(shift=(0.5, 0), fill="constant")
FILLING = [ap.Pad(9, 9), ap.ResizeKeepingAspect(12, 12), SHIFT, ap.RandomErasing(on="both")]


@pytest.mark.parametrize(("dtype", "value"), [*(("uint8", value) for value in (-1, 256, 2.5)), ("uint64", -1)])
@pytest.mark.parametrize("op", FILLING, ids=lambda op: op.name)
def test_a_mask_is_not_filled_with_what_its_dtype_cannot_hold(op: Any, dtype: str, value: float) -> None:
    filling = dataclasses.replace(op, mask_value=value)
    with pytest.raises(OpError, match=f"`{op.name}` cannot fill masks of {dtype} with mask_value={value}: they"):
        plan(PLACES.astype(dtype)[None].repeat(4, axis=0), filling)
    random = np.full(op.draws, 0.25)
    with_sign = dataclasses.replace(op, mask_value=-1).apply((IMAGE, PLACES), spec("int64", PLACES.shape), random)
    assert with_sign[1].min() == -1
    filling.apply((IMAGE, np.int64(3)), dataclasses.replace(spec(dtype, ()), y=None), random)  # no mask is filled


@pytest.mark.parametrize("value", [300, -5, (0, 0, 256)])
def test_a_level_that_images_cannot_hold_is_refused_whether_or_not_chance_has_it_painted(value: object) -> None:
    op = ap.RandomErasing(probability=1e-9, value=value)  # type: ignore[arg-type]
    with pytest.raises(OpError, match=r"cannot paint value=.* on images of uint8: they hold 0 to 255"):
        plan(None, op)


@pytest.mark.parametrize(("dtype", "value"), [("float32", 300), ("uint8", 255), ("uint8", 127.5), ("int16", -5)])
def test_a_level_that_they_can_hold_is_painted(dtype: str, value: float) -> None:
    images = IMAGES.astype(dtype)
    spec = SampleSpec(Field(FieldKind.IMAGE, images.shape[1:], images.dtype, 3), None)
    op = ap.RandomErasing(probability=1, value=value)
    made = op.apply((images[0], None), spec, np.full(op.draws, 0.5))[0]
    assert isinstance(made, np.ndarray)
    assert set(np.unique(made)) == {0, np.dtype(dtype).type(value)}


def mask(*levels: int) -> NDArray[np.int16]:
    return np.resize(np.array(levels, np.int16), IMAGES.shape[:3])


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.array([1, 2, 3, 4]), "OneHot.4.` knows the classes 0 to 3 .* 1 of 4 samples .* such as 4"),
        (np.array([0, 1, -1, 3]), "1 of 4 samples .* such as -1"),
        (mask(0, 255), "4 of 4 samples .* such as 255"),
        (mask(0, 1, 255, 7), "4 of 4 samples"),
        (mask(255), "4 of 4 samples"),
    ],
)
def test_class_numbers_that_become_zeros_are_told(y: NDArray[Any], said: str) -> None:
    with pytest.warns(DataWarning, match=said):
        plan(y, ap.OneHot(4))
    with pytest.warns(DataWarning, match=said):
        plan({"kind": y, "more": np.zeros(4)}, ap.On("kind", ap.OneHot(4)))


@pytest.mark.parametrize("y", [np.arange(4), mask(0, 1, 3), mask(0, 1, 255), mask(2, 3, -1)])
def test_pixels_of_no_class_and_numbers_of_classes_are_as_meant(y: NDArray[Any]) -> None:
    plan(y, ap.OneHot(4))
    plan(mask(0, 255), ap.Map(lambda y: y // 255, on="mask"), ap.OneHot(2))  # the numbers are those that reach the op


@pytest.mark.parametrize(
    ("dtype", "top", "said"),
    [
        ("uint16", 4095, "changes uint16 by up to 13,107, .* up to 4,095: that can make them all black"),
        ("float32", 10000, "changes float32 by up to 0.2, .* up to 10,000: that hardly changes them"),
        ("uint16", 60000, None),
        ("float32", 3, None),
        ("uint8", 9, None),
    ],
)
def test_brightness_of_another_scale_than_the_images_is_told(dtype: str, top: int, said: str | None) -> None:
    x = np.full((4, 8, 8, 3), top, dtype)
    with told(said):
        plan(np.arange(4), ap.RandomBrightness(0.2), x=x)
    plan(np.arange(4), ap.RandomBrightness(factor=(0.8, 1.2)), x=x)


@pytest.mark.parametrize(
    ("y", "op", "is_told"),
    [
        ({"boxes": np.zeros((4, 3, 4)), "kind": np.arange(4)}, ap.RandomFlip(), True),
        (np.full((4, 3, 5), 0.5, np.float32), ap.RandomCrop(4, 4), True),
        (np.zeros((4, 3, 5), np.float32), ap.RandomCrop(4, 4), False),  # one-hot
        (np.full((4, 3, 5), 0.2, np.float32), ap.RandomCrop(4, 4), False),  # probabilities
        ({"landmark": np.zeros((4, 9)), "n_boxes": np.arange(4.0)}, ap.RandomFlip(), False),  # a building; a count
        (np.full((4, 3, 5), 0.5, np.float32), ap.RandomFlip(on="image"), False),
        (np.full((4, 3, 5), 0.5, np.float32), ap.RandomBrightness(), False),
        (np.zeros((4, 5), np.float32), ap.RandomFlip(), False),
    ],
)
def test_boxes_that_do_not_move_with_their_images_are_told(y: Any, op: Op, is_told: bool) -> None:
    with told("looks like boxes or points" if is_told else None):
        plan(y, op)


LIGHTS = 80.0 * (np.arange(24).reshape(8, 3) == 0)  # of a wide range
IMAGENET = ap.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize(
    ("ops", "dtype", "top", "said"),
    [
        ([ap.Rescale(1 / 255)], "uint16", 4000, r"of 0 to 255, .* uint16 that exceed 510\. .*Rescale\(1 / 4095\)"),
        ([ap.Rescale(1 / 127.5, -1)], "float32", 1, r"float32 of at most 2: they are scaled already"),
        ([ap.Rescale(1 / 255)] * 2, "uint8", 200, "they are scaled already"),
        ([IMAGENET], "uint8", 200, r"of 0 to 1, .* uint8 that exceed 60\. Put ap\.Rescale\(1 / 255\)"),
        ([ap.Rescale(1 / 255), ap.Normalize(127.5, 127.5)], "uint8", 200, r"of 0 to 255, .* Leave out the ap\.Rescale"),
        ([ap.Rescale(1 / 255), IMAGENET], "uint8", 200, None),
        ([IMAGENET], "float32", LIGHTS, None),
        ([ap.Rescale(1 / 255)], "uint8", 1, None),
        ([ap.Rescale(1 / 255)], "float32", 0, None),
        ([ap.Rescale(1 / 4095)], "uint16", 4000, None),
        ([ap.Rescale(1 / 256)], "uint16", 4000, None),  # to the range of bytes
        ([ap.Rescale(1 / 200)], "int16", 3000, None),  # a window of a CT
        ([ap.Normalize(0, 100)], "float32", 4000, None),
        ([ap.Rescale(-1 / 255), ap.RandomSaturation()], "uint8", 200, "other colours of values below 0"),
        ([ap.Rescale(1 / 255), ap.RandomSaturation()], "uint8", 200, None),
        ([ap.RandomSaturation()], "float32", 0.2 - LIGHTS / 400, None),  # a resize went a little too far
    ],
)
def test_images_of_another_range_than_the_one_that_an_op_is_for_are_told(
    ops: Any, dtype: str, top: Any, said: str | None
) -> None:
    with told(said):
        plan(np.arange(4), *ops, x=np.full((4, 8, 8, 3), top, dtype))


# ---------------------------------------------------------------- levels: bytes are to the bit what 32-bit floats give

OF_BYTES = SampleSpec(Field(FieldKind.IMAGE, PIXELS.shape, PIXELS.dtype, 3), None)
HALVES = [((level + 0.5) / 255 + 1) / 2 for level in range(-255, 255)]  # whose shift lies between two levels


@given(number=strategies.floats(0, 1, exclude_max=True) | strategies.sampled_from(HALVES))
def test_bytes_become_brighter_to_the_bit_as_32_bit_floats_do(number: float) -> None:
    levels = np.arange(256, dtype=np.float32).reshape(16, 16)
    shift, factor = np.float32(2 * number - 1) * np.float32(255), np.float32(3 * number)
    for op, wanted in (
        (ap.RandomBrightness(1.0), levels + shift),
        (ap.RandomBrightness(factor=(0, 3)), levels * factor),
    ):
        for shape in ((16, 16), (4, 64), (16, 16, 1), (1, 256, 1), (4, 4, 16)):
            found = op.pixels(levels.astype(np.uint8).reshape(shape), FieldKind.IMAGE, np.array([number]))
            np.testing.assert_array_equal(found, np.clip(np.rint(wanted), 0, 255).reshape(shape))


def test_normalised_channels_are_to_the_bit_what_each_is_alone() -> None:
    made = ap.Normalize((1.5, 20, 0.3), 7.7).apply((PIXELS, None), OF_BYTES, np.empty(0))[0]
    for channel, mean in enumerate((1.5, 20, 0.3)):
        alone = ap.Normalize(mean, 7.7).apply((PIXELS[..., channel], None), OF_BYTES, np.empty(0))[0]
        np.testing.assert_array_equal(made[..., channel], alone)


@pytest.mark.parametrize(
    ("shape", "is_told"),
    [((3, 24, 24), True), ((13, 64, 64), True), ((4, 128, 100), True), ((64, 64, 13), False), ((13, 24, 24), False)],
)
def test_images_whose_channels_come_first_are_told_by_ops_that_move_pixels(
    shape: tuple[int, ...], is_told: bool
) -> None:
    x, said = np.zeros((4, *shape), np.float32), rf"of shape {re.escape(str(shape))} .*numpy\.moveaxis\(x, 1, -1\)"
    for op in (ap.RandomFlip(), ap.RandomBrightness()):
        with told(said if is_told else None):
            plan(np.arange(4), op, x=x)
    plan(np.arange(4), ap.Rescale(1 / 255), x=x)


def test_a_dtype_that_opencv_does_not_know_is_told_with_what_to_put_before() -> None:
    with pytest.raises(OpError, match=r"Resize on sample 0 .*raised cv2\.error") as caught:
        plan(None, ap.Resize(3, 3), x=IMAGES.astype("int32"))
    assert 'ap.Cast("float32") before it' in str(caught.value.hint)


def test_numbers_for_another_count_of_channels_are_named() -> None:
    with pytest.raises(OpError, match=r"`Normalize` has numbers for 2 channels, but an image has the shape \(.*3\)"):
        plan(np.arange(4), ap.Normalize((1.5, 20), 7.7))
    plan(np.arange(4), ap.Normalize((1.5,), (7.7,)))  # one for all


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("op", [ap.Pad(9, 11, value=3), ap.RandomFlip(), ap.Resize(4, 5), ap.Resize(4, 5, "area")])
def test_more_channels_than_opencv_takes_are_as_each_alone(op: PixelOp, dtype: str) -> None:
    image = (200 * np.random.default_rng(0).random((6, 8, 200))).astype(dtype)
    random = np.full(op.draws, 0.1)
    made = op.pixels(image, FieldKind.IMAGE, random)
    alone = [
        op.pixels(np.ascontiguousarray(image[..., at : at + 1]), FieldKind.IMAGE, random) for at in (0, 5, 150, 199)
    ]
    np.testing.assert_allclose(made[..., [0, 5, 150, 199]], np.concatenate(alone, axis=-1), rtol=1e-5)  # of floats
