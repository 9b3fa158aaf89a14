"""A report as one HTML file: no script, nothing fetched, and a policy in it that forbids both. Every word is escaped.

A section has a picture, and a table of the same content, whose rows are the raw figures of `report.json`.
The style is `page.css`.
"""

from __future__ import annotations

import functools
import html
import importlib.resources
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from autopipe.reports.drawing import Drawing

Row: TypeAlias = Mapping[str, Any]  # raw values by key, as JSON has them

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str  # above it
    show: Callable[[Row], str]  # a row's text in it
    numeric: bool = True  # figures are flush right


@dataclass(frozen=True, slots=True)
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
    picture: Drawing | None = None  # of them; None if there is nothing to draw
    caption: str = ""  # an explanation of the picture
    more: tuple[str, Sequence[str]] | None = None  # details: a heading and lines, in a fold


def words_column(title: str, key: str) -> Column:
    """Return a column with the words under a key."""
    return Column(title, lambda row: str(row[key]), numeric=False)


@functools.cache
def style() -> str:
    """Return the style sheet, without the comments for its readers."""
    text = importlib.resources.files("autopipe.reports").joinpath("page.css").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)).strip()


def alone(drawing: Drawing) -> str:
    """Return a picture as an SVG file of its own."""
    return drawing.render(style().replace(".ap {", "svg {"))


def page(title: str, head: str, body: str, foot: str) -> str:
    """Join ready pieces of HTML to a whole page; the title is plain text."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="robots" content="noindex">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style()}</style>\n</head>\n"
        f'<body class="ap">\n<header>{head}</header>\n<main>{body}</main>\n<footer>{foot}</footer>\n</body>\n</html>\n'
    )


def framed(body: str) -> str:
    """Return a piece of HTML with its own style, for a notebook."""
    return f'<style>{style()}</style><div class="ap" style="padding:0.5rem 0.75rem;max-width:52rem">{body}</div>'


def section(part: Section) -> str:
    """Return a section: heading, sentence, picture, and a table with the same content."""
    identity = f"s-{part.key}"
    drawn, shown = figure(part), table(part.table, part.title)
    folded = fold("The same as a table", shown) if drawn else shown
    more = "" if part.more is None else fold(part.more[0], listed(part.more[1]))
    return (
        f'<section aria-labelledby="{identity}"><h2 id="{identity}">{html.escape(part.title)}</h2>'
        f"<p>{words(part.text)}</p>{drawn}{folded}{more}</section>\n"
    )


def figure(part: Section) -> str:
    """Return the picture of a section, in a frame that scrolls if it is too wide; "" if it has none."""
    if part.picture is None:
        return ""
    caption = f"<figcaption>{words(part.caption)}</figcaption>"
    return f'<figure><div class="scroll">{part.picture.render()}</div>{caption}</figure>'


def table(shown: Table, name: str) -> str:
    """Return a table in a frame that scrolls if it is too wide; `name` is for screen readers."""
    classes = [' class="n"' if column.numeric else "" for column in shown.columns]

    def line(tag: str, texts: Sequence[str], more: str = "") -> str:
        cells = zip(texts, classes, strict=True)
        return f"<tr>{''.join(f'<{tag}{css}{more}>{html.escape(text)}</{tag}>' for text, css in cells)}</tr>"

    titles = [column.title for column in shown.columns]
    head = line("th", titles, ' scope="col"')
    above = f"<thead>{head}</thead>" if any(titles) else ""
    body = "".join(line("td", cells) for cells in shown.cells())
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{html.escape(name)}, as a table">'
        f"<table>{above}<tbody>{body}</tbody></table></div>"
    )


def words(text: str) -> str:
    """Return a text as HTML; backticks become code, and `->` an arrow that no line break splits."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text).replace("-&gt;", "\N{RIGHTWARDS ARROW}"))


def fold(title: str, content: str) -> str:
    """Fold content, which is HTML, under a title that opens it."""
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def listed(lines: Sequence[str]) -> str:
    """Return lines as a list."""
    return f"<ul>{''.join(f'<li>{words(line)}</li>' for line in lines)}</ul>"


def facts(items: Sequence[tuple[str, str, str]]) -> str:
    """Return prominent figures: name, figure, and remark."""
    cells = (
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(figure)}"
        + (f"<small>{html.escape(remark)}</small>" if remark else "")
        + "</dd></div>"
        for name, figure, remark in items
    )
    return f'<dl class="facts">{"".join(cells)}</dl>'
