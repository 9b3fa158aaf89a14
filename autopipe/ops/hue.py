"""Random hue and saturation: colours turned around the colour circle, or made stronger and weaker.

Both are done in HSV with 32-bit floats, as TensorFlow and Keras do, and not in OpenCV's 8-bit HSV, which knows only 180
hues. The halves differ by less than one level.
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
    to_levels_tensorflow,
)
from autopipe.ops.pixels import PixelOp

_CIRCLE = 360.0  # degrees, as OpenCV has them in 32-bit floats


@dataclasses.dataclass(frozen=True)
class _ColourOp(PixelOp):
    """An op on the hue or the saturation of three channels; anything else has neither and stays as it is."""

    on: Literal["image", "mask", "both"] = dataclasses.field(default="image", kw_only=True)
    draws: ClassVar[int] = 1

    @abc.abstractmethod
    def _change(self, hsv: NDArray[Any], number: float) -> None:
        """Change (hue 0 to 360, saturation 0 to 1, value) in place."""

    @abc.abstractmethod
    def _change_tensorflow(self, rgb: Any, number: Any) -> Any:
        """Return the colours, 0 to 1, after the change."""

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3:
            return array
        top = np.float32(largest(array.dtype))
        hsv: NDArray[Any] = cv2.cvtColor(array.astype(np.float32) / top, cv2.COLOR_RGB2HSV)
        self._change(hsv, float(random[0]))
        return to_levels(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * top, array.dtype)

    def pixels_tensorflow(self, tensor: Any, kind: FieldKind, random: Any) -> Any:
        import tensorflow as tf

        if tensor.shape.rank != 3 or tensor.shape[-1] not in (3, None):
            return tensor
        top = largest(np.dtype(tensor.dtype.as_numpy_dtype))

        def changed() -> Any:
            rgb = tf.ensure_shape(tf.cast(tensor, tf.float32) / top, (None, None, 3))
            return to_levels_tensorflow(
                self._change_tensorflow(rgb, tf.cast(random[0], tf.float32)) * top, tensor.dtype
            )

        return changed() if tensor.shape[-1] == 3 else tf.cond(tf.shape(tensor)[-1] == 3, changed, lambda: tensor)

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
            lines = plain_changed_tensorflow(change, step, part)
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
        hue += np.float32(_CIRCLE * chance.symmetric(self.delta, number))
        np.mod(hue, np.float32(_CIRCLE), out=hue)

    def _change_tensorflow(self, rgb: Any, number: Any) -> Any:
        import tensorflow as tf

        return tf.image.adjust_hue(rgb, chance.symmetric(self.delta, number))

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

    def _change_tensorflow(self, rgb: Any, number: Any) -> Any:
        import tensorflow as tf

        return tf.image.adjust_saturation(rgb, chance.between((self.lower, self.upper), number))

    def _plain(self) -> tuple[Range, str]:
        return (self.lower, self.upper), "hsv[..., 1] = np.minimum(hsv[..., 1] * change, 1)"

    def _plain_drawn(self, step: Step) -> tuple[Lines, str]:
        return drawn_tensorflow(step, "saturation", self.lower, self.upper)
