"""Decode: from the bytes of an image file to pixels.

Every decoder gives 8-bit RGB (or grey) in the file's own orientation: an alpha channel is dropped, 16 bits become 8,
and an EXIF rotation is left alone, as TensorFlow, PIL and Keras do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.op import Op, Target
from autopipe.core.sample import FieldKind, Part, Sample, SampleSpec
from autopipe.errors import BadSampleError, ConfigError

_IMAGE_FLAGS = {
    3: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION,
    1: cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION,
}
_MASK_FLAGS = cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION


@dataclasses.dataclass(frozen=True)
class Decode(Op):
    """Decode encoded images, shape (height, width, channels) uint8; a mask keeps the channels that its file has.

    Arrays pass unchanged, so a pipeline can start from either. An image whose EXIF tag says that it is to be rotated is
    left as it is stored, as by TensorFlow, PIL and Keras; `cv2.imread` and `cv2.imdecode` rotate it (docs/migrate.md).

    Attributes:
        channels: 3 for RGB, 1 for grey.

    Raises:
        BadSampleError: the bytes are empty, truncated or no image.
    """

    channels: Literal[1, 3] = 3

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ConfigError(f"`channels` of Decode must be 3 (RGB) or 1 (grey), but got channels={self.channels!r}.")

    @property
    def target(self) -> Target:
        return "both"

    def kinds(self, spec: SampleSpec) -> tuple[FieldKind, FieldKind | None]:
        x_kind, y_kind = spec.x.kind, spec.y.kind if spec.y is not None else None
        return (
            FieldKind.IMAGE if x_kind is FieldKind.ENCODED else x_kind,
            FieldKind.MASK if y_kind is FieldKind.ENCODED else y_kind,
        )

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        x, y = sample
        if spec.x.kind is FieldKind.ENCODED:
            x = decode_image(x, self.channels)
        if spec.y is not None and spec.y.kind is FieldKind.ENCODED:
            y = decode_mask(y)
        return x, y

    def apply_tensorflow(self, sample: Sample, spec: SampleSpec, random: Any) -> Sample:
        import tensorflow as tf

        if spec.y is not None and spec.y.kind is FieldKind.ENCODED:
            raise NotImplementedError("how many channels and bits a mask has, only OpenCV finds out")
        x, y = sample
        if spec.x.kind is FieldKind.ENCODED:
            x = _by_format(
                x, lambda data: tf.io.decode_jpeg(data, self.channels, dct_method="INTEGER_ACCURATE"), self._image_numpy
            )
        return x, y

    def _image_numpy(self, data: bytes) -> NDArray[Any]:
        return decode_image(data, self.channels)


def decode_image(data: bytes, channels: int) -> NDArray[np.uint8]:
    """Return the pixels of an encoded image, shape (height, width, channels), uint8 RGB or grey."""
    pixels = _imdecode(data, _IMAGE_FLAGS[channels])
    return pixels if channels == 3 else pixels[..., None]


def decode_mask(data: bytes) -> NDArray[Any]:
    """Return the pixels of an encoded mask: (height, width) if grey, (height, width, 3) RGB if colour-coded."""
    pixels = _imdecode(data, _MASK_FLAGS)
    return pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _imdecode(data: bytes, flags: int) -> NDArray[Any]:
    if not isinstance(data, bytes | memoryview):
        raise BadSampleError(f"an encoded image must be bytes, but got {type(data).__name__}.")
    if len(data) == 0:
        raise BadSampleError("the image file is empty (0 bytes).")
    if _is_truncated(data):
        raise BadSampleError(f"the image file is truncated: its end marker is missing after {len(data)} bytes.")
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise BadSampleError(f"OpenCV cannot decode the image: {str(error).strip()}") from None
    if pixels is None:
        raise BadSampleError(f"OpenCV cannot decode the image ({len(data)} bytes that start with {bytes(data[:8])!r}).")
    return pixels


def _is_truncated(data: bytes) -> bool:
    """Tell whether a JPEG or PNG lacks its end: OpenCV would fill the missing part with grey and say nothing."""
    if data[:2] == b"\xff\xd8":
        return data[-2:] != b"\xff\xd9" and not _has_end_after_scan(bytes(data))
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return data[-8:-4] != b"IEND" and bytes(data).rfind(b"IEND") < 0
    return False


def _has_end_after_scan(data: bytes) -> bool:
    """Look for the end marker behind the first scan, so that the one of an embedded thumbnail does not count."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xDA:  # start of scan: what follows is entropy-coded, where FF D9 cannot occur
            return data.find(b"\xff\xd9", position) >= 0
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return False


def _by_format(data: Any, decode: Any, fallback: Any) -> Any:
    """Decode JPEG and PNG by TensorFlow's kernel, and what that does not know through NumPy."""
    import tensorflow as tf

    head = tf.strings.substr(data, 0, 2)
    known = tf.logical_or(tf.equal(head, b"\xff\xd8"), tf.equal(head, b"\x89P"))
    return tf.cond(known, lambda: decode(data), lambda: tf.numpy_function(fallback, [data], tf.uint8))
