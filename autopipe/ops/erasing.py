"""RandomErasing: paint over a rectangle, so that a model does not lean on one part of an image."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, is_flat, is_mask, parts
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.errors import OpError
from autopipe.ops import chance
from autopipe.ops.pixels import PixelOp, mask_number


@dataclasses.dataclass(frozen=True)
class RandomErasing(PixelOp):
    """Paint over a rectangle at a place of the sample's own (Zhong et al., 2017). A mask is left alone unless told.

    Attributes:
        probability: of painting at all, 0 to 1.
        area: the rectangle's smallest and largest share of the image.
        ratio: its smallest and largest width to height, drawn evenly on a logarithmic scale; what would be larger than
            the image is cut to it.
        value: what is painted: one level, or one for each channel.
        mask_value: what a mask gets where the op is `on="both"`.
    """

    probability: float = 0.5
    area: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Sequence[float] | float = 0
    mask_value: float = 0
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 5

    def __post_init__(self) -> None:
        chance.check_number(self, "probability", above=True)
        chance.checked_range(self, "area", most=1, above=True)
        chance.checked_range(self, "ratio", above=True)
        if isinstance(self.value, Sequence):
            object.__setattr__(self, "value", tuple(self.value))

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if kind is FieldKind.MASK:  # refused alike, whether or not chance has it painted: a plan is made without
            mask_number(self, self.mask_value, array.dtype)
        else:
            self._check_levels(array.dtype)
        if random[0] >= self.probability:
            return array
        size = (array.shape[0], array.shape[1])
        top, left, height, width = chance.box(size, self.area, self.ratio, random[1:])
        erased = array.copy() if out is None else out
        if erased is not array:
            erased[...] = array
        erased[top : top + height, left : left + width] = self.mask_value if kind is FieldKind.MASK else self.value
        return erased

    def _check_levels(self, dtype: np.dtype[Any]) -> None:
        if dtype.kind not in "iu":
            return
        limits = np.iinfo(dtype)
        for level in self.value if isinstance(self.value, Sequence) else (self.value,):
            if not limits.min <= level < limits.max + 1:
                raise OpError(
                    f"`{self.name}` cannot paint value={self.value!r} on images of {dtype}: they hold {limits.min} to "
                    f"{limits.max}.",
                    hint=f'Choose a level that they hold, or put ap.Cast("float32") before ap.{self.name}.',
                )

    def plain_numpy(self, step: Step) -> Lines:
        inside = [f"    {line}" for line in chance.plain_box(parts(step)[0], self.area, self.ratio)]
        for part in parts(step):
            value = self.mask_value if is_mask(step, part) else self.value
            inside += [
                f"    {part} = {part}.copy()",
                f"    {part}[top : top + height, left : left + width] = {value!r}",
            ]
        return [f"if rng.random() < {self.probability!r}:", *inside]

    def plain_tensorflow(self, step: Step) -> Lines:
        first = parts(step)[0]
        found = [
            *chance.plain_box_tensorflow(first, self.area, self.ratio),
            f"rows, columns = tf.range(tf.shape({first})[0])[:, None], tf.range(tf.shape({first})[1])[None]",
            "inside = (rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)",
            f"inside &= tf.random.uniform(()) < {self.probability!r}",
        ]
        for part in parts(step):
            value = self.mask_value if is_mask(step, part) else self.value
            place = "inside" if is_flat(step, part) else "inside[..., None]"
            found.append(f"{part} = tf.where({place}, tf.cast({value!r}, {part}.dtype), {part})")
        return found
