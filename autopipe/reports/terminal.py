"""The console, and lines behind labels. The text is made elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterable
from typing import Any

import rich.console
from rich.table import Table
from rich.text import Text


class Console(rich.console.Console):
    """Rich's console, which prints text as it is: brackets and colons of paths and messages are no markup and no emoji.

    Colours and weights are `rich.text.Text` and styles of columns. If stderr fails (a pipe without a reader, a full
    disk), its messages are lost and the work goes on: a tune takes minutes.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def print(self, *objects: Any, **how: Any) -> None:
        try:
            super().print(*objects, **how)
        except OSError:
            if not self.stderr:
                raise
            self._fall_silent()

    def on_broken_pipe(self) -> None:
        """End the command if stdout has no reader; if stderr has none, go on."""
        if self.stderr:
            self._fall_silent()
        else:
            super().on_broken_pipe()

    def _fall_silent(self) -> None:
        """Redirect stderr to nowhere, for other writers and for Python's own buffer at the end."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError):  # of a stream that is no file
            os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def labelled(lines: Iterable[tuple[str | Text, str | Text]] = ()) -> Table:
    """Return a table of lines, each behind its label in bold; more may be added."""
    shown = Table(show_header=False, box=None, pad_edge=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")  # a path that is too long for a line is shown whole
    for label, line in lines:
        shown.add_row(label, line)
    return shown


def figures(*titles: str, words: Collection[str] = ()) -> Table:
    """Return a table without lines, whose figures are flush right; columns of `words` are not, and wrap."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        of_words = title in words
        shown.add_column(title, justify="left" if of_words else "right", no_wrap=not of_words, overflow="fold")
    return shown
