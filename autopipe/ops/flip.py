"""RandomFlip: mirror image and mask together."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, drawn_tensorflow, is_flat, parts
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, Part
from autopipe.errors import ConfigError, shortened
from autopipe.ops.pixels import MOVED, PixelOp


@dataclasses.dataclass(frozen=True)
class RandomFlip(PixelOp):
    """Mirror with a probability of one half along each chosen direction.

    Attributes:
        horizontal: whether left and right may change places.
        vertical: whether top and bottom may change places.
    """

    horizontal: bool = True
    vertical: bool = False
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not (isinstance(self.horizontal, bool) and isinstance(self.vertical, bool)):
            raise ConfigError(
                "`horizontal` and `vertical` of RandomFlip must be True or False, "
                f"but got horizontal={shortened(self.horizontal)}, vertical={shortened(self.vertical)}.",
                hint='What Keras calls "horizontal_and_vertical" is ap.RandomFlip(horizontal=True, vertical=True).',
            )
        if not (self.horizontal or self.vertical):
            raise ConfigError("RandomFlip must be `horizontal`, `vertical` or both, but got neither.")

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        across, down = self.horizontal and random[0] < 0.5, self.vertical and random[1] < 0.5
        if not (across or down):
            return array
        if array.dtype not in MOVED:
            return array[:: -1 if down else 1, :: -1 if across else 1]
        code = (-1 if down else 1) if across else 0
        if out is None or np.may_share_memory(out, array):
            flipped = cv2.flip(array, code)
        else:
            flipped = cv2.flip(array, code, dst=out)
        return flipped if flipped.ndim == array.ndim else flipped[..., None]

    def batches_of(self, field: Field) -> bool:
        return True

    def pixels_many(self, arrays: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        if self.horizontal and len(across := np.flatnonzero(random[:, 0] < 0.5)):
            chosen = arrays.take(across, axis=0)
            if arrays.dtype in MOVED:  # rows of all images, as if they were one high image
                arrays[across] = cv2.flip(chosen.reshape(-1, *chosen.shape[2:]), 1).reshape(chosen.shape)
            else:
                arrays[across] = chosen[:, :, ::-1]
        if self.vertical and len(down := np.flatnonzero(random[:, 1] < 0.5)):
            arrays[down] = arrays.take(down, axis=0)[:, ::-1]
        return arrays

    def plain_numpy(self, step: Step) -> Lines:
        found, named = [], parts(step)
        for wanted, mirrored in ((self.horizontal, "[:, ::-1]"), (self.vertical, "[::-1]")):
            if wanted:
                turned = ", ".join(f"np.ascontiguousarray({part}{mirrored})" for part in named)
                found += ["if rng.random() < 0.5:", f"    {', '.join(named)} = {turned}"]
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found: Lines = []
        for wanted, name in ((self.horizontal, "flip_left_right"), (self.vertical, "flip_up_down")):
            if wanted:
                lines, call = drawn_tensorflow(step, name)
                found += lines
                for part in parts(step):
                    flat = is_flat(step, part)
                    flipped = call.format(f"{part}[..., None]" if flat else part)
                    found.append(f"{part} = {flipped}{'[..., 0]' if flat else ''}")
        return found
