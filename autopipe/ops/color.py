"""Random brightness and contrast of images; masks are left alone.

On 8-bit images both are functions of a pixel's level (contrast: of its channel's mean, too), so they are applied as a
table of 256 entries and both halves give exactly the same pixels.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, is_integer, parts
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, Part
from autopipe.errors import ConfigError
from autopipe.ops.pixels import PixelOp

_LEVELS = np.arange(256, dtype=np.float32)
_EXACT = 1 << 24  # whole numbers up to here are float32's own
_PART_VALUES = 1 << 16


@dataclasses.dataclass(frozen=True)
class RandomBrightness(PixelOp):
    """Add the same amount to all pixels: uniform in [-delta, delta] of the full range.

    Attributes:
        delta: share of the range, 0 to 1. The range is 255 for 8-bit images and 1 for others.
    """

    delta: float = 0.2
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 < self.delta <= 1:
            raise ConfigError(f"`delta` of RandomBrightness must be in (0, 1], but got delta={self.delta!r}.")

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        shift = np.float32((2 * random[0] - 1) * self.delta)
        if array.dtype != np.uint8:
            shifted: NDArray[Any] = array + shift.astype(array.dtype)
            return shifted
        table = np.clip(np.rint(_LEVELS + shift * np.float32(255)), 0, 255).astype(np.uint8)
        return _look_up(array, table)

    def batches_of(self, field: Field) -> bool:
        return True

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        shift = _for_each(((2 * random[:, 0] - 1) * self.delta).astype(np.float32), arrays)
        if arrays.dtype != np.uint8:
            shifted: NDArray[Any] = arrays + shift.astype(arrays.dtype)
            return shifted
        shift *= np.float32(255)
        for part in _parts(arrays):
            _put_levels(arrays[part].astype(np.float32) + shift[part], arrays[part])
        return arrays

    def pixels_tensorflow(self, tensor: Any, kind: FieldKind, random: Any) -> Any:
        import tensorflow as tf

        shift = tf.cast((2 * random[0] - 1) * self.delta, tf.float32)
        if tensor.dtype != tf.uint8:
            return tensor + tf.cast(shift, tensor.dtype)
        table = tf.cast(tf.clip_by_value(tf.round(_LEVELS + shift * 255.0), 0, 255), tf.uint8)
        return tf.gather(table, tf.cast(tensor, tf.int32))

    def plain_numpy(self, step: Step) -> Lines:
        found = [f"shift = rng.uniform({-self.delta!r}, {self.delta!r})"]
        for part in parts(step):
            if is_integer(step, part):
                found.append(f"{part} = np.clip(np.rint({part} + 255 * shift), 0, 255).astype(np.uint8)")
            else:
                found.append(f"{part} = {part} + np.asarray(shift, {part}.dtype)")
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found = [f"shift = tf.random.uniform((), {-self.delta!r}, {self.delta!r})"]
        for part in parts(step):
            if is_integer(step, part):
                shifted = f"tf.cast({part}, tf.float32) + 255.0 * shift"
                found.append(f"{part} = tf.saturate_cast(tf.round({shifted}), tf.uint8)")
            else:
                found.append(f"{part} = {part} + tf.cast(shift, {part}.dtype)")
        return found


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
        if not 0 <= self.lower < self.upper:
            raise ConfigError(
                f"RandomContrast needs 0 <= lower < upper, but got lower={self.lower!r}, upper={self.upper!r}."
            )

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        factor = np.float32(self.lower + (self.upper - self.lower) * random[0])
        if array.dtype != np.uint8:
            mean = array.mean(axis=(0, 1), keepdims=True, dtype=np.float64).astype(array.dtype)
            stretched: NDArray[Any] = (array - mean) * factor.astype(array.dtype) + mean
            return stretched
        # Whole-number sums make the mean, and so the table, the same in both halves.
        mean = (array.sum(axis=(0, 1), dtype=np.int64) / (array.shape[0] * array.shape[1])).astype(np.float32)
        table = np.clip(np.rint((_LEVELS[:, None] - mean) * factor + mean), 0, 255).astype(np.uint8)
        return _look_up(array, table[None])

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

    def pixels_tensorflow(self, tensor: Any, kind: FieldKind, random: Any) -> Any:
        import tensorflow as tf

        factor = tf.cast(self.lower + (self.upper - self.lower) * random[0], tf.float32)
        count = tf.cast(tf.size(tensor) // tf.shape(tensor)[-1], tf.float64)
        total = tf.reduce_sum(tf.cast(tensor, tf.int64 if tensor.dtype.is_integer else tf.float64), axis=(0, 1))
        mean = tf.cast(tf.cast(total, tf.float64) / count, tf.float32)
        stretched = (tf.cast(tensor, tf.float32) - mean) * factor + mean
        if tensor.dtype != tf.uint8:
            return tf.cast(stretched, tensor.dtype)
        return tf.cast(tf.clip_by_value(tf.round(stretched), 0, 255), tf.uint8)

    def plain_numpy(self, step: Step) -> Lines:
        found = [f"factor = rng.uniform({self.lower!r}, {self.upper!r})"]
        for part in parts(step):
            found.append(f"mean = {part}.mean(axis=(0, 1))")
            stretched = f"({part} - mean) * factor + mean"
            if is_integer(step, part):
                stretched = f"np.clip(np.rint({stretched}), 0, 255)"
            found.append(f"{part} = ({stretched}).astype({part}.dtype)")
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found = [f"factor = tf.random.uniform((), {self.lower!r}, {self.upper!r})"]
        for part in parts(step):
            stretched = f"tf.image.adjust_contrast(tf.cast({part}, tf.float32), factor)"
            if is_integer(step, part):
                stretched = f"tf.round({stretched})"
            found.append(f"{part} = tf.saturate_cast({stretched}, {part}.dtype)")
        return found


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


def _look_up(array: NDArray[np.uint8], table: NDArray[np.uint8]) -> NDArray[Any]:
    looked_up: NDArray[Any] = cv2.LUT(array, table)
    return looked_up if looked_up.ndim == array.ndim else looked_up[..., None]
