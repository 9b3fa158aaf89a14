"""What each op has to give, written with NumPy alone. `test_ops.py` fails while an op has no entry in `CASES`."""

import colorsys
import dataclasses
import io
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import autopipe as ap
from autopipe.workload.sample import FieldKind

Array: TypeAlias = NDArray[Any]
Random: TypeAlias = NDArray[np.float64]
Range: TypeAlias = tuple[float, float]
Reference: TypeAlias = Callable[[Any, FieldKind, Random], Any]
FEW = ("masked", "grey", "tiny", "row", "deep-coloured", "deep, with many")
SHAPES = ("masked", "grey", "plain", "tiny", "row", "column", "bright", "labelled")
THREE = ("masked", "plain", "tiny", "row", "column", "bright", "labelled", "deep-coloured")
COLOURS = ((0, 0, 0), (255, 0, 0), (9, 8, 7), (1, 2, 3), (255, 255, 255))


@dataclasses.dataclass(frozen=True)
class Case:
    """An op, and what it makes of one part of a sample, of its kind, by the sample's random numbers."""

    op: ap.Op
    reference: Reference  # None where the sample is to be refused
    samples: tuple[str, ...] = (*SHAPES, "deep")  # which of `test_ops.py` it takes, by the beginning of their names
    levels: float = 0  # by how much a value may be off the reference
    plain_levels: float = 1  # by how much its plain TensorFlow code may be off the op


def settled(made: Callable[..., Any]) -> Callable[..., Reference]:
    """Have a function of a part, its kind, random numbers and an op's settings take the settings first."""
    return lambda *args, **options: lambda a, kind, random: made(a, kind, random, *args, **options)


def top(dtype: Any) -> float:
    return 1.0 if np.dtype(dtype).kind == "f" else float(np.iinfo(dtype).max)


def levels(values: Any, dtype: Any) -> Any:
    """Round half to even, and keep to what whole numbers of that type hold."""
    return np.asarray(values if np.dtype(dtype).kind == "f" else np.clip(np.rint(values), 0, top(dtype))).astype(dtype)


@settled
def crop(a: Array, kind: FieldKind, random: Random, height: int, width: int, *, centre: bool = False) -> Array | None:
    if a.shape[0] < height or a.shape[1] < width:
        return None
    down, right = (0.5, 0.5) if centre else random
    top, left = math.floor(down * (a.shape[0] - height + 1)), math.floor(right * (a.shape[1] - width + 1))
    return a[top : top + height, left : left + width]


@settled
def flip(a: Array, kind: FieldKind, random: Random, *, horizontal: bool = True, vertical: bool = False) -> Array:
    a = np.flip(a, 1) if horizontal and random[0] < 0.5 else a
    return np.flip(a, 0) if vertical and random[1] < 0.5 else a


@settled
def pad(a: Array, kind: FieldKind, random: Random, height: int, width: int, value: float, mask_value: float) -> Array:
    added = [max(0, size - side) for size, side in zip((height, width), a.shape, strict=False)]
    around = [(each // 2, each - each // 2) for each in added] + [(0, 0)] * (a.ndim - 2)
    return np.pad(a, around, constant_values=int(mask_value if kind is FieldKind.MASK else value))


@settled
def resize(a: Array, kind: FieldKind, random: Random, height: int, width: int, interpolation: str) -> Array:
    method = "nearest" if kind is FieldKind.MASK else interpolation
    down, across = _shares(a.shape[0], height, method), _shares(a.shape[1], width, method)
    return levels(np.einsum("iy,yx...,jx->ij...", down, a.astype(np.float64), across).astype(np.float32), a.dtype)  # type: ignore[no-any-return]


def _shares(before: int, after: int, method: str) -> Array:
    """Return the weight of each old pixel in each new pixel, along one axis. Pixel centres lie at halves."""
    found, scale = np.zeros((after, before)), before / after
    for place, shares in enumerate(found):
        centre, first, last = (place + 0.5) * scale - 0.5, place * scale, (place + 1) * scale
        if method == "nearest":
            shares[min(before - 1, int((place + 0.5) * scale))] = 1.0
        elif method == "area" and scale > 1:
            for pixel in range(int(first), min(before, math.ceil(last))):
                shares[pixel] = (min(last, pixel + 1) - max(first, pixel)) / scale
        else:
            for pixel in range(math.floor(centre) - 1, math.floor(centre) + 3):
                away = abs(centre - pixel)
                shares[min(before - 1, max(0, pixel))] += _cubic(away) if method == "bicubic" else max(0.0, 1.0 - away)
    return found


def _cubic(away: float, a: float = -0.75) -> float:
    if away <= 1:
        return (a + 2) * away**3 - (a + 3) * away**2 + 1
    return a * away**3 - 5 * a * away**2 + 8 * a * away - 4 * a if away < 2 else 0.0


@settled
def letterbox(a: Array, kind: FieldKind, random: Random, size: tuple[int, int], values: Range) -> Any:
    scale = min(size[0] / a.shape[0], size[1] / a.shape[1])
    inside = [min(most, max(1, math.floor(side * scale + 0.5))) for side, most in zip(a.shape, size, strict=False)]
    return pad(*size, *values)(resize(inside[0], inside[1], "bilinear")(a, kind, random), kind, random)


def _at(places: Array, size: int, fill: str) -> Array:
    """Return the pixels of an axis that are seen at places beyond its ends; -1 where there is none."""
    if fill == "constant":
        return np.where((places >= 0) & (places < size), places, -1).astype(int)
    if fill == "nearest":
        return np.clip(places, 0, size - 1).astype(int)
    turned = places % (size if fill == "wrap" else 2 * size)
    return np.where(turned < size, turned, 2 * size - 1 - turned).astype(int)


@settled
def affine(a: Array, kind: FieldKind, random: Random, op: ap.RandomAffine) -> Any:
    (height, width), drawn = a.shape[:2], random.tolist()
    turn = math.radians(-op.rotation + 2 * op.rotation * drawn[0])
    down = (-op.shift[0] + 2 * op.shift[0] * drawn[1]) * height
    across = (-op.shift[1] + 2 * op.shift[1] * drawn[2]) * width
    lean = math.radians(-op.shear + 2 * op.shear * drawn[3])
    tall = op.zoom[0] + (op.zoom[1] - op.zoom[0]) * drawn[4]  # type: ignore[index]  # it is a pair
    wide = tall if op.keep_aspect else op.zoom[0] + (op.zoom[1] - op.zoom[0]) * drawn[5]  # type: ignore[index]
    i, j = np.mgrid[:height, :width]
    y, x = (i - (height - 1) / 2) * tall, (j - (width - 1) / 2) * wide
    y, x = y * math.cos(lean), x - y * math.sin(lean)
    y, x = y + down, x + across
    y, x = x * math.sin(turn) + y * math.cos(turn), x * math.cos(turn) - y * math.sin(turn)
    y, x = y + (height - 1) / 2, x + (width - 1) / 2

    def pixels(y: Array, x: Array, weight: Any = 1) -> Any:
        rows, columns = _at(y, height, op.fill), _at(x, width, op.fill)
        seen = a[rows, columns].astype(np.float64)
        seen[(rows < 0) | (columns < 0)] = op.mask_value if kind is FieldKind.MASK else op.value
        return (seen.T * np.transpose(weight)).T

    if kind is FieldKind.MASK:
        return pixels(np.floor(y + 0.5), np.floor(x + 0.5)).astype(a.dtype)
    near = itertools.product((np.floor(y), np.floor(y) + 1), (np.floor(x), np.floor(x) + 1))
    return levels(sum(pixels(row, at, (1 - abs(y - row)) * (1 - abs(x - at))) for row, at in near), a.dtype)


def _rectangle(a: Array, area: Range, ratio: Range, random: Any) -> tuple[int, int, int, int]:
    """Return the first row and column of a rectangle, and those behind its last."""
    height, width = a.shape[:2]
    pixels = height * width * (area[0] + (area[1] - area[0]) * random[0])
    aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * random[1])
    tall = max(1, min(height, math.floor(math.sqrt(pixels / aspect) + 0.5)))
    wide = max(1, min(width, math.floor(math.sqrt(pixels * aspect) + 0.5)))
    row, column = math.floor(random[2] * (height - tall + 1)), math.floor(random[3] * (width - wide + 1))
    return row, column, row + tall, column + wide


@settled
def resized_crop(a: Array, kind: FieldKind, random: Random, size: tuple[int, int], area: Range, ratio: Range) -> Any:
    row, column, last_row, last_column = _rectangle(a, area, ratio, random)
    return resize(*size, "bilinear")(a[row:last_row, column:last_column], kind, random)


@settled
def erased(
    a: Array,
    kind: FieldKind,
    random: Random,
    probability: float,
    area: Range,
    ratio: Range,
    value: Any,
    mask_value: float,
) -> Array:
    if random[0] >= probability:
        return a
    row, column, last_row, last_column = _rectangle(a, area, ratio, random[1:])
    erased = a.copy()
    erased[row:last_row, column:last_column] = mask_value if kind is FieldKind.MASK else value
    return erased


@settled
def coloured(
    a: Array,
    kind: FieldKind,
    random: Random,
    change: Callable[[float, float, float, float], tuple[float, float, float]],
) -> Array:
    """Return the reference of an op on hue and saturation, from (hue, saturation, value, the random number)."""
    if a.ndim != 3 or a.shape[2] != 3:
        return a
    out = np.empty_like(a)
    for i, j in itertools.product(*map(range, a.shape[:2])):
        hsv = colorsys.rgb_to_hsv(*(float(value) / top(a.dtype) for value in a[i, j]))
        changed = colorsys.hsv_to_rgb(*change(*hsv, float(random[0])))
        out[i, j] = levels(np.array(changed) * top(a.dtype), a.dtype)
    return out


def hue(delta: float) -> Reference:
    return coloured(lambda h, s, v, number: ((h - delta + 2 * delta * number) % 1, s, v))


def saturation(lower: float, upper: float) -> Reference:
    return coloured(lambda h, s, v, number: (h, min(1.0, s * (lower + (upper - lower) * number)), v))


@settled
def grey(a: Array, kind: FieldKind, random: Random, probability: float) -> Any:
    if a.ndim != 3 or a.shape[2] != 3 or random[0] >= probability:
        return a
    grey = a.astype(np.float64) @ np.array([[0.299], [0.587], [0.114]])
    return levels(np.repeat(grey, 3, axis=2), a.dtype)


@settled
def blurred(a: Array, kind: FieldKind, random: Random, size: int, sigma: Range, probability: float) -> Any:
    if random[0] >= probability:
        return a
    deviation, half = sigma[0] + (sigma[1] - sigma[0]) * float(random[1]), size // 2
    shares = np.exp(-(np.arange(-half, half + 1.0) ** 2) / (2 * deviation**2))
    shares /= shares.sum()
    around = np.pad(a.astype(np.float64), [(half, half)] * 2 + [(0, 0)] * (a.ndim - 2), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(around, (size, size), (0, 1))
    return levels(np.einsum("...yx,y,x", windows, shares, shares), a.dtype)


def stretched(change: Callable[[Array, float], Any]) -> Reference:
    """Return the reference of an op on brightness, from levels and the random number."""
    return lambda a, kind, random: levels(change(a.astype(np.float64), float(random[0])), a.dtype)


@settled
def brightness(a: Array, kind: FieldKind, random: Random, delta: float) -> Any:
    shift = np.float32((2 * random[0] - 1) * delta) * np.float32(top(a.dtype))
    return levels(a.astype(np.float32) + shift, a.dtype)


@settled
def contrast(a: Array, kind: FieldKind, random: Random, lower: float, upper: float) -> Any:
    factor = np.float32(lower + (upper - lower) * random[0])
    means = a.astype(np.float64).mean((0, 1)).astype(np.float32)
    return levels((a.astype(np.float32) - means) * factor + means, a.dtype)


def classes(a: Array, kind: FieldKind, random: Random) -> Array | None:
    numbers: Mapping[tuple[int, ...], int] = {colour: number for number, colour in enumerate(COLOURS)}
    if any(tuple(pixel) not in numbers for pixel in a.reshape(-1, 3).tolist()):
        return None
    return np.array([[numbers[tuple(pixel)] for pixel in row] for row in a.tolist()], np.uint8)


def one_hot(classes: int) -> Reference:
    return lambda y, kind, random: (np.asarray(y)[..., None] == np.arange(classes)).astype(np.float32)


def scaled(scale: float, offset: float = 0.0) -> Reference:
    return lambda a, kind, random: a.astype(np.float32) * np.float32(scale) + np.float32(offset)


def normalised(mean: tuple[float, ...], std: tuple[float, ...]) -> Reference:
    shift, factor = np.array(mean, np.float32), (1 / np.array(std)).astype(np.float32)
    return lambda a, kind, random: (a.astype(np.float32) - shift) * factor


def decoded(data: bytes, kind: FieldKind, random: Random) -> Array | None:
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB" if kind is FieldKind.ENCODED else "L"))
    except OSError:
        return None


AFFINE = [
    ap.RandomAffine(25, fill="reflect"),
    ap.RandomAffine(shift=(0.2, 0.3), fill="wrap"),
    ap.RandomAffine(shear=20, zoom=(0.713, 1.629), keep_aspect=False, fill="nearest"),
    ap.RandomAffine(160, (0.5, 0.1), 30, (0.537, 2.981), keep_aspect=False, fill="constant", value=9, mask_value=3),
]
ERASED: Any = (0.6, (0.1, 1.0), (0.5, 2.0), 3, 2)
CASES = [
    Case(ap.CenterCrop(5, 4), crop(5, 4, centre=True)),
    Case(ap.CenterCrop(1, 1), crop(1, 1, centre=True)),
    Case(ap.RandomCrop(5, 4), crop(5, 4)),
    Case(ap.RandomFlip(), flip()),
    Case(ap.RandomFlip(horizontal=False, vertical=True), flip(horizontal=False, vertical=True)),
    Case(ap.RandomFlip(vertical=True), flip(vertical=True)),
    Case(ap.RandomBrightness(0.5), brightness(0.5)),
    Case(ap.RandomBrightness(1.0, on="both"), brightness(1.0)),
    Case(ap.RandomBrightness(0.3), brightness(0.3), ("float",), 1e-7, 1e-7),
    Case(ap.RandomContrast(0.2, 1.9), contrast(0.2, 1.9)),
    Case(ap.RandomContrast(0.2, 1.9), contrast(0.2, 1.9), ("float",), 1e-6, 1e-6),
    Case(ap.Pad(15, 40, value=7, mask_value=4), pad(15, 40, 7, 4)),
    Case(ap.Pad(1, 1), pad(1, 1, 0, 0)),
    *(Case(ap.Resize(*size), resize(*size, "bilinear"), levels=1) for size in ((5, 8), (20, 11), (1, 1), (3, 40))),
    *(Case(ap.Resize(*size, "nearest"), resize(*size, "nearest")) for size in ((5, 8), (26, 34), (1, 1), (3, 40))),
    Case(ap.Resize(5, 8, "area"), resize(5, 8, "area"), ("masked", "grey", "bright", "labelled"), levels=1),
    Case(ap.Resize(3, 4, "area"), resize(3, 4, "area"), ("deep-coloured", "deep and grey", "deep, "), levels=1),
    *(Case(ap.Resize(*size), resize(*size, "bilinear"), ("float",), 1e-5, 1e-5) for size in ((5, 8), (20, 11))),
    Case(ap.Resize(3, 40, "nearest"), resize(3, 40, "nearest"), ("float",), 1e-5, 1e-5),
    Case(ap.Resize(1, 9, "area"), resize(1, 9, "area"), ("float",), 1e-5, 1e-5),
    Case(ap.Resize(20, 11, "bicubic"), resize(20, 11, "bicubic"), SHAPES, 1, plain_levels=48),  # another kernel
    Case(ap.MaskToClass(COLOURS), classes, ("coloured", "masked-strange")),
    Case(ap.OneHot(5), one_hot(5), ("masked", "labelled")),
    Case(ap.OneHot(1), one_hot(1), ("masked", "labelled")),
    Case(ap.Rescale(1 / 255), scaled(1 / 255)),
    Case(ap.Rescale(1 / 3, -0.5), scaled(1 / 3, -0.5)),
    Case(ap.Normalize((1, 2, 3), (4, 5, 6)), normalised((1, 2, 3), (4, 5, 6)), THREE),
    Case(ap.Cast("float16"), lambda a, kind, random: a.astype(np.float16), SHAPES),
    Case(ap.Cast("int32", on="both"), lambda a, kind, random: a.astype(np.int32), ("masked", "grey", "plain", "label")),
    Case(ap.Map(lambda x: x[::2, ::3]), lambda a, kind, random: a[::2, ::3]),
    *(Case(op, affine(op), FEW, levels=1) for op in AFFINE),
    *(
        Case(ap.RandomResizedCrop(*size, area, ratio), resized_crop(size, area, ratio), FEW, 1, 1)
        for size, area, ratio in (((5, 8), (0.08, 1.0), (0.75, 1.25)), ((16, 3), (0.9, 1.0), (0.2, 6.0)))
    ),
    Case(ap.RandomErasing(1.0, value=(9, 8, 7)), erased(1.0, (0.02, 0.33), (0.3, 3.3), (9, 8, 7), 0), THREE),
    Case(ap.RandomErasing(*ERASED, on="both"), erased(*ERASED), FEW),
    Case(ap.ResizeKeepingAspect(20, 11, value=7, mask_value=4), letterbox((20, 11), (7, 4)), FEW, 1, 1),
    Case(ap.ResizeKeepingAspect(5, 8, value=7, mask_value=4), letterbox((5, 8), (7, 4)), FEW, 1, 1),
    Case(ap.RandomHue(0.5), hue(0.5), FEW, 1, 1),
    Case(ap.RandomHue(0.1), hue(0.1), ("float",), 1e-5, 1e-5),
    Case(ap.RandomSaturation(0.0, 3.0), saturation(0.0, 3.0), FEW, 1, 1),
    Case(ap.RandomSaturation(0.5, 1.5), saturation(0.5, 1.5), ("float",), 1e-5, 1e-5),
    Case(ap.RandomGrayscale(0.4), grey(0.4), FEW, 1),
    Case(ap.RandomGrayscale(1.0), grey(1.0), ("float",), 1e-6, 1e-6),
    Case(ap.GaussianBlur(5, (0.1, 3.0), 0.9), blurred(5, (0.1, 3.0), 0.9), FEW, 2),
    Case(ap.GaussianBlur(3, (1.0, 1.0)), blurred(3, (1.0, 1.0), 1.0), ("float",), 1e-5),
    Case(ap.RandomBrightness(factor=(0.5, 2.0)), stretched(lambda a, n: a * (0.5 + 1.5 * n)), FEW, 1),
    Case(ap.RandomBrightness(factor=(0.5, 1.5)), stretched(lambda a, n: a * (0.5 + n)), ("float",), 1e-6, 1e-6),
    Case(ap.MixUp(), lambda a, kind, random: a, ("float", "deep-coloured")),  # a sample alone: ops/test_ops.py
    Case(ap.CutMix(), lambda a, kind, random: a, ("float", "masked")),
    Case(ap.Decode(), decoded, ("encoded",)),
]
