"""Resize: to one height and width; images bilinear, masks by nearest pixel.

OpenCV places pixels as TensorFlow does (half-pixel centres, no antialiasing). Which pixel is the nearest one is
computed here, in whole numbers. If a new pixel's centre lies on the edge of two, libraries take the one or the other:
it depends on how they round.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, channel_axis, is_integer, is_mask, part_of, parts, quoted, tensor_type
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.errors import ConfigError
from autopipe.ops.pixels import PixelOp
from autopipe.ops.size import check_size

Interpolation: TypeAlias = Literal["bilinear", "nearest", "area", "bicubic"]

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
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        check_size(self, self.height, self.width)
        check_interpolation(self.interpolation)

    @property
    def resizes_to(self) -> tuple[int, int]:
        return self.height, self.width

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        return resized(array, (self.height, self.width), how(self.interpolation, kind), out)

    def plain_numpy(self, step: Step) -> Lines:
        return plain_resized(step, (str(self.height), str(self.width)), self.interpolation)

    def plain_tensorflow(self, step: Step) -> Lines:
        """Return the lines; "area" and "bicubic" of TensorFlow place pixels somewhat differently."""
        return plain_resized_tensorflow(step, (str(self.height), str(self.width)), self.interpolation)


def how(interpolation: Interpolation, kind: FieldKind) -> Interpolation:
    """Return the interpolation of a part: a mask's class numbers have no means."""
    return "nearest" if kind is FieldKind.MASK else interpolation


def resized(array: NDArray[Any], size: tuple[int, int], interpolation: Interpolation, out: Part = None) -> NDArray[Any]:
    """Return an image of another (height, width); in `out`, if that is given and apart from `array`."""
    if array.shape[:2] == size:
        return array
    height, width = size
    if interpolation == "nearest":
        rows = array.take(_nearest(array.shape[0], np.arange(height), height), axis=0)
        nearest: NDArray[Any] = rows.take(_nearest(array.shape[1], np.arange(width), width), axis=1)
        return nearest
    method = _SMOOTH[interpolation]
    if out is None or np.may_share_memory(out, array):
        smooth = cv2.resize(array, (width, height), interpolation=method)
    else:
        smooth = cv2.resize(array, (width, height), dst=out, interpolation=method)
    return smooth if smooth.ndim == array.ndim else smooth[..., None]


def plain_resized(step: Step, size: tuple[str, str], interpolation: Interpolation) -> Lines:
    """Return lines of NumPy and OpenCV that resize the parts of an op; height and width are code."""
    height, width = size
    found = []
    for part in parts(step):
        if is_mask(step, part) or interpolation == "nearest":
            found += [
                f"rows = (2 * np.arange({height}) + 1) * {part}.shape[0] // {_twice(height)}",
                f"columns = (2 * np.arange({width}) + 1) * {part}.shape[1] // {_twice(width)}",
                f"{part} = {part}[rows][:, columns]",
            ]
            continue
        method = {"bilinear": "LINEAR", "bicubic": "CUBIC"}.get(interpolation, interpolation.upper())
        smooth = f"cv2.resize({part}, ({width}, {height}), interpolation=cv2.INTER_{method})"
        found += [f"{part} = {smooth}", *channel_axis(step, part)]
    return found


def plain_resized_tensorflow(step: Step, size: tuple[str, str], interpolation: Interpolation) -> Lines:
    """Return the same as lines of TensorFlow."""
    height, width = size
    found = []
    for part in parts(step):
        if is_mask(step, part) or interpolation == "nearest":
            found += [
                f"rows = (2 * tf.range({height}) + 1) * tf.shape({part})[0] // {_twice(height)}",
                f"columns = (2 * tf.range({width}) + 1) * tf.shape({part})[1] // {_twice(width)}",
                f"{part} = tf.gather(tf.gather({part}, rows), columns, axis=1)",
            ]
            continue
        method = "" if interpolation == "bilinear" else f", method={quoted(interpolation)}"
        found.append(f"{part} = tf.image.resize({part}, ({height}, {width}){method})")
        if is_integer(step, part):  # means of pixels need not be saturated
            cast = "cast" if interpolation in ("bilinear", "area") else "saturate_cast"
            found.append(f"{part} = tf.{cast}(tf.round({part}), {tensor_type(part_of(step.before, part))})")
    return found


def _twice(size: str) -> str:
    return str(2 * int(size)) if size.isdigit() else f"(2 * {size})"


def check_interpolation(interpolation: str) -> None:
    """Refuse an interpolation that is not known."""
    if interpolation not in ("nearest", *_SMOOTH):
        raise ConfigError(f"`interpolation` must be one of nearest, {', '.join(_SMOOTH)}, but got {interpolation!r}.")


def _nearest(before: Any, places: Any, after: Any) -> Any:
    """Return the pixels, of `before` along an axis, in which the centres of the new ones lie, exactly."""
    return (2 * places + 1) * before // (2 * after)
