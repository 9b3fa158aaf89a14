"""MaskToClass: from a colour-coded mask to class numbers."""

from __future__ import annotations

import csv
import dataclasses
import functools
import os
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe.core.plain_code import Lines, parts
from autopipe.core.plan import Step
from autopipe.core.sample import FieldKind, Part
from autopipe.core.script import located
from autopipe.errors import BadSampleError, ConfigError
from autopipe.ops.pixels import PixelOp

_UNKNOWN = 255
Palette = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class MaskToClass(PixelOp):
    """Replace each colour of a mask by its position in a palette: (height, width, 3) uint8 to (height, width) uint8.

    Attributes:
        palette: colours (red, green, blue), at most 255, or the path of a CSV file with one colour a line, as
            CamVid's `class_dict.csv` has them: with or without a header and a column of names. A relative path starts
            at the script that writes it.
        unknown: the class of colours that are not in the palette; None makes them an error.

    Raises:
        BadSampleError: a colour is not in the palette and `unknown` is None.
    """

    palette: Sequence[Sequence[int]] | str | os.PathLike[str]
    unknown: int | None = None
    on: Literal["image", "mask", "both"] = dataclasses.field(default="mask", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "palette", _checked(self.palette))
        if self.unknown is not None and not 0 <= self.unknown < _UNKNOWN:
            raise ConfigError(
                f"`unknown` of MaskToClass must be None or a class from 0 to 254, but got {self.unknown!r}."
            )

    def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64], out: Part) -> NDArray[Any]:
        if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
            raise BadSampleError(
                f"`MaskToClass` needs a colour mask (height, width, 3) uint8, but got {array.shape} {array.dtype}."
            )
        classes: NDArray[np.uint8] = _table(self.palette)[_codes(array)]  # type: ignore[arg-type]  # _checked made it a Palette
        if self.unknown is None:
            if classes.max(initial=0) == _UNKNOWN:
                colour = tuple(int(level) for level in array[classes == _UNKNOWN][0])
                raise BadSampleError(
                    f"the mask has the colour {colour}, which is not one of the palette's {len(tuple(self.palette))}.",  # type: ignore[arg-type]
                    hint="Add it to the palette, or name the class of such pixels: MaskToClass(palette, unknown=0).",
                )
        else:
            classes[classes == _UNKNOWN] = self.unknown
        return classes

    def plain_constants(self, step: Step) -> Lines:
        colours = _checked(self.palette)
        inner = textwrap.fill(", ".join(map(repr, colours)), 110, break_long_words=False, break_on_hyphens=False)
        return [
            f"PALETTE_{step.stream} = (\n{textwrap.indent(inner, '    ')},\n)",
            f"CLASSES_{step.stream} = np.full(1 << 24, {255 if self.unknown is None else self.unknown}, np.uint8)",
            f"for number, (red, green, blue) in enumerate(PALETTE_{step.stream}):",
            f"    CLASSES_{step.stream}[red + 256 * green + 65536 * blue] = number",
        ]

    def plain_numpy(self, step: Step) -> Lines:
        return [f"{part} = CLASSES_{step.stream}[{part}.astype(np.int32) @ (1, 256, 65536)]" for part in parts(step)]

    def plain_tensorflow(self, step: Step) -> Lines:
        return [
            f"{part} = tf.gather(CLASSES_{step.stream}, "
            f"tf.reduce_sum(tf.cast({part}, tf.int32) * (1, 256, 65536), axis=-1))"
            for part in parts(step)
        ]


def _codes(mask: NDArray[np.uint8]) -> NDArray[Any]:
    """Return each colour as one whole number, shape (height, width): red + 256 green + 65536 blue."""
    planes = cv2.cvtColor(mask, cv2.COLOR_RGB2RGBA)  # one vectorised pass to four bytes a pixel; the fourth is 255
    return planes.view(np.uint32)[..., 0] & np.uint32(0xFFFFFF)


@functools.lru_cache(maxsize=8)
def _table(palette: Palette) -> NDArray[np.uint8]:
    """Return the class of every 24-bit colour (16 MiB, made once a process)."""
    table = np.full(1 << 24, _UNKNOWN, np.uint8)
    for number, (red, green, blue) in enumerate(palette):
        table[red | green << 8 | blue << 16] = number
    return table


def _checked(palette: Any) -> Palette:
    rows = _read(located(palette)) if isinstance(palette, str | os.PathLike) else palette
    try:
        colours = tuple((int(red), int(green), int(blue)) for red, green, blue in rows)
    except (TypeError, ValueError):
        raise ConfigError(f"`palette` must be rows of red, green, blue, but got {palette!r}.") from None
    if not 1 <= len(colours) <= 255:
        raise ConfigError(f"`palette` must have 1 to 255 colours, but got {len(colours)}.")
    if len(set(colours)) != len(colours):
        raise ConfigError("`palette` must not name a colour twice.")
    if any(not 0 <= level <= 255 for colour in colours for level in colour):
        raise ConfigError("`palette` must have levels from 0 to 255.")
    return colours


def _read(path: str | os.PathLike[str]) -> list[list[str]]:
    """Return the levels of each line: the last three columns, or those that the header calls red, green and blue."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(map(str.strip, row))]
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigError(f"`palette` {os.fspath(path)!r} cannot be read: {reason}.") from None
    header = [cell.lower() for cell in rows[0]] if rows else []
    columns: list[int] = [-3, -2, -1]
    if header and not any(cell.isdigit() for cell in header):
        rows = rows[1:]
        for names in (("r", "g", "b"), ("red", "green", "blue")):
            if set(names) <= set(header):
                columns = [header.index(name) for name in names]
    if any(len(row) < 3 for row in rows):
        raise ConfigError(f"`palette` {os.fspath(path)!r} must have red, green and blue in each line.")
    return [[row[column] for column in columns] for row in rows]
