"""A progress bar on stderr, for work whose amount is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


@contextmanager
def bar(console: Console, what: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs; it yields what is to be told how much is done, and of how much."""
    columns = (TextColumn(f"{what:<10}"), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def told(done: int, total: int) -> None:
            if progress.tasks[task].total is None:
                # What was done by an earlier run must not count into the rate of this one.
                progress.reset(task, total=total, completed=done)
            progress.update(task, completed=done)

        yield told


class _Rate(ProgressColumn):
    """Units a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s,", style="progress.data.speed")
