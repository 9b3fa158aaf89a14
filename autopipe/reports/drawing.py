"""Pictures as SVG text: shapes, words, axes, and rows of bars. Every word is escaped; no content is known here.

Colours are classes that `page.css` defines, in light and in dark; a stand-alone picture contains that style sheet.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

WIDTH = 760.0  # the usual width of pictures, in pixels; a phone scrolls

LegendItem: TypeAlias = tuple[str, str, str]  # a shape, its class, and its meaning

_CHARACTER = 0.56  # the width of a usual character, as a share of the font size
_SIZE, _SMALL = 13.0, 12.0  # of fonts


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")  # a tenth of a unit is finer than visible


def text_width(text: str, size: float = _SIZE) -> float:
    """Estimate the width of a text."""
    return _CHARACTER * size * len(text)


def fitted(text: str, width: float, size: float = _SIZE) -> str:
    """Return a text of at most this width, cut in its middle, as the ends of names differ."""
    most = max(4, int(width / (_CHARACTER * size)))
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


@dataclass(slots=True)
class Drawing:
    """A picture in units of its own (pixels at its usual size) with a growing height; `label` is for screen readers."""

    label: str
    width: float = WIDTH
    height: float = 0.0
    _parts: list[str] = field(default_factory=list)
    _behind: list[str] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, css: str) -> None:
        if width > 0:
            self._parts.append(_shape("rect", css, x=x, y=y, width=width, height=height))

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self._parts.append(_shape("line", css, x1=x1, y1=y1, x2=x2, y2=y2))

    def behind(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self._behind.append(_shape("line", css, x1=x1, y1=y1, x2=x2, y2=y2))

    def path(self, points: Sequence[tuple[float, float]], css: str, *, closed: bool = False) -> None:
        places = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._parts.append(f'<{"polygon" if closed else "polyline"} {_css(css)}points="{places}"/>')

    def mark(self, shape: str, x: float, y: float, css: str) -> None:
        match shape:
            case "bar":
                self.rect(x - 6.0, y - 5.0, 12.0, 10.0, css)
            case "line":
                self.line(x - 6.0, y, x + 7.0, y, css)
            case "cross":
                self.line(x - 3.5, y - 3.5, x + 3.5, y + 3.5, css)
                self.line(x - 3.5, y + 3.5, x + 3.5, y - 3.5, css)
            case "diamond":
                self.path([(x - 6.0, y), (x, y - 6.0), (x + 6.0, y), (x, y + 6.0)], css, closed=True)
            case "triangle":
                self.path([(x - 5.0, y + 4.0), (x, y - 5.0), (x + 5.0, y + 4.0)], css, closed=True)
            case "square":
                self.rect(x - 4.5, y - 4.5, 9.0, 9.0, css)
            case _:
                self._parts.append(_shape("circle", css, cx=x, cy=y, r={"point": 2.0, "end": 3.5}.get(shape, 4.0)))

    def text(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        placed = f'x="{_number(x)}" y="{_number(y)}"' + ("" if anchor == "start" else f' text-anchor="{anchor}"')
        self._parts.append(f"<text {_css(css)}{placed}>{html.escape(text)}</text>")

    def whisker(self, low: float, high: float, y: float) -> None:
        self.line(low, y, high, y, "whisker")
        for end in (low, high):
            self.line(end, y - 3.5, end, y + 3.5, "whisker")

    def legend(self, items: Sequence[LegendItem], y: float) -> float:
        x = 0.0
        for shape, css, words in items:
            wide = 24.0 + text_width(words, _SMALL)
            if x > 0 and x + wide > self.width:
                x, y = 0.0, y + 19.0
            self.mark(shape, x + 6.0, y, css)
            self.text(x + 17.0, y + 4.0, words, "small muted")
            x += wide + 10.0
        return y

    def axes(self, across: Scale, up: Scale, names: tuple[str, str]) -> None:
        for tick in up.ticks(5):
            self.behind(across.begin, up(tick), across.end, up(tick), "grid")
            self.text(across.begin - 6.0, up(tick) + 4.0, f"{tick:,.10g}", "small muted", "end")
        for tick in across.ticks(10):
            if tick == int(tick):
                self.text(across(tick), up.begin + 17.0, f"{tick:,.0f}", "small muted", "middle")
        self.line(across.begin, up.begin, across.end, up.begin, "axis")
        self.text(across.end, up.begin + 32.0, names[0], "small muted", "end")
        self.text(0.0, up.end - 12.0, names[1], "small muted")
        self.height = up.begin + 38.0

    def render(self, style: str | None = None) -> str:
        """Return the SVG element; with a style sheet if the picture stands alone."""
        width, height = _number(self.width), _number(self.height)
        alone = whole = ""
        if style is not None:
            alone = f' xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            whole = f'<style>{style}</style><rect class="paper" width="100%" height="100%"/>'
        head = f'<svg{alone} class="plot" viewBox="0 0 {width} {height}" role="img" '
        return f'{head}aria-label="{html.escape(self.label)}">{whole}{"".join(self._behind + self._parts)}</svg>'


def _shape(name: str, css: str, **places: float) -> str:
    attributes = " ".join(f'{key}="{_number(value)}"' for key, value in places.items())
    return f"<{name} {_css(css)}{attributes}/>"


def _css(names: str) -> str:
    return f'class="{html.escape(names)}" ' if names else ""


@dataclass(frozen=True, slots=True)
class Scale:
    """The coordinates of values on an axis."""

    first: float  # the value at `begin`
    last: float  # the value at `end`
    begin: float  # a coordinate
    end: float  # a coordinate
    log: bool = False  # equal ratios, not equal differences, have equal distances

    def __call__(self, value: float) -> float:
        value = min(max(value, min(self.first, self.last)), max(self.first, self.last))
        if self.first == self.last:
            return self.begin
        if self.log:
            share = math.log(value / self.first) / math.log(self.last / self.first)
        else:
            share = (value - self.first) / (self.last - self.first)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        first, last = self.first, self.last
        if first == last:
            return [first]
        if self.log:
            powers = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
            for steps in _FINENESS:
                found = [step * 10.0**power for power in powers for step in steps]
                inside = [each for each in found if first * 0.999 <= each <= last * 1.001]
                if len(inside) <= most:
                    return inside
            return inside[:: math.ceil(len(inside) / most)]
        rough = (last - first) / most
        power = 10 ** math.floor(math.log10(rough))
        step = next(each * power for each in (1, 2, 2.5, 5, 10, 20) if each * power >= rough)
        begin = math.ceil(first / step - 1e-9)
        return [each * step for each in range(begin, math.floor(last / step + 1e-9) + 1)]


_FINENESS = (
    (1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.5),
    (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 9.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


_ROW = 28.0  # height


class RowChart:
    """A picture with a label, a plot and a figure a row; `ends` are the axis's values, `values` the longest figure."""

    def __init__(
        self, label: str, ends: tuple[float, float], *, values: str, log: bool = False, labels: float = 214.0
    ) -> None:
        self.drawing = Drawing(label)
        self._left = labels
        self.scale = Scale(*ends, labels + 2.0, WIDTH - text_width(values) - 12.0, log)
        self._top = self._rows_begin = 6.0

    def legend(self, *items: tuple[bool, LegendItem]) -> None:
        shown = [item for is_there, item in items if is_there]
        self._top = self._rows_begin = self.drawing.legend(shown, self._top + 8.0) + 18.0

    def heading(self, words: str) -> None:
        self._top += 8.0
        self.drawing.text(0.0, self._top + 10.0, words, "heading")
        self._top += 22.0

    def row(self, label: str, value: str = "", css: str = "") -> float:
        drawing, middle = self.drawing, self._top + _ROW / 2
        drawing.text(0.0, middle + 4.5, fitted(label, self._left - 12.0), f"label {css}".strip())
        drawing.text(drawing.width, middle + 4.5, value, f"value {css}".strip(), "end")
        self._top += _ROW
        return middle

    def bar(self, y: float, begin: float, end: float, css: str) -> None:
        self.drawing.rect(self.scale(begin), y - 7.0, self.scale(end) - self.scale(begin), 14.0, css)

    def step(self, y: float, value: float) -> None:
        self.drawing.line(self.scale(value), y + 7.0, self.scale(value), y + _ROW - 7.0, "step")

    def rule(self, value: float, css: str) -> None:
        x = self.scale(value)
        self.drawing.behind(x, self._rows_begin, x, self._top, css)

    def axis(self, show: Callable[[float], str], unit: str, most: int = 6) -> Drawing:
        drawing, y = self.drawing, self._top + 2.0
        for tick in self.scale.ticks(most):
            x = self.scale(tick)
            self.rule(tick, "grid")
            anchor = "start" if x < 12 else "end" if x > drawing.width - 16 else "middle"
            drawing.behind(x, y, x, y + 3.0, "axis")
            drawing.text(x, y + 15.0, show(tick), "small muted", anchor)
        drawing.text(self.scale.end, y + 30.0, unit, "small muted", "end")
        drawing.height = y + 38.0
        return drawing
