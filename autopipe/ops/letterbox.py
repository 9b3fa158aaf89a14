"""ResizeKeepingAspect: the whole image in one height and width, with what is left over padded."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, parts, shape_lines
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.ops.pad import Pad, padded
from autopipe.ops.pixels import PixelOp, mask_number
from autopipe.ops.resize import (
    Interpolation,
    check_interpolation,
    how,
    plain_resized,
    plain_resized_tensorflow,
    resized,
)
from autopipe.ops.size import check_size


@dataclasses.dataclass(frozen=True)
class ResizeKeepingAspect(PixelOp):
    """Resize so that the whole image fits into `height` x `width` pixels, and pad it evenly to that size (letterbox).

    Attributes:
        height: pixels.
        width: pixels.
        interpolation: as of `Resize`; masks always take the nearest pixel.
        value: what an image is padded with.
        mask_value: what a mask is padded with.
    """

    height: int
    width: int
    interpolation: Interpolation = "bilinear"
    value: float = 0
    mask_value: float = 0

    def __post_init__(self) -> None:
        check_size(self, self.height, self.width)
        check_interpolation(self.interpolation)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        height, width = self.height, self.width
        down, across = array.shape[:2]
        if height * across <= width * down:  # it fills the height
            width = max(1, (2 * across * height + down) // (2 * down))
        else:
            height = max(1, (2 * down * width + across) // (2 * across))
        fitted = resized(array, (height, width), how(self.interpolation, kind))
        value = mask_number(self, self.mask_value, array.dtype) if kind is FieldKind.MASK else self.value
        return padded(fitted, (self.height, self.width), value)

    def plain_numpy(self, step: Step) -> Lines:
        return [
            f"down, across = {parts(step)[0]}.shape[:2]",
            *self._plain_size("max"),
            f"height, width = ({self.height}, wide) if fills else (tall, {self.width})",
            *plain_resized(step, ("height", "width"), self.interpolation),
            *self._pad.plain_numpy(step),
        ]

    def plain_tensorflow(self, step: Step) -> Lines:
        return [
            f"down, across = tf.unstack(tf.shape({parts(step)[0]})[:2])",
            *self._plain_size("tf.maximum"),
            f"height, width = tf.where(fills, {self.height}, tall), tf.where(fills, wide, {self.width})",
            *plain_resized_tensorflow(step, ("height", "width"), self.interpolation),
            *self._pad.plain_tensorflow(step),
            *shape_lines(step.after, parts(step)),
        ]

    def _plain_size(self, maximum: str) -> Lines:
        return [
            f"fills = {self.height} * across <= {self.width} * down",
            f"tall = {maximum}(1, ({2 * self.width} * down + across) // (2 * across))",
            f"wide = {maximum}(1, ({2 * self.height} * across + down) // (2 * down))",
        ]

    @property
    def _pad(self) -> Pad:
        return Pad(self.height, self.width, self.value, self.mask_value)
