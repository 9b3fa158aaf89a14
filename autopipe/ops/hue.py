"""Random hue and saturation: colours turned around the colour circle, or made stronger and weaker.

OpenCV does it in HSV with 32-bit floats, as TensorFlow and Keras do, and not in its 8-bit HSV, which knows only 256
hues. The saturation of 8-bit images needs no hue: each level comes nearer to the largest of its pixel, or goes away.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, drawn_tensorflow, part_of, parts
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.ops import chance
from autopipe.ops.chance import Range
from autopipe.ops.levels import (
    largest,
    plain_changed_tensorflow,
    plain_levels,
    plain_top,
    to_levels,
)
from autopipe.ops.pixels import PixelOp

_CIRCLE = 360.0  # degrees, as OpenCV has them in 32-bit floats


@dataclasses.dataclass(frozen=True)
class _ColourOp(PixelOp):
    """An op on the hue or the saturation of three channels; anything else has neither and stays as it is."""

    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 1
    revision: ClassVar[int] = 2

    @abc.abstractmethod
    def _change(self, hsv: NDArray[Any], number: float) -> None:
        """Change (hue 0 to 360, saturation 0 to 1, value) in place; a hue may come to be twice as much."""

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3:
            return array
        if array.dtype == np.uint8:
            return self._bytes(array, float(random[0]))
        top = np.float32(largest(array.dtype))
        hsv: NDArray[Any] = cv2.cvtColor(array.astype(np.float32) / top, cv2.COLOR_RGB2HSV)
        self._change(hsv, float(random[0]))
        return to_levels(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * top, array.dtype)

    def _bytes(self, array: NDArray[np.uint8], number: float) -> NDArray[Any]:
        """Return 8-bit colours after the change. Hue and saturation are the same of levels from 0 to 255."""
        hsv: NDArray[Any] = cv2.cvtColor(array.astype(np.float32), cv2.COLOR_RGB2HSV)
        self._change(hsv, number)
        return cv2.convertScaleAbs(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))  # rounds half to even

    @abc.abstractmethod
    def _plain(self) -> tuple[Range, str]:
        """Return what is drawn in NumPy, and code that applies it to `hsv`."""

    @abc.abstractmethod
    def _plain_drawn(self, step: Step) -> tuple[Lines, str]:
        """Return TensorFlow's own op, as `drawn_tensorflow` does."""

    def plain_numpy(self, step: Step) -> Lines:
        limits, change = self._plain()
        found = [f"change = rng.uniform{limits!r}"]
        for part in parts(step):
            top = plain_top(step, part)
            coloured = f"cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * np.float32({top})"
            found += [
                f"if {part}.shape[2:] == (3,):",
                f"    hsv = cv2.cvtColor({part}.astype(np.float32) / np.float32({top}), cv2.COLOR_RGB2HSV)",
                f"    {change}",
                f"    {part} = {plain_levels(coloured, step, part)}",
            ]
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found, change = self._plain_drawn(step)
        for part in parts(step):
            lines = plain_changed_tensorflow(change, step, part, leaves_range=False)
            if (shape := part_of(step.before, part).shape) is None:
                lines = [f"if {part}.shape[2:] == (3,):", *(f"    {line}" for line in lines)]
            found += lines if shape is None or shape[2:] == (3,) else []
        return found


@dataclasses.dataclass(frozen=True)
class RandomHue(_ColourOp):
    """Turn all hues by the same angle, uniform in [-delta, delta] of the colour circle. Grey images stay as they are.

    Attributes:
        delta: share of the circle, above 0, at most 0.5: half of it is all of it, to either side. Colours are 0 to 1
            where images are floating point.
    """

    delta: float = 0.05

    def __post_init__(self) -> None:
        chance.check_number(self, "delta", most=0.5, above=True)

    def _change(self, hsv: NDArray[Any], number: float) -> None:
        hue = hsv[..., 0]
        hue += np.float32(_CIRCLE * (chance.symmetric(self.delta, number) % 1))

    def _plain(self) -> tuple[Range, str]:
        return (-self.delta, self.delta), f"hsv[..., 0] = (hsv[..., 0] + {_CIRCLE} * change) % {_CIRCLE}"

    def _plain_drawn(self, step: Step) -> tuple[Lines, str]:
        return drawn_tensorflow(step, "hue", self.delta)


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
        chance.check_ordered(self, self.lower, self.upper)

    def _change(self, hsv: NDArray[Any], number: float) -> None:
        saturation = hsv[..., 1]
        saturation *= np.float32(chance.between((self.lower, self.upper), number))
        np.minimum(saturation, 1, out=saturation)

    def _bytes(self, array: NDArray[np.uint8], number: float) -> NDArray[Any]:
        factor = chance.between((self.lower, self.upper), number)
        planes = cv2.split(array, [*np.empty((3, *array.shape[:2]), np.uint8)])  # a third of its time alone
        most = cv2.max(cv2.max(planes[0], planes[1]), planes[2])
        if factor <= 1:
            tops = cv2.cvtColor(most, cv2.COLOR_GRAY2RGB)
            below = cv2.convertScaleAbs(cv2.subtract(tops, array), alpha=factor)  # rounds half to even
            return cv2.subtract(tops, below)
        # At the most so that the smallest level comes to be 0. By planes, and by OpenCV's own mixed products, it takes
        # 0.12 ms of 224 x 224, where arrays of 32-bit floats take 0.79.
        span = cv2.subtract(most, cv2.min(cv2.min(planes[0], planes[1]), planes[2]))
        gain: NDArray[Any] = cv2.divide(most, span, dtype=cv2.CV_32F)  # of grey 0 / 0: no number
        np.fmin(gain, np.float32(factor), out=gain)
        below = np.empty_like(most)
        for plane in planes:
            cv2.subtract(most, plane, dst=below)
            cv2.multiply(below, gain, dst=below, dtype=cv2.CV_8U)  # rounds half to even
            cv2.subtract(most, below, dst=plane)
        return cv2.merge(planes)

    def _plain(self) -> tuple[Range, str]:
        return (self.lower, self.upper), "hsv[..., 1] = np.minimum(hsv[..., 1] * change, 1)"

    def _plain_drawn(self, step: Step) -> tuple[Lines, str]:
        return drawn_tensorflow(step, "saturation", self.lower, self.upper)
