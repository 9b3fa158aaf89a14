"""The references of ops that draw places, colours or blurs at random: pixel by pixel, without the ops' own code."""

from __future__ import annotations

import colorsys
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.workload.sample import FieldKind

Array = NDArray[Any]
Reference = Callable[[Any, FieldKind, NDArray[np.float64]], Any]
Range = tuple[float, float]
Resized = Callable[[int, int, str], Reference]


def built(shape: tuple[int, ...], dtype: Any, value: Callable[..., Any]) -> Array:
    out = np.empty(shape, dtype)
    for place in itertools.product(*map(range, shape)):
        out[place] = value(*place)
    return out


def level(value: Any, dtype: Any) -> Any:
    """Round half to even, and keep to what whole numbers of that type hold."""
    if np.dtype(dtype).kind == "f":
        return value
    return min(int(np.iinfo(dtype).max), max(0, round(float(value))))


def top(dtype: Any) -> float:
    return 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)


def _at(place: float, size: int, fill: str) -> int | None:
    """Return the pixel of an axis that is seen at a place beyond its ends."""
    place = int(place)
    if 0 <= place < size:
        return place
    if fill == "constant":
        return None
    if fill == "nearest":
        return 0 if place < 0 else size - 1
    if fill == "wrap":
        return place % size
    turned = place % (2 * size)
    return turned if turned < size else 2 * size - 1 - turned


def affine(
    rotation: float, shift: Range, shear: float, zoom: Range, fill: str, values: Range, *, keep_aspect: bool = True
) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        height, width = a.shape[:2]
        drawn = [float(number) for number in random]
        turn = math.radians(-rotation + 2 * rotation * drawn[0])
        down = (-shift[0] + 2 * shift[0] * drawn[1]) * height
        across = (-shift[1] + 2 * shift[1] * drawn[2]) * width
        lean = math.radians(-shear + 2 * shear * drawn[3])
        tall = zoom[0] + (zoom[1] - zoom[0]) * drawn[4]
        wide = tall if keep_aspect else zoom[0] + (zoom[1] - zoom[0]) * drawn[5]

        def seen(i: int, j: int) -> tuple[float, float]:
            y, x = (i - (height - 1) / 2) * tall, (j - (width - 1) / 2) * wide
            y, x = y * math.cos(lean), x - y * math.sin(lean)
            y, x = y + down, x + across
            y, x = x * math.sin(turn) + y * math.cos(turn), x * math.cos(turn) - y * math.sin(turn)
            return y + (height - 1) / 2, x + (width - 1) / 2

        def pixel(y: float, x: float, c: tuple[int, ...]) -> float:
            row, column = _at(y, height, fill), _at(x, width, fill)
            outside = values[1] if kind is FieldKind.MASK else values[0]
            return outside if row is None or column is None else float(a[(row, column, *c)])

        def at(i: int, j: int, *c: int) -> Any:
            y, x = seen(i, j)
            if kind is FieldKind.MASK:
                return pixel(math.floor(y + 0.5), math.floor(x + 0.5), c)
            up, left = math.floor(y), math.floor(x)
            value = sum(
                (1 - abs(y - row)) * (1 - abs(x - column)) * pixel(row, column, c)
                for row in (up, up + 1)
                for column in (left, left + 1)
            )
            return level(value, a.dtype)

        return built(a.shape, a.dtype, at)

    return reference


def _rectangle(a: Array, area: Range, ratio: Range, random: Any) -> tuple[int, int, int, int]:
    """Return the first row and column of a rectangle, and those behind its last."""
    height, width = a.shape[:2]
    pixels = height * width * (area[0] + (area[1] - area[0]) * random[0])
    aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * random[1])
    tall = max(1, min(height, math.floor(math.sqrt(pixels / aspect) + 0.5)))
    wide = max(1, min(width, math.floor(math.sqrt(pixels * aspect) + 0.5)))
    row, column = math.floor(random[2] * (height - tall + 1)), math.floor(random[3] * (width - wide + 1))
    return row, column, row + tall, column + wide


def resized_crop(size: tuple[int, int], area: Range, ratio: Range, resized: Resized) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        row, column, last_row, last_column = _rectangle(a, area, ratio, random)
        cut: Array = resized(*size, "bilinear")(a[row:last_row, column:last_column], kind, random)
        return cut

    return reference


def erased(probability: float, area: Range, ratio: Range, value: Any, mask_value: float) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        if random[0] >= probability:
            return a
        row, column, last_row, last_column = _rectangle(a, area, ratio, random[1:])

        def at(i: int, j: int, *c: int) -> Any:
            if not (row <= i < last_row and column <= j < last_column):
                return a[(i, j, *c)]
            return mask_value if kind is FieldKind.MASK else value[c[0]] if isinstance(value, tuple) else value

        return built(a.shape, a.dtype, at)

    return reference


def letterbox(size: tuple[int, int], values: Range, resized: Resized, pad: Callable[..., Reference]) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        scale = min(size[0] / a.shape[0], size[1] / a.shape[1])
        inside = [min(most, max(1, math.floor(side * scale + 0.5))) for side, most in zip(a.shape, size, strict=False)]
        fitted = resized(inside[0], inside[1], "bilinear")(a, kind, random)
        boxed: Array = pad(*size, *values)(fitted, kind, random)
        return boxed

    return reference


def coloured(change: Callable[[float, float, float, float], tuple[float, float, float]]) -> Reference:
    """Return the reference of an op on hue and saturation, from (hue, saturation, value, the random number)."""

    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        if a.ndim != 3 or a.shape[2] != 3:
            return a
        out = np.empty_like(a)
        for i, j in itertools.product(*map(range, a.shape[:2])):
            hsv = colorsys.rgb_to_hsv(*(float(value) / top(a.dtype) for value in a[i, j]))
            changed = colorsys.hsv_to_rgb(*change(*hsv, float(random[0])))
            out[i, j] = [level(value * top(a.dtype), a.dtype) for value in changed]
        return out

    return reference


def hue(delta: float) -> Reference:
    return coloured(lambda h, s, v, number: ((h - delta + 2 * delta * number) % 1, s, v))


def saturation(lower: float, upper: float) -> Reference:
    return coloured(lambda h, s, v, number: (h, min(1.0, s * (lower + (upper - lower) * number)), v))


def grey(probability: float) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        if a.ndim != 3 or a.shape[2] != 3 or random[0] >= probability:
            return a

        def at(i: int, j: int, c: int) -> Any:
            red, green, blue = (float(value) for value in a[i, j])
            return level(0.299 * red + 0.587 * green + 0.114 * blue, a.dtype)

        return built(a.shape, a.dtype, at)

    return reference


def blurred(size: int, sigma: Range, probability: float) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        if random[0] >= probability:
            return a
        deviation, half = sigma[0] + (sigma[1] - sigma[0]) * float(random[1]), size // 2
        shares = [math.exp(-(away**2) / (2 * deviation**2)) for away in range(-half, half + 1)]
        shares = [share / sum(shares) for share in shares]

        def mirrored(place: int, length: int) -> int:  # about the middle of the edge's pixel: dcb|abcd|cba
            turned = place % max(1, 2 * length - 2)
            return turned if turned < length else 2 * length - 2 - turned

        def at(i: int, j: int, *c: int) -> Any:
            value = sum(
                down * across * float(a[(mirrored(i + y - half, a.shape[0]), mirrored(j + x - half, a.shape[1]), *c)])
                for y, down in enumerate(shares)
                for x, across in enumerate(shares)
            )
            return level(value, a.dtype)

        return built(a.shape, a.dtype, at)

    return reference


def stretched(change: Callable[[float, float, float], float]) -> Reference:
    """Return the reference of an op on brightness, from (level, the random number, the largest level)."""
    return lambda a, kind, random: built(
        a.shape, a.dtype, lambda *at: level(change(float(a[at]), float(random[0]), top(a.dtype)), a.dtype)
    )
