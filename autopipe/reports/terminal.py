"""The console, the output of a notebook's cell, lines behind labels and of counts. Other text is made elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import rich.console
from rich.table import Table
from rich.text import Text


class Console(rich.console.Console):
    """Rich's console, for text as it is: brackets and colons are no markup and no emoji. If stderr fails, as a pipe
    without a reader does, its messages are lost and the work goes on.
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


class Count:
    """Says how far some work is, its rate and the seconds left, at most once in `every_seconds`."""

    def __init__(
        self,
        say: Callable[[str], None],
        unit: str,
        *,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._unit, self._every, self._clock = say, unit, every_seconds, clock
        self._began: tuple[float, int] | None = None
        self._said, self._has_said = clock(), False

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        self._began = self._began or (now, done)
        if now - self._said < self._every and not (self._has_said and done == total):
            return
        self._said, self._has_said = now, True
        rate = (done - self._began[1]) / max(1e-9, now - self._began[0])
        left = f", {rate:,.0f} {self._unit}/s, {(total - done) / rate:,.0f} s left" if rate and done < total else ""
        self._say(f"{done:,} of {total:,} {self._unit}{left}")


def cell(first: str) -> Callable[[dict[str, str]], None] | None:
    """Show `first` in the running notebook cell; return what replaces it by MIME type, None outside of one."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # a terminal has a shell, too
        return None
    import IPython.display

    display: Any = IPython.display.display  # without types
    handle = display({"text/plain": first}, raw=True, display_id=True)
    return lambda shown: handle.update(shown, raw=True)


def counted(what: str, unit: str) -> Count | None:
    """Return a function that shows progress in the running cell of a notebook; None outside of one."""
    show = cell(what)
    return show and Count(lambda line: show({"text/plain": f"{what}: {line}"}), unit, every_seconds=0.5)
