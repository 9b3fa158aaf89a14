"""The values that a pixel may have: 0 to the largest of an unsigned integer type, 0 to 1 of a floating-point one.

Colour ops compute in floating point and come back through `to_levels`, so that none leaves that range by wrapping.
"""

from __future__ import annotations

from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, is_integer, part_of, tensor_type
from autopipe.core.plan import Step
from autopipe.errors import OpError

LEVELS: Final = np.arange(256, dtype=np.float32)
"""All that a byte can hold."""


def largest(dtype: np.dtype[Any]) -> float:
    """Return the brightest level of a dtype: 255 for uint8, 65535 for uint16, 1 for floating point.

    Raises:
        OpError: whole numbers with a sign have no range of levels that could be known.
    """
    if dtype.kind == "u":
        return float(np.iinfo(dtype).max)
    if dtype.kind != "f":
        raise OpError(
            f"an op on colours needs images of unsigned whole numbers or floating point, but got {dtype}.",
            hint='Put ap.Cast("uint8") before it.',
        )
    return 1.0


def to_levels(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return computed levels in `dtype`: rounded half to even and kept in its range if it holds whole numbers."""
    if dtype.kind != "u":
        return values.astype(dtype, copy=False)
    levels: NDArray[Any] = np.clip(np.rint(values), 0, largest(dtype)).astype(dtype)
    return levels


def look_up(array: NDArray[np.uint8], table: NDArray[np.uint8]) -> NDArray[Any]:
    """Return an 8-bit array with each level replaced by that in a table of 256, or of (1, 256, channels)."""
    looked_up: NDArray[Any] = cv2.LUT(array, table)
    return looked_up if looked_up.ndim == array.ndim else looked_up[..., None]


def plain_top(step: Step, part: str) -> str:
    """Return the brightest level of a part, as code."""
    dtype = part_of(step.before, part).dtype
    return "1.0" if dtype is None else str(largest(dtype))


def plain_levels(values: str, step: Step, part: str) -> str:
    """Return code that gives computed levels the dtype of a part, in NumPy."""
    if not is_integer(step, part):
        return f"({values}).astype({part}.dtype)"
    return f"np.clip(np.rint({values}), 0, {plain_top(step, part)}).astype({part}.dtype)"


def plain_levels_tensorflow(values: str, step: Step, part: str) -> str:
    """Return the same in TensorFlow."""
    rounded = f"tf.round({values})" if is_integer(step, part) else values
    return f"tf.saturate_cast({rounded}, {tensor_type(part_of(step.before, part))})"


def plain_changed_tensorflow(change: str, step: Step, part: str, *, leaves_range: bool = True) -> Lines:
    """Return lines of TensorFlow that change a part as floating point, by code with `{}` where the part stands.

    `leaves_range` says whether levels may come out that there are not.
    """
    cast, named = f"tf.cast({part}, tf.float32)", tensor_type(part_of(step.before, part))
    found = [f"{part} = {change.format(part if named == 'tf.float32' else cast)}"]
    if named == "tf.float32":
        return found
    levels = plain_levels_tensorflow(part, step, part)
    return [*found, f"{part} = {levels if leaves_range else levels.replace('saturate_cast', 'cast', 1)}"]
