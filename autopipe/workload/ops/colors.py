"""Random changes of brightness, contrast, hue, saturation and sharpness of images; masks are left alone.

All of them are done with 32-bit floats, as TensorFlow and Keras do: OpenCV's 8-bit HSV, say, knows only 256 hues. The
saturation of 8-bit images needs no hue: each level comes nearer to the largest of its pixel, or goes away.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import ConfigError, warn_of_data
from autopipe.workload.op import Step
from autopipe.workload.ops import pixels
from autopipe.workload.ops.pixels import ImageOp, Range
from autopipe.workload.plain_code import Library, Variable, drawn_tensorflow, parts
from autopipe.workload.sample import Field, FieldKind, Sample, SampleSpec


@dataclasses.dataclass(frozen=True)
class RandomBrightness(ImageOp):
    """Add the same amount to all pixels: uniform in [-delta, delta] of the full range.

    Attributes:
        delta: share of the range, 0 to 1. The range is 255 for 8-bit images, 65535 for 16-bit ones, and 1 for floating
            point.
        factor: (lower, upper): multiply all pixels by a factor uniform in this range, and add nothing.
    """

    delta: float = 0.2
    factor: tuple[float, float] | None = dataclasses.field(default=None, kw_only=True)
    draws: ClassVar[int] = 1
    in_planes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pixels.check_number(self, "delta", above=True)
        if self.factor is not None:
            pixels.checked_range(self, "factor")

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        super().look(samples, spec)
        images = [image for sample in samples if (image := np.asarray(sample[0])).dtype.kind in "uf"]
        if self.factor is not None or not images or (dtype := images[0].dtype) == np.uint8:
            return
        top = max(float(np.max(each, where=np.isfinite(each), initial=0)) for each in images)
        if (most := self.delta * pixels.largest(dtype)) > top > 0 or most < top / 100:
            effect = "can make them all black" if most > top else "hardly changes them"
            warn_of_data(
                f"`RandomBrightness({self.delta})` changes {dtype} by up to {most:,g}, and images have values up to "
                f"{top:,g}: that {effect}. Put ap.Rescale(1 / {top:g}) before it, or multiply by `factor`."
            )

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        change = (1.0, pixels.symmetric(self.delta, random[0]))  # the factor of levels, and the share of their range
        if self.factor is not None:
            change = pixels.between(self.factor, random[0]), 0.0
        gain, shift = map(np.float32, change)
        if array.dtype.kind == "f":
            changed: NDArray[Any] = array * gain.astype(array.dtype) + shift.astype(array.dtype)
            return changed
        shift = shift * np.float32(pixels.largest(array.dtype))
        return pixels.to_levels(pixels.widened(array) * gain + shift, array.dtype)

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        is_float, limits = field.dtype == np.float32, self.factor or (self.delta,)
        whole = self.factor is not None, is_float
        return (native.Instruction("BRIGHTNESS", whole, limits, is_wide=is_float),)

    def takes_floats(self, part: Variable) -> bool:
        return True

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        limits = (-self.delta, self.delta) if self.factor is None else self.factor
        if library == "np":
            yield f"change = rng.uniform{limits}"
            for part in parts(step):
                change = "* change" if self.factor is not None else f"+ {pixels.plain_top(part)} * change"
                yield f"{part} = {pixels.plain_levels(f'{part} {change}', part, library)}"
            return
        drawn = [f"change = tf.random.uniform((), {limits[0]!r}, {limits[1]!r})"], "{} * change"
        if self.factor is None:
            drawn = drawn_tensorflow(step, "brightness", self.delta * float(pixels.plain_top(parts(step)[0])))
        yield from pixels.plain_changed_tensorflow(*drawn, step)


@dataclasses.dataclass(frozen=True)
class RandomContrast(ImageOp):
    """Stretch each channel around its own mean by a factor uniform in [lower, upper].

    Attributes:
        lower: smallest factor.
        upper: largest factor.
    """

    lower: float = 0.8
    upper: float = 1.2
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        pixels.check_ordered(self, self.lower, self.upper)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        factor = np.float32(pixels.between((self.lower, self.upper), random[0]))
        if array.dtype.kind == "f":
            mean = array.mean(axis=(0, 1), keepdims=True, dtype=np.float64).astype(array.dtype)
            stretched: NDArray[Any] = (array - mean) * factor.astype(array.dtype) + mean
            return stretched
        pixels.largest(array.dtype)  # refuses a dtype without levels
        total: NDArray[Any] = array.sum(axis=(0, 1), dtype=np.int64)
        mean = (total / (array.shape[0] * array.shape[1])).astype(np.float32)
        return pixels.to_levels((array.astype(np.float32) - mean) * factor + mean, array.dtype)

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (native.Instruction("CONTRAST", real=(self.lower, self.upper)),)

    def takes_floats(self, part: Variable) -> bool:
        return True

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        if library == "tf":
            drawn = drawn_tensorflow(step, "contrast", self.lower, self.upper)
            yield from pixels.plain_changed_tensorflow(*drawn, step)
            return
        yield f"factor = rng.uniform({self.lower!r}, {self.upper!r})"
        for part in parts(step):
            yield f"mean = {part}.mean(axis=(0, 1))"
            yield f"{part} = {pixels.plain_levels(f'({part} - mean) * factor + mean', part, library)}"


@dataclasses.dataclass(frozen=True)
class _ColourOp(ImageOp):
    """An op on the hue or the saturation of three channels; other images stay as they are."""

    draws: ClassVar[int] = 1
    revision: ClassVar[int] = 2

    @abc.abstractmethod
    def _changed(self, colours: NDArray[np.float32], number: float) -> NDArray[np.float32]:
        """Return colours after the change, which does not depend on the scale of their levels."""

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3:
            return array
        if array.dtype == np.uint8:
            return self._bytes(array, float(random[0]))
        top = np.float32(pixels.largest(array.dtype))
        return pixels.to_levels(self._changed(array.astype(np.float32) / top, float(random[0])) * top, array.dtype)

    def _bytes(self, array: NDArray[np.uint8], number: float) -> NDArray[Any]:
        return pixels.to_levels(self._changed(array.astype(np.float32), number), array.dtype)

    @abc.abstractmethod
    def _plain(self) -> tuple[Range, str, tuple[str, tuple[float, ...]]]:
        """Return the range to draw from in NumPy, code that applies the number to `hsv`, and TensorFlow's own op."""

    def takes_floats(self, part: Variable) -> bool | None:
        shape = part.field.shape
        return shape is not None and (True if shape[2:] == (3,) else None)

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        limits, change, (name, arguments) = self._plain()
        if library == "tf":
            drawn = drawn_tensorflow(step, name, *arguments)
            yield from pixels.plain_changed_tensorflow(*drawn, step, colours=True)
            return
        yield f"change = rng.uniform{limits!r}"
        for part in parts(step):
            top = pixels.plain_top(part)
            coloured = f"cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * np.float32({top})"
            yield f"if {part}.shape[2:] == (3,):"
            yield f"    hsv = cv2.cvtColor({part}.astype(np.float32) / np.float32({top}), cv2.COLOR_RGB2HSV)"
            yield f"    {change}"
            yield f"    {part} = {pixels.plain_levels(coloured, part, library)}"


@dataclasses.dataclass(frozen=True)
class RandomHue(_ColourOp):
    """Turn all hues by the same angle, uniform in [-delta, delta] of the colour circle. Grey images stay as they are.

    Attributes:
        delta: share of the circle, above 0, at most 0.5: half of it is all of it, to either side. Colours are 0 to 1
            where images are floating point.
    """

    delta: float = 0.05
    revision: ClassVar[int] = 3

    def __post_init__(self) -> None:
        pixels.check_number(self, "delta", most=0.5, above=True)

    def _changed(self, colours: NDArray[np.float32], number: float) -> NDArray[np.float32]:
        """Return colours of other hues, in 32-bit floats: the bits of the native library. The largest and the smallest
        level of a pixel stay. In sixths of the circle the hue says where a level lies between them: as far as the
        nearest of its channel's own two sixths is away.
        """
        planes = np.ascontiguousarray(np.moveaxis(colours, -1, 0))
        red, green, blue = planes
        most = planes.max(axis=0)
        span = most - planes.min(axis=0)
        from_red, from_green = most == red, most == green
        side = np.where(from_red, green - blue, np.where(from_green, blue - red, red - green))
        sixths = np.where(from_red, np.float32(0), np.where(from_green, np.float32(2), np.float32(4)))
        hue = side / np.where(span > 0, span, np.float32(1)) + sixths
        for plane, place in zip(planes, (5, 3, 1), strict=True):
            at = hue + np.float32((place + 6 * pixels.symmetric(self.delta, number)) % 6)
            at = np.where(at >= 6, at - np.float32(6), at)
            plane[...] = most - span * np.clip(np.minimum(at, np.float32(4) - at), 0, 1)
        return np.moveaxis(planes, 0, -1)

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (native.Instruction("HUE", real=(self.delta,)),)

    def _plain(self) -> tuple[Range, str, tuple[str, tuple[float, ...]]]:
        change = "hsv[..., 0] = (hsv[..., 0] + 360.0 * change) % 360.0"  # degrees, as OpenCV has them in 32-bit floats
        return (-self.delta, self.delta), change, ("hue", (self.delta,))


@dataclasses.dataclass(frozen=True)
class RandomSaturation(_ColourOp):
    """Multiply the saturation of all colours by a factor uniform in [lower, upper]; grey stays grey.

    Attributes:
        lower: smallest factor; 0 takes all colour away.
        upper: largest factor.
    """

    lower: float = 0.8
    upper: float = 1.2

    def __post_init__(self) -> None:
        pixels.check_ordered(self, self.lower, self.upper)

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        super().look(samples, spec)
        images = [image for sample in samples if (image := np.asarray(sample[0])).dtype.kind == "f"]
        if any((image < 0).mean() > 0.05 for image in images):
            warn_of_data(
                "`RandomSaturation` makes other colours of values below 0, which images that were looked at have. Put "
                "it before what makes them, such as ap.Normalize."
            )

    def _changed(self, colours: NDArray[np.float32], number: float) -> NDArray[np.float32]:
        hsv: NDArray[Any] = cv2.cvtColor(colours, cv2.COLOR_RGB2HSV)
        saturation = hsv[..., 1]
        saturation *= np.float32(pixels.between((self.lower, self.upper), number))
        np.minimum(saturation, 1, out=saturation)
        made: NDArray[Any] = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
        return made

    def _bytes(self, array: NDArray[np.uint8], number: float) -> NDArray[Any]:
        factor, levels = np.float32(pixels.between((self.lower, self.upper), number)), array.astype(np.float32)
        most = levels.max(axis=-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):  # of grey; of black 0 / 0, which is no number
            gain = np.fmin(most / (most - levels.min(axis=-1, keepdims=True)), factor)  # the smallest level is 0 then
        below = np.rint((most - levels) * gain)
        return pixels.to_levels(most - below, array.dtype)

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (native.Instruction("SATURATION", real=(self.lower, self.upper)),)

    def _plain(self) -> tuple[Range, str, tuple[str, tuple[float, ...]]]:
        limits = self.lower, self.upper
        return limits, "hsv[..., 1] = np.minimum(hsv[..., 1] * change, 1)", ("saturation", limits)


@dataclasses.dataclass(frozen=True)
class RandomGrayscale(ImageOp):
    """Make an image grey with the given probability; its three channels are then alike. Grey images stay as they are.

    Attributes:
        probability: 0 to 1.
    """

    probability: float = 0.1
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        pixels.check_number(self, "probability", above=True)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3 or random[0] >= self.probability:
            return array
        known = array if array.dtype.kind in "ui" else array.astype(np.float32, copy=False)
        grey = cv2.cvtColor(known, cv2.COLOR_RGB2GRAY)
        return cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB).astype(array.dtype, copy=False)

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (native.Instruction("GREY", real=(0, 0, 0, 0, 0, self.probability)),)

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        drawn, chance = ("rng.random()", "is_grey and ") if library == "np" else ("tf.random.uniform(())", "")
        yield f"is_grey = {drawn} < {self.probability!r}"
        for part in parts(step):
            if library == "np":
                known = part if part.is_integer else f"{part}.astype(np.float32)"
                grey = f"cv2.cvtColor(cv2.cvtColor({known}, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)"
                made = f"{grey}.astype({part}.dtype)"
            else:
                grey = f"tf.repeat(tf.image.rgb_to_grayscale(tf.cast({part}, tf.float32)), 3, axis=-1)"
                made = f"tf.where(is_grey, {pixels.plain_levels(grey, part, library)}, {part})"
            yield from (f"if {chance}{part}.shape[2:] == (3,):", f"    {part} = {made}")


@dataclasses.dataclass(frozen=True)
class GaussianBlur(ImageOp):
    """Blur an image with a Gaussian kernel; beyond its edges the image is mirrored.

    Attributes:
        size: pixels of the kernel along a side, odd.
        sigma: the kernel's standard deviation in pixels, uniform in (lower, upper).
        probability: of blurring at all, 0 to 1.
    """

    size: int = 3
    sigma: tuple[float, float] = (0.1, 2.0)
    probability: float = 1.0
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1 or self.size % 2 == 0:
            raise ConfigError(f"`size` of GaussianBlur must be an odd number of pixels, but got size={self.size!r}.")
        pixels.checked_range(self, "sigma", above=True)
        pixels.check_number(self, "probability", above=True)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        if random[0] >= self.probability:
            return array
        sigma = pixels.between(self.sigma, float(random[1]))
        blurred = cv2.GaussianBlur(array, (self.size, self.size), sigma, borderType=cv2.BORDER_REFLECT_101)
        return blurred if blurred.ndim == array.ndim else blurred[..., None]

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        if library == "np":
            yield f"is_blurred, sigma = rng.random() < {self.probability!r}, rng.uniform{self.sigma!r}"
            for part in parts(step):
                blurred = f"{part} = cv2.GaussianBlur({part}, ({self.size}, {self.size}), sigma)"
                yield "if is_blurred:"
                yield from (f"    {line}" for line in (blurred, *part.channel_axis()))
            return
        half = self.size // 2
        yield f"is_blurred = tf.random.uniform(()) < {self.probability!r}"
        yield f"sigma = tf.random.uniform((), {self.sigma[0]!r}, {self.sigma[1]!r})"
        yield f"weights = tf.exp(-(tf.range({-half}.0, {half + 1}.0) ** 2) / (2.0 * sigma**2))"
        yield "weights = weights[:, None] * weights[None, :]"
        for part in parts(step):
            yield f"planes = tf.cast({part}{'[..., None]' if part.is_flat else ''}, tf.float32)"
            yield "planes = tf.transpose(planes, (2, 0, 1))[..., None]  # each channel by itself"
            yield "blurred, share = ("
            yield '    tf.nn.conv2d(each, weights[..., None, None], 1, "SAME")'
            yield "    for each in (planes, tf.ones_like(planes))"
            yield ")"
            yield "blurred = tf.transpose((blurred / share)[..., 0], (1, 2, 0))"
            if part.is_flat:
                yield "blurred = blurred[..., 0]"
            yield f"{part} = tf.where(is_blurred, {pixels.plain_levels('blurred', part, 'tf')}, {part})"
