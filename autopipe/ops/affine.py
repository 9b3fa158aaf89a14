"""RandomAffine: rotate, shift, shear and zoom in one pass over the pixels; image and mask alike."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Final, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, channel_axis, is_flat, is_mask, parts, shape_lines
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.errors import ConfigError
from autopipe.ops import chance
from autopipe.ops.levels import plain_levels_tensorflow
from autopipe.ops.pixels import PixelOp, mask_number

_BORDERS: Final = {
    "constant": cv2.BORDER_CONSTANT,
    "nearest": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "wrap": cv2.BORDER_WRAP,
}
_METHODS: Final = {"bilinear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}
_KNOWN = frozenset(map(np.dtype, ("uint8", "uint16", "int16", "float32", "float64")))  # to OpenCV


@dataclasses.dataclass(frozen=True)
class RandomAffine(PixelOp):
    """Rotate, shift, shear and zoom an image around its centre, by numbers of the sample's own.

    What each pixel shows is found as Keras's `ImageDataGenerator` does: its place is zoomed, sheared, shifted and then
    rotated.

    Attributes:
        rotation: degrees, to either side.
        shift: (down, across): shares of the height and of the width, to either side.
        shear: degrees, to either side.
        zoom: (lower, upper): how many times as much of the scene is seen; below 1 enlarges, above 1 makes smaller. One
            number z stands for (1 - z, 1 + z).
        keep_aspect: whether height and width are zoomed alike; otherwise each by a number of its own.
        fill: what is seen beyond the edges: "reflect" (abcd|dcba), "nearest" (the edge's pixels), "wrap" (the other
            side), or "constant".
        value: what "constant" gives an image.
        mask_value: what it gives a mask.
        interpolation: "bilinear" or "nearest"; masks always take the nearest pixel.
    """

    rotation: float = 0
    shift: tuple[float, float] = (0, 0)
    shear: float = 0
    zoom: tuple[float, float] | float = (1, 1)
    _: dataclasses.KW_ONLY
    keep_aspect: bool = True
    fill: Literal["reflect", "nearest", "wrap", "constant"] = "reflect"
    value: float = 0
    mask_value: float = 0
    interpolation: Literal["bilinear", "nearest"] = "bilinear"
    draws: ClassVar[int] = 6

    def __post_init__(self) -> None:
        if isinstance(self.zoom, int | float):
            object.__setattr__(self, "zoom", (1 - self.zoom, 1 + self.zoom))
        chance.check_number(self, "rotation", most=180)
        chance.check_number(self, "shear", most=89)
        chance.checked_range(self, "zoom", above=True)
        if not (len(self.shift) == 2 and all(0 <= share <= 1 for share in self.shift)):
            raise ConfigError(
                "`shift` of RandomAffine must be two shares of the image's height and width, 0 to 1, "
                f"but got shift={self.shift!r}."
            )
        object.__setattr__(self, "shift", tuple(self.shift))
        for name, choices in (("fill", _BORDERS), ("interpolation", _METHODS)):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"`{name}` of RandomAffine must be one of {', '.join(choices)}, but got {getattr(self, name)!r}."
                )

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        height, width = array.shape[:2]
        is_mask = kind is FieldKind.MASK
        if is_mask and self.fill == "constant":
            mask_number(self, self.mask_value, array.dtype)
        known = array if array.dtype in _KNOWN else array.astype(np.float64)
        warped = cv2.warpAffine(
            known,
            self._places(height, width, random),
            (width, height),
            flags=_METHODS["nearest" if is_mask else self.interpolation] | cv2.WARP_INVERSE_MAP,
            borderMode=_BORDERS[self.fill],
            borderValue=(self.mask_value if is_mask else self.value,) * 4,
        )
        if known is not array:
            warped = (np.rint(warped) if array.dtype.kind in "ui" else warped).astype(array.dtype)
        return warped if warped.ndim == array.ndim else warped[..., None]

    def _places(self, height: int, width: int, random: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the matrix from a pixel's place (across, down) after the op to the place before it."""
        turn = math.radians(chance.symmetric(self.rotation, random[0]))
        lean = math.radians(chance.symmetric(self.shear, random[3]))
        down, across = chance.symmetric(self.shift[0], random[1]), chance.symmetric(self.shift[1], random[2])
        limits: Any = self.zoom  # __post_init__ made it two numbers
        tall = chance.between(limits, random[4])
        wide = tall if self.keep_aspect else chance.between(limits, random[5])
        rotated = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        sheared = np.array([[1, -math.sin(lean)], [0, math.cos(lean)]])
        matrix = rotated @ sheared @ np.diag((wide, tall))
        centre = np.array([(width - 1) / 2, (height - 1) / 2])
        offset = rotated @ (across * width, down * height) + centre - matrix @ centre
        return np.column_stack([matrix, offset])

    def plain_numpy(self, step: Step) -> Lines:
        found = [
            f"height, width = {parts(step)[0]}.shape[:2]",
            *self._plain_places("np", "rng.uniform({}, {})"),
            "places = np.array([[a, b, c], [d, e, f]])",
        ]
        for part in parts(step):
            nearest = is_mask(step, part) or self.interpolation == "nearest"
            border = {"nearest": "REPLICATE"}.get(self.fill, self.fill.upper())
            value = (self.mask_value if is_mask(step, part) else self.value,) * 4
            found += [
                f"{part} = cv2.warpAffine(",
                f"    {part},",
                "    places,",
                "    (width, height),",
                f"    flags=cv2.INTER_{'NEAREST' if nearest else 'LINEAR'} | cv2.WARP_INVERSE_MAP,",
                f"    borderMode=cv2.BORDER_{border},",
                f"    borderValue={value!r},",
                ")",
                *channel_axis(step, part),
            ]
        return found

    def plain_tensorflow(self, step: Step) -> Lines:
        found = [
            f"height, width = tf.unstack(tf.cast(tf.shape({parts(step)[0]})[:2], tf.float32))",
            *self._plain_places("tf", "tf.random.uniform((), {}, {})"),
            "places = tf.stack((a, b, c, d, e, f, 0.0, 0.0))[None]",
        ]
        for part in parts(step):
            axis = ", ..., None]" if is_flat(step, part) else "]"
            nearest = is_mask(step, part) or self.interpolation == "nearest"
            found += [
                "moved = tf.raw_ops.ImageProjectiveTransformV3(",
                f"    images=tf.cast({part}[None{axis}, tf.float32),",
                "    transforms=places,",
                f"    output_shape=tf.shape({part})[:2],",
                f"    fill_value={float(self.mask_value if is_mask(step, part) else self.value)!r},",
                f'    interpolation="{"NEAREST" if nearest else "BILINEAR"}",',
                f'    fill_mode="{self.fill.upper()}",',
                f")[0{', ..., 0' if is_flat(step, part) else ''}]",
                f"{part} = {plain_levels_tensorflow('moved', step, part)}",
            ]
        return [*found, *shape_lines(step.after, parts(step))]

    def _plain_places(self, library: str, drawn: str) -> Lines:
        """Return lines that draw the matrix ((a, b, c), (d, e, f)) from `height` and `width`."""

        def either_side(limit: float) -> str:
            return drawn.format(-limit, limit)

        zoom: Any = self.zoom
        return [
            f"turn, lean = {either_side(round(math.radians(self.rotation), 6))}, "
            f"{either_side(round(math.radians(self.shear), 6))}  # in radians",
            f"below, right = {either_side(self.shift[0])} * height, {either_side(self.shift[1])} * width",
            f"tall = {drawn.format(*zoom)}",
            f"wide = {'tall' if self.keep_aspect else drawn.format(*zoom)}",
            f"a, b = {library}.cos(turn) * wide, -{library}.sin(turn + lean) * tall",
            f"d, e = {library}.sin(turn) * wide, {library}.cos(turn + lean) * tall",
            "middle, centre = (width - 1) / 2, (height - 1) / 2",
            f"c = {library}.cos(turn) * right - {library}.sin(turn) * below + middle - a * middle - b * centre",
            f"f = {library}.sin(turn) * right + {library}.cos(turn) * below + centre - d * middle - e * centre",
        ]
