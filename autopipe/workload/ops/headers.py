"""What header and markers of an encoded image tell: size, bits, bands, pages, orientation, end, and whether it is a
progressive JPEG; and how many of some files are. No pixel is decoded.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeAlias

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, DataError
from autopipe.values import Value
from autopipe.workload.data.paths import PathList, is_url, shown, spread, walk

Size: TypeAlias = tuple[int, int]  # height, width

UPRIGHT = 1  # the orientation of an image whose pixels are stored as a viewer shows them
BITS = 8  # of a value, unless the file says otherwise
JPEG, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_PNG = b"\x89PNG\r\n\x1a\n"
_APP1, _SCAN = 0xE1, 0xDA  # markers of a JPEG: of EXIF, and of the start of entropy-coded data, without FF D9
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that start a frame
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_TIFF_KIND, _TIFF_BITS, _TIFF_PHOTOMETRIC, _TIFF_BANDS = 254, 258, 262, 277
_TIFF_SIDES = _TIFF_HEIGHT, _TIFF_WIDTH = 257, 256
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # signatures
_DAMAGED = (struct.error, IndexError, KeyError, StopIteration)
_TIFF_TYPES = {3: "H", 4: "I", 16: "Q"}


def image_size(data: bytes) -> Size | None:
    """Return (height, width) of an encoded image; None for an unknown format or a damaged header."""
    for signature, reader in _READERS:
        if data.startswith(signature):
            with contextlib.suppress(*_DAMAGED):
                return reader(data)
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
    """Yield the marker of each segment of a JPEG, and the place of its length; fill bytes are skipped."""
    at = 2
    while data[at] == 0xFF:
        while data[at + 1] == 0xFF:
            at += 1
        yield data[at + 1], at + 2
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]


def _sides(layout: str, data: bytes, place: int) -> Size:
    width, height = struct.unpack_from(layout, data, place)
    return abs(height), abs(width)  # a negative height of a BMP says that the rows come from the top


def _webp(data: bytes) -> Size | None:
    if (kind := data[12:16]) == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        return None
    return height, width


def bits_of(data: bytes) -> int:
    """Return the bits of a value in the pixels of a PNG or TIFF file; 8 of any other, and if the header is damaged."""
    if data[:4] in _TIFF:
        return _tag_or(BITS, data, _TIFF_BITS)
    return data[24] if data[:8] == _PNG and len(data) > 24 else BITS


def bands_of(data: bytes) -> int:
    """Return the bands of a TIFF file's first image; 0 of any other, and if the header is damaged."""
    return _tag_or(0, data, _TIFF_BANDS) if data[:4] in _TIFF else 0


def leaves_out(data: bytes) -> bool:
    """Return True for a TIFF file of bands beside colours, or of more pages of one size, which OpenCV drops."""
    if data[:4] not in _TIFF:
        return False
    if bands_of(data) not in (0, 1, 3) and _tag_or(0, data, _TIFF_PHOTOMETRIC) != 5:  # CMYK, of which colours are made
        return True
    for page in range(1, 8):
        of_page, of_first = (tuple(_tag_or(0, data, tag, at) for tag in _TIFF_SIDES) for at in (page, 0))
        if of_page == of_first != (0, 0) and not _tag_or(0, data, _TIFF_KIND, page) & 5:  # a smaller copy, a mask
            return True
    return False


def _tag_or(otherwise: int, data: bytes, wanted: int, page: int = 0) -> int:
    with contextlib.suppress(*_DAMAGED):
        return _tag_of(data, wanted, page)
    return otherwise


def _tag_of(data: bytes, wanted: int, page: int = 0) -> int:
    """Return the first value of a tag of a TIFF file; raise KeyError or struct.error if it is missing or damaged."""
    order = "<" if data[:2] == b"II" else ">"

    def at(kind: str, place: int) -> int:
        return int(struct.unpack_from(order + kind, data, place)[0])

    word, tally, length = ("Q", "Q", 20) if at("H", 2) == 43 else ("I", "H", 12)  # of BigTIFF, and of an entry
    start = at(word, struct.calcsize(word))
    for _ in range(page):
        if not (start := at(word, start + struct.calcsize(tally) + at(tally, start) * length)):
            raise KeyError(wanted)
    first = start + struct.calcsize(tally)
    for entry in range(first, first + min(at(tally, start), 4096) * length, length):
        if at("H", entry) == wanted:
            kind, place = _TIFF_TYPES[at("H", entry + 2)], entry + 4 + struct.calcsize(word)
            if wanted == _TIFF_BITS and at(word, entry + 4) * struct.calcsize(kind) > struct.calcsize(word):
                place = at(word, place)  # one for each channel, elsewhere in the file
            return at(kind, place)
    raise KeyError(wanted)


def _frame(data: bytes) -> tuple[int, int]:
    return next(each for each in jpeg_segments(data) if each[0] in _JPEG_FRAMES)


_READERS: tuple[tuple[bytes, Callable[[bytes], Size | None]], ...] = (
    (JPEG, lambda data: struct.unpack_from(">HH", data, _frame(data)[1] + 3)),
    (_PNG, lambda data: _sides(">II", data, 16)),
    (b"RIFF", _webp),
    (b"BM", lambda data: _sides("<HH" if struct.unpack_from("<I", data, 14)[0] == 12 else "<ii", data, 18)),
    *((signature, lambda data: (_tag_of(data, _TIFF_HEIGHT), _tag_of(data, _TIFF_WIDTH))) for signature in _TIFF),
    (b"GIF8", lambda data: _sides("<HH", data, 6)),
)


def is_progressive(data: bytes) -> bool:
    """Return True for a progressive JPEG, which takes 1.5 to 3 times as long to decode as a baseline one."""
    with contextlib.suppress(*_DAMAGED):
        return data[:2] == JPEG and _frame(data)[0] in _PROGRESSIVE
    return False


_LOOKED_AT = 512  # files


class Progressive(Value):
    """How many image files are progressive JPEG."""

    files: int = pydantic.Field(ge=0)  # all there are
    looked_at: int = pydantic.Field(ge=0)  # of them, those that were read
    progressive: int = pydantic.Field(ge=0)  # of those

    @classmethod
    def in_folder(cls, folder: str) -> Self:
        """Look at the image files of a folder, at any depth; raise DataError if it is missing, unreadable or a URL."""
        if is_url(folder):
            raise DataError(f"Files of a folder on a disk can be looked at, but got {shown(folder)}.")
        files = PathList(folder, walk(os.fsencode(folder)))
        return cls.of(len(files), files.read)

    @classmethod
    def of(cls, files: int, read: Callable[[int], bytes]) -> Self:
        """Look at some of so many image files; those whose `read` raises BadSampleError are left out."""
        looked_at = progressive = 0
        for index in spread(files, _LOOKED_AT):
            with contextlib.suppress(BadSampleError):
                progressive += is_progressive(read(index))
                looked_at += 1
        return cls(files=files, looked_at=looked_at, progressive=progressive)


def require_end(data: bytes) -> None:
    """Raise BadSampleError if a JPEG or PNG lacks its end: OpenCV would fill the missing part with grey, silently."""
    has_end = True
    if data[:2] == JPEG and not (has_end := data[-2:] == _JPEG_END):
        with contextlib.suppress(*_DAMAGED):  # the end of an embedded thumbnail, before the scan, does not count
            scan = next(at for marker, at in jpeg_segments(bytes(data)) if marker == _SCAN)
            has_end = bytes(data).find(_JPEG_END, scan) >= 0
    elif data[:8] == _PNG:
        has_end = data[-8:-4] == b"IEND" or bytes(data).rfind(b"IEND") >= 0
    if not has_end:
        raise BadSampleError(f"the image file is truncated: its end marker is missing after {len(data)} bytes.")


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return the pixels as a viewer shows them: a copy, unless they are upright."""
    if orientation == UPRIGHT:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def orientation_of(data: bytes) -> int:
    """Return the orientation of a JPEG, PNG or WebP, 1 to 8, by its EXIF tag; 1, upright, if unknown."""
    with contextlib.suppress(*_DAMAGED):
        if (exif := _exif(data)) is not None and 1 <= (found := _tag_of(exif, 0x0112)) <= 8:
            return found
    return UPRIGHT


def _exif(data: bytes) -> bytes | None:
    if data[:2] == JPEG:
        for marker, at in itertools.takewhile(lambda each: each[0] != _SCAN, jpeg_segments(data)):
            if marker == _APP1 and data[at + 2 : at + 8] == b"Exif\0\0":
                return bytes(data[at + 8 : at + struct.unpack_from(">H", data, at)[0]])
    if data[:8] == _PNG:
        return _chunk(data, 8, ">I4s", b"eXIf")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _chunk(data, 12, "<4sI", b"EXIF")
    return None


def _chunk(data: bytes, at: int, layout: str, wanted: bytes) -> bytes | None:
    is_png = layout[0] == ">"
    while at + 8 <= len(data):
        first, second = struct.unpack_from(layout, data, at)
        length, name = (first, second) if is_png else (second, first)
        if name == wanted:
            return bytes(data[at + 8 : at + 8 + length]).removeprefix(b"Exif\0\0")
        at += 8 + length + (4 if is_png else length % 2)  # a checksum; or a byte that makes it even
    return None
