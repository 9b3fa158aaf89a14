"""Ops on values: arithmetic on each one alone, at home on a whole batch and on the device; and ops on targets.

Targets go from a colour-coded mask to class numbers, and from class numbers to vectors of zeros and a one.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import os
import textwrap
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, ConfigError, OpError, warn_of_data
from autopipe.workload.data.paths import located
from autopipe.workload.op import NUMPY, ArrayNamespace, Op, Step, Target
from autopipe.workload.ops.pixels import PixelOp, check_choice, check_whole, not_decoded
from autopipe.workload.plain_code import Library, Lines, Variable, converted, parts, quoted
from autopipe.workload.sample import Batch, Field, FieldKind, Sample, SampleSpec

_UNIT, _BYTE = 2.0, 255.0  # the most of images of 0 to 1, or of -1 to 1, with some room; and of a byte
_NONE: Final = -0.0  # which added to any number gives that number; 0.0 added to -0.0 does not
_DTYPES = ("float16", "float32", "float64", "bfloat16", "uint8", "uint16", "int32", "int64")


@dataclasses.dataclass(frozen=True)
class _ValueOp(Op):
    """An op on each value of an image alone; `dtype` is that of the result, float32 unless told."""

    dtype: str = dataclasses.field(default="float32", kw_only=True)
    batchable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice(self, "dtype", _DTYPES)

    def terms(self, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        """Return (a, factor, b) of (x - a) * factor + b, for each channel or for all; None for none."""
        raise NotImplementedError

    def values(self, array: Any, xp: ArrayNamespace) -> Any:
        less, factor, more = self.terms(xp)
        made = xp.cast(array, self.dtype)
        made = made if less is None else made - less
        made = made if factor is None else made * factor
        return made if more is None else made + more

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        if self.dtype != "float32" or field.dtype not in (np.uint8, np.uint16, np.float32) or field.shape is None:
            return None
        less, factor, more = self.terms(NUMPY)
        line = (_NONE if less is None else -less, 1 if factor is None else factor, _NONE if more is None else more)
        each = np.broadcast_arrays(*line)
        table = np.array([np.broadcast_to(one, field.shape[1:] if one.ndim else ()) for one in each], np.float32)
        size = field.dtype.itemsize, table[0].size
        return (native.Instruction("LINEAR", size, table=table, is_wide=field.dtype != np.uint8),)

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        for each in map(np.shape, self.terms(NUMPY)):
            if each > (1,) and isinstance(sample[0], np.ndarray) and each != sample[0].shape[-1:]:
                raise OpError(
                    f"`{self.name}` has numbers for {each[0]} channels, but an image has the shape {sample[0].shape}.",
                    hint="Give one number for each channel, or one for all.",
                )

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        images = [image for sample in samples if (image := np.asarray(sample[0])).dtype.kind in "uif"]
        top = max((float(np.max(each, where=np.isfinite(each), initial=0)) for each in images), default=0.0)
        total = sum(float(np.sum(each, where=np.isfinite(each), dtype=np.float64)) for each in images)
        mean = total / max(1, sum(each.size for each in images))
        is_scaled = 0 < top <= _UNIT and images[0].dtype.kind == "f"
        if (said := self._other_range(top, mean, is_scaled=is_scaled)) is not None:
            warn_of_data(
                f"`{self.name}` is for values of 0 to {said[0]}, but images that were looked at are {images[0].dtype} "
                f"{said[1]}"
            )

    def _other_range(self, top: float, mean: float, *, is_scaled: bool) -> tuple[int, str] | None:
        """Return the largest value that the op is for and what to do, if images of these values are others."""
        return None

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        x, y = sample
        if not isinstance(x, np.ndarray | np.generic):
            raise not_decoded(x, self)
        return self.values(x, NUMPY), y

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        return self.values(batch[0], xp), batch[1]

    def takes_floats(self, part: Variable) -> bool:
        return self.dtype == "float32"


def _check_numbers(op: object, *settings: str) -> None:
    for name in settings:
        value = getattr(op, name)
        if np.asarray(value).dtype.kind not in "iuf":
            raise ConfigError(f"`{name}` of {type(op).__name__} must be a number, but got {name}={value!r}.")


@dataclasses.dataclass(frozen=True)
class Rescale(_ValueOp):
    """Multiply by `scale` and add `offset`, in the dtype of the result.

    Attributes:
        scale: factor.
        offset: added afterwards.
    """

    scale: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_numbers(self, "scale", "offset")

    def _other_range(self, top: float, mean: float, *, is_scaled: bool) -> tuple[int, str] | None:
        of_bytes = any(math.isclose(self.scale, each / _BYTE, rel_tol=1e-3) for each in (1, 2))
        if not of_bytes or not (is_scaled or top > 2 * _BYTE):
            return None
        deep = "that exceed 510. Divide by the largest value that they can have: ap.Rescale(1 / 4095), say."
        return 255, "of at most 2: they are scaled already. Leave it out." if is_scaled else deep

    def terms(self, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        offset = xp.constant(self.offset, self.dtype) if self.offset else None
        return None, xp.constant(self.scale, self.dtype), offset

    def plain(self, step: Step, library: Library) -> Lines:
        change = f" * {self.scale!r}" + (f" + {self.offset!r}" if self.offset else "")
        return [f"{part} = {converted(part, self.dtype, library)}{change}" for part in parts(step)]


@dataclasses.dataclass(frozen=True)
class Normalize(_ValueOp):
    """Subtract a mean and divide by a standard deviation, for each channel or for all.

    The division is done as a multiplication by the reciprocal, so that every backend rounds alike.

    Attributes:
        mean: one number, or one for each channel.
        std: one positive number, or one for each channel.
    """

    mean: Sequence[float] | float
    std: Sequence[float] | float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_numbers(self, "mean", "std")
        for name, value in (("mean", self.mean), ("std", self.std)):
            object.__setattr__(self, name, tuple(value) if isinstance(value, Sequence | np.ndarray) else value)
        if np.any(np.asarray(self.std) <= 0):
            raise ConfigError(f"`std` of Normalize must be positive, but got std={self.std!r}.")

    def _other_range(self, top: float, mean: float, *, is_scaled: bool) -> tuple[int, str] | None:
        least, most = np.min(self.mean), max(np.max(self.mean), np.max(self.std))
        if top > _BYTE / 4 and mean > _BYTE / 64 and 0 < least <= most <= 1:  # and no few lights of a wide range
            return 1, "that exceed 60. Put ap.Rescale(1 / 255), or by the largest value that they can have, before it."
        if is_scaled and least > _BYTE / 25:
            return 255, "of at most 2. Leave out the ap.Rescale before it, or divide mean and std by 255."
        return None

    def terms(self, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        reciprocal = xp.constant(1.0 / np.asarray(self.std, np.float64), self.dtype)
        return xp.constant(self.mean, self.dtype), reciprocal, None

    def plain(self, step: Step, library: Library) -> Lines:
        mean, std = repr(self.mean), repr(self.std)
        if library == "np":
            mean, std = (f"np.asarray({value}, {quoted(self.dtype)})" for value in (mean, std))
        return [f"{part} = ({converted(part, self.dtype, library)} - {mean}) / {std}" for part in parts(step)]


@dataclasses.dataclass(frozen=True)
class Cast(_ValueOp):
    """Change the dtype of the image, of the mask or label, or of both.

    Attributes:
        dtype: the dtype of the result, given by position here.
        on: "image", "mask" (any y) or "both".
    """

    dtype: str = "float32"
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    any_y: ClassVar[bool] = True

    def terms(self, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        return None, None, None

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        return self.finish(sample, spec, NUMPY)

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        both = zip(batch, self.touches(spec), strict=True)
        x, y = (self.values(part, xp) if is_on else part for part, is_on in both)
        return x, y

    def plain(self, step: Step, library: Library) -> Lines:
        if library == "np":
            return [f"{part} = {converted(f'np.asarray({part})', self.dtype, library)}" for part in parts(step)]
        made = {part: converted(part, self.dtype, library) for part in parts(step)}
        return [f"{part} = {code}" for part, code in made.items() if code != part]


# -------------------- targets

_UNKNOWN = 255  # the class of colours that are not in the palette, and of many colours:
_MOST_COLOURS: Final = 65_535
Palette = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class MaskToClass(PixelOp):
    """Replace each colour of a mask by its position in a palette: (height, width, 3) uint8 to (height, width) uint8, or
    uint16 if the palette has more than 255 colours.

    Attributes:
        palette: colours (red, green, blue), at most 65,535, or the path of a CSV file with one colour a line, as
            CamVid's `class_dict.csv` has them: with or without a header and a column of names. A relative path starts
            at the script that writes it.
        unknown: the class of colours that are not in the palette; None makes them an error.

    Raises:
        BadSampleError: a colour is not in the palette and `unknown` is None.
    """

    palette: Sequence[Sequence[int]] | str | os.PathLike[str]
    unknown: int | None = None
    on: Literal["image", "mask", "both"] = dataclasses.field(default="mask", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "palette", _checked(self.palette))
        unknown: Any = 0 if self.unknown is None else self.unknown
        if not isinstance(unknown, int | np.integer) or not 0 <= unknown <= self._no_class:
            said = f"`unknown` of MaskToClass must be None or a class from 0 to {self._no_class}"
            raise ConfigError(f"{said}, but got {self.unknown!r}.")

    @property
    def _colours(self) -> Palette:
        return self.palette  # type: ignore[return-value]  # _checked made it one

    @property
    def _no_class(self) -> int:
        return int(np.iinfo(np.min_scalar_type(len(self._colours))).max)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
            said = f"`MaskToClass` needs a colour mask (height, width, 3) uint8, but got {array.shape} {array.dtype}."
            is_numbers = array.ndim == 2 and array.max(initial=0) < len(self._colours)
            holds = "It holds the numbers of classes already: leave `MaskToClass` out."
            raise BadSampleError(said, hint=holds if is_numbers else None)
        classes: NDArray[Any] = _table(self._colours)[_codes(array)]
        if self.unknown is None:
            if classes.max(initial=0) == self._no_class:
                colour = tuple(int(level) for level in array[classes == self._no_class][0])
                raise BadSampleError(
                    f"the mask has the colour {colour}, which is not one of the palette's {len(self._colours)}.",
                    hint="Add it to the palette, or name the class of such pixels: MaskToClass(palette, unknown=0).",
                )
        else:
            classes[classes == self._no_class] = self.unknown
        return classes

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        super().look(samples, spec)
        masks = (each for sample in samples for each, on in zip(sample, self.touches(spec), strict=False) if on)
        arrays = [each for each in masks if isinstance(each, np.ndarray) and each.dtype == np.uint8]
        few = [each[:: 1 + len(each) // 256, :: 1 + each.shape[1] // 256] for each in arrays if each.ndim == 3]
        codes = {code for each in few if each.shape[2] == 3 and each.size for code in np.unique(_codes(each)).tolist()}
        seen = {(code & 255, code >> 8 & 255, code >> 16) for code in codes}
        known = {*self._colours}
        turned = [each for each in seen - known if each[::-1] in known]
        is_half = self.unknown is None or 2 * len(turned) > len(seen - known)  # else others are left out on purpose
        if turned and is_half and not any(each in known and each[::-1] != each for each in seen):
            warn_of_data(
                f"The palette of `{self.name}` seems to be in the order blue, green, red, as of OpenCV: masks have the "
                f"colour {turned[0]}, and it has the reverse. Write red, green, blue."
            )

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        unknown = -1 if self.unknown is None else self.unknown
        if self._no_class != _UNKNOWN:  # its classes are bytes
            return None
        return (native.Instruction("CLASSES", (unknown,), table=_table(self._colours)),)

    def plain_constants(self, step: Step) -> Lines:
        inner = textwrap.fill(", ".join(map(repr, self._colours)), 110, break_long_words=False, break_on_hyphens=False)
        return [
            f"PALETTE_{step.stream} = (\n{textwrap.indent(inner, '    ')},\n)",
            f"CLASSES_{step.stream} = np.full(1 << 24, {self._no_class if self.unknown is None else self.unknown}, "
            f"np.{np.min_scalar_type(self._no_class)})",
            f"for number, (red, green, blue) in enumerate(PALETTE_{step.stream}):",
            f"    CLASSES_{step.stream}[red + 256 * green + 65536 * blue] = number",
        ]

    def plain(self, step: Step, library: Library) -> Lines:
        code = "CLASSES_{0}[{1}.astype(np.int32) @ (1, 256, 65536)]"
        if library == "tf":
            code = "tf.gather(CLASSES_{0}, tf.reduce_sum(tf.cast({1}, tf.int32) * (1, 256, 65536), axis=-1))"
        return [f"{part} = {code.format(step.stream, part)}" for part in parts(step)]


def _codes(mask: NDArray[np.uint8]) -> NDArray[Any]:
    """Return each colour as one whole number, shape (height, width): red + 256 green + 65536 blue."""
    planes = cv2.cvtColor(mask, cv2.COLOR_RGB2RGBA)  # one vectorised pass to four bytes a pixel; the fourth is 255
    return planes.view(np.uint32)[..., 0] & np.uint32(0xFFFFFF)


@functools.lru_cache(maxsize=8)
def _table(palette: Palette) -> NDArray[Any]:
    """Return the class of every 24-bit colour (16 MiB, or 32 of many classes, made once a process)."""
    dtype = np.min_scalar_type(len(palette))
    table = np.full(1 << 24, np.iinfo(dtype).max, dtype)
    for number, (red, green, blue) in enumerate(palette):
        table[red | green << 8 | blue << 16] = number
    return table


def _checked(palette: Any) -> Palette:
    rows = _read(located(palette)) if isinstance(palette, str | os.PathLike) else palette
    try:
        colours = tuple((int(red), int(green), int(blue)) for red, green, blue in rows)
    except (TypeError, ValueError):
        raise ConfigError(f"`palette` must be rows of red, green, blue, but got {palette!r}.") from None
    if not 1 <= len(colours) <= _MOST_COLOURS:
        raise ConfigError(f"`palette` must have 1 to {_MOST_COLOURS:,} colours, but got {len(colours)}.")
    if len(set(colours)) != len(colours):
        raise ConfigError("`palette` must not name a colour twice.")
    if any(not 0 <= level <= 255 for colour in colours for level in colour):
        raise ConfigError("`palette` must have levels from 0 to 255.")
    return colours


def _read(path: str | os.PathLike[str]) -> list[list[str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(map(str.strip, row))]
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigError(f"`palette` {os.fspath(path)!r} cannot be read: {reason}.") from None
    header = [cell.lower() for cell in rows[0]] if rows else []
    columns: list[int] = [-3, -2, -1]
    if header and not any(cell.isdigit() for cell in header):
        rows = rows[1:]
        for names in (("r", "g", "b"), ("red", "green", "blue")):
            if set(names) <= set(header):
                columns = [header.index(name) for name in names]
    if any(len(row) < 3 for row in rows):
        raise ConfigError(f"`palette` {os.fspath(path)!r} must have red, green and blue in each line.")
    return [[row[column] for column in columns] for row in rows]


_VOID: Final = (255, 65535)  # pixels of a mask that belong to no class, as in Pascal VOC and Cityscapes


@dataclasses.dataclass(frozen=True)
class OneHot(Op):
    """Give the label or mask a last axis of length `classes`. A number outside 0..classes-1 becomes all zeros.

    A warning names such numbers in the first samples, unless they are ignored pixels of a mask, 255, 65,535 or below
    0. It is no error, as zeros add nothing to a cross-entropy: a label of -1 may be intended.

    Best done on the device: 32 classes in float32 are 128 times the bytes of the class numbers.

    Attributes:
        classes: how many.
        dtype: of the result.
    """

    classes: int
    dtype: str = "float32"
    batchable: ClassVar[bool] = True
    on: ClassVar[Target] = "mask"

    def __post_init__(self) -> None:
        check_whole(self, "classes", self.classes)

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        others = [self._others(np.asarray(sample[1])) for sample in samples if sample[1] is not None]
        if (first := next((found for found in others if found is not None), None)) is not None:
            warn_of_data(
                f"`OneHot({self.classes})` knows the classes 0 to {self.classes - 1} and makes zeros of others, and "
                f"{sum(found is not None for found in others)} of {len(samples)} samples that were looked at have "
                f"others, such as {first}. Pass the number of all classes, or number them from 0 first: "
                'ap.Map(function, on="mask").'
            )

    def _others(self, y: NDArray[Any]) -> int | None:
        if y.dtype.kind not in "iu":
            return None  # `apply` refuses it
        is_known = (y >= 0) & (y < self.classes)
        known, others = y[is_known], y[~is_known]
        if others.size == 0:
            return None
        is_void = (np.isin(others, _VOID) | (others < 0)).all() and known.size > 0 and known.min() < known.max()
        return None if is_void else int(others[0])

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        if sample[1] is not None and (dtype := np.asarray(sample[1]).dtype).kind not in "iu":
            hint = 'Put ap.Cast("int64", on="mask") before it.'
            if np.ndim(sample[1]) == 1 and np.sum(sample[1]) == 1:
                hint = "They are vectors with a one already: leave it out."
            raise OpError(f"`OneHot` needs whole numbers in y, but got {dtype}.", hint=hint)
        return self.finish(sample, spec, NUMPY)

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        x, y = batch
        if y is None:
            raise OpError("`OneHot` needs a label or a mask, but the data have no y.")
        return x, xp.one_hot(y, self.classes, self.dtype)

    def plain(self, step: Step, library: Library) -> Lines:
        if library == "tf":
            how = f"{self.classes}, dtype=tf.{self.dtype}"
            return [f"{part} = tf.one_hot(tf.cast({part}, tf.int32), {how})" for part in parts(step)]
        is_one = f"(np.asarray({{}})[..., None] == np.arange({self.classes}))"
        return [f"{part} = {converted(is_one.format(part), self.dtype, library)}" for part in parts(step)]
