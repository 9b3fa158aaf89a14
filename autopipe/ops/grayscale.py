"""RandomGrayscale: take the colours out of some images and keep their three channels."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, is_integer, parts
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.ops import chance
from autopipe.ops.levels import plain_levels_tensorflow
from autopipe.ops.pixels import PixelOp


@dataclasses.dataclass(frozen=True)
class RandomGrayscale(PixelOp):
    """Make an image grey with the given probability; its three channels are then alike. Grey images stay as they are.

    Attributes:
        probability: 0 to 1.
    """

    probability: float = 0.1
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        chance.check_number(self, "probability", above=True)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3 or random[0] >= self.probability:
            return array
        known = array if array.dtype.kind in "ui" else array.astype(np.float32, copy=False)
        grey = cv2.cvtColor(known, cv2.COLOR_RGB2GRAY)
        return cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB).astype(array.dtype, copy=False)

    def plain_numpy(self, step: Step) -> Lines:
        found = [f"is_grey = rng.random() < {self.probability!r}"]
        for part in parts(step):
            known = part if is_integer(step, part) else f"{part}.astype(np.float32)"
            grey = f"cv2.cvtColor(cv2.cvtColor({known}, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)"
            found += [f"if is_grey and {part}.shape[2:] == (3,):", f"    {part} = {grey}.astype({part}.dtype)"]
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found = [f"is_grey = tf.random.uniform(()) < {self.probability!r}"]
        for part in parts(step):
            grey = f"tf.repeat(tf.image.rgb_to_grayscale(tf.cast({part}, tf.float32)), 3, axis=-1)"
            found += [
                f"if {part}.shape[2:] == (3,):",
                f"    {part} = tf.where(is_grey, {plain_levels_tensorflow(grey, step, part)}, {part})",
            ]
        return found
