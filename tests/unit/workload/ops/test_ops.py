"""What ops refuse to be told, samples that they refuse or tell of, masks of any dtype, and mixed batches."""

import contextlib
import copy
import dataclasses
import itertools
import math
import random
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import autopipe as ap
from autopipe import native
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.pixels import PixelOp
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.contract.op_references import CASES
from tests.fakes.reports import Approved, refusal

IMAGES = np.zeros((4, 6, 8, 3), np.uint8)
IMAGE = IMAGES[0]
PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
PLACES = np.arange(48).reshape(6, 8)
BYTES = np.dtype("uint8")
LABELLED = SampleSpec(Field(FieldKind.IMAGE, (6, 8, 3), BYTES), Field(FieldKind.LABEL, (), np.dtype("int64")))
MASKED = SampleSpec(LABELLED.x, Field(FieldKind.MASK, (6, 8, 3), BYTES))


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


@pytest.mark.parametrize("op", [ap.On("x", ap.Cast()), *{type(case.op): case.op for case in CASES}.values()])
def test_a_setting_of_another_kind_is_refused_in_words(op: Op) -> None:
    others: tuple[Any, ...] = (None, "x", [], {}, -1, 1.5, float("nan"), True, (None, None), ("a", "b"), object())
    for field, value in itertools.product(dataclasses.fields(op), others):
        with contextlib.suppress(ap.AutopipeError):  # a few are taken, and no other error is raised
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


CHANGING: list[PixelOp] = [
    ap.RandomFlip(), ap.RandomFlip(on="image"), ap.Resize(4, 4), ap.CenterCrop(2, 2), ap.Pad(9, 9), ap.RandomAffine(9),
    ap.RandomErasing(), ap.GaussianBlur(3), ap.RandomContrast(), ap.RandomHue(0.1), ap.RandomGrayscale(),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(7,), (5, 8, 8, 3)])
@pytest.mark.parametrize("op", CHANGING, ids=lambda op: op.name)
def test_rows_of_numbers_and_volumes_are_refused_unless_each_pixel_is_changed_alone(op: PixelOp, shape: Any) -> None:
    sample = np.zeros(shape, np.uint8), 1
    ap.RandomBrightness().check(sample, LABELLED)
    with pytest.raises(ap.OpError, match=rf"`{op.name}` changes images .*{re.escape(str(shape))}\. .*ap\.Map"):
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


@pytest.mark.parametrize(("colours", "unknown"), [(1000, None), (1000, 700), (2, None), (2, 0), (2, 255)])
def test_colours_become_classes_of_as_many_bits_as_they_need_and_others_the_one_that_is_named(
    colours: int, unknown: int | None
) -> None:
    palette = [(number % 256, number // 256, 9) for number in range(colours)]
    wanted = np.random.default_rng(0).integers(0, colours, (9, 7))
    op, mask = ap.MaskToClass(palette, unknown=unknown), np.array(palette, np.uint8)[wanted]
    step = Step(op, 3, MASKED, MASKED)
    scope: dict[str, Any] = {"np": np, "y": mask}
    exec("\n".join([*op.plain_constants(step), *op.plain(step, "np")]), scope)
    for found in (op.apply((IMAGE, mask), MASKED, np.empty(0))[1], scope["y"]):
        assert found.dtype == ("uint8" if colours < 256 else "uint16")
        np.testing.assert_array_equal(found, wanted)
    mask[3, 4] = (0, 0, 1)
    refused = pytest.raises(ap.BadSampleError, match=rf"\(0, 0, 1\), which is not one of the palette's {colours}")
    with contextlib.nullcontext() if unknown is not None else refused:
        assert op.apply((IMAGE, mask), MASKED, np.empty(0))[1][3, 4] == unknown


def test_class_numbers_of_any_whole_number_type_are_moved_with_their_image_and_unknown_ones_become_zeros() -> None:
    _, y = ap.OneHot(3).apply((IMAGE, np.array([0, 2, 3, -1])), LABELLED, np.empty(0))
    np.testing.assert_array_equal(y, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    _, moved = ap.RandomAffine(rotation=90).apply((IMAGE, PLACES * 2**33), MASKED, np.array([0, *[0.5] * 5]))
    assert moved.dtype == np.int64
    assert set(moved.ravel()) <= set(PLACES.ravel() * 2**33)


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
    with pytest.raises(ap.OpError, match=f"`{op.name}` cannot fill masks of {dtype} with mask_value={value}: they"):
        plan(PLACES.astype(dtype)[None].repeat(4, axis=0), filling)
    random = np.full(op.draws, 0.25)
    with_sign = dataclasses.replace(op, mask_value=-1).apply((IMAGE, PLACES), spec("int64", PLACES.shape), random)
    assert with_sign[1].min() == -1
    filling.apply((IMAGE, np.int64(3)), dataclasses.replace(spec(dtype, ()), y=None), random)  # no mask is filled


# -------------------- what is told, or refused, of samples as a loader opens


def plan(y: Any, *ops: Op, x: Any = IMAGES) -> None:
    make_plan(ap.Workload(data=ap.Arrays(x, y), ops=ops, batch_size=2))


def flat(top: Any, dtype: str) -> Any:
    return np.full((4, 8, 8, 3), top, dtype)


def mask(*levels: int) -> NDArray[np.int16]:
    return np.resize(np.array(levels, np.int16), IMAGES.shape[:3])


def classes(*colours: tuple[int, int, int]) -> Op:
    return ap.MaskToClass(colours, unknown=255)


def coloured(colours: int) -> Any:
    return np.random.default_rng(0).integers(0, colours, (4, 32, 32, 3), np.uint8)


def seeded(image: Any) -> Any:
    np.random.seed(0)
    return image + np.random.randint(0, 9, image.shape).astype(np.uint8)


BLUE_FIRST = flat(0, "uint8")
BLUE_FIRST[:, 2] = (3, 2, 1)
LIGHTS = 80.0 * (np.arange(24).reshape(8, 3) == 0)  # of a wide range
IMAGENET = ap.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
BYTES_TO_ONE, HOT, BRIGHTER = ap.Rescale(1 / 255), ap.OneHot(4), ap.RandomBrightness(0.2)
MASKS_TO_ONE, MASKS_TO_BIT = ap.Map(lambda y: y / np.float32(255), on="mask"), ap.Map(lambda y: y // 255, on="mask")
HELD = ("float32", 300), ("uint8", 255), ("uint8", 127.5), ("int16", -5)
DRAWN = ap.Map(lambda x, rng: x + rng.normal(size=x.shape), random=True)
REPEATED = ap.Map(seeded), DRAWN, ap.Map(keras.layers.Rescaling(1 / 255))  # whatever it draws from
POINTS = np.full((4, 3, 5), 0.5, np.float32)
CHANNELS_FIRST = r"of shape \({0}\) .*numpy\.moveaxis\(x, 1, -1\)"
TOLD: list[Any] = [  # x, y, ops and what is said
    (IMAGES, BLUE_FIRST, [classes((0, 0, 0), (1, 2, 3))], r"colour \(3, 2, 1\), and it has"),
    (IMAGES, BLUE_FIRST, [classes((0, 0, 0), (3, 2, 1))], None),
    (IMAGES, BLUE_FIRST, [classes((0, 0, 0), (3, 2, 1), (1, 2, 3))], None),
    (IMAGES, BLUE_FIRST, [classes((1, 2, 3))], None),  # some classes of many
    (coloured(1), coloured(256), [BYTES_TO_ONE], "more than 256 colours"),
    (coloured(1), coloured(256), [ap.Resize(30, 30)], "more than 256 colours"),
    (coloured(1), coloured(256), [ap.RandomFlip()], None),  # is the same for both
    (coloured(1), coloured(256), [BYTES_TO_ONE, MASKS_TO_ONE], None),
    (coloured(1), coloured(4), [BYTES_TO_ONE], None),  # of each channel
    (IMAGES, np.array([1, 2, 3, 4]), [HOT], "OneHot.4.` knows the classes 0 to 3 .* 1 of 4 samples .* such as 4"),
    (IMAGES, np.array([0, 1, -1, 3]), [HOT], "1 of 4 samples .* such as -1"),
    (IMAGES, mask(0, 255), [HOT], "4 of 4 samples .* such as 255"),
    (IMAGES, mask(0, 1, 255, 7), [HOT], "4 of 4 samples"),
    (IMAGES, mask(255), [HOT], "4 of 4 samples"),
    (IMAGES, {"kind": mask(255), "more": np.zeros(4)}, [ap.On("kind", HOT)], "4 of 4 samples"),
    *((IMAGES, y, [HOT], None) for y in (np.arange(4), mask(0, 1, 3), mask(0, 1, 255), mask(2, 3, -1))),
    (IMAGES, mask(0, 255), [MASKS_TO_BIT, ap.OneHot(2)], None),  # the numbers are those that reach the op
    (flat(4095, "uint16"), None, [BRIGHTER], "uint16 by up to 13,107, .* 4,095: .* make them all black"),
    (flat(1e4, "float32"), None, [BRIGHTER], "float32 by up to 0.2, .* 10,000: that hardly changes them"),
    *((x, None, [BRIGHTER], None) for x in (flat(6e4, "uint16"), flat(3, "float32"), flat(9, "uint8"))),
    (flat(4095, "uint16"), None, [ap.RandomBrightness(factor=(0.8, 1.2))], None),
    (IMAGES, {"boxes": np.zeros((4, 3, 4)), "kind": np.arange(4)}, [ap.RandomFlip()], "looks like boxes or points"),
    (IMAGES, POINTS, [ap.RandomCrop(4, 4)], "looks like boxes or points"),
    (IMAGES, POINTS * 0, [ap.RandomCrop(4, 4)], None),  # one-hot
    (IMAGES, POINTS * np.float32(0.4), [ap.RandomCrop(4, 4)], None),  # probabilities
    (IMAGES, {"landmark": np.zeros((4, 9)), "n_boxes": np.arange(4.0)}, [ap.RandomFlip()], None),  # a building; a count
    *((IMAGES, POINTS, [op], None) for op in (ap.RandomFlip(on="image"), ap.RandomBrightness())),
    (IMAGES, POINTS[:, 0], [ap.RandomFlip()], None),
    (flat(4000, "uint16"), None, [BYTES_TO_ONE], r"of 0 to 255, .* uint16 that exceed 510\. .*Rescale\(1 / 4095\)"),
    (flat(1, "float32"), None, [ap.Rescale(1 / 127.5, -1)], r"float32 of at most 2: they are scaled already"),
    (flat(200, "uint8"), None, [BYTES_TO_ONE] * 2, "they are scaled already"),
    (flat(200, "uint8"), None, [IMAGENET], r"of 0 to 1, .* uint8 that exceed 60\. Put ap\.Rescale\(1 / 255\)"),
    (flat(200, "uint8"), None, [BYTES_TO_ONE, ap.Normalize(127.5, 127.5)], r"of 0 to 255, .* Leave out the ap\.Res"),
    (flat(200, "uint8"), None, [BYTES_TO_ONE, IMAGENET], None),
    (flat(LIGHTS, "float32"), None, [IMAGENET], None),
    *((flat(*image), None, [BYTES_TO_ONE], None) for image in ((1, "uint8"), (0, "float32"))),
    (flat(4000, "uint16"), None, [ap.Rescale(1 / 4095)], None),
    (flat(4000, "uint16"), None, [ap.Rescale(1 / 256)], None),  # to the range of bytes
    (flat(3000, "int16"), None, [ap.Rescale(1 / 200)], None),  # a window of a CT
    (flat(4000, "float32"), None, [ap.Normalize((0,), (100,))], None),  # one for all channels
    (flat(200, "uint8"), None, [ap.Rescale(-1 / 255), ap.RandomSaturation()], "other colours of values below 0"),
    (flat(200, "uint8"), None, [BYTES_TO_ONE, ap.RandomSaturation()], None),
    (flat(0.2 - LIGHTS / 400, "float32"), None, [ap.RandomSaturation()], None),  # a resize went a little too far
    (np.zeros((4, 3, 24, 24)), None, [ap.RandomFlip()], CHANNELS_FIRST.format("3, 24, 24")),
    (np.zeros((4, 13, 64, 64)), None, [BRIGHTER], CHANNELS_FIRST.format("13, 64, 64")),
    (np.zeros((4, 4, 128, 100)), None, [ap.RandomFlip()], CHANNELS_FIRST.format("4, 128, 100")),
    *((np.zeros((4, *shape)), None, [ap.RandomFlip()], None) for shape in ((64, 64, 13), (13, 24, 24))),
    (np.zeros((4, 3, 24, 24)), None, [BYTES_TO_ONE], None),
    *((IMAGES.astype(dtype), None, [ap.RandomErasing(1, value=at)], None) for dtype, at in HELD),
    *((IMAGES, None, [op], None) for op in REPEATED),
]


@pytest.mark.parametrize(("x", "y", "ops", "said"), TOLD, ids=range(len(TOLD)))
def test_what_ops_would_make_of_samples_they_are_not_for_is_told(x: Any, y: Any, ops: Any, said: str | None) -> None:
    with pytest.warns(ap.DataWarning, match=said) if said else contextlib.nullcontext():
        plan(y, *ops, x=x)


COINS = itertools.cycle((True, True, False))  # a real one may well fall alike as often as it is looked at
NUMBERS = itertools.count()


def _draws_in_vain(image: Any) -> Any:
    np.random.rand()
    random.random()
    return image


def _draws_beside(image: Any, rng: Any) -> Any:
    return image + np.random.default_rng().integers(0, 100, image.shape, np.uint8)


FROZEN = "would freeze it", "random=True"
PAINT = r"cannot paint value=.* on images of uint8: they hold 0 to 255"
REFUSED: list[tuple[Any, Op, tuple[str, str]]] = [  # x, an op, what is said and what is advised
    (PIXELS, ap.Map(lambda x: x + np.random.default_rng().normal(size=x.shape)), FROZEN),
    (PIXELS, ap.Map(lambda x: x[:, ::-1] if next(COINS) else x), FROZEN),
    (PIXELS, ap.Map(_draws_in_vain), FROZEN),
    (PIXELS, ap.Map(lambda x, y: (x, next(NUMBERS)), on="both"), FROZEN),
    (PIXELS, ap.Map(_draws_beside, random=True), ("same generator", "last argument only")),
    (PIXELS, ap.Map(lambda x, y: x), (r"called as function\(image\).*argument: 'y'", 'on="both" passes x and y')),
    (PIXELS, ap.Map(keras.layers.RandomFlip()), ("the Keras layer RandomFlip", r"ap\.RandomFlip")),
    (
        PIXELS,
        ap.Map(keras.Sequential([keras.layers.RandomZoom(0.2)])),
        ("Keras layer RandomZoom", "put the layer into"),
    ),
    (IMAGE, ap.RandomErasing(1e-9, value=300), (PAINT, "")),  # whether or not chance has it painted
    (IMAGE, ap.RandomErasing(1e-9, value=-5), (PAINT, "")),
    (IMAGE, ap.RandomErasing(1e-9, value=(0, 0, 256)), (PAINT, "")),
    (IMAGE.astype("int32"), ap.Resize(3, 3), (r"sample 0 .*raised cv2\.error", r'ap\.Cast\("float32"\) before it')),
    (IMAGE, ap.Normalize((1.5, 20), 7.7), (r"`Normalize` has numbers for 2 channels, but .* the shape \(.*3\)", "")),
]


@pytest.mark.parametrize(("x", "op", "said"), REFUSED, ids=range(len(REFUSED)))
def test_functions_that_do_not_repeat_and_what_images_cannot_hold_are_refused(
    x: Any, op: Op, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autopipe.workload.ops.custom._PATIENCE_SECONDS", 60)  # on a busy machine it is called as often
    with pytest.raises(ap.OpError, match=said[0]) as error:
        plan(np.arange(4), op, x=x[None].repeat(4, axis=0))
    assert re.search(said[1], str(error.value.hint))


# ---------------------------------------------------------------- levels: bytes are to the bit what 32-bit floats give


# -------------------- from the arguments of Keras's ImageDataGenerator to ops

ImageDataGenerator = tf.keras.preprocessing.image.ImageDataGenerator
SQUARE = SampleSpec(Field(FieldKind.IMAGE, (8, 8, 3), np.dtype("uint8")), None)


MOVING = {"rotation_range": 20, "width_shift_range": 0.1, "shear_range": 5, "zoom_range": 0.2, "rescale": 2.0}
FILLED = {"fill_mode": "constant", "cval": 7, "data_format": "channels_last"}
ZOOMED: Any = {"zoom": (0.5, 1.5), "keep_aspect": False, "fill": "constant", "value": 7, "interpolation": "nearest"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [ap.Cast("float32")]),
        ({"rescale": 1 / 255}, [ap.Rescale(1 / 255)]),
        ({"horizontal_flip": True, "dtype": "float16"}, [ap.RandomFlip(), ap.Cast("float16")]),
        ({"vertical_flip": True, "rescale": 2}, [ap.RandomFlip(horizontal=False, vertical=True), ap.Rescale(2)]),
        ({"brightness_range": [0.5, 1.5]}, [ap.RandomBrightness(factor=(0.5, 1.5)), ap.Cast("float32")]),
        (MOVING, [ap.RandomAffine(20, (0, 0.1), 5, (0.8, 1.2), keep_aspect=False, fill="nearest"), ap.Rescale(2.0)]),
        (
            {"zoom_range": [0.5, 1.5], "interpolation_order": 0, **FILLED},
            [ap.RandomAffine(**ZOOMED), ap.Cast("float32")],
        ),
        ({"preprocessing_function": abs, "rescale": 0.5}, [ap.Cast("float32"), ap.Map(abs), ap.Rescale(0.5)]),
    ],
)
def test_arguments_become_ops_in_the_order_of_the_generator(arguments: dict[str, Any], expected: list[Op]) -> None:
    assert expected == ap.from_image_data_generator(**arguments)
    ImageDataGenerator(**arguments)  # Keras takes them too


@pytest.mark.filterwarnings("ignore:Please import `affine_transform`:DeprecationWarning")  # Keras's own
@pytest.mark.parametrize("low", [True, False])
def test_the_extremes_of_every_range_are_those_of_keras(low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the ends of all its ranges, Keras's own transformation of a square image is that of the op."""
    arguments: dict[str, Any] = {"rotation_range": 30, "width_shift_range": 0.1, "height_shift_range": 0.1}
    arguments |= {"shear_range": 10.0, "zoom_range": (0.8, 1.1), "fill_mode": "nearest", "data_format": "channels_last"}

    def end(lower: float, upper: float, size: int | None = None) -> Any:
        value = lower if low else upper
        return value if size is None else np.full(size, value)

    monkeypatch.setattr(np.random, "uniform", end)
    image = np.add.outer(np.arange(24.0) ** 1.5, np.arange(24.0) * 3)[..., None].repeat(3, axis=-1).astype(np.float32)
    generator = ImageDataGenerator(**arguments)
    wanted = generator.apply_transform(image, generator.get_random_transform(image.shape))
    affine, _ = ap.from_image_data_generator(**arguments)
    found, _ = affine.apply((image, None), SQUARE, np.full(6, 0.0 if low else 1 - 2**-53))
    np.testing.assert_allclose(found, wanted, atol=0.05)


# -------------------- samples of a batch that are mixed

RNG = np.random.default_rng(3)
BATCH = RNG.integers(0, 256, (5, 8, 10, 3), np.uint8)
TARGETS = np.eye(5, dtype=np.float32)
MASKS = RNG.integers(0, 4, (5, 8, 10), np.uint8)
RANDOM = RNG.random((5, 6))


def mixed_by(op: Op, y: NDArray[Any] | None = TARGETS) -> tuple[Any, Any]:
    return op.mix((BATCH.copy(), None if y is None else y.copy()), RANDOM)


def partners() -> list[int]:
    """Row r is mixed with the row whose first number is the r-th smallest."""
    return sorted(range(5), key=lambda row: float(RANDOM[row, 0]))


def shares(alpha: float) -> list[float]:
    keys = [[int(number * 2**53) for number in row[2:4]] for row in RANDOM.tolist()]
    return [float(np.random.Generator(np.random.Philox(key=key)).beta(alpha, alpha)) for key in keys]


@pytest.mark.parametrize("alpha", [0.9, 0.01, 1.5])  # numpy mixes by the last two
def test_mixup_adds_image_and_target_of_another_sample_by_one_share(alpha: float) -> None:
    x, y = mixed_by(ap.MixUp(alpha))
    for row, (other, share) in enumerate(zip(partners(), shares(alpha), strict=True)):
        np.testing.assert_allclose(x[row], BATCH[row] * share + BATCH[other] * (1 - share), atol=0.51)
        np.testing.assert_allclose(y[row], TARGETS[row] * share + TARGETS[other] * (1 - share), atol=1e-6)
    assert x.dtype == np.uint8


@pytest.mark.parametrize("y", [TARGETS, MASKS, None], ids=["targets", "masks", "none"])
def test_cutmix_puts_a_rectangle_of_another_sample_in(y: NDArray[Any] | None) -> None:
    x, mixed = mixed_by(ap.CutMix(), y)
    for row, (other, share) in enumerate(zip(partners(), shares(1.0), strict=True)):
        tall, wide = (math.floor(side * math.sqrt(1 - share) + 0.5) for side in (8, 10))
        top, left = (math.floor(at) for at in RANDOM[row, 4:] * (8 - tall + 1, 10 - wide + 1))
        inside = np.zeros((8, 10), bool)
        inside[top : top + tall, left : left + wide] = True
        np.testing.assert_array_equal(x[row], np.where(inside[..., None], BATCH[other], BATCH[row]))
        if y is MASKS:
            np.testing.assert_array_equal(mixed[row], np.where(inside, MASKS[other], MASKS[row]))
        elif y is not None:
            kept = 1 - tall * wide / 80
            np.testing.assert_allclose(mixed[row], TARGETS[row] * kept + TARGETS[other] * (1 - kept), atol=1e-6)


def test_a_sample_is_mixed_by_chance_and_what_follows_on_each_value_alone_may_run_on_the_device() -> None:
    x, y = mixed_by(ap.MixUp(1.0, 0.5))
    same = (x == BATCH).all((1, 2, 3)).tolist()
    assert same == ((RANDOM[:, 1] >= 0.5) | (np.array(partners()) == range(5))).tolist()
    assert 0 < sum(same) < 5
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-6)
    for images, alpha in ((BATCH, 0.01), (BATCH, 1.5), (BATCH.astype("float16"), 0.5), (BATCH[:, ::2], 0.5)):
        assert not native.mix([(images, False)], RANDOM, alpha, 1.0)
    ops = [ap.RandomFlip(), ap.OneHot(5), ap.MixUp(), ap.CutMix(), ap.Rescale(1 / 255)]
    plan = make_plan(ap.Workload(data=ap.Arrays(BATCH, np.arange(5)), ops=ops, batch_size=2))
    assert [type(step.op) for step in plan.body] == [ap.RandomFlip, ap.OneHot, ap.MixUp, ap.CutMix]
    assert [type(step.op) for step in plan.suffix] == [ap.Rescale]


@pytest.mark.parametrize(
    ("ops", "labels", "error", "said"),
    [
        ([ap.MixUp()], np.arange(5), ap.OpError, r"needs targets that can be mixed, but got int64 labels.*ap\.OneHot"),
        ([ap.CutMix()], np.arange(5), ap.OpError, r"CutMix.*ap\.OneHot"),
        ([ap.MixUp()], MASKS, ap.OpError, "class numbers"),
        ([ap.Cast("int32"), ap.MixUp()], np.eye(5), ap.OpError, r"mixes levels or floats, but got int32.*float32"),
        ([ap.OneHot(5), ap.MixUp(), ap.RandomFlip()], np.arange(5), ap.WorkloadError, "behind `RandomFlip`"),
    ],
)
def test_what_cannot_be_mixed_is_refused_when_a_loader_opens(ops: Any, labels: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        make_plan(ap.Workload(data=ap.Arrays(BATCH, labels), ops=ops, batch_size=2))


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
@pytest.mark.parametrize("size", [(1, 5, 7), (9, 1, 1), (3, 1, 4099), (4, 4099, 1), (33, 13, 11)], ids=str)
@pytest.mark.parametrize("op", [ap.MixUp(), ap.MixUp(0.06, 0.7), ap.CutMix(), ap.CutMix(0.3, 0.7)], ids=str)
def test_the_library_mixes_to_the_bits_of_numpy(op: Op, size: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, random = np.random.default_rng(0), np.random.default_rng(1).random((size[0], 6))
    random[0, 4:] = 1 - 2**-53  # the last place
    targets: list[Any] = [None, numbers.random((size[0], 7), np.float32), numbers.random(size[0], np.float32)]
    if isinstance(op, ap.CutMix):
        targets += [numbers.integers(0, 9, size, np.uint8), numbers.random((*size, 5))]
    for dtype, y in itertools.product(("uint8", "uint16", "float32"), targets):
        x = numbers.integers(0, 256, (*size, 3)).astype(dtype) * (257 if dtype == "uint16" else 1)
        by_library = op.mix(copy.deepcopy((x, y)), random)
        with monkeypatch.context() as python:
            python.setattr(native, "mix", lambda *_: False)
            by_numpy = op.mix(copy.deepcopy((x, y)), random)
        assert [np.asarray(part).tobytes() for part in by_library] == [np.asarray(part).tobytes() for part in by_numpy]
