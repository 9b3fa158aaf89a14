"""NIfTI volumes as the standard lays them out, written without a library of it."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512, "u4": 768, "i8": 1024, "u8": 1280}


def header_of(
    dims: tuple[int, ...],
    code: int,
    *,
    order: str = "<",
    version: int = 1,
    slope: float = 1,
    intercept: float = 0,
    offset: float | None = None,
) -> bytearray:
    """Return a header as the standard lays it out, `dims` with x first, and the bytes up to the voxels."""
    size = {1: 348, 2: 540}[version]
    header = bytearray(size + 4)
    struct.pack_into(f"{order}i", header, 0, size)
    shape = [len(dims), *dims, *[1] * (7 - len(dims))]
    if version == 1:
        struct.pack_into(f"{order}8h", header, 40, *shape)
        struct.pack_into(f"{order}h", header, 70, code)
        struct.pack_into(f"{order}3f", header, 108, 352 if offset is None else offset, slope, intercept)
        header[344:348] = b"n+1\0"
    else:
        header[4:12] = b"n+2\0\r\n\x1a\n"
        struct.pack_into(f"{order}h", header, 12, code)
        struct.pack_into(f"{order}8q", header, 16, *shape)
        struct.pack_into(f"{order}q2d", header, 168, 544 if offset is None else int(offset), slope, intercept)
    return header


def nii(path: Path, array: NDArray[Any], **options: Any) -> Path:
    """Write a volume (z, y, x), or (z, y, x, channels), as NIfTI has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lying = array if array.ndim == 3 else np.moveaxis(array, 3, 0)
    order = options.get("order", "<")
    header = header_of(lying.shape[::-1], CODES[array.dtype.str[1:]], **options)
    content = bytes(header) + np.ascontiguousarray(lying).astype(array.dtype.newbyteorder(order)).tobytes()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path
