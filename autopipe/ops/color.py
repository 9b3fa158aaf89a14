"""Random brightness and contrast of images; masks are left alone.

On 8-bit images both are functions of a pixel's level (contrast: of its channel's mean, too), so OpenCV applies them as
a table of 256 entries.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, drawn_tensorflow, parts
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, Part
from autopipe.ops import chance
from autopipe.ops.levels import (
    LEVELS,
    largest,
    look_up,
    plain_changed_tensorflow,
    plain_levels,
    plain_top,
    to_levels,
)
from autopipe.ops.pixels import PixelOp

_EXACT = 1 << 24  # whole numbers up to here are float32's own
_PART_VALUES = 1 << 16
_OPENCV_SUMS = 4  # channels


@dataclasses.dataclass(frozen=True)
class RandomBrightness(PixelOp):
    """Add the same amount to all pixels: uniform in [-delta, delta] of the full range.

    Attributes:
        delta: share of the range, 0 to 1. The range is 255 for 8-bit images, 65535 for 16-bit ones, and 1 for floating
            point.
        factor: (lower, upper): multiply all pixels by a factor uniform in this range, and add nothing.
    """

    delta: float = 0.2
    factor: tuple[float, float] | None = dataclasses.field(default=None, kw_only=True)
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        chance.check_number(self, "delta", above=True)
        if self.factor is not None:
            chance.checked_range(self, "factor")

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        gain, shift = (np.float32(number) for number in self._change(random[0]))
        if array.dtype == np.uint8:
            return look_up(array, to_levels(LEVELS * gain + shift * np.float32(255), array.dtype))
        if array.dtype.kind == "f":
            changed: NDArray[Any] = array * gain.astype(array.dtype) + shift.astype(array.dtype)
            return changed
        return to_levels(array * gain + shift * np.float32(largest(array.dtype)), array.dtype)

    def batches_of(self, field: Field) -> bool:
        return field.dtype is not None and (field.dtype == np.uint8 or field.dtype.kind == "f")

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        gain, shift = (
            _for_each(np.broadcast_to(number, len(arrays)).astype(np.float32), arrays)
            for number in self._change(random[:, 0])
        )
        if arrays.dtype != np.uint8:
            changed: NDArray[Any] = arrays * gain.astype(arrays.dtype) + shift.astype(arrays.dtype)
            return changed
        shift *= np.float32(255)
        for part in _parts(arrays):
            _put_levels(arrays[part].astype(np.float32) * gain[part] + shift[part], arrays[part])
        return arrays

    def _change(self, number: Any) -> tuple[Any, Any]:
        """Return what levels are multiplied by, and what share of the range is added."""
        if self.factor is not None:
            return chance.between(self.factor, number), 0.0
        return 1.0, chance.symmetric(self.delta, number)

    def plain_numpy(self, step: Step) -> Lines:
        found = [f"change = rng.uniform{self._limits}"]
        for part in parts(step):
            found.append(f"{part} = {plain_levels(self._plain_change(part, step, part), step, part)}")
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        if self.factor is None:
            most = self.delta * float(plain_top(step, parts(step)[0]))
            found, change = drawn_tensorflow(step, "brightness", most)
        else:
            found, change = [f"change = tf.random.uniform((), {', '.join(map(repr, self.factor))})"], "{} * change"
        return [*found, *(line for part in parts(step) for line in plain_changed_tensorflow(change, step, part))]

    def _plain_change(self, pixels: str, step: Step, part: str) -> str:
        return f"{pixels} + {plain_top(step, part)} * change" if self.factor is None else f"{pixels} * change"

    @property
    def _limits(self) -> tuple[float, float]:
        return (-self.delta, self.delta) if self.factor is None else self.factor


@dataclasses.dataclass(frozen=True)
class RandomContrast(PixelOp):
    """Stretch each channel around its own mean by a factor uniform in [lower, upper].

    Attributes:
        lower: smallest factor.
        upper: largest factor.
    """

    lower: float = 0.8
    upper: float = 1.2
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        chance.check_ordered(self, self.lower, self.upper)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        factor = np.float32(chance.between((self.lower, self.upper), random[0]))
        if array.dtype.kind == "f":
            mean = array.mean(axis=(0, 1), keepdims=True, dtype=np.float64).astype(array.dtype)
            stretched: NDArray[Any] = (array - mean) * factor.astype(array.dtype) + mean
            return stretched
        mean = (_totals(array) / (array.shape[0] * array.shape[1])).astype(np.float32)
        if array.dtype == np.uint8:
            return look_up(array, to_levels((LEVELS[:, None] - mean) * factor + mean, array.dtype)[None])
        largest(array.dtype)  # refuses what has no levels
        return to_levels((array.astype(np.float32) - mean) * factor + mean, array.dtype)

    def batches_of(self, field: Field) -> bool:  # of others, a sum rounds by the order of its numbers
        return field.dtype == np.uint8 and field.rank == 3 and 255 * math.prod((field.shape or ())[:2]) < _EXACT

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        factor = _for_each((self.lower + (self.upper - self.lower) * random[:, 0]).astype(np.float32), arrays)
        for part in _parts(arrays):
            levels = arrays[part].astype(np.float32)
            count, height, width, channels = levels.shape
            rows = levels.reshape(count, height, width * channels).sum(axis=1)  # whole numbers, so exact in any order
            total = rows.reshape(count, width, channels).sum(axis=1)
            mean = (total.astype(np.float64) / (height * width)).astype(np.float32)
            means = np.tile(mean, width)[:, None]  # whole rows: NumPy's loop over three channels takes ten times longer
            lines = levels.reshape(count, height, width * channels)
            lines -= means
            lines *= factor[part, ..., 0]
            lines += means
            _put_levels(levels, arrays[part])
        return arrays

    def plain_numpy(self, step: Step) -> Lines:
        found = [f"factor = rng.uniform({self.lower!r}, {self.upper!r})"]
        for part in parts(step):
            found.append(f"mean = {part}.mean(axis=(0, 1))")
            found.append(f"{part} = {plain_levels(f'({part} - mean) * factor + mean', step, part)}")
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found, change = drawn_tensorflow(step, "contrast", self.lower, self.upper)
        return [*found, *(line for part in parts(step) for line in plain_changed_tensorflow(change, step, part))]


def _totals(array: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of each channel, of whole numbers without rounding."""
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] <= _OPENCV_SUMS:
        return np.array(cv2.sumElems(array)[: array.shape[2]])  # NumPy takes 200 times as long
    totals: NDArray[Any] = array.sum(axis=(0, 1), dtype=np.int64)
    return totals


def _for_each(values: NDArray[Any], arrays: NDArray[Any]) -> NDArray[Any]:
    """Return a value for each array in a shape that is broadcast over it."""
    return values.reshape(-1, *[1] * (arrays.ndim - 1))


def _parts(arrays: NDArray[Any]) -> list[slice]:
    """Cut arrays into parts that stay in the processor's cache as float32."""
    at_once = max(1, _PART_VALUES // max(1, math.prod(arrays.shape[1:])))
    return [slice(first, first + at_once) for first in range(0, len(arrays), at_once)]


def _put_levels(levels: NDArray[np.float32], out: NDArray[np.uint8]) -> None:
    """Round levels as the tables are rounded, and write them."""
    np.rint(levels, out=levels)
    np.clip(levels, 0, 255, out=levels)
    out[...] = levels
