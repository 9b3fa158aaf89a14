"""What each op has to give, written slowly and plainly: pixel by pixel, with nothing of the ops' own code.

A new op is one more entry in `CASES`; `test_ops.py` fails while there is none.
"""

from __future__ import annotations

import colorsys
import dataclasses
import io
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from autopipe.workload.op import Op
from autopipe.workload.ops.colors import (
    GaussianBlur,
    RandomBrightness,
    RandomContrast,
    RandomGrayscale,
    RandomHue,
    RandomSaturation,
)
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomAffine, RandomErasing, RandomFlip
from autopipe.workload.ops.mix import CutMix, MixUp
from autopipe.workload.ops.sizes import CenterCrop, Pad, RandomCrop, RandomResizedCrop, Resize, ResizeKeepingAspect
from autopipe.workload.ops.values import Cast, MaskToClass, Normalize, OneHot, Rescale
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


FEW = ("masked", "grey", "tiny", "row", "deep-coloured")
SHAPES = ("masked", "grey", "plain", "tiny", "row", "column", "bright", "labelled")
COLOURS = ((0, 0, 0), (255, 0, 0), (9, 8, 7), (1, 2, 3), (255, 255, 255))


@dataclasses.dataclass(frozen=True)
class Case:
    """An op, and what it makes of one part of a sample.

    Attributes:
        op: as a user makes it.
        reference: from the part, its kind and the sample's random numbers, to the part after the op; None where the
            sample is to be refused.
        samples: which of the samples of `test_ops.py` it takes, by the beginning of their names.
        levels: by how much a value may be off the reference.
        plain_levels: by how much its plain TensorFlow code may be off the op.
    """

    op: Op
    reference: Reference
    samples: tuple[str, ...] = (*SHAPES, "deep")
    levels: float = 0
    plain_levels: float = 1


def _crop(height: int, width: int, *, centre: bool) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array | None:
        if a.shape[0] < height or a.shape[1] < width:
            return None
        down, right = (0.5, 0.5) if centre else random
        top, left = math.floor(down * (a.shape[0] - height + 1)), math.floor(right * (a.shape[1] - width + 1))
        return built((height, width, *a.shape[2:]), a.dtype, lambda i, j, *c: a[(top + i, left + j, *c)])

    return reference


def _flip(*, horizontal: bool, vertical: bool) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        across, down = horizontal and random[0] < 0.5, vertical and random[1] < 0.5
        last, right = a.shape[0] - 1, a.shape[1] - 1
        return built(a.shape, a.dtype, lambda i, j, *c: a[(last - i if down else i, right - j if across else j, *c)])

    return reference


def _pad(height: int, width: int, value: int, mask_value: int) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        down, right = max(0, height - a.shape[0]), max(0, width - a.shape[1])
        fill = mask_value if kind is FieldKind.MASK else value

        def at(i: int, j: int, *c: int) -> Any:
            row, column = i - down // 2, j - right // 2
            return a[(row, column, *c)] if 0 <= row < a.shape[0] and 0 <= column < a.shape[1] else fill

        return built((a.shape[0] + down, a.shape[1] + right, *a.shape[2:]), a.dtype, at)

    return reference


def _brightness(delta: float) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        shift = np.float32((2 * random[0] - 1) * delta) * np.float32(top(a.dtype))
        return built(a.shape, a.dtype, lambda *at: level(np.float32(a[at]) + shift, a.dtype))

    return reference


def _contrast(lower: float, upper: float) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        factor = np.float32(lower + (upper - lower) * random[0])
        pixels = a.shape[0] * a.shape[1]
        means = [np.float32(math.fsum(float(v) for v in a[..., c].flat) / pixels) for c in range(a.shape[2])]

        def at(i: int, j: int, c: int) -> Any:
            value = (np.float32(a[i, j, c]) - means[c]) * factor + means[c]
            return level(value, a.dtype)

        return built(a.shape, a.dtype, at)

    return reference


def _resize(height: int, width: int, interpolation: str) -> Reference:
    def reference(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        method = "nearest" if kind is FieldKind.MASK else interpolation
        rows = [_weights(i, a.shape[0], height, method) for i in range(height)]
        columns = [_weights(j, a.shape[1], width, method) for j in range(width)]

        def at(i: int, j: int, *c: int) -> Any:
            value = sum(wy * wx * float(a[(y, x, *c)]) for y, wy in rows[i].items() for x, wx in columns[j].items())
            return level(np.float32(value), a.dtype)

        return built((height, width, *a.shape[2:]), a.dtype, at)

    return reference


def _weights(place: int, before: int, after: int, method: str) -> dict[int, float]:
    """Return which pixels of one axis make a pixel, and their shares. Pixels have their centres at halves."""
    scale = before / after
    if method == "nearest":
        return {min(before - 1, int((place + 0.5) * scale)): 1.0}
    found: dict[int, float] = {}
    if method == "area" and scale > 1:
        first, last = place * scale, (place + 1) * scale
        for pixel in range(int(first), min(before, math.ceil(last))):
            found[pixel] = (min(last, pixel + 1) - max(first, pixel)) / scale
        return found
    centre = (place + 0.5) * scale - 0.5
    shape = _cubic if method == "bicubic" else _linear
    for pixel in range(math.floor(centre) - 1, math.floor(centre) + 3):
        inside = min(before - 1, max(0, pixel))
        found[inside] = found.get(inside, 0.0) + shape(abs(centre - pixel))
    return found


def _linear(away: float) -> float:
    return max(0.0, 1.0 - away)


def _cubic(away: float, a: float = -0.75) -> float:
    if away <= 1:
        return (a + 2) * away**3 - (a + 3) * away**2 + 1
    return a * away**3 - 5 * a * away**2 + 8 * a * away - 4 * a if away < 2 else 0.0


def _classes(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array | None:
    numbers = {colour: number for number, colour in enumerate(COLOURS)}
    if any(tuple(pixel) not in numbers for pixel in a.reshape(-1, 3).tolist()):
        return None
    return built(a.shape[:2], np.uint8, lambda i, j: numbers[tuple(a[i, j].tolist())])


def _one_hot(classes: int) -> Reference:
    def reference(y: Any, kind: FieldKind, random: NDArray[np.float64]) -> Array:
        ids = np.asarray(y)
        return built((*ids.shape, classes), np.float32, lambda *at: 1.0 if ids[at[:-1]] == at[-1] else 0.0)

    return reference


def _valued(dtype: Any, value: Callable[[Any, int], Any]) -> Reference:
    """Return the reference of an op on each value alone, from the value and its channel."""
    return lambda a, kind, random: built(a.shape, dtype, lambda *at: value(a[at], at[-1]))


def _normalised(value: Any, channel: int) -> np.float32:
    mean, std = (1.0, 2.0, 3.0)[channel], (4.0, 5.0, 6.0)[channel]
    return (np.float32(value) - np.float32(mean)) * np.float32(1 / std)


def _decoded(data: bytes, kind: FieldKind, random: NDArray[np.float64]) -> Array | None:
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB" if kind is FieldKind.ENCODED else "L"))
    except OSError:
        return None


def _thinned(a: Array, kind: FieldKind, random: NDArray[np.float64]) -> Array:
    shape = (-(-a.shape[0] // 2), -(-a.shape[1] // 3), *a.shape[2:])
    return built(shape, a.dtype, lambda i, j, *c: a[(2 * i, 3 * j, *c)])


def _seeded(random: NDArray[np.float64]) -> np.random.Generator:
    made: list[np.random.Generator] = []
    probe = Map(lambda x, rng: made.append(rng) or x, random=True)  # type: ignore[func-returns-value]  # None, hence x
    probe.apply((np.zeros(1), None), None, random)  # type: ignore[arg-type]  # it does not look at the kinds
    return made[0]


def _noise(x: Array, rng: np.random.Generator) -> Array:
    noisy: Array = np.clip(x.astype(np.int64) + rng.integers(-9, 10, x.shape), 0, 255).astype(np.uint8)
    return noisy


THREE = ("masked", "plain", "tiny", "row", "column", "bright", "labelled", "deep-coloured")
AFFINE = [
    Case(
        RandomAffine(
            rotation,
            shift,
            shear,
            zoom,
            fill=fill,  # type: ignore[arg-type]  # one of four
            value=9,
            mask_value=3,
            keep_aspect=keep,
        ),
        affine(rotation, shift, shear, zoom, fill, (9, 3), keep_aspect=keep),
        samples=FEW,
        levels=1,
    )
    for rotation, shift, shear, zoom, fill, keep in (
        (25, (0.0, 0.0), 0, (1.0, 1.0), "reflect", True),
        (0, (0.2, 0.3), 0, (1.0, 1.0), "wrap", True),
        (0, (0.0, 0.0), 20, (0.713, 1.629), "nearest", False),
        (160, (0.5, 0.1), 30, (0.537, 2.981), "constant", False),
    )
]
CASES = [
    Case(CenterCrop(5, 4), _crop(5, 4, centre=True)),
    Case(CenterCrop(1, 1), _crop(1, 1, centre=True)),
    Case(RandomCrop(5, 4), _crop(5, 4, centre=False)),
    Case(RandomFlip(), _flip(horizontal=True, vertical=False)),
    Case(RandomFlip(horizontal=False, vertical=True), _flip(horizontal=False, vertical=True)),
    Case(RandomFlip(vertical=True), _flip(horizontal=True, vertical=True)),
    Case(RandomBrightness(0.5), _brightness(0.5)),
    Case(RandomBrightness(1.0, on="both"), _brightness(1.0)),
    Case(RandomBrightness(0.3), _brightness(0.3), ("float",), 1e-7, 1e-7),
    Case(RandomContrast(0.2, 1.9), _contrast(0.2, 1.9)),
    Case(RandomContrast(0.2, 1.9), _contrast(0.2, 1.9), ("float",), 1e-6, 1e-6),
    Case(Pad(15, 40, value=7, mask_value=4), _pad(15, 40, 7, 4)),
    Case(Pad(1, 1), _pad(1, 1, 0, 0)),
    *(
        Case(Resize(*size, "bilinear"), _resize(*size, "bilinear"), levels=1)
        for size in ((5, 8), (20, 11), (1, 1), (3, 40))
    ),
    *(Case(Resize(*size, "nearest"), _resize(*size, "nearest")) for size in ((5, 8), (26, 34), (1, 1), (3, 40))),
    Case(Resize(5, 8, "area"), _resize(5, 8, "area"), ("masked", "grey", "bright", "labelled"), levels=1),
    Case(Resize(20, 11, "bicubic"), _resize(20, 11, "bicubic"), SHAPES, 1, plain_levels=48),  # another kernel
    Case(MaskToClass(COLOURS), _classes, ("coloured", "masked-strange")),
    Case(OneHot(5), _one_hot(5), ("masked", "labelled")),
    Case(OneHot(1), _one_hot(1), ("masked", "labelled")),
    Case(Rescale(1 / 255), _valued(np.float32, lambda v, _: np.float32(v) * np.float32(1 / 255))),
    Case(Rescale(1 / 3, -0.5), _valued(np.float32, lambda v, _: np.float32(v) * np.float32(1 / 3) + np.float32(-0.5))),
    Case(Normalize((1, 2, 3), (4, 5, 6)), _valued(np.float32, _normalised), THREE),
    Case(Cast("float16"), _valued(np.float16, lambda v, _: np.float16(v)), SHAPES),
    Case(Cast("int32", on="both"), _valued(np.int32, lambda v, _: int(v)), ("masked", "grey", "plain")),
    Case(Map(lambda x: x[::2, ::3]), _thinned),
    Case(Map(_noise, random=True), lambda a, kind, random: _noise(a, _seeded(random))),
    *AFFINE,
    *(
        Case(RandomResizedCrop(*size, area, ratio), resized_crop(size, area, ratio, _resize), FEW, 1, 1)
        for size, area, ratio in (((5, 8), (0.08, 1.0), (0.75, 1.25)), ((16, 3), (0.9, 1.0), (0.2, 6.0)))
    ),
    Case(RandomErasing(1.0, value=(9, 8, 7)), erased(1.0, (0.02, 0.33), (0.3, 3.3), (9, 8, 7), 0), THREE),
    Case(
        RandomErasing(0.6, (0.1, 1.0), (0.5, 2.0), 3, 2, on="both"),
        erased(0.6, (0.1, 1.0), (0.5, 2.0), 3, 2),
        FEW,
    ),
    *(
        Case(
            ResizeKeepingAspect(*size, value=7, mask_value=4),
            letterbox(size, (7, 4), _resize, _pad),
            FEW,
            1,
            1,
        )
        for size in ((20, 11), (5, 8))
    ),
    Case(RandomHue(0.5), hue(0.5), FEW, 1, 1),
    Case(RandomHue(0.1), hue(0.1), ("float",), 1e-5, 1e-5),
    Case(RandomSaturation(0.0, 3.0), saturation(0.0, 3.0), FEW, 1, 1),
    Case(RandomSaturation(0.5, 1.5), saturation(0.5, 1.5), ("float",), 1e-5, 1e-5),
    Case(RandomGrayscale(0.4), grey(0.4), FEW, 1),
    Case(RandomGrayscale(1.0), grey(1.0), ("float",), 1e-6, 1e-6),
    Case(GaussianBlur(5, (0.1, 3.0), 0.9), blurred(5, (0.1, 3.0), 0.9), FEW, 2),
    Case(GaussianBlur(3, (1.0, 1.0)), blurred(3, (1.0, 1.0), 1.0), ("float",), 1e-5),
    Case(
        RandomBrightness(factor=(0.5, 2.0)),
        stretched(lambda value, number, most: value * (0.5 + 1.5 * number)),
        FEW,
        1,
    ),
    Case(
        RandomBrightness(factor=(0.5, 1.5)),
        stretched(lambda value, number, most: value * (0.5 + number)),
        ("float",),
        1e-6,
        1e-6,
    ),
    Case(MixUp(), lambda a, kind, random: a, ("float", "deep-coloured")),  # a sample alone: ops/test_mix.py
    Case(CutMix(), lambda a, kind, random: a, ("float", "masked")),
    Case(Decode(), _decoded, ("encoded",)),
]
