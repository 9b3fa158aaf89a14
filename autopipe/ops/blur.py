"""GaussianBlur: a blur of random strength."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, channel_axis, is_flat, parts
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.errors import ConfigError
from autopipe.ops import chance
from autopipe.ops.levels import plain_levels_tensorflow
from autopipe.ops.pixels import PixelOp


@dataclasses.dataclass(frozen=True)
class GaussianBlur(PixelOp):
    """Blur an image with a Gaussian kernel; beyond its edges the image is mirrored.

    Attributes:
        size: pixels of the kernel along a side, odd.
        sigma: the kernel's standard deviation in pixels, uniform in (lower, upper).
        probability: of blurring at all, 0 to 1.
    """

    size: int = 3
    sigma: tuple[float, float] = (0.1, 2.0)
    probability: float = 1.0
    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1 or self.size % 2 == 0:
            raise ConfigError(f"`size` of GaussianBlur must be an odd number of pixels, but got size={self.size!r}.")
        chance.checked_range(self, "sigma", above=True)
        chance.check_number(self, "probability", above=True)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if random[0] >= self.probability:
            return array
        sigma = chance.between(self.sigma, float(random[1]))
        blurred = cv2.GaussianBlur(array, (self.size, self.size), sigma, borderType=cv2.BORDER_REFLECT_101)
        return blurred if blurred.ndim == array.ndim else blurred[..., None]

    def plain_numpy(self, step: Step) -> Lines:
        found = [f"is_blurred, sigma = rng.random() < {self.probability!r}, rng.uniform{self.sigma!r}"]
        for part in parts(step):
            blurred = f"{part} = cv2.GaussianBlur({part}, ({self.size}, {self.size}), sigma)"
            found += ["if is_blurred:", *(f"    {line}" for line in (blurred, *channel_axis(step, part)))]
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        half = self.size // 2
        found = [
            f"is_blurred = tf.random.uniform(()) < {self.probability!r}",
            f"sigma = tf.random.uniform((), {self.sigma[0]!r}, {self.sigma[1]!r})",
            f"weights = tf.exp(-(tf.range({-half}.0, {half + 1}.0) ** 2) / (2.0 * sigma**2))",
            "weights = weights[:, None] * weights[None, :]",
        ]
        for part in parts(step):
            found += [
                f"planes = tf.cast({part}{'[..., None]' if is_flat(step, part) else ''}, tf.float32)",
                "planes = tf.transpose(planes, (2, 0, 1))[..., None]  # each channel by itself",
                "blurred, share = (",
                '    tf.nn.conv2d(each, weights[..., None, None], 1, "SAME")',
                "    for each in (planes, tf.ones_like(planes))",
                ")",
                "blurred = tf.transpose((blurred / share)[..., 0], (1, 2, 0))",
                *(["blurred = blurred[..., 0]"] if is_flat(step, part) else []),
                f"{part} = tf.where(is_blurred, {plain_levels_tensorflow('blurred', step, part)}, {part})",
            ]
        return found
