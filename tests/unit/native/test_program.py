"""Programs of the native library make the bits that the ops make in Python, on images of any size.

Each case runs with all vector instructions, with SSSE3 and in plain C. How loaders use programs is tested in
`tests/contract`.
"""

import contextlib
import itertools
import mmap
import os
import pickle
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import cv2
import numpy as np
import pytest
from hypothesis import example, given, strategies
from numpy.typing import NDArray

import autopipe as ap
from autopipe import native
from autopipe.workload import order
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.decode import _FLAGS, MAX_PIXELS, decode
from autopipe.workload.ops.planner import make_plan, run
from autopipe.workload.program import Programs, programs
from autopipe.workload.sample import Field, FieldKind, SampleSpec

pytestmark = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
SIZES = ((1, 1), (1, 9), (9, 1), (2, 2), (7, 5), (16, 16), (33, 47), (64, 48), (97, 61), (150, 211), (3, 700), (700, 3))
SAMPLINGS = (0x111111, 0x211111, 0x221111, 0x121111)


class Encoded:
    x_kind = FieldKind.ENCODED
    y_kind = FieldKind.ENCODED
    spans_of: Any = staticmethod(native.bytes_at)

    def __init__(self, images: Sequence[Any], masks: Sequence[Any] | None = None) -> None:
        self.images, self.masks = images, masks

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> Any:
        return self.images[index] if self.masks is None else (self.images[index], self.masks[index])


def pixels(size: tuple[int, int], channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    """Return an image with edges, gradients and noise."""
    numbers = np.random.default_rng((seed, *size))
    coarse = numbers.integers(0, 256, (4, 5, channels), np.uint8)
    smooth = cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_CUBIC).reshape(*size, channels).astype(int)
    return np.clip(smooth + numbers.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8)


def jpeg(
    image: NDArray[np.uint8], sampling: int = 0x221111, *, progressive: bool = False, quality: int = 88, **more: int
) -> bytes:
    flags = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    for name, value in {"progressive": progressive, "quality": quality, **more}.items():
        flags += [getattr(cv2, f"IMWRITE_JPEG_{name.upper()}"), int(value)]
    return cv2.imencode(".jpg", image[..., ::-1] if image.shape[2] == 3 else image, flags)[1].tobytes()


def png(image: NDArray[np.uint8]) -> bytes:
    return cv2.imencode(".png", image[..., ::-1] if image.ndim == 3 and image.shape[2] == 3 else image)[1].tobytes()


def photographs() -> list[bytes]:
    made = [jpeg(pixels(size), sampling) for size, sampling in zip(SIZES, itertools.cycle(SAMPLINGS), strict=False)]
    made += [jpeg(pixels((120, 90)), progressive=True), jpeg(pixels((50, 60), 1))]
    return made + [png(pixels(size)) for size in SIZES]


def steps_of(source: Any, ops: Sequence[Op]) -> Sequence[Step]:
    return make_plan(ap.Workload(data=source, ops=ops, batch_size=1)).steps


def count_of(source: Any, ops: Sequence[Op]) -> int:
    """Return how many of the ops become a program."""
    return programs((steps := steps_of(source, ops))[0].before, steps).count


def made_natively(steps: Sequence[Step], source: Any, epoch: int, *, simd: int = 2) -> tuple[Programs, Any, Any]:
    found = programs(steps[0].before, steps)
    samples = [source.read(index) for index in range(len(source))]
    parts = [samples] if source.masks is None else [*zip(*samples, strict=True)]
    spans = [source.spans_of(part) for part in parts] + [None] * (2 - len(parts))
    out = found.after.empty(len(source))
    made = found.room(out)
    with mock.patch.object(native, "SIMD", simd):
        verdicts = found.fill(spans, np.concatenate(_numbers(steps, epoch, len(source)), axis=1), made)
    if not verdicts.any():
        found.put_finished(made, out)
    return found, out, verdicts


def _numbers(steps: Sequence[Step], epoch: int, count: int) -> list[NDArray[np.float64]]:
    return [order.uniforms(7, epoch, np.arange(count), step.stream, step.op.draws) for step in steps]


def _bits(pixels: Any) -> bytes:
    """Return the bytes of pixels, in which NaN is of one kind."""
    is_nan = pixels != pixels
    return (np.where(is_nan, np.float32(np.nan), pixels) if is_nan.any() else np.ascontiguousarray(pixels)).tobytes()


def compare(ops: Sequence[Op], source: Any, *, epochs: int = 2) -> Programs:
    """Compare every image of some epochs with those that the ops make, which leave the samples as they were."""
    steps, before = steps_of(source, ops), pickle.dumps(source.images)
    for epoch in range(epochs):
        samples = by_ops(steps, source, epoch)
        for simd in (2, 1, 0):
            found, out, verdicts = made_natively(steps, source, epoch, simd=simd)
            assert found.count == len(steps)
            assert not verdicts.any()
            for index, sample in enumerate(samples):
                for part, expected in zip(out, sample, strict=True):
                    assert expected is None or _bits(part[index]) == _bits(expected), f"image {index}, epoch {epoch}"
    assert pickle.dumps(source.images) == before
    return found


def by_ops(steps: Sequence[Step], source: Any, epoch: int) -> list[Any]:
    numbers, made = _numbers(steps, epoch, len(source)), []
    for index in range(len(source)):
        value = source.read(index)
        sample: Any = value if isinstance(value, tuple) else (value, None)
        for step, drawn in zip(steps, numbers, strict=True):
            sample = run(step, sample, drawn[index], source, index)
        made.append(sample)
    return made


SMALL = (24, 31)
CHAINS: dict[str, list[Op]] = {
    "bilinear": [ap.Decode(), ap.Resize(*SMALL), ap.Normalize((120, 110, 100.5), (50, 60, 70))],
    "enlarged": [ap.Decode(), ap.Resize(224, 200)],
    "area": [ap.Decode(), ap.Resize(*SMALL, "area"), ap.Rescale(1 / 127.5, -1), ap.Cast("float16")],
    "area of halves": [ap.Decode(), ap.Resize(64, 48), ap.Resize(16, 24, "area"), ap.Resize(8, 12)],
    "nearest": [ap.Decode(), ap.Resize(*SMALL, "nearest"), ap.Rescale(1 / 3, dtype="float64")],
    "grey": [ap.Decode(1), ap.Resize(*SMALL), ap.RandomHue(0.5), ap.Pad(40, 40, 9.5), ap.Rescale(1 / 255)],
    "one pixel": [ap.Decode(), ap.Resize(1, 1)],
    "random crop": [ap.Decode(), ap.RandomResizedCrop(*SMALL), ap.RandomFlip(vertical=True)],
    "random crop by area": [ap.Decode(), ap.RandomResizedCrop(9, 9, interpolation="area"), ap.RandomFlip()],
    "crop of a padded": [ap.Decode(), ap.Pad(30, 30, value=7), ap.RandomCrop(30, 30), ap.RandomFlip()],
    "centre": [ap.Decode(), ap.Resize(40, 40), ap.CenterCrop(17, 23)],
    "letterbox": [ap.Decode(), ap.ResizeKeepingAspect(33, 50, value=3), ap.RandomGrayscale(0.7)],
    "colours": [
        ap.Decode(), ap.Resize(*SMALL), ap.RandomBrightness(0.9), ap.RandomBrightness(factor=(0.1, 3.0)),
        ap.RandomContrast(0.2, 3.0), ap.RandomSaturation(0.0, 4.0), ap.RandomHue(0.5),
    ],
    "all": [
        ap.Decode(), ap.RandomResizedCrop(32, 32), ap.RandomFlip(), ap.RandomBrightness(), ap.RandomContrast(),
        ap.RandomSaturation(), ap.RandomHue(), ap.RandomErasing(0.8, value=(1, 2, 3)), ap.Rescale(1 / 255),
        ap.Normalize(0.5, 0.25),
    ],
}  # fmt: skip


@pytest.mark.parametrize("ops", CHAINS.values(), ids=CHAINS)
def test_the_library_makes_the_bits_of_the_ops(ops: list[Any]) -> None:
    known = [each for each in photographs() if ops[0].channels == 3 or each[:2] == b"\xff\xd8"]  # Python makes PNG grey
    compare(ops, Encoded(known), epochs=3)


@pytest.mark.parametrize("number", [0.0, 0.1234, 0.5, 0.75, 1 - 2**-53])
def test_every_colour_is_turned_as_by_numpy(number: float) -> None:
    levels = np.array([0, 1, 2, 3, 84, 85, 86, 126, 127, 128, 129, 200, 253, 254, 255], np.uint8)
    image = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(len(levels), -1, 3)
    for delta, simd in itertools.product((0.001, 1 / 6, 0.4, 0.5), (1, 0)):
        hue = ap.RandomHue(delta)
        instructions = hue.instructions(Field(FieldKind.IMAGE, image.shape, image.dtype))
        assert instructions is not None
        program = native.Program([(instructions[0], 0)], image.shape, image.dtype)
        out = np.empty((1, *image.shape), np.uint8)
        with mock.patch.object(native, "SIMD", simd):
            assert not program.fill(native.pixels_at([image]), np.array([[number]]), out).any()
        np.testing.assert_array_equal(out[0], hue.pixels(image, FieldKind.IMAGE, np.array([number])))
        if number == 0.5:
            np.testing.assert_array_equal(out[0], image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_rotated_by_their_exif_tags(orientation: int) -> None:
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0" + bytes([orientation]) + b"\0\0\0\0\0\0"
    images = [jpeg(pixels(size)) for size in SIZES]
    marked = [each[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + each[2:] for each in images]
    compare([ap.Decode(orientation="exif"), ap.RandomResizedCrop(*SMALL)], Encoded(marked))


@given(
    size=strategies.tuples(strategies.integers(1, 120), strategies.integers(1, 120)),
    channels=strategies.tuples(*[strategies.sampled_from([1, 3])] * 2),
    flags=strategies.fixed_dictionaries(
        {
            "sampling": strategies.sampled_from([*SAMPLINGS, 0x411111]),
            "progressive": strategies.booleans(),
            "quality": strategies.integers(1, 100),
            "rst_interval": strategies.sampled_from([0, 0, 1, 2, 7]),
            "optimize": strategies.sampled_from([0, 1]),
        }
    ),
    parts=strategies.tuples(*[strategies.just(1.0) | strategies.floats(0.01, 1)] * 2),
)
def test_a_crop_of_any_jpeg_has_the_pixels_of_the_whole(size: Any, channels: Any, flags: Any, parts: Any) -> None:
    crop = [max(1, int(side * part)) for side, part in zip(size, parts, strict=True)]
    compare([ap.Decode(channels[1]), ap.RandomCrop(*crop)], Encoded([jpeg(pixels(size, channels[0]), **flags)]))


class Brighter(ap.RandomCrop):
    def pixels(self, array: Any, kind: FieldKind, random: Any) -> Any:
        return super().pixels(array, kind, random) // 2 + 128


class Inverted(ap.Decode):
    def apply(self, sample: Any, spec: Any, random: Any) -> Any:
        return 255 - super().apply(sample, spec, random)[0], None


class Turned(Op):
    def apply(self, sample: Any, spec: Any, random: Any) -> Any:
        return sample[0][::-1], None


@pytest.mark.parametrize(
    ("ops", "count"),
    [
        ([ap.Decode(), ap.Resize(9, 9), Brighter(4, 4), ap.RandomFlip()], 2),
        ([ap.Decode(), ap.Resize(9, 9), ap.Map(np.flip)], 2),
        ([ap.Decode(), Turned(), ap.Resize(9, 9)], 1),
        ([Inverted(), ap.Resize(9, 9)], 0),
        ([ap.Map(len, on="image")], 0),
    ],
)
def test_a_program_ends_before_an_op_of_somebodys_own(ops: list[Op], count: int) -> None:
    assert count_of(Encoded([GOOD] * 4), ops) == count


def test_large_photographs_are_reduced() -> None:
    images = [jpeg(pixels(size), sampling) for size in ((200, 300), (401, 159), (64, 64)) for sampling in SAMPLINGS]
    compare([ap.Decode(reduce=True), ap.Resize(48, 37)], Encoded(images), epochs=1)


def test_an_image_and_its_mask_take_the_same_random_numbers() -> None:
    sizes = SIZES[4:]
    masks = [(pixels(size, 1, seed=1) // 64)[..., 0] for size in sizes]
    ops = [ap.Decode(), ap.RandomResizedCrop(*SMALL), ap.RandomFlip(), ap.RandomErasing(on="both"), ap.Rescale(1 / 255)]
    source = Encoded([jpeg(pixels(size)) for size in sizes], [png(mask) for mask in masks])
    compare([*ops, ap.Cast("int32", on="mask")], source)


class Pixels(Encoded):
    """Decoded images and masks in memory, of any dtype."""

    x_kind = FieldKind.IMAGE
    y_kind = FieldKind.MASK
    spans_of = staticmethod(native.pixels_at)


PLACED: list[Op] = [ap.Pad(9, 11, value=3, mask_value=1), ap.RandomCrop(8, 8), ap.RandomFlip(vertical=True)]
NUMBERS = ("uint8", "float32", "uint16", "int16", "float16", "float64", "int64", "bool")


@pytest.mark.filterwarnings("ignore:Channels must come last")
@given(
    size=strategies.tuples(strategies.integers(1, 12), strategies.integers(1, 12)),
    channels=strategies.sampled_from([1, 2, 3, 4, 5]),
    dtypes=strategies.tuples(strategies.sampled_from(NUMBERS), strategies.sampled_from(NUMBERS)),
)
def test_arrays_of_any_dtype_are_padded_cut_and_mirrored(size: Any, channels: int, dtypes: Any) -> None:
    images = [pixels(size, channels, seed).astype(dtypes[0]) for seed in range(3)]
    masks = [(pixels(size, 1, seed)[..., 0] // 64).astype(dtypes[1]) for seed in range(3)]
    assert compare(PLACED, Pixels(images, masks)).has_code == (True, True)


def deep_pixels(size: tuple[int, int], channels: int, dtype: str, seed: int = 0) -> NDArray[Any]:
    """Return an image with edges and noise in all bits."""
    numbers = np.random.default_rng((seed, *size))
    noise = numbers.integers(0, 256, (*size, channels), np.uint16)
    if dtype == "float32":
        floats: NDArray[Any] = (numbers.standard_normal((*size, channels)) * 1000).astype(np.float32)
        for level, strange in enumerate((np.nan, np.inf, -np.inf)):  # depths, say, which nobody measured
            floats[(noise == level) & (channels > 1)] = strange
        return floats
    deep: NDArray[Any] = (pixels(size, channels, seed) * np.uint16(257)) ^ noise
    return deep


SIDES = strategies.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 24, 32, 33, 48, 63, 64, 96, 127, 200])


@pytest.mark.filterwarnings("ignore:Channels must come last")
@given(
    before=strategies.tuples(SIDES, SIDES),
    after=strategies.tuples(SIDES, SIDES),
    channels=strategies.sampled_from([1, 2, 3, 4, 5, 6, 7, 9, 16]),
    dtype=strategies.sampled_from(["uint8", "uint16", "float32"]),
    how=strategies.sampled_from(["bilinear", "area", "nearest"]),
    turned=strategies.booleans(),
)
@example(before=(64, 48), after=(32, 24), channels=2, dtype="uint8", how="bilinear", turned=False)
@example(before=(64, 48), after=(32, 24), channels=7, dtype="uint16", how="area", turned=True)
@example(before=(64, 26), after=(32, 13), channels=1, dtype="float32", how="area", turned=True)
@example(before=(200, 200), after=(10, 4), channels=1, dtype="uint16", how="area", turned=True)
def test_images_of_any_depth_are_resized_as_by_opencv(
    before: tuple[int, int], after: tuple[int, int], channels: int, dtype: str, how: Any, *, turned: bool
) -> None:
    image = pixels(before, channels) if dtype == "uint8" else deep_pixels(before, channels, dtype)
    ops: list[Op] = [ap.Resize(*after, how), *[ap.RandomFlip(vertical=True)] * turned]
    if how == "nearest" or native.resizes(dtype, how, channels):
        compare(ops, Pixels([image]))
    else:
        assert count_of(Pixels([image]), ops) == 0


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_left_to_python_where_ipp_resizes(strange: float) -> None:
    image = deep_pixels((20, 30), 1, "float32")
    image[7, 9] = strange
    if not native.resizes("float32", "bilinear", 1):
        pytest.skip("OpenCV resizes to other pixels on this machine")
    assert made_natively(steps_of(Pixels([image]), [ap.Resize(11, 12)]), Pixels([image]), 0)[2].all()
    compare([ap.Resize(11, 12, "area")], Pixels([image]))


@pytest.mark.parametrize(("channels", "how"), [(1, "bilinear"), (1, "area"), (3, "area")])
def test_png_files_of_sixteen_bits_are_made_natively(channels: Any, how: Any) -> None:
    if not native.resizes("uint16", how, channels):
        pytest.skip("OpenCV resizes to other pixels on this machine")
    chains: list[list[Op]] = [
        [ap.Pad(60, 60, value=700), ap.RandomCrop(50, 50), ap.RandomErasing(0.9, value=60000)],
        [ap.Resize(*SMALL, how), ap.RandomFlip(vertical=True), ap.Normalize(2048, 1000.5)],
        [ap.RandomResizedCrop(*SMALL, interpolation=how), ap.RandomFlip(), ap.Rescale(1 / 4095, -0.5)],
        [ap.ResizeKeepingAspect(33, 50, value=300, interpolation=how)],
    ]
    for number, ops in enumerate(chains):
        sizes = SIZES[3 * (number > 0) : 9]
        images = [png(deep_pixels(size, channels, "uint16")) for size in sizes]
        alpha = [png(np.dstack([deep_pixels(size, 3, "uint16")] * 2)[..., :4]) for size in sizes]
        compare([ap.Decode(channels, dtype="uint16"), *ops], Encoded(images + alpha * (channels == 3)))


def test_an_op_on_bytes_does_not_take_other_numbers_and_no_other_instruction_is_there() -> None:
    ops = (ap.RandomContrast(), ap.RandomSaturation(), ap.RandomGrayscale(1.0), ap.Resize(3, 3, "bicubic"))
    for op, dtype in itertools.product(ops, ("float32", "uint16")):
        assert count_of(Pixels([np.ones((6, 6, 3), dtype)] * 2), [op]) == 0
    with pytest.raises(KeyError, match="SHARPEN"):
        native.Program([(native.Instruction("SHARPEN"), 0)], (8, 8, 3), np.dtype(np.uint8))


def verdict_of(data: bytes, ops: Sequence[Op]) -> int:
    good = jpeg(pixels((40, 40)))
    ok, verdict = made_natively(steps_of(Encoded([good]), ops), Encoded([good, data]), 0)[2]
    assert ok == 0
    return int(verdict)


GOOD = jpeg(pixels((64, 64)))
DAMAGED = {
    "empty": b"",
    "short": GOOD[: len(GOOD) // 2],
    "no image": b"this is no image, but long enough to be one",
    "only a start": b"\xff\xd8",
    "garbage inside": GOOD[:-400] + bytes(200) + b"\xff\xd7" + GOOD[-199:],
    "without a table, which the image before it has": GOOD[: GOOD.index(b"\xff\xdb")] + GOOD[GOOD.index(b"\xff\xc0") :],
    "png without its end": png(pixels((20, 20)))[:-12],
    "png with a wrong checksum": png(pixels((20, 20)))[:-20] + bytes(4) + png(pixels((20, 20)))[-16:],
}
PROGRESSIVE = jpeg(pixels((64, 64)), progressive=True)
WITH_RESTARTS = jpeg(pixels((96, 96)), rst_interval=1)
RESTART = WITH_RESTARTS.rindex(b"\xff\xd5")  # in the lower part
TABLE = GOOD.index(b"\xff\xc4")
CROPS: list[list[Op]] = [[ap.Decode(), ap.CenterCrop(8, 8)], [ap.Decode(), ap.Pad(96, 96), ap.CenterCrop(8, 8)]]
HOW: tuple[dict[str, Any], ...] = ({}, {"strict": False}, {"strict": False, "reduce": (16, 16)})
RESIZED: list[list[Op]] = [[ap.Decode(**how), ap.Resize(8, 8)] for how in HOW]
LEFT: list[tuple[bytes, list[list[Op]]]] = [
    *((data, RESIZED[:1]) for data in DAMAGED.values()),
    *((bad, RESIZED) for bad in (DAMAGED["garbage inside"], GOOD[:TABLE] + bytes(3) + GOOD[TABLE:])),
    (PROGRESSIVE[: PROGRESSIVE.rindex(b"\xff\xda")] + b"\xff\xd9", [RESIZED[0], CROPS[0]]),  # without its last scan
    (WITH_RESTARTS[:RESTART] + b"\xff\xd0" + WITH_RESTARTS[RESTART + 2 :], CROPS),  # the next number is missing
    *((WITH_RESTARTS[:rest], CROPS) for rest in (-1, -2, -700)),
    (jpeg(pixels((50, 50))), [[ap.Decode(max_pixels=1600), ap.Resize(8, 8)]]),
    (jpeg(pixels((39, 50))), [[ap.Decode(), ap.CenterCrop(40, 40)]]),
]


@pytest.mark.parametrize(("data", "chains"), LEFT)
def test_a_damaged_or_too_large_or_small_image_is_left_also_behind_a_crop(data: bytes, chains: list[list[Op]]) -> None:
    for ops in chains:
        assert verdict_of(data, ops) != 0


@pytest.mark.parametrize("data", [PROGRESSIVE, WITH_RESTARTS])
def test_what_is_whole_is_taken(data: bytes) -> None:
    for ops in (RESIZED[0], CROPS[0]):
        assert verdict_of(data, ops) == 0


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by kind: grey, RGB, palette, grey with alpha, RGB with alpha


def png_of(
    size: tuple[int, int], kind: int, bits: int, *, entries: int | None = None, interlaced: int = 0, extra: bytes = b""
) -> bytes:
    """Return a PNG of random pixels, each row by a filter of its own; the palette of kind 3 has some `entries`."""
    numbers = np.random.default_rng((kind, bits, *size))
    count = -(-size[1] * SAMPLES[kind] * bits // 8)
    rows = numbers.integers(0, 256, (size[0], 1 + count), np.uint8)
    rows[:, 0] %= 5
    entries = 0 if kind != 3 else 1 << bits if entries is None else entries
    palette = chunk(b"PLTE", numbers.bytes(3 * entries)) if entries else b""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size[::-1], bits, kind, 0, 0, interlaced))
    parts = [header, palette, extra, chunk(b"IDAT", zlib.compress(rows.tobytes())), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


KINDS = [*((0, bits) for bits in (1, 2, 4, 8)), (2, 8), *((3, bits) for bits in (1, 2, 4, 8)), (4, 8), (6, 8)]


def by_program(
    data: bytes, shape: tuple[int, ...], decoding: native.Instruction, *, simd: int = 2, dtype: str = "uint8"
) -> NDArray[Any] | None:
    """Return the pixels of a file; None where it is left to Python."""
    out = np.empty((1, *shape), dtype)
    program = native.Program([(decoding, 0)], shape, out.dtype)
    with mock.patch.object(native, "SIMD", simd):
        return None if program.fill(native.bytes_at([data]), np.empty((1, 0)), out).any() else out[0]


def decoding(channels: int | None = 3) -> native.Instruction:
    return native.Instruction("DECODE", (channels or 0, MAX_PIXELS, 0, 0, False))


@given(
    size=strategies.tuples(strategies.integers(1, 20), strategies.integers(1, 40)),
    kind=strategies.sampled_from([0, 2, 4, 6]),
)
def test_all_filters_of_a_png_of_sixteen_bits_are_undone(size: tuple[int, int], kind: int) -> None:
    for channels in (1, 3) if kind in (0, 4) else (3,):
        file = Encoded([png_of(size, kind, 16)])
        compare([ap.Decode(channels, dtype="uint16"), ap.Pad(20, 40)], file, epochs=1)


@given(data=strategies.data())
def test_a_changed_png_of_sixteen_bits_gives_what_python_gives_or_is_left_to_it(data: Any) -> None:
    """Never anything else than the pixels of Python or a BadSampleError."""
    kind, side = data.draw(strategies.sampled_from([0, 2, 4, 6])), strategies.integers(1, 12)
    whole = bytearray(png_of((data.draw(side), data.draw(side)), kind, 16))
    for place in data.draw(strategies.lists(strategies.integers(0, len(whole) - 1), max_size=3)):
        whole[place] = data.draw(strategies.integers(0, 255))
    size = data.draw(strategies.sampled_from([None, b"\0\0\0\0", b"\0\0\xff\xff", b"\x7f\xff\xff\xff"]))
    if size is not None:
        at = data.draw(strategies.sampled_from([16, 20]))
        whole[at : at + 4] = size
        whole[29:33] = struct.pack(">I", zlib.crc32(whole[12:29]))
    file = bytes(whole[: data.draw(strategies.integers(0, len(whole)) | strategies.just(len(whole)))])
    spec, op = SampleSpec(Field(FieldKind.ENCODED, None, None), None), ap.Decode(dtype="uint16", max_pixels=1 << 20)
    wanted: Any = None
    with contextlib.suppress(ap.BadSampleError):
        wanted = op.apply((file, None), spec, np.empty(0))[0]
    (deep,) = op.instructions(spec.x) or ()
    for simd in (2, 0):
        made = by_program(file, (1, 1, 3) if wanted is None else wanted.shape, deep, simd=simd, dtype="uint16")
        assert made is None or (wanted is not None and np.array_equal(made, wanted))


@pytest.mark.parametrize("channels", [3, 1, None])
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_every_kind_of_png_has_the_pixels_of_opencv(kind: int, bits: int, channels: Literal[1, 3] | None) -> None:
    alpha = chunk(b"tRNS", bytes(2 if kind == 0 else 6 if kind == 2 else 1)) if kind < 4 else b""
    for size, extra in itertools.product([*SIZES, (1, 65535)], (b"", alpha)):
        data = png_of(size, kind, bits, extra=extra)
        found: Any = cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS[channels])
        expected = found[..., ::-1] if channels is None and found.ndim == 3 else found
        for simd in (0, 2):
            made = by_program(data, expected.shape, decoding(channels), simd=simd)
            if channels == 1 and kind not in (0, 4):
                assert made is None  # Python makes colours grey
            else:
                np.testing.assert_array_equal(made, expected)
        by_python = decode(data, channels)
        np.testing.assert_array_equal(by_python[..., 0] if channels == 1 else by_python, expected)


def test_kinds_of_png_that_are_left_to_python() -> None:
    size = (7, 300)
    left = [png_of(size, kind, 16) for kind in (0, 2, 4, 6)]
    left += [png_of(size, 3, bits, entries=entries) for bits, entries in ((8, 0), (8, 100), (2, 5))]
    left += [png_of(size, 0, 8, interlaced=1), png_of(size, 2, 8, extra=chunk(b"eXIf", b"II*\0"))]
    for data in left:
        assert by_program(data, (*size, 3), decoding()) is None


def test_masks_of_palettes_become_classes_and_those_of_sixteen_bits_stay_beside_their_images() -> None:
    sizes = SIZES[3:9]
    images, masks = [jpeg(pixels(size)) for size in sizes], [png_of(size, 3, 2) for size in sizes]
    palette = tuple({tuple(each) for data in masks for each in decode(data, None).reshape(-1, 3).tolist()})
    compare([ap.Decode(), ap.MaskToClass(palette), ap.Resize(*SMALL)], Encoded(images, masks), epochs=1)
    deep = [png(np.random.default_rng(0).integers(0, 900, size, np.uint16)) for size in sizes]
    for orientation in ("exif", None):
        compare([ap.Decode(orientation=orientation), ap.RandomResizedCrop(*SMALL)], Encoded(images, deep))


def test_files_are_read(tmp_path: Any) -> None:
    source = Encoded([jpeg(pixels((30, 40))), jpeg(pixels((41, 25)))])
    found, expected, _ = made_natively(steps_of(source, [ap.Decode(), ap.Resize(8, 9)]), source, 0)
    paths = [tmp_path / name for name in ("a.jpg", "ü.jpg", "missing.jpg", "folder")]
    for path, data in zip(paths, source.images, strict=False):
        path.write_bytes(data)
    paths[3].mkdir()
    spans, kept = native.files_at([bytes(path) for path in paths])
    out = found.after.empty(4)
    verdicts = found.fill([spans, None], np.empty((4, 0)), out)
    assert kept
    assert verdicts.astype(bool).tolist() == [False, False, True, True]
    np.testing.assert_array_equal(out[0][:2], expected[0])


@pytest.mark.parametrize("shape", [(28, 28), (64, 41, 3)], ids=str)
def test_rows_of_a_mapped_file_are_left_where_it_ends(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path, flip = tmp_path / "rows", [(native.Instruction("FLIP", (1, 0)), 0)]
    rows = np.random.default_rng(0).integers(0, 256, (600, *shape), np.uint8)
    path.write_bytes(rows.tobytes())
    order = np.random.default_rng(1).permutation(len(rows))
    spans, out = np.zeros(len(order), native.SPAN), np.empty((len(order), *shape), np.uint8)
    mapped = np.memmap(path, np.uint8, "r")
    spans["size"], spans["offset"] = rows[0].size, order * rows[0].size
    spans["data"] = mapped.ctypes.data + order * rows[0].size
    spans["height"], spans["width"], spans["channels"] = (*shape, 1)[:3]
    with path.open("rb") as file:
        spans["file"] = file.fileno()
        for code, expected in (((), rows), (flip, rows[:, :, ::-1])):
            program = native.Program(code, shape, out.dtype)
            assert not program.fill(spans, np.zeros((len(order), 1)), out).any()
            np.testing.assert_array_equal(out, expected[order])
        for size in (mmap.PAGESIZE * 50, mmap.PAGESIZE * 3 + rows[0].size // 2, 7):  # at the end of a page, and in one
            os.truncate(path, size)
            is_left = program.fill(spans, np.zeros((len(order), 1)), out) == 0
            np.testing.assert_array_equal(is_left, order < size // rows[0].size)
            np.testing.assert_array_equal(out[is_left], expected[order[is_left]])
        path.write_bytes(rows.tobytes())
        spans["width"] += 1
        assert program.fill(spans, np.zeros((len(order), 1)), out).all()
