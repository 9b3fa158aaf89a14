"""Crops: the centre, a place of the sample's own, or a rectangle of its own that is resized."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, is_flat, parts, shape_lines
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, Part
from autopipe.errors import BadSampleError
from autopipe.ops import chance
from autopipe.ops.pixels import PixelOp
from autopipe.ops.resize import (
    Interpolation,
    Resize,
    check_interpolation,
    how,
    plain_resized,
    plain_resized_tensorflow,
    resized,
)
from autopipe.ops.size import check_size


@dataclasses.dataclass(frozen=True)
class _Crop(PixelOp):
    """Cut `height` x `width` pixels out: at a place of the sample's own where the op is random, else at the centre.

    Attributes:
        height: pixels.
        width: pixels.
    """

    in_pixels: ClassVar[bool] = True
    height: int
    width: int

    def __post_init__(self) -> None:
        check_size(self, self.height, self.width)

    def _place(self, random: Any) -> tuple[Any, Any]:
        """Return where the cut lies, from 0 (top, left) to 1 (bottom, right; not reached by random numbers)."""
        return (random[0], random[1]) if self.is_random else (0.5, 0.5)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        height, width = array.shape[:2]
        if height < self.height or width < self.width:
            raise BadSampleError(
                f"`{type(self).__name__}` cannot cut {self.height}x{self.width} out of {height}x{width} pixels.",
                hint="Put ap.Pad or ap.Resize before it.",
            )
        down, right = self._place(random)
        top, left = int(down * (height - self.height + 1)), int(right * (width - self.width + 1))
        return array[top : top + self.height, left : left + self.width]

    def batches_of(self, field: Field) -> bool:
        return field.shape is not None and field.shape[0] >= self.height and field.shape[1] >= self.width

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        count, height, width = arrays.shape[:3]
        down, right = self._place(random.T)
        tops = np.broadcast_to(down * (height - self.height + 1), count).astype(np.int64)
        lefts = np.broadcast_to(right * (width - self.width + 1), count).astype(np.int64)
        # All cuts that there are, as views: a sample, its top row and left column choose one, which is copied at once.
        cuts = np.lib.stride_tricks.as_strided(
            arrays,
            (count, height - self.height + 1, width - self.width + 1, self.height, self.width, *arrays.shape[3:]),
            (*arrays.strides[:3], *arrays.strides[1:]),
            writeable=False,
        )
        chosen: NDArray[Any] = cuts[np.arange(count), tops, lefts]
        return chosen

    def plain_numpy(self, step: Step) -> Lines:
        named = parts(step)
        down, right = f"{named[0]}.shape[0] - {self.height} + 1", f"{named[0]}.shape[1] - {self.width} + 1"
        place = f"rng.integers(({down}, {right}))" if self.is_random else f"({down}) // 2, ({right}) // 2"
        cuts = (f"{part} = {part}[top : top + {self.height}, left : left + {self.width}]" for part in named)
        return [f"top, left = {place}", *cuts]

    def plain_tensorflow(self, step: Step) -> Lines:
        named = parts(step)
        free = f"tf.shape({named[0]})[:2] - ({self.height}, {self.width}) + 1"
        found = [f"top, left = tf.unstack(({free}) // 2)"]
        if self.is_random:
            found = [
                f"free = tf.cast({free}, tf.float32)",
                "top, left = tf.unstack(tf.cast(tf.random.uniform((2,)) * free, tf.int32))",
            ]
        cuts = (f"{part} = {part}[top : top + {self.height}, left : left + {self.width}]" for part in named)
        return [*found, *cuts, *shape_lines(step.after, named)]


@dataclasses.dataclass(frozen=True)
class CenterCrop(_Crop):
    """Cut the centre out, `height` x `width` pixels."""


@dataclasses.dataclass(frozen=True)
class RandomCrop(_Crop):
    """Cut `height` x `width` pixels out at a place of the sample's own; image and mask at the same place."""

    draws: ClassVar[int] = 2

    def without_chance(self) -> CenterCrop:
        """Return the crop of that size at the centre."""
        return CenterCrop(self.height, self.width)


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop(PixelOp):
    """Cut a rectangle of random size, shape and place out, and resize it; image and mask alike.

    Attributes:
        height: pixels after resizing.
        width: pixels after resizing.
        area: the rectangle's smallest and largest share of the image.
        ratio: its smallest and largest width to height, drawn evenly on a logarithmic scale; what would be larger than
            the image is cut to it.
        interpolation: as of `Resize`; masks always take the nearest pixel.
    """

    height: int
    width: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    draws: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_size(self, self.height, self.width)
        check_interpolation(self.interpolation)
        chance.checked_range(self, "area", most=1, above=True)
        chance.checked_range(self, "ratio", above=True)

    def without_chance(self) -> Resize:
        """Return the resize of the whole image to that size."""
        return Resize(self.height, self.width, self.interpolation)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        size = (array.shape[0], array.shape[1])
        top, left, height, width = chance.box(size, self.area, self.ratio, random)
        cut = array[top : top + height, left : left + width]
        return resized(cut, (self.height, self.width), how(self.interpolation, kind), out)

    def plain_numpy(self, step: Step) -> Lines:
        cuts = (f"{part} = {part}[top : top + height, left : left + width]" for part in parts(step))
        box = chance.plain_box(parts(step)[0], self.area, self.ratio)
        return [*box, *cuts, *plain_resized(step, (str(self.height), str(self.width)), self.interpolation)]

    def plain_tensorflow(self, step: Step) -> Lines:
        """Return the lines; TensorFlow draws again what would be larger than the image, instead of cutting it."""
        first = parts(step)[0]
        size = f"tf.concat([tf.shape({first}), [1]], 0)" if is_flat(step, first) else f"tf.shape({first})"
        box = [
            "begin, extent, _ = tf.image.sample_distorted_bounding_box(",
            f"    {size},",
            "    [[[0.0, 0.0, 1.0, 1.0]]],",
            "    min_object_covered=0.0,",
            f"    aspect_ratio_range={self.ratio},",
            f"    area_range={self.area},",
            ")",
            "top, left, height, width = begin[0], begin[1], extent[0], extent[1]",
        ]
        cuts = (f"{part} = {part}[top : top + height, left : left + width]" for part in parts(step))
        return [*box, *cuts, *plain_resized_tensorflow(step, (str(self.height), str(self.width)), self.interpolation)]
