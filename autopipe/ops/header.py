"""The size that an image file claims in its header, so that one which claims too much is refused before it is decoded.

Only what stands at the start of a file is looked at; whether the rest keeps the promise is the decoder's business.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

from autopipe.errors import BadSampleError

Size: TypeAlias = tuple[int, int]  # height, width

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that start a frame
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257
_TIFF_TYPES = {3: "H", 4: "I", 16: "Q"}


def image_size(data: bytes) -> Size | None:
    """Return (height, width) of an encoded image; None where the format is not known here, or the header is damaged."""
    for signature, reader in _READERS:
        if data.startswith(signature):
            try:
                return reader(data)
            except (struct.error, IndexError, KeyError):
                return None
    return None


def require_size(size: Size | None, max_pixels: int) -> None:
    """Refuse an image that is, or claims to be, larger than `max_pixels`; None for a size that is not known.

    Raises:
        BadSampleError: with what the header says.
    """
    height, width = size or (0, 0)
    if height * width > max_pixels:
        raise BadSampleError(
            f"an image must have at most {max_pixels:,} pixels, but its header says {width} x {height}.",
            hint="Replace or remove the file; in a workload's file, Decode(max_pixels=...) sets another limit.",
        )


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the marker of each segment of a JPEG, and where its length stands; any bytes that fill up are passed over.

    Raises:
        IndexError, struct.error: the file is cut short.
    """
    at = 2
    while data[at] == 0xFF:
        while data[at + 1] == 0xFF:
            at += 1
        yield data[at + 1], at + 2
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]


def _png(data: bytes) -> Size:
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return height, width


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
    order = "<" if data[:2] == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == 43
    (start,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
    (count,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, start)
    first, length = start + (8 if is_big else 2), 20 if is_big else 12
    sides: dict[int, int] = {}
    for entry in range(first, first + min(count, 4096) * length, length):
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag in (_TIFF_WIDTH, _TIFF_HEIGHT):
            (sides[tag],) = struct.unpack_from(order + _TIFF_TYPES[kind], data, entry + (12 if is_big else 8))
    return sides[_TIFF_HEIGHT], sides[_TIFF_WIDTH]


def _jpeg(data: bytes) -> Size | None:
    for marker, at in jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return height, width
    return None


_READERS: tuple[tuple[bytes, Callable[[bytes], Size | None]], ...] = (
    (b"\xff\xd8", _jpeg),
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"RIFF", _webp),
    (b"BM", _bmp),
    (b"II*\0", _tiff),
    (b"MM\0*", _tiff),
    (b"II+\0", _tiff),
    (b"MM\0+", _tiff),
    (b"GIF8", _gif),
)
