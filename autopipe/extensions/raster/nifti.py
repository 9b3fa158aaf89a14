"""A NIfTI volume in one file, of version 1 or 2: its header, and its voxels if they are packed (.nii.gz).

A header is other people's bytes: what it says is compared with the file before anything is mapped or allocated.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, DataError
from autopipe.workload.data.paths import RangeIO, Ranges

PACKED: Final = ".nii.gz"
ENDINGS: Final = (".nii", PACKED)
_DTYPES = {2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"}
# By the size of the header, where its fields are: magic, dim, datatype, vox_offset, scl_slope with scl_inter.
_FIELDS: Final = {
    348: ((344, b"n+1\0"), ("8h", 40), ("h", 70), ("f", 108), ("2f", 112)),
    540: ((4, b"n+2\0\r\n\x1a\n"), ("8q", 16), ("h", 12), ("q", 168), ("2d", 176)),
}
_MOST_DEFLATED: Final = 1032  # bytes that one byte of deflate can become
_STEP_BYTES: Final = 1 << 20


class Lying(NamedTuple):
    """An array that lies in a file, by what its format says."""

    shape: tuple[int, ...]  # of a volume (z, y, x), with times or channels in front
    dtype: np.dtype[Any]  # with the file's byte order
    offset: int
    scaling: tuple[float, float] | None = None  # slope and intercept of voxels, unless they change nothing
    is_turned: bool = False  # as Fortran has it

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(path: str, file: Ranges, *, is_packed: bool) -> Lying:
    """Return the header of a file; raise DataError if it is damaged, or says more than the file can hold."""
    size, stream = file.size, RangeIO(file).buffered()
    with gzip.open(stream) if is_packed else stream as content:
        header = parsed(path, content.read(max(_FIELDS)))
    if header.end > size * (_MOST_DEFLATED if is_packed else 1):
        raise DataError(
            f"`{path}` is cut short, or its header damaged: voxels of the shape {header.shape} and {header.dtype} end "
            f"at byte {header.end:,}, and the file has {size:,} bytes."
        )
    return header


def parsed(path: str, content: bytes) -> Lying:
    """Return the header in the first bytes of a file, unpacked; raise DataError if it is none."""
    orders = [order for order in "<>" if content[4:] and struct.unpack_from(f"{order}i", content)[0] in _FIELDS]
    size = struct.unpack_from(f"{orders[0]}i", content)[0] if orders else 0
    if not orders or len(content) < size:
        raise DataError(f"`{path}` must be a NIfTI volume, but does not begin with a header of 348 or 540 bytes.")
    (place, magic), *fields = _FIELDS[size]
    if (found := content[place : place + len(magic)]) != magic:
        raise DataError(
            f"`{path}` must be a NIfTI volume in one file, {magic!r}, but its header says {found!r}.",
            hint="Write a pair of .hdr and .img as one .nii file: nibabel.save(nibabel.load(pair), 'volume.nii').",
        )
    (rank, *axes), (code,), (offset,), (slope, intercept) = (
        struct.unpack_from(f"{orders[0]}{form}", content, at) for form, at in fields
    )
    if not 1 <= rank <= len(axes) or min(axes[:rank]) < 1:
        raise DataError(f"`{path}` has a damaged header: the shape of a volume cannot be {[rank, *axes]} (`dim`).")
    if code not in _DTYPES:
        raise DataError(
            f"`{path}` must hold whole numbers or fractions of at most 64 bits, but its `datatype` is {code}.",
            hint="Convert it, say colours to channels: nibabel.Nifti1Image(array, affine).",
        )
    first = size + 4 if offset == 0 else offset
    if not size + 4 <= first < 2**53:
        raise DataError(f"`{path}` has a damaged header: its voxels cannot begin at byte {offset} (`vox_offset`).")
    is_scaled = not (slope == 0 or math.isnan(slope) or (slope, intercept) == (1, 0))
    if is_scaled and not (math.isfinite(slope) and math.isfinite(intercept)):
        raise DataError(f"`{path}` has a damaged header: it scales voxels by {slope} and {intercept} (`scl_slope`).")
    further = [count for count in axes[3:rank] if count > 1]  # channels are the fifth axis, behind a time of 1
    return Lying(
        shape=(*further[::-1], *[1] * (3 - rank), *axes[: min(rank, 3)][::-1]),
        dtype=np.dtype(f"{orders[0]}{_DTYPES[code]}"),
        offset=int(first),
        scaling=(slope, intercept) if is_scaled else None,
    )


def unpacked(path: str, file: Ranges, header: Lying) -> NDArray[np.generic]:
    """Return the voxels of a .nii.gz file as stored; raises BadSampleError if it is cut short, and what gzip raises."""
    voxels = np.empty(header.shape, header.dtype)
    room = voxels.reshape(-1).view(np.uint8)
    with gzip.open(io.BytesIO(file.read(0, file.size))) as content:
        content.seek(header.offset)
        for at in range(0, len(room), _STEP_BYTES):
            piece = content.read(min(_STEP_BYTES, len(room) - at))
            if at + len(piece) < min(at + _STEP_BYTES, len(room)):
                raise BadSampleError(f"`{path}` is cut short: unpacked, it ends before byte {header.end:,}.")
            room[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        while content.read(_STEP_BYTES):  # to the end, where the checksum is
            pass
    return voxels
