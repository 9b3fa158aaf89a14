"""How text is printed: the console, and lines behind labels. What is printed is made elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import rich.console
from rich.table import Table
from rich.text import Text


class Console(rich.console.Console):
    """Rich's console, which prints text as it is: brackets and colons of paths and messages are no markup and no emoji.

    Colours and weights are given as `rich.text.Text` and as styles of columns. Where stderr takes no more, a pipe that
    nobody reads or a file on a full disk, what is told there is lost and the work goes on: a tune is minutes of it.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print as Rich does."""
        try:
            super().print(*objects, **how)
        except OSError:
            if not self.stderr:
                raise
            self._fall_silent()

    def on_broken_pipe(self) -> None:
        """End the command where nobody reads its result, and go on where nobody reads what is told beside it."""
        if self.stderr:
            self._fall_silent()
        else:
            super().on_broken_pipe()

    def _fall_silent(self) -> None:
        """Lead stderr nowhere, for whatever else writes to it and for what Python still holds for it when it ends."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError):  # of a stream that is no file
            os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def labelled(lines: Iterable[tuple[str | Text, str | Text]] = ()) -> Table:
    """Return a table of lines, to which more may be added, each behind its label in bold."""
    shown = Table(show_header=False, box=None, pad_edge=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")  # a path that is too long for a line is shown whole
    for label, line in lines:
        shown.add_row(label, line)
    return shown
