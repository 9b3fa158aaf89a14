"""NIfTI volumes as the standard lays them out, written without a library of it."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512, "u4": 768, "i8": 1024, "u8": 1280}


def header_of(
    dims: tuple[int, ...], code: int, *, order: str = "<", version: int = 1, slope: float = 1, intercept: float = 0
) -> bytearray:
    """Return a header as the standard lays it out, `dims` with x first, and the bytes up to the voxels."""
    size, at, magic, places = {
        1: (348, 344, b"n+1\0", [("8h", 40), ("h", 70), ("3f", 108)]),
        2: (540, 4, b"n+2\0\r\n\x1a\n", [("8q", 16), ("h", 12), ("q2d", 168)]),
    }[version]
    header = bytearray(size + 4)
    shape = [len(dims), *dims, *[1] * (7 - len(dims))]
    values: list[list[Any]] = [[size], shape, [code], [size + 4, slope, intercept]]
    for (form, place), each in zip([("i", 0), *places], values, strict=True):
        struct.pack_into(order + form, header, place, *each)
    header[at : at + len(magic)] = magic
    return header


def nii(path: Path, array: NDArray[Any], **options: Any) -> Path:
    """Write a volume (z, y, x), or (z, y, x, channels), as NIfTI has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lying = array if array.ndim == 3 else np.moveaxis(array, 3, 0)
    voxels = lying.astype(array.dtype.newbyteorder(options.get("order", "<"))).tobytes()
    content = bytes(header_of(lying.shape[::-1], CODES[array.dtype.str[1:]], **options)) + voxels
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path
