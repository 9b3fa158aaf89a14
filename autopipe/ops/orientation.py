"""How a photograph is to be turned, as its EXIF tag says, and the turning.

The tag is looked for where JPEG, PNG and WebP files have it; a damaged one counts as none.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataWarning
from autopipe.ops.header import jpeg_segments

_TAG = 0x0112
_UPRIGHT = 1
_APP1, _SCAN = 0xE1, 0xDA  # of a JPEG; after the latter it has pixels


def orientation_of(data: bytes) -> int:
    """Return the orientation of an encoded image, 1 to 8; 1 is upright, and what is said by no tag."""
    try:
        exif = _exif(data)
        return _UPRIGHT if exif is None else _value(exif)
    except (struct.error, IndexError):
        return _UPRIGHT


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
    """Warn of images with such a tag, where nobody said whether it counts."""
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
    """Return the content of a PNG's or a WebP's chunk."""
    is_png = layout[0] == ">"
    while at + 8 <= len(data):
        first, second = struct.unpack_from(layout, data, at)
        length, name = (first, second) if is_png else (second, first)
        if name == wanted:
            content = bytes(data[at + 8 : at + 8 + length])
            return content.removeprefix(b"Exif\0\0")
        at += 8 + length + (4 if is_png else length % 2)  # a checksum; or a byte that makes it even
    return None


def _value(exif: bytes) -> int:
    order = "<" if exif[:2] == b"II" else ">"
    (start,) = struct.unpack_from(order + "I", exif, 4)
    (count,) = struct.unpack_from(order + "H", exif, start)
    for entry in range(start + 2, start + 2 + 12 * count, 12):
        tag, _, _, value = struct.unpack_from(order + "HHIH", exif, entry)
        if tag == _TAG:
            return int(value) if 1 <= value <= 8 else _UPRIGHT
    return _UPRIGHT
