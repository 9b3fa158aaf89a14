"""Ops that change the size of an image and its mask: crops, resizes, padding.

OpenCV places pixels as TensorFlow does (half-pixel centres, no antialiasing). Which pixel is the nearest is computed
here, in whole numbers: where a centre lies on the edge of two, libraries differ by how they round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, ConfigError
from autopipe.workload.op import Places, Step
from autopipe.workload.ops import pixels
from autopipe.workload.ops.pixels import PixelOp
from autopipe.workload.plain_code import Library, Variable, parts, quoted, shape_lines
from autopipe.workload.sample import Field, FieldKind


def check_size(op: object, height: int, width: int) -> None:
    """Refuse sizes that are not positive whole numbers of pixels."""
    pixels.check_whole(op, "height", height, " of pixels")
    pixels.check_whole(op, "width", width, " of pixels")


Interpolation: TypeAlias = Literal["bilinear", "nearest", "area", "bicubic"]

_SMOOTH = {"bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "bicubic": cv2.INTER_CUBIC}
_MOST_CHANNELS: Final = {"area": 4}  # that OpenCV takes at once
_MISSING: Any = None  # a width that was not given, which is refused in words


@dataclasses.dataclass(frozen=True)
class _Sized(PixelOp):
    height: int
    width: int = _MISSING

    def takes_floats(self, part: Variable) -> bool | None:
        return not part.is_mask and getattr(self, "interpolation", "nearest") != "nearest"

    def __post_init__(self) -> None:
        if self.width is _MISSING:
            given: Any = self.height
            both = given if isinstance(given, tuple | list) else (given, given)
            raise ConfigError(
                f"{type(self).__name__} takes a height and a width in pixels, but got {given!r} and no width.",
                hint=f"ap.{type(self).__name__}({', '.join(map(repr, both))}) has both.",
            )
        check_size(self, self.height, self.width)
        if hasattr(self, "interpolation"):  # crops and padding have none
            pixels.check_choice(self, "interpolation", ("nearest", *_SMOOTH))


@dataclasses.dataclass(frozen=True)
class Resize(_Sized):
    """Resize to `height` x `width` pixels.

    Attributes:
        height: pixels.
        width: pixels.
        interpolation: "bilinear", "nearest", "area" or "bicubic"; masks always take the nearest pixel.
    """

    interpolation: Interpolation = "bilinear"

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        return resized(array, (self.height, self.width), how(self.interpolation, kind))

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return _resized_natively(self.height, self.width, how(self.interpolation, field.kind), field)

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        """TensorFlow's "area" and "bicubic" place pixels slightly differently."""
        return plain_resized(step, (str(self.height), str(self.width)), self.interpolation, library)


def how(interpolation: Interpolation, kind: FieldKind) -> Interpolation:
    """Return the interpolation of a part: a mask's class numbers cannot be averaged."""
    return "nearest" if kind is FieldKind.MASK else interpolation


def resized(array: NDArray[Any], size: tuple[int, int], interpolation: Interpolation) -> NDArray[Any]:
    """Return an image resized to (height, width)."""
    if array.shape[:2] == size:
        return array
    height, width = size
    if interpolation == "nearest":
        rows = array.take(_nearest(array.shape[0], np.arange(height), height), axis=0)
        nearest: NDArray[Any] = rows.take(_nearest(array.shape[1], np.arange(width), width), axis=1)
        return nearest
    most = _MOST_CHANNELS.get(interpolation, pixels.CHANNELS)
    if array.shape[2:] > (most,):
        groups = range(0, array.shape[2], most)
        each = [resized(np.ascontiguousarray(array[..., at : at + most]), size, interpolation) for at in groups]
        return np.concatenate(each, axis=2)
    smooth = cv2.resize(array, (width, height), interpolation=_SMOOTH[interpolation])
    return smooth if smooth.ndim == array.ndim else smooth[..., None]


def _resized_natively(
    height: int, width: int, interpolation: Interpolation, field: Field, name: str = "RESIZE"
) -> tuple[native.Instruction, ...] | None:
    dtype, is_nearest = field.dtype or np.dtype(np.uint8), interpolation == "nearest"
    if interpolation not in native.HOW or not (is_nearest or native.resizes(dtype.name, interpolation, field.channels)):
        return None
    whole = (height, width, native.HOW[interpolation], 1 if is_nearest else dtype.itemsize)
    return (native.Instruction(name, whole, is_wide=is_nearest or dtype.itemsize > 1),)


def plain_resized(step: Step, size: tuple[str, str], interpolation: Interpolation, library: Library) -> Iterator[str]:
    """Yield lines that resize the parts of an op; height and width are code."""
    height, width = size
    tall, wide = (str(2 * int(each)) if each.isdigit() else f"(2 * {each})" for each in size)
    for part in parts(step):
        if part.is_mask or interpolation == "nearest":
            counted, shape, picked = "np.arange", f"{part}.shape", f"{part}[rows][:, columns]"
            if library == "tf":
                counted, shape = "tf.range", f"tf.shape({part})"
                picked = f"tf.gather(tf.gather({part}, rows), columns, axis=1)"
            yield f"rows = (2 * {counted}({height}) + 1) * {shape}[0] // {tall}"
            yield f"columns = (2 * {counted}({width}) + 1) * {shape}[1] // {wide}"
            yield f"{part} = {picked}"
        elif library == "tf":
            method = "" if interpolation == "bilinear" else f", method={quoted(interpolation)}"
            yield f"{part} = tf.image.resize({part}, ({height}, {width}){method})"
            if part.is_integer:
                # Means of pixels stay in their range.
                yield from pixels.plain_rounded(part, clips=interpolation == "bicubic")
        else:
            method = {"bilinear": "LINEAR", "bicubic": "CUBIC"}.get(interpolation, interpolation.upper())
            resized = f"cv2.resize({{}}, ({width}, {height}), interpolation=cv2.INTER_{method})"
            most, known = _MOST_CHANNELS.get(interpolation, pixels.CHANNELS), part.field.shape or part.after.shape
            if (known[2:] > (most,)) if known else (interpolation in _MOST_CHANNELS and part.field.rank == 3):
                some = f"np.ascontiguousarray({part}[..., at : at + {most}])"
                yield f"{part} = np.dstack([{resized.format(some)} for at in range(0, {part}.shape[2], {most})])"
            else:
                yield f"{part} = {resized.format(part)}"
                yield from part.channel_axis()


def _nearest(before: Any, places: Any, after: Any) -> Any:  # the pixels with the centres of the new ones, exactly
    return (2 * places + 1) * before // (2 * after)


@dataclasses.dataclass(frozen=True)
class Pad(_Sized):
    """Pad evenly around to at least `height` x `width` pixels; larger images stay as they are.

    Attributes:
        height: pixels.
        width: pixels.
        value: of the padding of an image.
        mask_value: of the padding of a mask.
    """

    in_pixels: ClassVar[bool] = True
    value: float = 0
    mask_value: float = 0

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        return padded(array, (self.height, self.width), pixels.filling(self, kind, array.dtype))

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (_padded_natively(self, field),)

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        for part in parts(step):
            value = pixels.plain_filling(self, part)
            if library == "np":
                missing = f"max(0, {self.height} - {part}.shape[0]), max(0, {self.width} - {part}.shape[1])"
                edges = f"top, down - top, left, right - left, cv2.BORDER_CONSTANT, value={(value,) * 4!r}"
                padded = [f"{part} = cv2.copyMakeBorder({part}, {edges})", *part.channel_axis()]
            else:
                missing = f"tf.unstack(tf.maximum(0, ({self.height}, {self.width}) - tf.shape({part})[:2]))"
                edges = "[[top, down - top], [left, right - left]" + ("]" if part.is_flat else ", [0, 0]]")
                padded = [f"{part} = tf.pad({part}, {edges}, constant_values=tf.cast({value!r}, {part}.dtype))"]
            yield from (f"down, right = {missing}", "top, left = down // 2, right // 2", *padded)


def _padded_natively(op: Any, field: Field) -> native.Instruction:
    dtype = field.dtype or np.dtype(np.uint8)
    pixel = padded(np.empty((0, 1), dtype), (1, 1), pixels.filling(op, field.kind, dtype))
    return native.Instruction("PAD", (op.height, op.width, *native.in_memory(pixel), dtype.itemsize), is_wide=True)


def padded(array: NDArray[Any], size: tuple[int, int], value: float) -> NDArray[Any]:
    """Return an image padded evenly around to at least `size` (height, width)."""
    down, right = max(0, size[0] - array.shape[0]), max(0, size[1] - array.shape[1])
    if not down and not right:
        return array
    top, left = down // 2, right // 2
    level = value if array.dtype.kind == "f" else round(value)
    if array.dtype.kind in "iu":
        level = np.clip(level, np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
    larger = np.full((array.shape[0] + down, array.shape[1] + right, *array.shape[2:]), level, array.dtype)
    larger[top : top + array.shape[0], left : left + array.shape[1]] = array
    return larger


@dataclasses.dataclass(frozen=True)
class ResizeKeepingAspect(_Sized):
    """Resize so that the whole image fits into `height` x `width` pixels, and pad it evenly to that size (letterbox).

    Attributes:
        height: pixels.
        width: pixels.
        interpolation: as of `Resize`; masks always take the nearest pixel.
        value: of the padding of an image.
        mask_value: of the padding of a mask.
    """

    interpolation: Interpolation = "bilinear"
    value: float = 0
    mask_value: float = 0

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        height, width = self.height, self.width
        down, across = array.shape[:2]
        if height * across <= width * down:  # it fills the height
            width = max(1, (2 * across * height + down) // (2 * down))
        else:
            height = max(1, (2 * down * width + across) // (2 * across))
        fitted = resized(array, (height, width), how(self.interpolation, kind))
        return padded(fitted, (self.height, self.width), pixels.filling(self, kind, array.dtype))

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        fitted = _resized_natively(self.height, self.width, how(self.interpolation, field.kind), field, "FIT")
        return None if fitted is None else (*fitted, _padded_natively(self, field))

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        before, maximum = f"{parts(step)[0]}.shape[:2]", "max"
        size = f"({self.height}, wide) if fills else (tall, {self.width})"
        if library == "tf":
            before, maximum = f"tf.unstack(tf.shape({parts(step)[0]})[:2])", "tf.maximum"
            size = f"tf.where(fills, {self.height}, tall), tf.where(fills, wide, {self.width})"
        yield f"down, across = {before}"
        yield f"fills = {self.height} * across <= {self.width} * down"
        yield f"tall = {maximum}(1, ({2 * self.width} * down + across) // (2 * across))"
        yield f"wide = {maximum}(1, ({2 * self.height} * across + down) // (2 * down))"
        yield f"height, width = {size}"
        yield from plain_resized(step, ("height", "width"), self.interpolation, library)
        yield from Pad(self.height, self.width, self.value, self.mask_value).plain(step, library)
        if library == "tf":
            yield from shape_lines(parts(step))


@dataclasses.dataclass(frozen=True)
class _Crop(_Sized):
    """Cut `height` x `width` pixels out: at a random place if the op is random, else at the centre."""

    in_pixels: ClassVar[bool] = True

    def takes_floats(self, part: Variable) -> None:
        """Return None: it puts values elsewhere."""

    def _place(self, random: Any) -> tuple[Any, Any]:
        return (random[0], random[1]) if self.is_random else (0.5, 0.5)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        height, width = array.shape[:2]
        if height < self.height or width < self.width:
            raise BadSampleError(
                f"`{type(self).__name__}` cannot cut {self.height}x{self.width} out of {height}x{width} pixels.",
                hint="Put ap.Pad or ap.Resize before it.",
            )
        down, right = self._place(random)
        top, left = int(down * (height - self.height + 1)), int(right * (width - self.width + 1))
        return array[top : top + self.height, left : left + self.width]

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (native.Instruction("CROP", (self.height, self.width, self.is_random), is_wide=True),)

    def places(self, size: tuple[int, int], random: NDArray[np.float64]) -> Places | None:
        if type(self) not in (CenterCrop, RandomCrop):  # a class of somebody's own may do more
            return None
        free, count = (size[0] - self.height + 1, size[1] - self.width + 1), len(random)
        down, right = (np.broadcast_to(at * most, count) for at, most in zip(self._place(random.T), free, strict=True))
        tops, lefts = down.astype(np.int64)[:, None], right.astype(np.int64)[:, None]
        return tops + np.arange(self.height), lefts + np.arange(self.width)

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        named = parts(step)
        free = f"{named[0].size}[:2] - ({self.height}, {self.width}) + 1"
        if library == "np":
            down, right = f"{named[0]}.shape[0] - {self.height} + 1", f"{named[0]}.shape[1] - {self.width} + 1"
            drawn, middle = f"rng.integers(({down}, {right}))", f"({down}) // 2, ({right}) // 2"
            yield f"top, left = {drawn if self.is_random else middle}"
        elif self.is_random:
            yield f"free = tf.cast({free}, tf.float32)"
            yield "top, left = tf.unstack(tf.cast(tf.random.uniform((2,)) * free, tf.int32))"
        else:
            yield f"top, left = tf.unstack(({free}) // 2)"
        yield from (part.cut(self.height, self.width) for part in named)
        if library == "tf":
            yield from shape_lines(named)


@dataclasses.dataclass(frozen=True)
class CenterCrop(_Crop):
    """Cut the centre out, `height` x `width` pixels."""


@dataclasses.dataclass(frozen=True)
class RandomCrop(_Crop):
    """Cut `height` x `width` pixels out at a place of the sample's own; image and mask at the same place."""

    draws: ClassVar[int] = 2

    def without_chance(self) -> CenterCrop:
        return CenterCrop(self.height, self.width)


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop(_Sized):
    """Cut a rectangle of random size, shape and place out, and resize it; image and mask alike.

    Attributes:
        height: pixels after resizing.
        width: pixels after resizing.
        area: the rectangle's smallest and largest share of the image.
        ratio: its smallest and largest width to height, drawn evenly on a logarithmic scale; a larger rectangle is cut
            to the image.
        interpolation: as of `Resize`; masks always take the nearest pixel.
    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    draws: ClassVar[int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        pixels.checked_range(self, "area", most=1, above=True)
        pixels.checked_range(self, "ratio", above=True)

    def without_chance(self) -> Resize:
        return Resize(self.height, self.width, self.interpolation)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        top, left, height, width = pixels.box(array.shape, self.area, self.ratio, random)
        cut = array[top : top + height, left : left + width]
        return resized(cut, (self.height, self.width), how(self.interpolation, kind))

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        resized = _resized_natively(self.height, self.width, how(self.interpolation, field.kind), field)
        cut = native.Instruction("CROP_RANDOM_SIZE", real=(*self.area, *self.ratio), is_wide=True)
        return None if resized is None else (cut, *resized)

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        first = parts(step)[0]
        if library == "np":
            yield from pixels.plain_box(first, self.area, self.ratio, library)
        else:
            size = f"tf.concat([{first.size}, [1]], 0)" if first.is_flat else first.size
            yield "begin, extent, _ = tf.image.sample_distorted_bounding_box("
            yield f"    {size},"
            yield "    [[[0.0, 0.0, 1.0, 1.0]]],"
            yield "    min_object_covered=0.0,"
            yield f"    aspect_ratio_range={self.ratio},"
            yield f"    area_range={self.area},"
            yield ")"
            yield "top, left, height, width = begin[0], begin[1], extent[0], extent[1]"
        yield from (part.cut("height", "width") for part in parts(step))
        yield from plain_resized(step, (str(self.height), str(self.width)), self.interpolation, library)


CUTS: Final = (CenterCrop, RandomCrop, RandomResizedCrop)  # ops that begin with a cut
