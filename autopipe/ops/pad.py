"""Pad: make small images large enough."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, channel_axis, is_flat, is_mask, parts
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, Part
from autopipe.ops.pixels import MOVED, PixelOp, mask_number
from autopipe.ops.size import check_size


@dataclasses.dataclass(frozen=True)
class Pad(PixelOp):
    """Pad evenly around to at least `height` x `width` pixels; larger images stay as they are.

    Attributes:
        height: pixels.
        width: pixels.
        value: what an image is padded with.
        mask_value: what a mask is padded with.
    """

    in_pixels: ClassVar[bool] = True
    height: int
    width: int
    value: float = 0
    mask_value: float = 0

    def __post_init__(self) -> None:
        check_size(self, self.height, self.width)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        return padded(array, (self.height, self.width), self._filling(kind, array.dtype))

    def batches_of(self, field: Field) -> bool:
        return field.dtype in MOVED

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        count, height, width = arrays.shape[:3]
        down, right = max(0, self.height - height), max(0, self.width - width)
        value = self._filling(kind, arrays.dtype)  # refused alike, whether or not there is anything to fill
        if not down and not right:
            return arrays
        rounded = cv2.copyMakeBorder(arrays[0, :1, :1], 0, 1, 0, 0, cv2.BORDER_CONSTANT, value=(value,) * 4)[1].flat[0]
        padded = np.full((count, height + down, width + right, *arrays.shape[3:]), rounded, arrays.dtype)
        padded[:, down // 2 : down // 2 + height, right // 2 : right // 2 + width] = arrays
        return padded

    def plain_numpy(self, step: Step) -> Lines:
        found = []
        for part in parts(step):
            value = (self.mask_value if is_mask(step, part) else self.value,) * 4
            edges = f"{part}, top, down - top, left, right - left, cv2.BORDER_CONSTANT, value={value!r}"
            found += [
                f"down, right = max(0, {self.height} - {part}.shape[0]), max(0, {self.width} - {part}.shape[1])",
                "top, left = down // 2, right // 2",
                f"{part} = cv2.copyMakeBorder({edges})",
                *channel_axis(step, part),
            ]
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found = []
        for part in parts(step):
            value = self.mask_value if is_mask(step, part) else self.value
            edges = "[[top, down - top], [left, right - left]" + ("]" if is_flat(step, part) else ", [0, 0]]")
            found += [
                f"down, right = tf.unstack(tf.maximum(0, ({self.height}, {self.width}) - tf.shape({part})[:2]))",
                "top, left = down // 2, right // 2",
                f"{part} = tf.pad({part}, {edges}, constant_values=tf.cast({value!r}, {part}.dtype))",
            ]
        return found

    def _filling(self, kind: FieldKind, dtype: np.dtype[Any]) -> float:
        return mask_number(self, self.mask_value, dtype) if kind is FieldKind.MASK else self.value


def padded(array: NDArray[Any], size: tuple[int, int], value: float) -> NDArray[Any]:
    """Return an image that is padded evenly around to at least `size` (height, width)."""
    down, right = max(0, size[0] - array.shape[0]), max(0, size[1] - array.shape[1])
    if not down and not right:
        return array
    top, left = down // 2, right // 2
    if array.dtype not in MOVED:
        around = ((top, down - top), (left, right - left), *[(0, 0)] * (array.ndim - 2))
        level = value if array.dtype.kind == "f" else round(value)
        return np.pad(array, around, constant_values=level)
    larger = cv2.copyMakeBorder(array, top, down - top, left, right - left, cv2.BORDER_CONSTANT, value=(value,) * 4)
    return larger if larger.ndim == array.ndim else larger[..., None]
