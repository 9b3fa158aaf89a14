"""The parts of a report's section: a picture in two widths, a table of the same content, and their raw figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from autopipe.reports import svg
from autopipe.reports.svg import Drawing, Scale

Row: TypeAlias = Mapping[str, Any]
"""Raw values by key, as JSON has them."""

NARROW, WIDE = 336.0, 760.0
"""The widths of pictures, in pixels: a phone, and everything else."""

_SIZE = 13.0


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str  # above it
    show: Callable[[Row], str]  # a row's text in it
    numeric: bool = True  # figures are flush right


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures as a table; `rows` go to `report.json`."""

    columns: Sequence[Column]
    rows: Sequence[Row]

    def cells(self) -> list[list[str]]:
        return [[column.show(row) for column in self.columns] for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a report."""

    key: str  # its name in `report.json`
    title: str
    text: str  # its message, in a sentence or two
    table: Table  # its figures
    draw: Callable[[float], Drawing] | None = None  # draws them at a width; None if there is nothing to draw
    caption: str = ""  # an explanation of the picture
    more: tuple[str, Sequence[str]] | None = None  # details: a heading and lines, in a fold


# ---------------------------------------------------------------- a picture with one row a line


class Rows:
    """The frame of a picture with a label, a plot and a figure in each row; on a phone the label stands above.

    `ends` are the first and last value of the axis, and `values` is the longest figure to the right.
    """

    def __init__(
        self,
        width: float,
        label: str,
        ends: tuple[float, float],
        *,
        values: str,
        log: bool = False,
        labels: float = 214.0,
    ) -> None:
        self.drawing = Drawing(width, label)
        self.stacked = width < 500
        self._left = 0.0 if self.stacked else labels
        right = 0.0 if self.stacked else svg.text_width(values, _SIZE) + 10.0
        self.scale = Scale(*ends, self._left + 2.0, width - right - 2.0, log)
        self._top = self._rows_begin = 6.0
        self._middles: list[float] = []

    def legend(self, items: Sequence[tuple[str, str, str]]) -> None:
        self._top = self._rows_begin = legend(self.drawing, items, self._top + 8.0) + 18.0

    def heading(self, words: str) -> None:
        self._top += 8.0
        self.drawing.text(0.0, self._top + 10.0, words, "heading")
        self._top += 22.0

    def row(self, label: str, value: str = "", css: str = "") -> float:
        """Begin a row, and return the height of its middle."""
        drawing, top = self.drawing, self._top
        room = drawing.width - svg.text_width(value, _SIZE) - 14.0 if self.stacked else self._left - 12.0
        middle = top + (30.0 if self.stacked else 14.0)
        base = top + 15.0 if self.stacked else middle + 4.5
        drawing.text(0.0, base, svg.fitted(label, room, _SIZE), f"label {css}".strip())
        drawing.text(drawing.width, base, value, f"value {css}".strip(), "end")
        self._top = top + (46.0 if self.stacked else 28.0)
        self._middles.append(middle)
        return middle

    def rule(self, value: float, css: str) -> None:
        """Draw a vertical line through all rows so far; on a phone through their bars, not their words."""
        x = self.scale(value)
        if not self.stacked:
            self.drawing.behind(x, self._rows_begin, x, self._top, css)
        for middle in self._middles if self.stacked else ():
            self.drawing.behind(x, middle - 11.0, x, middle + 11.0, css)

    def axis(self, show: Callable[[float], str], unit: str, most: int = 6) -> None:
        drawing, y = self.drawing, self._top + 2.0
        for tick in self.scale.ticks(4 if self.stacked else most):
            x = self.scale(tick)
            self.rule(tick, "grid")
            anchor = "start" if x < 12 else "end" if x > drawing.width - 16 else "middle"
            drawing.behind(x, y, x, y + 3.0, "axis")
            drawing.text(x, y + 15.0, show(tick), "small muted", anchor)
        drawing.text(self.scale.end, y + 30.0, unit, "small muted", "end")
        self._top = y + 34.0

    def finish(self) -> Drawing:
        self.drawing.height = self._top + 4.0
        return self.drawing


def legend(drawing: Drawing, items: Sequence[tuple[str, str, str]], y: float) -> float:
    """Explain marks: a shape ("bar", "dot", "diamond", "line"), its class, and its meaning; return the last line."""
    x = 0.0
    for shape, css, words in items:
        wide = 24.0 + svg.text_width(words, 12.0)
        if x > 0 and x + wide > drawing.width:
            x, y = 0.0, y + 19.0
        mark(drawing, shape, x + 6.0, y, css)
        drawing.text(x + 17.0, y + 4.0, words, "small muted")
        x += wide + 10.0
    return y


def mark(drawing: Drawing, shape: str, x: float, y: float, css: str) -> None:
    """Draw a mark of a legend."""
    match shape:
        case "bar":
            drawing.rect(x - 6.0, y - 5.0, 12.0, 10.0, css)
        case "line":
            drawing.line(x - 6.0, y, x + 7.0, y, css)
        case "cross":
            drawing.cross(x, y, css)
        case "diamond":
            drawing.diamond(x, y, css)
        case "triangle":
            drawing.triangle(x, y, css)
        case "square":
            drawing.rect(x - 4.5, y - 4.5, 9.0, 9.0, css)
        case _:
            drawing.circle(x, y, 4.0, css)
