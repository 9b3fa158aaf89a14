"""Ops that move or cover pixels and keep the size of an image: flips, affine maps, erased rectangles."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import ConfigError, OpError, shortened
from autopipe.workload.op import Places, Step
from autopipe.workload.ops import pixels
from autopipe.workload.ops.pixels import ImageOp, PixelOp
from autopipe.workload.plain_code import Library, Lines, Variable, drawn_tensorflow, parts, shape_lines
from autopipe.workload.sample import Field, FieldKind


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

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        across, down = self.horizontal and random[0] < 0.5, self.vertical and random[1] < 0.5
        if not (across or down):
            return array
        if array.dtype not in _KNOWN or array.shape[2:] > (pixels.CHANNELS,):
            return array[:: -1 if down else 1, :: -1 if across else 1]
        flipped = cv2.flip(array, (-1 if down else 1) if across else 0)  # NumPy takes 50 times as long for colours
        return flipped if flipped.ndim == array.ndim else flipped[..., None]

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        return (native.Instruction("FLIP", (self.horizontal, self.vertical), is_wide=True),)

    def places(self, size: tuple[int, int], random: NDArray[np.float64]) -> Places | None:
        if type(self) is not RandomFlip:  # a class of somebody's own may do more
            return None
        (height, width), mirrored = size, random < 0.5
        rows, columns = np.arange(height), np.arange(width)
        return (
            np.where(mirrored[:, 1:] & self.vertical, rows[::-1], rows),
            np.where(mirrored[:, :1] & self.horizontal, columns[::-1], columns),
        )

    def takes_floats(self, part: Variable) -> None:
        """Return None: it puts values elsewhere."""

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        ways = [("[:, ::-1]", "flip_left_right")] * self.horizontal + [("[::-1]", "flip_up_down")] * self.vertical
        named = parts(step)
        for mirrored, name in ways:
            if library == "np":
                turned = ", ".join(f"np.ascontiguousarray({part}{mirrored})" for part in named)
                yield from ("if rng.random() < 0.5:", f"    {', '.join(named)} = {turned}")
                continue
            lines, call = drawn_tensorflow(step, name)
            yield from lines
            for part in named:
                inner, outer = ("[..., None]", "[..., 0]") if part.is_flat else ("", "")
                yield f"{part} = {call.format(part + inner)}{outer}"


_BORDERS: Final = {
    "constant": cv2.BORDER_CONSTANT,
    "nearest": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "wrap": cv2.BORDER_WRAP,
}
_EXACT: Final = (1, 3, 4)  # channels; of others OpenCV 5 takes places in steps of a 32nd of a pixel
_METHODS: Final = {"bilinear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}
_KNOWN = frozenset(map(np.dtype, ("uint8", "uint16", "int16", "float32", "float64")))  # to OpenCV


@dataclasses.dataclass(frozen=True)
class RandomAffine(PixelOp):
    """Rotate, shift, shear and zoom an image around its centre, by numbers of the sample's own.

    The source of each pixel is found as in Keras's `ImageDataGenerator`: its place is zoomed, sheared, shifted and then
    rotated.

    Attributes:
        rotation: degrees, to either side.
        shift: (down, across): shares of the height and of the width, to either side.
        shear: degrees, to either side.
        zoom: (lower, upper): how many times as much of the scene is seen; below 1 enlarges, above 1 makes smaller. One
            number z stands for (1 - z, 1 + z).
        keep_aspect: whether height and width are zoomed alike; otherwise each by a number of its own.
        fill: the pixels beyond the edges: "reflect" (abcd|dcba), "nearest" (the edge's pixels), "wrap" (the other
            side), or "constant".
        value: of "constant", for an image.
        mask_value: of "constant", for a mask.
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
    revision: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if isinstance(self.zoom, int | float):
            object.__setattr__(self, "zoom", (1 - self.zoom, 1 + self.zoom))
        pixels.check_number(self, "rotation", most=180)
        pixels.check_number(self, "shear", most=89)
        pixels.checked_range(self, "zoom", above=True)
        shares = tuple(self.shift) if isinstance(self.shift, Sequence) else ()
        if len(shares) != 2 or not all(isinstance(share, int | float) and 0 <= share <= 1 for share in shares):
            raise ConfigError(
                "`shift` of RandomAffine must be two shares of the image's height and width, 0 to 1, "
                f"but got shift={self.shift!r}."
            )
        object.__setattr__(self, "shift", shares)
        pixels.check_choice(self, "fill", _BORDERS)
        pixels.check_choice(self, "interpolation", _METHODS)

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        height, width = array.shape[:2]
        is_mask = kind is FieldKind.MASK
        if array.ndim == 3 and array.shape[2] not in _EXACT:
            planes = np.moveaxis(array, -1, 0)
            return np.stack([self.pixels(np.ascontiguousarray(each), kind, random) for each in planes], axis=-1)
        value = pixels.filling(self, kind, array.dtype) if self.fill == "constant" else 0
        known = array if array.dtype in _KNOWN else array.astype(np.float64)
        in_four = array.dtype == np.uint8 and array.shape[2:] == (3,)  # half of OpenCV's time
        warped = cv2.warpAffine(
            cv2.cvtColor(known, cv2.COLOR_RGB2RGBA) if in_four else known,
            self._places(height, width, random),
            (width, height),
            flags=_METHODS["nearest" if is_mask else self.interpolation] | cv2.WARP_INVERSE_MAP,
            borderMode=_BORDERS[self.fill],
            borderValue=(value,) * 4,
        )
        if in_four:
            warped = cv2.cvtColor(warped, cv2.COLOR_RGBA2RGB)
        if known is not array:
            warped = (np.rint(warped) if array.dtype.kind in "ui" else warped).astype(array.dtype)
        return warped if warped.ndim == array.ndim else warped[..., None]

    def _places(self, height: int, width: int, random: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the matrix from a pixel's place (across, down) after the op to its place before."""
        turn = math.radians(pixels.symmetric(self.rotation, random[0]))
        lean = math.radians(pixels.symmetric(self.shear, random[3]))
        down, across = pixels.symmetric(self.shift[0], random[1]), pixels.symmetric(self.shift[1], random[2])
        limits: Any = self.zoom  # __post_init__ made it two numbers
        tall = pixels.between(limits, random[4])
        wide = tall if self.keep_aspect else pixels.between(limits, random[5])
        rotated = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        sheared = np.array([[1, -math.sin(lean)], [0, math.cos(lean)]])
        matrix = rotated @ sheared @ np.diag((wide, tall))
        centre = np.array([(width - 1) / 2, (height - 1) / 2])
        offset = rotated @ (across * width, down * height) + centre - matrix @ centre
        return np.column_stack([matrix, offset])

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        first = parts(step)[0]
        size, drawn, places = f"{first}.shape[:2]", "rng.uniform({}, {})", "np.array([[a, b, c], [d, e, f]])"
        if library == "tf":
            size, drawn = f"tf.unstack(tf.cast(tf.shape({first})[:2], tf.float32))", "tf.random.uniform((), {}, {})"
            places = "tf.stack((a, b, c, d, e, f, 0.0, 0.0))[None]"
        yield from (f"height, width = {size}", *self._plain_places(library, drawn), f"places = {places}")
        for part in parts(step):
            nearest = part.is_mask or self.interpolation == "nearest"
            yield from self._plain_moved(part, nearest) if library == "np" else self._plain_transformed(part, nearest)
        if library == "tf":
            yield from shape_lines(parts(step))

    def _plain_moved(self, part: Variable, nearest: bool) -> Iterator[str]:
        is_alone = part.field.channels is not None and part.field.channels not in _EXACT
        yield f"{part} = {'np.dstack([' if is_alone else ''}cv2.warpAffine("
        yield f"    {'np.ascontiguousarray(plane)' if is_alone else part},"
        yield "    places,"
        yield "    (width, height),"
        yield f"    flags=cv2.INTER_{'NEAREST' if nearest else 'LINEAR'} | cv2.WARP_INVERSE_MAP,"
        yield f"    borderMode=cv2.BORDER_{'REPLICATE' if self.fill == 'nearest' else self.fill.upper()},"
        yield f"    borderValue={(pixels.plain_filling(self, part),) * 4!r},"
        yield f") for plane in np.moveaxis({part}, -1, 0)])" if is_alone else ")"
        yield from [] if is_alone else part.channel_axis()

    def _plain_transformed(self, part: Variable, nearest: bool) -> Iterator[str]:
        yield "moved = tf.raw_ops.ImageProjectiveTransformV3("
        yield f"    images=tf.cast({part}[None{', ..., None]' if part.is_flat else ']'}, tf.float32),"
        yield "    transforms=places,"
        yield f"    output_shape=tf.shape({part})[:2],"
        yield f"    fill_value={float(pixels.plain_filling(self, part))!r},"
        yield f'    interpolation="{"NEAREST" if nearest else "BILINEAR"}",'
        yield f'    fill_mode="{self.fill.upper()}",'
        yield f")[0{', ..., 0' if part.is_flat else ''}]"
        yield f"{part} = {pixels.plain_levels('moved', part, 'tf')}"

    def _plain_places(self, library: str, drawn: str) -> Lines:
        zoom: Any = self.zoom
        limits = *(round(math.radians(degrees), 6) for degrees in (self.rotation, self.shear)), *self.shift
        turn, lean, below, right = (drawn.format(-limit, limit) for limit in limits)
        return [
            f"turn, lean = {turn}, {lean}  # in radians",
            f"below, right = {below} * height, {right} * width",
            f"tall = {drawn.format(*zoom)}",
            f"wide = {'tall' if self.keep_aspect else drawn.format(*zoom)}",
            f"a, b = {library}.cos(turn) * wide, -{library}.sin(turn + lean) * tall",
            f"d, e = {library}.sin(turn) * wide, {library}.cos(turn + lean) * tall",
            "middle, centre = (width - 1) / 2, (height - 1) / 2",
            f"c = {library}.cos(turn) * right - {library}.sin(turn) * below + middle - a * middle - b * centre",
            f"f = {library}.sin(turn) * right + {library}.cos(turn) * below + centre - d * middle - e * centre",
        ]


@dataclasses.dataclass(frozen=True)
class RandomErasing(ImageOp):
    """Paint over a rectangle at a place of the sample's own (Zhong et al., 2017). A mask is left alone unless told.

    Attributes:
        probability: of painting at all, 0 to 1.
        area: the rectangle's smallest and largest share of the image.
        ratio: its smallest and largest width to height, drawn evenly on a logarithmic scale; a larger rectangle is cut
            to the image.
        value: the paint: one level, or one for each channel.
        mask_value: of a mask, if the op is `on="both"`.
    """

    probability: float = 0.5
    area: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: Sequence[float] | float = 0
    mask_value: float = 0
    draws: ClassVar[int] = 5

    def __post_init__(self) -> None:
        pixels.check_number(self, "probability", above=True)
        pixels.checked_range(self, "area", most=1, above=True)
        pixels.checked_range(self, "ratio", above=True)
        if isinstance(self.value, Sequence):
            object.__setattr__(self, "value", tuple(self.value))

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
        value = pixels.filling(self, kind, array.dtype)  # refused alike, whether or not chance has it painted
        if kind is not FieldKind.MASK:
            self._check_levels(array.dtype)
        if random[0] >= self.probability:
            return array
        top, left, height, width = pixels.box(array.shape, self.area, self.ratio, random[1:])
        erased = array.copy()
        erased[top : top + height, left : left + width] = value
        return erased

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        dtype = field.dtype
        if field.shape is None or dtype is None or (field.rank == 3 and field.shape[2] > 4):
            return None
        if field.kind is not FieldKind.MASK:
            self._check_levels(dtype)
        paint = np.full(field.shape[2:], pixels.filling(self, field.kind, dtype), dtype)
        levels = (*native.in_memory(paint), 0, 0, 0, 0)[:5]
        chance = (*self.area, *self.ratio, 0, self.probability)
        return (native.Instruction("ERASE", (*levels, dtype.itemsize), chance, is_wide=True),)

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

    def plain(self, step: Step, library: Library) -> Iterator[str]:
        first = parts(step)[0]
        box = pixels.plain_box(first, self.area, self.ratio, library)
        if library == "np":
            yield f"if rng.random() < {self.probability!r}:"
            yield from (f"    {line}" for line in box)
            for part in parts(step):
                yield f"    {part} = {part}.copy()"
                yield f"    {part}[top : top + height, left : left + width] = {pixels.plain_filling(self, part)!r}"
            return
        yield from box
        yield f"rows, columns = tf.range(tf.shape({first})[0])[:, None], tf.range(tf.shape({first})[1])[None]"
        yield "inside = (rows >= top) & (rows < top + height) & (columns >= left) & (columns < left + width)"
        yield f"inside &= tf.random.uniform(()) < {self.probability!r}"
        for part in parts(step):
            place = "inside" if part.is_flat else "inside[..., None]"
            yield f"{part} = tf.where({place}, tf.cast({pixels.plain_filling(self, part)!r}, {part}.dtype), {part})"
