"""Facts of an encoded image from its headers and markers: size, orientation, and whether its end is missing.

Pixels are decoded in `autopipe.workload.ops.decode`, which finds all other damage.
"""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, DataWarning

Size: TypeAlias = tuple[int, int]  # height, width

_APP1, _SCAN = 0xE1, 0xDA  # markers of a JPEG: of EXIF, and of the start of entropy-coded data, without FF D9
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that start a frame
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257
_TIFF_TYPES = {3: "H", 4: "I", 16: "Q"}


def image_size(data: bytes) -> Size | None:
    """Return (height, width) of an encoded image; None for an unknown format or a damaged header."""
    for signature, reader in _READERS:
        if data.startswith(signature):
            try:
                return reader(data)
            except (struct.error, IndexError, KeyError):
                return None
    return None


def require_size(size: Size | None, max_pixels: int) -> None:
    """Raise BadSampleError for an image whose header claims more than `max_pixels`; a size of None passes."""
    height, width = size or (0, 0)
    if height * width > max_pixels:
        raise BadSampleError(
            f"an image must have at most {max_pixels:,} pixels, but its header says {width} x {height}.",
            hint="Replace or remove the file; in a workload's file, Decode(max_pixels=...) sets another limit.",
        )


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the marker of each segment of a JPEG, and the place of its length; fill bytes are skipped. Raise IndexError
    or struct.error if the file is cut short.
    """
    at = 2
    while data[at] == 0xFF:
        while data[at + 1] == 0xFF:
            at += 1
        yield data[at + 1], at + 2
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]


def _at(layout: str, place: int) -> Callable[[bytes], Size]:
    """Return the reader of a format whose headers have width and height at a fixed place."""

    def read(data: bytes) -> Size:
        width, height = struct.unpack_from(layout, data, place)
        return height, width

    return read


def _bmp(data: bytes) -> Size:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", data, 18)
    return abs(height), abs(width)  # a negative height says that the rows come from the top


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        return None
    return height, width


def _tiff(data: bytes) -> Size:
    return _tag_of(data, _TIFF_HEIGHT), _tag_of(data, _TIFF_WIDTH)


def _tag_of(data: bytes, wanted: int) -> int:
    """Return the value of a tag of a TIFF file; raise KeyError or struct.error if it is missing or damaged."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == 43
    (start,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
    (count,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, start)
    first, length = start + (8 if is_big else 2), 20 if is_big else 12
    for entry in range(first, first + min(count, 4096) * length, length):
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag == wanted:
            value: int = struct.unpack_from(order + _TIFF_TYPES[kind], data, entry + (12 if is_big else 8))[0]
            return value
    raise KeyError(wanted)


def _jpeg(data: bytes) -> Size | None:
    for marker, at in jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return height, width
    return None


_READERS: tuple[tuple[bytes, Callable[[bytes], Size | None]], ...] = (
    (b"\xff\xd8", _jpeg),
    (b"\x89PNG\r\n\x1a\n", _at(">II", 16)),
    (b"RIFF", _webp),
    (b"BM", _bmp),
    *((signature, _tiff) for signature in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    (b"GIF8", _at("<HH", 6)),
)


def require_end(data: bytes) -> None:
    """Raise BadSampleError if a JPEG or PNG lacks its end: OpenCV would fill the missing part with grey, silently."""
    has_end = True
    if data[:2] == b"\xff\xd8":
        has_end = data[-2:] == b"\xff\xd9" or _has_end_after_scan(bytes(data))
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        has_end = data[-8:-4] == b"IEND" or bytes(data).rfind(b"IEND") >= 0
    if not has_end:
        raise BadSampleError(f"the image file is truncated: its end marker is missing after {len(data)} bytes.")


def _has_end_after_scan(data: bytes) -> bool:
    """Find the end marker behind the first scan, so that the one of an embedded thumbnail does not count."""
    with contextlib.suppress(IndexError, struct.error):
        for marker, at in jpeg_segments(data):
            if marker == _SCAN:
                return data.find(b"\xff\xd9", at) >= 0
    return False


_TAG = 0x0112
_UPRIGHT = 1


def orientation_of(data: bytes) -> int:
    """Return the orientation of an encoded image, 1 to 8, from its EXIF tag; 1 is upright.

    The tag is read from JPEG, PNG and WebP files. A damaged or missing one counts as 1.
    """
    try:
        exif = _exif(data)
        found = _UPRIGHT if exif is None else _tag_of(exif, _TAG)
    except (struct.error, IndexError, KeyError):
        return _UPRIGHT
    return found if 1 <= found <= 8 else _UPRIGHT


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return the pixels as a viewer shows them: a copy, unless they are upright."""
    if orientation == _UPRIGHT:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def warn_of_turned(images: Sequence[bytes]) -> None:
    """Warn of images with such a tag if the `orientation` of `Decode` is not set."""
    turned = sum(orientation_of(data) != _UPRIGHT for data in images)
    if turned:
        warnings.warn(
            f"{turned} of {len(images)} images that were looked at are to be rotated, by their EXIF tags, and are "
            "taken as they are stored. Say which is meant in a workload's file: "
            'ap.Decode(orientation="exif") or "ignore".',
            DataWarning,
            stacklevel=3,
        )


def _exif(data: bytes) -> bytes | None:
    """Return the EXIF block, which is a little TIFF file."""
    if data[:2] == b"\xff\xd8":
        return _of_jpeg(data)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _chunk(data, 8, ">I4s", b"eXIf")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _chunk(data, 12, "<4sI", b"EXIF")
    return None


def _of_jpeg(data: bytes) -> bytes | None:
    for marker, at in jpeg_segments(data):
        if marker == _SCAN:
            break
        if marker == _APP1 and data[at + 2 : at + 8] == b"Exif\0\0":
            return bytes(data[at + 8 : at + struct.unpack_from(">H", data, at)[0]])
    return None


def _chunk(data: bytes, at: int, layout: str, wanted: bytes) -> bytes | None:
    is_png = layout[0] == ">"
    while at + 8 <= len(data):
        first, second = struct.unpack_from(layout, data, at)
        length, name = (first, second) if is_png else (second, first)
        if name == wanted:
            content = bytes(data[at + 8 : at + 8 + length])
            return content.removeprefix(b"Exif\0\0")
        at += 8 + length + (4 if is_png else length % 2)  # a checksum; or a byte that makes it even
    return None
