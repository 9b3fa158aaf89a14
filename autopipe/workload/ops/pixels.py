"""The base of ops on pixels: one function for x and, if the op follows the image, for its mask.

Random numbers in ranges and boxes, checks of ranges, and the levels of pixels are here: 0 to the largest of an unsigned
integer type, 0 to 1 of a floating-point one. Colour ops compute in floating point and come back through `to_levels`, so
that none leaves that range by wrapping. Concrete ops are in the modules beside this one.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, ConfigError, OpError, shortened, warn_of_data
from autopipe.workload.op import Op, Step
from autopipe.workload.plain_code import Library, Lines, Variable, converted, parts
from autopipe.workload.sample import FieldKind, Part, Sample, SampleSpec


def largest(dtype: np.dtype[Any]) -> float:
    """Return a dtype's brightest level: 255, 65535, 1 of floats; raise OpError if it is a signed integer."""
    if dtype.kind == "u":
        return float(np.iinfo(dtype).max)
    if dtype.kind != "f":
        raise OpError(
            f"an op on colours needs images of unsigned whole numbers or floating point, but got {dtype}.",
            hint="Scale them to 0 to 1 before it, by the largest value that they can have: ap.Rescale(1 / 10000), say.",
        )
    return 1.0


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as floating point to compute with: float32, if that holds them."""
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def to_levels(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return computed levels in `dtype`: rounded half to even and kept in its range if it holds whole numbers."""
    if dtype.kind != "u":
        return values.astype(dtype, copy=False)
    levels: NDArray[Any] = np.clip(np.rint(values), 0, largest(dtype)).astype(dtype)
    return levels


def plain_top(part: Variable) -> str:
    """Return the brightest level of a part, as code."""
    return "1.0" if part.field.dtype is None else str(largest(part.field.dtype))


def plain_levels(values: str, part: Variable, library: Library) -> str:
    """Return code that converts computed levels to the dtype of a part."""
    if library == "tf":
        rounded = f"tf.round({values})" if part.is_integer else values
        return f"tf.saturate_cast({rounded}, {part.tensor_type})"
    levels = f"np.clip(np.rint({values}), 0, {plain_top(part)})" if part.is_integer else f"({values})"
    return f"{levels}.astype({part}.dtype)"


def plain_changed_tensorflow(before: Lines, change: str, step: Step, *, colours: bool = False) -> Iterator[str]:
    """Yield lines that change parts as floats by code with `{}`; `colours` leaves other images alone."""
    yield from before
    for part in parts(step):
        shape = part.field.shape
        if colours and shape is not None and shape[2:] != (3,):
            continue
        floats = part if part.tensor_type == "tf.float32" else converted(part, "float32", "tf")
        lines = [f"{part} = {change.format(floats)}", *plain_rounded(part, clips=not colours)]
        if colours and shape is None:
            lines = [f"if {part}.shape[2:] == (3,):", *(f"    {line}" for line in lines)]
        yield from lines


def plain_rounded(part: Variable, *, clips: bool) -> Lines:
    """Return lines that give a part its dtype again; `clips` says that levels may be out of its range."""
    if part.tensor_type == "tf.float32":
        return []
    if part.after.held == "floats":
        return [f"{part} = tf.clip_by_value({part}, 0.0, {plain_top(part)})"] if clips else []
    levels = plain_levels(part, part, "tf")
    return [f"{part} = {levels if clips else levels.replace('saturate_cast', 'cast', 1)}"]


Range: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[Any, Any, Any, Any]  # top, left, height, width


def between(limits: Range, number: Any) -> Any:
    """Map a number in [0, 1) to the range `limits`."""
    return limits[0] + (limits[1] - limits[0]) * number


def symmetric(limit: float, number: Any) -> Any:
    """Map a number in [0, 1) to [-limit, limit]."""
    return (2 * number - 1) * limit


def box(size: tuple[int, ...], area: Range, ratio: Range, random: Any) -> Box:
    """Return a rectangle in an image of `size` by four random numbers: of its area, its ratio, top and left."""
    pixels, aspect = size[0] * size[1] * between(area, random[0]), ratio[0] * (ratio[1] / ratio[0]) ** random[1]
    height = min(size[0], max(1, int((pixels / aspect) ** 0.5 + 0.5)))
    width = min(size[1], max(1, int((pixels * aspect) ** 0.5 + 0.5)))
    return int(random[2] * (size[0] - height + 1)), int(random[3] * (size[1] - width + 1)), height, width


def plain_box(part: str, area: Range, ratio: Range, library: Library) -> Lines:
    """Return lines that draw such a rectangle in a part: `top`, `left`, `height` and `width`."""
    logs = tuple(round(math.log(end), 6) for end in ratio)
    if library == "tf":
        return [
            f"down, across = tf.unstack(tf.cast(tf.shape({part})[:2], tf.float32))",
            f"pixels = down * across * tf.random.uniform((), {area[0]!r}, {area[1]!r})",
            f"ratio = tf.exp(tf.random.uniform((), {logs[0]!r}, {logs[1]!r}))",
            "height = tf.clip_by_value(tf.round(tf.sqrt(pixels / ratio)), 1, down)",
            "width = tf.clip_by_value(tf.round(tf.sqrt(pixels * ratio)), 1, across)",
            "top = tf.random.uniform(()) * (down - height + 1)",
            "left = tf.random.uniform(()) * (across - width + 1)",
            "top, left, height, width = tf.unstack(tf.cast((top, left, height, width), tf.int32))",
        ]
    return [
        f"pixels = {part}.shape[0] * {part}.shape[1] * rng.uniform{area!r}",
        f"ratio = np.exp(rng.uniform{logs!r})",
        f"height = min({part}.shape[0], max(1, round((pixels / ratio) ** 0.5)))",
        f"width = min({part}.shape[1], max(1, round((pixels * ratio) ** 0.5)))",
        f"top, left = rng.integers(({part}.shape[0] - height + 1, {part}.shape[1] - width + 1))",
    ]


def checked_range(op: object, name: str, *, most: float = math.inf, above: bool = False) -> None:
    """Convert an op's range to two floats, or raise ConfigError; it starts at 0, which `above` excludes."""
    value = getattr(op, name)
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(end, int | float) for end in value):
        lower, upper = (float(end) for end in value)
        if 0 <= lower <= upper <= most and not (above and lower == 0):
            object.__setattr__(op, name, (lower, upper))
            return
    limits = ("more than 0" if above else "at least 0") + (f", at most {most:g}" if most < math.inf else "")
    raise ConfigError(
        f"`{name}` of {type(op).__name__} must be two numbers (lower, upper), {limits}, but got {name}={value!r}."
    )


def check_number(op: object, name: str, *, most: float = 1.0, above: bool = False) -> None:
    """Raise ConfigError if a setting is no number from 0, which `above` excludes, to `most`."""
    value = getattr(op, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or (above and value == 0):
        limits = f"{'(' if above else '['}0, {most:g}]"
        raise ConfigError(f"`{name}` of {type(op).__name__} must be in {limits}, but got {name}={value!r}.")


def check_whole(op: object, name: str, value: Any, of: str = "") -> None:
    """Raise ConfigError if a setting is no whole number above 0; `of` says of what, such as " of pixels"."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"`{name}` of {type(op).__name__} must be a whole number{of} >= 1, but got {name}={value!r}.")


def check_choice(op: object, name: str, choices: Iterable[Any]) -> None:
    """Raise ConfigError if a setting is none of the choices."""
    known, value = tuple(choices), getattr(op, name)
    if value not in known:
        listed = ", ".join(map(str, known))
        raise ConfigError(f"`{name}` of {type(op).__name__} must be one of {listed}, but got {name}={value!r}.")


def check_ordered(op: object, lower: float, upper: float) -> None:
    """Raise ConfigError if factors are no numbers, negative or not in order."""
    if not all(isinstance(end, int | float) for end in (lower, upper)) or not 0 <= lower < upper:
        raise ConfigError(f"{type(op).__name__} needs 0 <= lower < upper, but got lower={lower!r}, upper={upper!r}.")


CHANNELS: Final = 128  # of any array, the most that OpenCV 5 takes


@dataclasses.dataclass(frozen=True)
class PixelOp(Op):
    """An op of one function of pixels on an image, and perhaps its mask: `on="image"`, "mask" or "both"."""

    in_pixels: ClassVar[bool] = False  # settings are: an image and a mask of other size would lose different parts
    in_planes: ClassVar[bool] = True  # False if each pixel is changed alone, so that arrays of any shape can be
    on: Literal["image", "mask", "both"] = dataclasses.field(default="both", kw_only=True)

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        x = samples[0][0]
        if self.touches(spec)[0] and isinstance(x, np.ndarray) and _has_channels_first(x.shape):
            warn_of_data(
                f"Channels must come last, but images of shape {x.shape} look as if theirs came first, and are taken "
                f"to be {x.shape[0]} pixels high. numpy.moveaxis(x, 1, -1) turns an array of such images."
            )
        pairs = [sample for sample in samples if all(isinstance(part, np.ndarray) for part in sample)]
        alike = (min(x.ndim, y.ndim) > 1 and x.ndim < 4 and x.shape[:2] == y.shape[:2] for x, y in pairs)
        if self.target == "both" and self.touches(spec) == (True, False) and pairs and all(alike):
            dtype, how = pairs[0][1].dtype, 'Masks are whole numbers, such as masks.astype("uint8")'
            if dtype.kind in "ui":
                how = "A source of your own says that it is one by y_kind = autopipe.workload.sample.FieldKind.MASK"
            warn_of_data(
                f"`{self.name}` changes images and leaves y as it is, which is as high and wide, but no mask: it is "
                f'{dtype}. {how}. on="image" says that y is to stay as it is.'
            )
        apart = [(x, y) for x, y in pairs if _differ(x.shape, y.shape)] if all(self.touches(spec)) else []
        if apart:
            warn_of_data(
                f"{len(apart)} of {len(samples)} images that were looked at have a mask of other proportions, such as "
                f"{_size(apart[0][0])} and {_size(apart[0][1])} pixels: unless masks were stretched, they do not show "
                "the same scene. Photographs that are to be rotated by their EXIF tags are, by "
                'ap.Decode(orientation="exif").'
            )

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        x = sample[0]
        if isinstance(x, np.ndarray) and self.in_planes and self.touches(spec)[0] and x.ndim not in (2, 3):
            raise OpError(
                f"`{self.name}` changes images (height, width, channels), but a sample has the shape {x.shape}.",
                hint="A function of NumPy changes other arrays: ap.Map(function, random=True).",
            )

    @abc.abstractmethod
    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        """Return one array after the op."""

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        x, y = sample
        on_x, on_y = self.touches(spec)
        for part, is_on in ((x, on_x), (y, on_y)):
            if is_on and not isinstance(part, np.ndarray):
                raise not_decoded(part, self)
        if self.in_pixels and on_x and on_y and x.shape[:2] != y.shape[:2]:
            raise BadSampleError(
                f"`{type(self).__name__}` needs an image and a mask of one size, "
                f"but the image is {_size(x)} pixels and the mask {_size(y)}.",
                hint=f'Put ap.Resize before ap.{type(self).__name__}, or give it on="image".',
            )
        if on_x:
            x = self.pixels(x, spec.x.kind, random)
        if on_y and spec.y is not None:
            y = self.pixels(y, spec.y.kind, random)
        return x, y


@dataclasses.dataclass(frozen=True)
class ImageOp(PixelOp):
    """An op on pixels that leaves masks alone unless told."""

    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)


def plain_filling(op: Any, part: Variable) -> Any:
    """Return the `mask_value` of an op for a mask, and its `value` for an image."""
    return op.mask_value if part.is_mask else op.value


def filling(op: Any, kind: FieldKind, dtype: np.dtype[Any]) -> Any:
    """Return the `mask_value` of an op for a mask, else its `value`; raise OpError if masks cannot hold it."""
    if kind is not FieldKind.MASK:
        return op.value
    value = op.mask_value
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max or value != int(value):
            raise OpError(
                f"`{op.name}` cannot fill masks of {dtype} with mask_value={value!r}: they hold {limits.min} to "
                f"{limits.max}, and no fractions.",
                hint=f'Choose a number that they hold, or put ap.Cast("int32", on="mask") before ap.{op.name}.',
            )
    return value


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and min(shape[1:]) > (4 if shape[0] in (1, 3) else 31 if shape[0] <= 16 else math.inf)


def _differ(image: tuple[int, ...], mask: tuple[int, ...]) -> bool:
    return abs(image[0] * mask[1] - image[1] * mask[0]) > max(*image[:2], *mask[:2])


def _size(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[0]}x{pixels.shape[1]}"


def not_decoded(part: Part, op: Op) -> OpError:
    """Return the error of an op on pixels that got something else."""
    name = type(op).__name__
    if isinstance(part, bytes | memoryview):
        said = f"`{name}` needs a decoded image, but got {len(part)} encoded bytes."
        return OpError(said, hint=f"Put ap.Decode() before ap.{name}.")
    is_one = hasattr(part, "__array__") or hasattr(part, "__array_interface__")  # the latter: Pillow's
    hint = "Let `read` return it as an array: numpy.asarray(image)." if is_one else None
    return OpError(f"`{name}` needs an image, but got {shortened(part)}.", hint=hint)
