"""Resize: to one height and width; images bilinear, masks by nearest pixel.

OpenCV and TensorFlow place pixels alike (half-pixel centres, no antialiasing) and differ by less than one level.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.sample import FieldKind, Part
from autopipe.errors import ConfigError
from autopipe.ops.pixels import PixelOp

_INTERPOLATIONS = {
    "bilinear": cv2.INTER_LINEAR,
    "nearest": cv2.INTER_NEAREST_EXACT,
    "area": cv2.INTER_AREA,
    "bicubic": cv2.INTER_CUBIC,
}


@dataclasses.dataclass(frozen=True)
class Resize(PixelOp):
    """Resize to `height` x `width` pixels.

    Attributes:
        height: pixels.
        width: pixels.
        interpolation: "bilinear", "nearest", "area" or "bicubic"; masks always take the nearest pixel.
    """

    height: int
    width: int
    interpolation: Literal["bilinear", "nearest", "area", "bicubic"] = "bilinear"

    def __post_init__(self) -> None:
        check_size(self, self.height, self.width)
        if self.interpolation not in _INTERPOLATIONS:
            raise ConfigError(
                f"`interpolation` must be one of {', '.join(_INTERPOLATIONS)}, but got {self.interpolation!r}."
            )

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if array.shape[:2] == (self.height, self.width):
            return array
        method = cv2.INTER_NEAREST_EXACT if kind is FieldKind.MASK else _INTERPOLATIONS[self.interpolation]
        if out is None or np.may_share_memory(out, array):
            resized = cv2.resize(array, (self.width, self.height), interpolation=method)
        else:
            resized = cv2.resize(array, (self.width, self.height), dst=out, interpolation=method)
        return resized if resized.ndim == array.ndim else resized[..., None]

    def pixels_tensorflow(self, tensor: Any, kind: FieldKind, random: Any) -> Any:
        import tensorflow as tf

        if self.interpolation in ("area", "bicubic") and kind is not FieldKind.MASK:
            raise NotImplementedError("TensorFlow's area and bicubic kernels place pixels differently")
        flat = kind is FieldKind.MASK and tensor.shape.rank == 2
        if flat:
            tensor = tensor[..., None]
        method = "nearest" if kind is FieldKind.MASK else self.interpolation
        resized = tf.image.resize(tensor, (self.height, self.width), method=method)
        if tensor.dtype in (tf.uint8, tf.uint16) and method == "bilinear":  # means of pixels: nothing to saturate
            resized = tf.cast(resized + 0.5, tensor.dtype)
        elif tensor.dtype.is_integer:
            resized = tf.saturate_cast(tf.round(tf.cast(resized, tf.float32)), tensor.dtype)
        return resized[..., 0] if flat else resized


def check_size(op: object, height: int, width: int) -> None:
    """Refuse sizes that are not whole positive numbers of pixels."""
    for name, value in (("height", height), ("width", width)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"`{name}` of {type(op).__name__} must be a whole number of pixels >= 1, but got {name}={value!r}."
            )
