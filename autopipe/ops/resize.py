"""Resize: to one height and width; images bilinear, masks by nearest pixel.

OpenCV and TensorFlow place pixels alike (half-pixel centres, no antialiasing) and differ by less than one level. Which
pixel is the nearest one is computed here, in whole numbers: where a new pixel's centre lies on the edge of two, each of
the two takes another one, by how it happens to round.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, is_grey, is_integer, is_mask, part_of, parts, quoted, tensor_type
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.errors import ConfigError
from autopipe.ops.pixels import PixelOp

_SMOOTH = {
    "bilinear": cv2.INTER_LINEAR,
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
        if self.interpolation not in ("nearest", *_SMOOTH):
            raise ConfigError(
                f"`interpolation` must be one of nearest, {', '.join(_SMOOTH)}, but got {self.interpolation!r}."
            )

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if array.shape[:2] == (self.height, self.width):
            return array
        if kind is FieldKind.MASK or self.interpolation == "nearest":
            rows = array.take(_nearest(array.shape[0], np.arange(self.height), self.height), axis=0)
            nearest: NDArray[Any] = rows.take(_nearest(array.shape[1], np.arange(self.width), self.width), axis=1)
            return nearest
        method = _SMOOTH[self.interpolation]
        if out is None or np.may_share_memory(out, array):
            resized = cv2.resize(array, (self.width, self.height), interpolation=method)
        else:
            resized = cv2.resize(array, (self.width, self.height), dst=out, interpolation=method)
        return resized if resized.ndim == array.ndim else resized[..., None]

    def pixels_tensorflow(self, tensor: Any, kind: FieldKind, random: Any) -> Any:
        import tensorflow as tf

        if kind is FieldKind.MASK or self.interpolation == "nearest":
            before = tf.shape(tensor, tf.int64)
            rows = tf.gather(tensor, _nearest(before[0], tf.range(self.height, dtype=tf.int64), self.height), axis=0)
            return tf.gather(rows, _nearest(before[1], tf.range(self.width, dtype=tf.int64), self.width), axis=1)
        if self.interpolation != "bilinear":
            raise NotImplementedError("TensorFlow's area and bicubic kernels place pixels differently")
        resized = tf.image.resize(tensor, (self.height, self.width))
        if tensor.dtype in (tf.uint8, tf.uint16):  # means of pixels: nothing to saturate
            return tf.cast(resized + 0.5, tensor.dtype)
        if tensor.dtype.is_integer:
            return tf.saturate_cast(tf.round(tf.cast(resized, tf.float32)), tensor.dtype)
        return resized

    def plain_numpy(self, step: Step) -> Lines:
        found = []
        for part in parts(step):
            if is_mask(step, part) or self.interpolation == "nearest":
                found += [
                    f"rows = (2 * np.arange({self.height}) + 1) * {part}.shape[0] // {2 * self.height}",
                    f"columns = (2 * np.arange({self.width}) + 1) * {part}.shape[1] // {2 * self.width}",
                    f"{part} = {part}[rows][:, columns]",
                ]
                continue
            method = {"bilinear": "LINEAR", "bicubic": "CUBIC"}.get(self.interpolation, self.interpolation.upper())
            resized = f"cv2.resize({part}, ({self.width}, {self.height}), interpolation=cv2.INTER_{method})"
            found.append(f"{part} = {resized}{'[..., None]' if is_grey(step, part) else ''}")
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        """Return the lines; "area" and "bicubic" of TensorFlow place pixels somewhat differently."""
        return [line for part in parts(step) for line in self._plain_tensorflow(step, part)]

    def _plain_tensorflow(self, step: Step, part: str) -> Lines:
        if is_mask(step, part) or self.interpolation == "nearest":
            return [
                f"rows = (2 * tf.range({self.height}) + 1) * tf.shape({part})[0] // {2 * self.height}",
                f"columns = (2 * tf.range({self.width}) + 1) * tf.shape({part})[1] // {2 * self.width}",
                f"{part} = tf.gather(tf.gather({part}, rows), columns, axis=1)",
            ]
        method = "" if self.interpolation == "bilinear" else f", method={quoted(self.interpolation)}"
        resized = f"tf.image.resize({part}, ({self.height}, {self.width}){method})"
        if not is_integer(step, part):
            return [f"{part} = {resized}"]
        dtype = tensor_type(part_of(step.before, part))
        return [f"{part} = tf.saturate_cast(tf.round({resized}), {dtype})"]


def _nearest(before: Any, places: Any, after: int) -> Any:
    """Return the pixels, of `before` along an axis, in which the centres of the new ones lie, exactly."""
    return (2 * places + 1) * before // (2 * after)


def check_size(op: object, height: int, width: int) -> None:
    """Refuse sizes that are not whole positive numbers of pixels."""
    for name, value in (("height", height), ("width", width)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"`{name}` of {type(op).__name__} must be a whole number of pixels >= 1, but got {name}={value!r}."
            )
