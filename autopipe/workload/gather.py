"""Rows of an array by their numbers, in one call: what whole batches are made by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def gather(rows: NDArray[Any], indices: NDArray[np.integer], out: NDArray[Any]) -> None:
    """Write the rows of an array that `indices` name, each from 0 to its length less one, to `out`, in one call."""
    if rows.dtype == out.dtype and rows.flags.c_contiguous and rows.flags.aligned and out.flags.c_contiguous:
        rows.take(indices, axis=0, out=out, mode="clip")  # any other mode goes through a copy
    else:  # `take` would copy the whole array first
        out[...] = rows[indices]
