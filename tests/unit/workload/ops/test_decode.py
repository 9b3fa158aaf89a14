"""From the bytes of image files to pixels, whole and reduced, and what is refused."""

import contextlib
from typing import Any, Literal

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, strategies

import autopipe as ap
from autopipe.workload.digests import ops_digest
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.decode import decode
from autopipe.workload.ops.headers import image_size
from autopipe.workload.plain_code import Library
from autopipe.workload.sample import Field, FieldKind, SampleSpec

RNG = np.random.default_rng(0)
SMOOTH = cv2.resize(RNG.integers(0, 256, (5, 7, 3), np.uint8), (41, 29), interpolation=cv2.INTER_CUBIC)
ENCODED = Field(FieldKind.ENCODED, None, None)
IMAGE_FILE = SampleSpec(ENCODED, None)


def encoded(pixels: Any, extension: str, *options: int) -> bytes:
    if extension == ".tiff" and not options:
        options = (cv2.IMWRITE_TIFF_COMPRESSION, 1)  # without it, older OpenCV loses bits of floats
    return bytes(cv2.imencode(extension, pixels, options)[1])


FOUR_FOUR_FOUR = cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
FILES = {
    "jpeg": encoded(SMOOTH, ".jpg"),
    "jpeg 4:4:4": encoded(SMOOTH, ".jpg", *FOUR_FOUR_FOUR),
    "progressive jpeg": encoded(SMOOTH, ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "grey jpeg": encoded(SMOOTH[..., 0], ".jpg"),
    "png": encoded(SMOOTH, ".png"),
    "grey png": encoded(SMOOTH[..., 0], ".png"),
    "png with alpha": encoded(np.dstack([SMOOTH, SMOOTH[..., :1]]), ".png"),
    "16 bit png": encoded(SMOOTH.astype(np.uint16) * 256 + 200, ".png"),
    "bmp": encoded(SMOOTH, ".bmp"),
    "tiff": encoded(SMOOTH, ".tiff"),
    "lossless webp": encoded(SMOOTH, ".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
    "webp": encoded(SMOOTH, ".webp", cv2.IMWRITE_WEBP_QUALITY, 80),
}


def test_colours_come_as_red_green_blue_and_a_mask_keeps_its_channels() -> None:
    np.testing.assert_array_equal(decode(FILES["png"], 3), SMOOTH[..., ::-1])
    np.testing.assert_array_equal(decode(FILES["png"], None), SMOOTH[..., ::-1])
    np.testing.assert_array_equal(decode(FILES["grey jpeg"], None), decode(FILES["grey jpeg"], 1)[..., 0])
    np.testing.assert_array_equal(decode(FILES["jpeg"], None), decode(FILES["jpeg"], 3))
    assert decode(FILES["grey png"], None).shape == (29, 41)
    assert decode(FILES["png with alpha"], None).shape == (29, 41, 3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", [name for name in FILES if "jpeg" in name])
def test_a_jpeg_has_the_very_pixels_that_opencv_and_tensorflow_give(name: str, channels: Literal[1, 3]) -> None:
    import tensorflow as tf

    found = decode(FILES[name], channels)
    flag = cv2.IMREAD_COLOR_RGB if channels == 3 else cv2.IMREAD_GRAYSCALE
    np.testing.assert_array_equal(found, by_opencv(FILES[name], flag).reshape(found.shape))
    of_tensorflow = tf.io.decode_jpeg(FILES[name], channels, dct_method="INTEGER_ACCURATE")
    np.testing.assert_array_equal(found, of_tensorflow.numpy())


def by_opencv(data: bytes, flag: int = cv2.IMREAD_COLOR_RGB) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), flag)


def by_plain_code(step: Step, library: Library, **parts: bytes) -> dict[str, Any]:
    """Return parts of a sample after the plain code of a decoder."""
    import tensorflow as tf

    scope: dict[str, Any] = {"np": np, "cv2": cv2, "tf": tf, "simplejpeg": simplejpeg, **parts}
    exec("\n".join(step.op.plain(step, library)), scope)
    return {name: np.asarray(scope[name]) for name in parts}


@pytest.mark.parametrize(("dialect", "extension"), [("np", ".png"), ("np", ".tiff"), ("tf", ".png")])
@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3)])
def test_plain_code_keeps_the_sixteen_bits_of_a_mask(shape: tuple[int, ...], dialect: Library, extension: str) -> None:
    mask = RNG.integers(0, 65536, shape, np.uint16)
    data = encoded(mask, extension)
    found = by_plain_code(masked_step(mask.dtype, mask.ndim), dialect, x=FILES["png"], y=data)["y"]
    np.testing.assert_array_equal(found, decode(data, None))
    assert found.dtype == np.uint16


def masked_step(dtype: np.dtype[Any], rank: int) -> Step:
    image, mask = Field(FieldKind.IMAGE, None, np.dtype(np.uint8), 3), Field(FieldKind.MASK, None, dtype, rank)
    return Step(ap.Decode(), 0, SampleSpec(ENCODED, ENCODED), SampleSpec(image, mask))


@pytest.mark.parametrize(
    ("op", "library", "said"),
    [
        (ap.Decode(), "np", "masks in uint8 and uint16, but these are in float32"),
        (ap.Decode(), "tf", "masks in uint8 and uint16, but these are in float32"),
        (ap.Decode(orientation="exif"), "tf", "EXIF"),
        (ap.Decode(orientation="exif", reduce=(4, 4)), "np", "both reduces images and rotates them"),
        (ap.Decode(dtype="float32"), "tf", "no image files of float32"),
    ],
)
def test_what_has_no_plain_code_is_refused(op: ap.Decode, library: Library, said: str) -> None:
    with pytest.raises(ap.PlainCodeError, match=said):
        list(op.plain(masked_step(np.dtype(np.float32), 2), library))


DEEP = np.clip(SMOOTH.astype(np.int64) * 257 + RNG.integers(-120, 121, SMOOTH.shape), 0, 65535).astype(np.uint16)
FLOATS = (SMOOTH / np.float32(300)).astype(np.float32)


@pytest.mark.parametrize(("extension", "dtype"), [(".png", "uint16"), (".tiff", "uint16"), (".tiff", "float32")])
@pytest.mark.parametrize("shape", [(1, 1), (9, 7), (1, 65_535), (9, 7, 3), (9, 7, 4)])
def test_all_sixteen_bits_and_floats_are_kept_and_alpha_is_dropped(extension: str, dtype: Any, shape: Any) -> None:
    numbers = RNG.standard_normal(shape) * 1e5 if dtype == "float32" else RNG.integers(0, 65536, shape)
    pixels = numbers.astype(dtype)
    grey, colours = (pixels_of(encoded(pixels, extension), ap.Decode(channels, dtype=dtype)) for channels in (1, 3))
    assert (grey.dtype, grey.shape, colours.dtype) == (dtype, (*shape[:2], 1), dtype)
    wanted = np.atleast_3d(pixels)[..., 2::-1] if len(shape) == 3 else np.repeat(pixels[..., None], 3, axis=2)
    np.testing.assert_array_equal(colours, wanted)
    off = 0.1 if dtype == "float32" else 4 if len(shape) == 3 else 0.01
    np.testing.assert_allclose(grey[..., 0], wanted.astype(np.float64) @ (0.299, 0.587, 0.114), rtol=1e-5, atol=off)


OTHER_DEPTHS = {
    "8 bits": (encoded(SMOOTH, ".png"), "uint16"),
    "8 bits, of a JPEG": (FILES["jpeg"], "uint16"),
    "8 bits, of a TIFF": (FILES["tiff"], "float32"),
    "16 bits": (encoded(DEEP, ".png"), "float32"),
    "32 bits": (encoded(FLOATS, ".tiff"), "uint16"),
    "64 bits": (encoded(FLOATS.astype(np.float64), ".tiff"), "float32"),
    "int16": (encoded(DEEP.astype(np.int16), ".tiff"), "uint16"),
    "int32": (encoded(DEEP[..., 0].astype(np.int32), ".tiff"), "float32"),
}


@pytest.mark.parametrize("found", OTHER_DEPTHS)
def test_a_file_of_another_depth_is_refused(found: str) -> None:
    file, dtype = OTHER_DEPTHS[found]
    with pytest.raises(ap.BadSampleError, match=f"must be of {dtype}, .* of {found.partition(',')[0]}"):
        pixels_of(file, ap.Decode(dtype=dtype))  # type: ignore[arg-type]


@given(data=strategies.data())
def test_a_changed_tiff_file_gives_an_image_of_the_dtype_or_is_refused(data: strategies.DataObject) -> None:
    dtype = data.draw(strategies.sampled_from(["uint16", "float32"]))
    pixels = (DEEP if dtype == "uint16" else FLOATS)[:9, :7]
    packed = data.draw(strategies.sampled_from([1, 5, 8]))
    file = bytearray(encoded(pixels, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, packed))
    tags = int.from_bytes(file[4:8], "little")  # at the end
    places = strategies.integers(0, len(file) - 1) | strategies.integers(tags, tags + 150)
    for place in data.draw(strategies.lists(places)):
        if place < len(file):
            file[place] = data.draw(strategies.integers(0, 255))
    whole = bytes(file[: data.draw(strategies.integers(0, len(file)) | strategies.just(len(file)))])
    with contextlib.suppress(ap.BadSampleError):
        found = pixels_of(whole, ap.Decode(3, dtype=dtype, max_pixels=1 << 12))  # type: ignore[arg-type]  # one of both
        assert (found.dtype, found.shape[2]) == (dtype, 3)


@pytest.mark.parametrize(
    ("op", "file", "library"),
    [
        *((ap.Decode(dtype="uint16"), encoded(DEEP, kind), "np") for kind in (".png", ".tiff")),
        (ap.Decode(dtype="uint16"), encoded(DEEP, ".png"), "tf"),
        *((ap.Decode(1, dtype="uint16"), encoded(DEEP[..., 0], ".png"), library) for library in ("np", "tf")),
        *((ap.Decode(channels, dtype="float32"), encoded(FLOATS, ".tiff"), "np") for channels in (1, 3)),
        *((ap.Decode(channels, dtype="float32"), encoded(FLOATS[..., 0], ".tiff"), "np") for channels in (1, 3)),
    ],
    ids=range(9),
)
def test_plain_code_of_deep_images_gives_what_the_op_gives(op: ap.Decode, file: bytes, library: Library) -> None:
    step = Step(op, 0, IMAGE_FILE, SampleSpec(Field(FieldKind.IMAGE, None, np.dtype(op.dtype), 3), None))
    found, wanted = by_plain_code(step, library, x=file)["x"], pixels_of(file, op)
    assert (wanted.dtype, wanted.shape) == (found.dtype, found.shape)
    np.testing.assert_array_equal(wanted, found)


def pixels_of(file: bytes, op: ap.Decode) -> Any:
    return op.apply((file, None), IMAGE_FILE, np.empty(0))[0]


def damaged(data: bytes) -> bytes:
    """Return the file with 16 bytes in the middle of its pixels replaced."""
    middle = (data.index(b"\xff\xda") + len(data)) // 2
    return data[:middle] + bytes(range(100, 116)) + data[middle + 16 :]


def test_a_damaged_jpeg_is_taken_on_request_but_not_one_that_is_cut_short_and_four_inks_are_left_to_opencv() -> None:
    data = damaged(FILES["jpeg"])
    for channels in (None, 3, 1):
        with pytest.raises(ap.BadSampleError, match=r"damaged: Corrupt JPEG data.*strict=False"):
            decode(data, channels)
    np.testing.assert_array_equal(decode(data, 3, strict=False), by_opencv(data))
    with pytest.raises(ap.BadSampleError, match="truncated") as told:
        decode(data[:-9], 3)
    assert "strict=False" not in str(told.value)  # which refuses it, too
    with pytest.raises(ap.BadSampleError, match="truncated"):
        decode(data[:-9], 3, strict=False)
    data = simplejpeg.encode_jpeg(np.ascontiguousarray(np.dstack([SMOOTH, SMOOTH[..., :1]])), colorspace="CMYK")
    np.testing.assert_array_equal(decode(data, 3), by_opencv(data))
    with pytest.raises(ap.BadSampleError, match="damaged"):
        decode(damaged(data), 3)


@pytest.mark.parametrize("name", ["png", "grey png", "16 bit png"])
def test_a_png_with_any_changed_byte_is_refused(name: str) -> None:
    data = FILES[name]
    for place in range(60, len(data) - 12, 37):
        changed = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
        with pytest.raises(ap.BadSampleError):
            decode(changed, 3)


@pytest.mark.parametrize("name", list(FILES))
def test_an_image_of_too_many_pixels_is_refused_before_decoding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert image_size(FILES[name]) == (29, 41)
    for channels in (3, 1):
        pixels = decode(FILES[name], channels, max_pixels=29 * 41)
        assert (pixels.shape, str(pixels.dtype)) == ((29, 41, channels), "uint8")
    monkeypatch.setattr(cv2, "imdecode", None)
    monkeypatch.setattr(simplejpeg, "decode_jpeg", None)
    with pytest.raises(ap.BadSampleError, match=r"at most 1,188 pixels, but its header says 41 x 29.*max_pixels"):
        decode(FILES[name], 3, max_pixels=29 * 41 - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"MM\0*\0\0\0\x08\0\x02\x01\0\0\x04\0\0\0\x01\0\0\0\x29\x01\x01\0\x03\0\0\0\x01\0\x1d\0\0",
        b"GIF89a\x29\0\x1d\0",
        b"BM" + b"\0" * 12 + b"\x0c\0\0\0\x29\0\x1d\0",
    ],
    ids=["tiff", "gif", "old bmp"],
)
def test_the_header_tells_the_size_in_other_formats_too(data: bytes) -> None:
    assert image_size(data) == (29, 41)
    for end in range(len(data)):
        assert image_size(data[:end]) in (None, (29, 41))


def test_a_small_file_that_claims_to_be_huge_and_a_deep_one_that_is_too_large_are_refused() -> None:
    data = bytearray(FILES["jpeg"])
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = (20_000).to_bytes(2, "big") * 2
    with pytest.raises(ap.BadSampleError, match="20000 x 20000"):
        decode(bytes(data), 3)
    three = FILES["progressive jpeg"], FILES["jpeg"], FILES["progressive jpeg"][:8]
    assert [ap.Decode.is_progressive(each) for each in three] == [True, False, False]
    with pytest.raises(ap.BadSampleError, match="at most 100 pixels"):
        pixels_of(encoded(DEEP, ".png"), ap.Decode(dtype="uint16", max_pixels=100))


@pytest.mark.parametrize(("data", "said"), [(b"", "0 bytes"), (b"GIF89a", "cannot decode"), ("text", "must be bytes")])
def test_what_is_no_image_is_refused_and_arrays_pass_unchanged(data: Any, said: str) -> None:
    with pytest.raises(ap.BadSampleError, match=said):
        decode(data, 3)
    spec = SampleSpec(Field(FieldKind.IMAGE, SMOOTH.shape, SMOOTH.dtype), Field(FieldKind.LABEL, (), np.dtype("int64")))
    assert ap.Decode().apply((SMOOTH, 3), spec, np.empty(0)) == (SMOOTH, 3)


IMAGE = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype("uint8"), 3), None)
REDUCED = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2}
REDUCED |= {4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}


def jpeg(height: int, width: int, extension: str = ".jpg") -> bytes:
    pixels = cv2.resize(RNG.integers(0, 256, (9, 11, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    return bytes(cv2.imencode(extension, pixels)[1])


def decoded(data: bytes, **settings: Any) -> Any:
    return pixels_of(data, ap.Decode(**settings))


LARGE = jpeg(161, 203)


@pytest.mark.parametrize(
    ("least", "ratio"),
    [((20, 20), 8), ((21, 26), 8), ((22, 20), 4), ((20, 52), 2), ((82, 10), 1), ((161, 203), 1), ((500, 500), 1)],
)
def test_a_large_jpeg_is_reduced_as_far_as_it_stays_large_enough_and_no_other_format(least: Any, ratio: int) -> None:
    found = decoded(LARGE, reduce=least)
    assert found.shape == (-(-161 // ratio), -(-203 // ratio), 3)
    np.testing.assert_array_equal(found[..., ::-1], by_opencv(LARGE, REDUCED[ratio]))
    assert decoded(jpeg(160, 200, ".png"), reduce=least).shape == (160, 200, 3)


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("data", [LARGE, jpeg(60, 203), jpeg(161, 203, ".png")], ids=["large", "low", "png"])
def test_the_plain_code_of_both_kinds_gives_the_same(data: bytes, channels: Any) -> None:
    import tensorflow as tf

    op = ap.Decode(channels, reduce=(40, 50))
    wanted, step = decoded(data, channels=channels, reduce=(40, 50)), Step(op, 0, IMAGE_FILE, IMAGE)
    np.testing.assert_array_equal(wanted, by_plain_code(step, "np", x=data)["x"])
    if channels == 1 and data[:2] != b"\xff\xd8":
        return  # TensorFlow makes grey of a coloured PNG in another way, as without reducing
    lines = "\n".join(f"    {line}" for line in op.plain(step, "tf"))
    scope: dict[str, Any] = {"tf": tf}
    exec(f"def load(x):\n{lines}\n    return x", scope)  # the same
    found = tf.function(scope["load"])(tf.constant(data)).numpy()
    assert found.shape == wanted.shape
    assert np.abs(found.astype(float) - wanted).mean() < 2  # its transform is a faster one, of fewer digits


def ops(*given: Op) -> tuple[Op, ...]:
    return tuple(ap.Workload(data=ap.Arrays(SMOOTH[None].repeat(4, axis=0)), ops=given, batch_size=2).ops)


def test_a_workload_reduces_to_the_size_of_the_resize_that_follows_or_names_one() -> None:
    found = ops(ap.Decode(reduce=True), ap.MaskToClass(((0, 0, 0),)), ap.Resize(224, 192))
    assert found[0] == ap.Decode(reduce=(224, 192))
    assert ops_digest(found[:1]) != ops_digest([ap.Decode()])
    assert ops_digest(found[:1]) == ops_digest(ops(*found)[:1])
    for rest in ((), (ap.RandomFlip(), ap.Resize(8, 8))):
        with pytest.raises(ap.ConfigError, match="needs a resize"):
            ops(ap.Decode(reduce=True), *rest)
    with pytest.raises(ap.ConfigError, match="reduce=True"):
        decoded(jpeg(9, 9), reduce=True)
