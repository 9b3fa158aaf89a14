"""What ops on pixels have in common: one function for x and, where the op follows the image, for its mask."""

from __future__ import annotations

import abc
import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from autopipe.core.op import Op, Target
from autopipe.core.sample import Batch, Field, FieldKind, Part, Sample, SampleSpec
from autopipe.errors import BadSampleError, DataWarning, OpError, shortened

MOVED = frozenset(map(np.dtype, ("uint8", "int8", "uint16", "int16", "int32", "float16", "float32", "float64")))
"""Dtypes whose values OpenCV puts elsewhere as they are; it refuses some others, and makes 32-bit numbers of some."""


@dataclasses.dataclass(frozen=True)
class PixelOp(Op):
    """An op that treats an image, and perhaps its mask, by the same function of pixels.

    Class attributes:
        in_pixels: whether it is told how many pixels, so that of an image and a mask that differ in size it would take
            different parts of the scene.

    Attributes:
        on: "image", "mask" or "both".
    """

    in_pixels: ClassVar[bool] = False
    on: Literal["image", "mask", "both"] = dataclasses.field(default="both", kw_only=True)

    @property
    def target(self) -> Target:
        return self.on

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:
        x = samples[0][0]
        if self.touches(spec)[0] and isinstance(x, np.ndarray) and _has_channels_first(x.shape):
            warnings.warn(
                f"Channels must come last, but images of shape {x.shape} look as if theirs came first, and are taken "
                f"to be {x.shape[0]} pixels high. numpy.moveaxis(x, 1, -1) turns an array of such images.",
                DataWarning,
                stacklevel=3,
            )
        pairs = [sample for sample in samples if all(isinstance(part, np.ndarray) for part in sample)]
        if self.target == "both" and self.touches(spec) == (True, False) and _are_alike(pairs):
            warnings.warn(
                f"`{self.name}` changes images and leaves y as it is, which is as high and wide, but no mask: it is "
                f"{pairs[0][1].dtype}. {_as_mask(pairs[0][1])}. "
                'on="image" says that y is to stay as it is.',
                DataWarning,
                stacklevel=3,
            )
        apart = [(x, y) for x, y in pairs if _differ(x.shape, y.shape)] if all(self.touches(spec)) else []
        if apart:
            warnings.warn(
                f"{len(apart)} of {len(samples)} images that were looked at have a mask of other proportions, such as "
                f"{_size(apart[0][0])} and {_size(apart[0][1])} pixels: unless masks were stretched, they do not show "
                "the same scene. Photographs that are to be rotated by their EXIF tags are, by "
                'ap.Decode(orientation="exif").',
                DataWarning,
                stacklevel=3,
            )

    def takes_batches(self, spec: SampleSpec) -> bool:
        fields = [field for field, on in zip((spec.x, spec.y), self.touches(spec), strict=True) if on and field]
        return all(field.kind is not FieldKind.ENCODED and self.batches_of(field) for field in fields)

    def batches_of(self, field: Field) -> bool:
        """Whether `pixels_many` can be called on arrays like this one."""
        return False

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        """Return arrays of one shape after the op, to the bit what `pixels` gives one by one.

        Args:
            arrays: the first axis counts them; may be overwritten and returned.
            kind: what each holds.
            random: each one's numbers, shape (arrays, draws).
        """
        raise NotImplementedError

    def apply_many(self, batch: Batch, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Batch:
        x, y = batch
        on_x, on_y = self.touches(spec)
        if on_x:
            x = self.pixels_many(x, spec.x.kind, random)
        if on_y and spec.y is not None and y is not None:
            y = self.pixels_many(y, spec.y.kind, random)
        return x, y

    @abc.abstractmethod
    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        """Return one array after the op; `out` as in `Op.apply`."""

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        x, y = sample
        on_x, on_y = self.touches(spec)
        if on_x and not isinstance(x, np.ndarray):
            raise _not_decoded(x, self)
        if on_y and not isinstance(y, np.ndarray):
            raise _not_decoded(y, self)
        if self.in_pixels and on_x and on_y and x.shape[:2] != y.shape[:2]:
            raise BadSampleError(
                f"`{type(self).__name__}` needs an image and a mask of one size, "
                f"but the image is {_size(x)} pixels and the mask {_size(y)}.",
                hint=f'Put ap.Resize before ap.{type(self).__name__}, or give it on="image".',
            )
        if on_x:
            x = self.pixels(x, spec.x.kind, random, out)
        if on_y and spec.y is not None:
            y = self.pixels(y, spec.y.kind, random, None)
        return x, y


def mask_number(op: Op, value: float, dtype: np.dtype[Any]) -> float:
    """Return the `mask_value` of an op, which masks of a dtype have to hold.

    Raises:
        OpError: they cannot; NumPy, OpenCV and TensorFlow each make another number of it.
    """
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
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) > 4


def _are_alike(pairs: Sequence[Sample]) -> bool:
    """Return whether each y has a value for each pixel of its x."""
    return bool(pairs) and all(min(x.ndim, y.ndim) > 1 and x.shape[:2] == y.shape[:2] for x, y in pairs)


def _as_mask(y: NDArray[Any]) -> str:
    """Return what makes a mask of targets that are taken for none."""
    if y.dtype.kind in "ui":
        return "A source of your own says that it is one by y_kind = autopipe.core.sample.FieldKind.MASK"
    return 'Masks are whole numbers, such as masks.astype("uint8")'


def _differ(image: tuple[int, ...], mask: tuple[int, ...]) -> bool:
    """Return whether height and width are in another ratio, by more than one pixel that was rounded off."""
    return abs(image[0] * mask[1] - image[1] * mask[0]) > max(*image[:2], *mask[:2])


def _size(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[0]}x{pixels.shape[1]}"


def _not_decoded(part: Part, op: Op) -> OpError:
    name = type(op).__name__
    if isinstance(part, bytes | memoryview):
        return OpError(
            f"`{name}` needs a decoded image, but got {len(part)} encoded bytes.",
            hint=f"Put ap.Decode() before ap.{name}.",
        )
    hint = "Let `read` return it as an array: numpy.asarray(image)." if hasattr(part, "__array__") else None
    return OpError(f"`{name}` needs an image, but got {shortened(part)}.", hint=hint)
