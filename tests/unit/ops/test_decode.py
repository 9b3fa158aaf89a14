from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pytest

from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.errors import BadSampleError, ConfigError
from autopipe.ops.decode import Decode, decode_image, decode_mask

RNG = np.random.default_rng(0)
SMOOTH = cv2.resize(RNG.integers(0, 256, (5, 7, 3), np.uint8), (41, 29), interpolation=cv2.INTER_CUBIC)
ENCODED = Field(FieldKind.ENCODED, None, None)


def encoded(pixels: Any, extension: str, *options: int) -> bytes:
    return bytes(cv2.imencode(extension, pixels, options)[1])


FILES = {
    "jpeg": encoded(SMOOTH, ".jpg"),
    "jpeg 4:4:4": encoded(SMOOTH, ".jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444),
    "progressive jpeg": encoded(SMOOTH, ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "grey jpeg": encoded(SMOOTH[..., 0], ".jpg"),
    "png": encoded(SMOOTH, ".png"),
    "grey png": encoded(SMOOTH[..., 0], ".png"),
    "png with alpha": encoded(np.dstack([SMOOTH, SMOOTH[..., :1]]), ".png"),
    "16 bit png": encoded(SMOOTH.astype(np.uint16) * 256 + 200, ".png"),
    "bmp": encoded(SMOOTH, ".bmp"),
    "webp": encoded(SMOOTH, ".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
}


def turned(jpeg: bytes, orientation: int) -> bytes:
    """Return a JPEG whose EXIF says that it is to be rotated."""
    tag = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    tiff = b"MM\0*" + struct.pack(">IH", 8, 1) + tag + struct.pack(">I", 0)
    exif = b"Exif\0\0" + tiff
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def test_an_exif_rotation_is_left_alone_and_followed_by_opencvs_defaults(tmp_path: Path) -> None:
    """What docs/migrate.md says."""
    content = turned(FILES["jpeg"], 6)
    assert decode_image(content, 3).shape == (29, 41, 3)
    file = tmp_path / "turned.jpg"
    file.write_bytes(content)
    read, decoded = cv2.imread(str(file)), cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert read is not None
    assert decoded is not None
    assert read.shape == decoded.shape == (41, 29, 3)


@pytest.mark.slow
def test_tensorflow_and_pil_leave_an_exif_rotation_alone(tmp_path: Path) -> None:
    import tensorflow as tf

    content = turned(FILES["jpeg"], 6)
    assert tuple(tf.io.decode_jpeg(content).shape) == tuple(tf.io.decode_image(content).shape) == (29, 41, 3)
    image = pytest.importorskip("PIL.Image")
    assert image.open(io.BytesIO(content)).size == (41, 29)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", list(FILES))
def test_every_format_becomes_8_bit_rgb_or_grey(name: str, channels: Literal[1, 3]) -> None:
    pixels = decode_image(FILES[name], channels)
    assert (pixels.shape, str(pixels.dtype)) == ((29, 41, channels), "uint8")


def test_colours_come_as_red_green_blue() -> None:
    np.testing.assert_array_equal(decode_image(FILES["png"], 3), SMOOTH[..., ::-1])
    np.testing.assert_array_equal(decode_mask(FILES["png"]), SMOOTH[..., ::-1])


def test_a_mask_keeps_its_channels() -> None:
    assert decode_mask(FILES["grey png"]).shape == (29, 41)
    assert decode_mask(FILES["png with alpha"]).shape == (29, 41, 3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", list(FILES))
def test_tensorflow_decodes_the_same_pixels(name: str, channels: Literal[1, 3]) -> None:
    import tensorflow as tf

    spec = SampleSpec(ENCODED, None)
    graph = tf.function(lambda data: Decode(channels).apply_tensorflow((data, None), spec, None)[0])
    found, expected = graph(tf.constant(FILES[name])).numpy(), decode_image(FILES[name], channels)
    rounding = 1 if channels == 1 and "png" in name else 0  # the two make grey of a PNG's colours in their own ways
    assert np.abs(found.astype(int) - expected).max() <= rounding


def test_masks_are_decoded_by_opencv_wherever() -> None:
    with pytest.raises(NotImplementedError):
        Decode().apply_tensorflow((b"", b""), SampleSpec(ENCODED, ENCODED), None)


@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg", "png"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(name: str, share: float) -> None:
    data = FILES[name]
    with pytest.raises(BadSampleError):
        decode_image(data[: int(len(data) * share)], 3)


def test_bytes_after_the_end_do_no_harm() -> None:
    for name in ("jpeg", "png"):
        np.testing.assert_array_equal(decode_image(FILES[name], 3), decode_image(FILES[name] + b"trailer" * 9, 3))


@pytest.mark.parametrize(
    ("data", "message"), [(b"", "0 bytes"), (b"GIF89a", "cannot decode"), ("text", "must be bytes")]
)
def test_what_is_no_image_is_refused(data: Any, message: str) -> None:
    with pytest.raises(BadSampleError, match=message):
        decode_image(data, 3)


def test_arrays_pass_unchanged() -> None:
    spec = SampleSpec(Field(FieldKind.IMAGE, SMOOTH.shape, SMOOTH.dtype), Field(FieldKind.LABEL, (), np.dtype("int64")))
    assert Decode().apply((SMOOTH, 3), spec, np.empty(0)) == (SMOOTH, 3)


def test_other_channels_are_refused() -> None:
    with pytest.raises(ConfigError, match="channels=4"):
        Decode(channels=4)  # type: ignore[arg-type]  # the mistake under test
