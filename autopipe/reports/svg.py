"""Pictures as SVG text: shapes, words and scales, each word escaped. Nothing here depends on the content.

Colours are classes that `page.css` defines, in light and in dark; a stand-alone picture contains that style sheet.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

CHARACTER = 0.56
"""The width of a usual character, as a share of the font size."""


def number(value: float) -> str:
    """Format a coordinate to a tenth of a unit, which is finer than visible."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text."""
    return CHARACTER * size * len(text)


def fitted(text: str, width: float, size: float) -> str:
    """Return a text of at most this width, cut in its middle, as the ends of names differ."""
    most = max(4, int(width / (CHARACTER * size)))
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


@dataclass(slots=True)
class Drawing:
    """A picture in units of its own (pixels at its usual size) with a growing height; `label` is for screen readers."""

    width: float
    label: str
    height: float = 0.0
    _parts: list[str] = field(default_factory=list)
    _behind: list[str] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, css: str) -> None:
        """Draw a bar; one without width is not drawn."""
        if width > 0:
            self._add("rect", css, f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"')

    def behind(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self._behind.append(_line(x1, y1, x2, y2, css))

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self._parts.append(_line(x1, y1, x2, y2, css))

    def polyline(self, points: Sequence[tuple[float, float]], css: str) -> None:
        self._add("polyline", css, _points(points))

    def polygon(self, points: Sequence[tuple[float, float]], css: str) -> None:
        self._add("polygon", css, _points(points))

    def circle(self, x: float, y: float, radius: float, css: str) -> None:
        self._add("circle", css, f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"')

    def diamond(self, x: float, y: float, css: str) -> None:
        self.polygon([(x - 6.0, y), (x, y - 6.0), (x + 6.0, y), (x, y + 6.0)], css)

    def triangle(self, x: float, y: float, css: str) -> None:
        self.polygon([(x - 5.0, y + 4.0), (x, y - 5.0), (x + 5.0, y + 4.0)], css)

    def cross(self, x: float, y: float, css: str) -> None:
        self.line(x - 3.5, y - 3.5, x + 3.5, y + 3.5, css)
        self.line(x - 3.5, y + 3.5, x + 3.5, y - 3.5, css)

    def text(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        """Write a text with its base line at `y`."""
        placed = f'x="{number(x)}" y="{number(y)}"' + ("" if anchor == "start" else f' text-anchor="{anchor}"')
        self._parts.append(f"<text {_css(css)}{placed}>{html.escape(text)}</text>")

    def whisker(self, low: float, high: float, y: float) -> None:
        self.line(low, y, high, y, "whisker")
        for end in (low, high):
            self.line(end, y - 3.5, end, y + 3.5, "whisker")

    def render(self, style: str | None = None, css: str = "") -> str:
        """Return the SVG element, of the classes `css`; with a style sheet if the picture stands alone."""
        size = f"{number(self.width)} {number(self.height)}"
        alone = "" if style is None else ' xmlns="http://www.w3.org/2000/svg"'
        whole = "" if style is None else f'<style>{style}</style><rect class="paper" width="100%" height="100%"/>'
        fixed = "" if style is None else f' width="{number(self.width)}" height="{number(self.height)}"'
        head = f'<svg{alone}{fixed} {_css(f"plot {css}".strip())}viewBox="0 0 {size}" role="img" '
        return f'{head}aria-label="{html.escape(self.label)}">{whole}{"".join(self._behind + self._parts)}</svg>'

    def _add(self, shape: str, css: str, attributes: str) -> None:
        self._parts.append(f"<{shape} {_css(css)}{attributes}/>")


def _points(points: Sequence[tuple[float, float]]) -> str:
    return f'points="{" ".join(f"{number(x)},{number(y)}" for x, y in points)}"'


def _line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line {_css(css)}x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"/>'


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
        """Return the coordinate of a value, limited to the axis."""
        value = min(max(value, min(self.first, self.last)), max(self.first, self.last))
        if self.first == self.last:
            return self.begin
        if self.log:
            share = math.log(value / self.first) / math.log(self.last / self.first)
        else:
            share = (value - self.first) / (self.last - self.first)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values along the axis, at most `most`."""
        if self.first == self.last:
            return [self.first]
        return _log_ticks(self.first, self.last, most) if self.log else _ticks(self.first, self.last, most)


def _ticks(first: float, last: float, most: int) -> list[float]:
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


def _log_ticks(first: float, last: float, most: int) -> list[float]:
    powers = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
    for steps in _FINENESS:
        found = [step * 10.0**power for power in powers for step in steps]
        inside = [each for each in found if first * 0.999 <= each <= last * 1.001]
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]
