"""Lines behind labels: the form in which most commands show what they found."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def table(lines: Iterable[tuple[str | Text, str | Text]] = ()) -> Table:
    """Return a table of lines, to which more may be added, each behind its label in bold."""
    shown = Table(show_header=False, box=None, pad_edge=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")  # of a path that is too long for a line nothing is left out
    for label, line in lines:
        shown.add_row(label, line)
    return shown
