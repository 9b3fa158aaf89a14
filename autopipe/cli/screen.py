"""Prints for commands: the result to stdout, messages for people to stderr.

Rich is imported when something is printed, so that `--help` answers without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from autopipe import again
from autopipe.errors import SearchInterruptedError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.status import Status

    from autopipe.reports.answer import Answer


def show(result: RenderableType) -> None:
    """Print a result to stdout without breaking its lines."""
    from autopipe.reports.terminal import Console

    Console().print(result, soft_wrap=True)


def say(line: str) -> None:
    """Print a line to stderr without breaking it."""
    from autopipe.reports.terminal import Console

    Console(stderr=True).print(line, soft_wrap=True, highlight=False)


def answer(found: Answer[Any], *, as_json: bool) -> None:
    """Print an answer to stdout: its text, or its figures as JSON."""
    if as_json:
        print(found.json())
    else:
        show(found.shown)


@contextmanager
def saying_how_to_go_on() -> Iterator[None]:
    """If Ctrl-C or SIGTERM ends the block, print the command that continues."""
    try:
        yield
    except (KeyboardInterrupt, SearchInterruptedError):
        say(f"to go on  {again.going_on()}")
        raise


def aside() -> AbstractContextManager[object]:
    """Send the output of a workload's own code to stderr while the block runs: stdout is for the result."""
    return redirect_stdout(sys.stderr)


def working(on: str) -> Status:
    """Show a spinner with the current work on stderr, if that is a terminal, while the block runs."""
    from autopipe.reports.terminal import Console

    return Console(stderr=True).status(on)


@contextmanager
def bar(what: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, or a line in half a minute; yield a function of the number done and the total."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from autopipe.reports.terminal import Console, Count

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Count(lambda line: say(f"{what:<10}{line}"), unit, every_seconds=30)
        return
    rate = TextColumn("{task.fields[rate]}", style="progress.data.speed")
    columns = (TextColumn(f"{what:<10}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=None, rate="")

        def told(done: int, total: int) -> None:
            if progress.tasks[task].total is None:
                # Samples of an earlier run must not count into the rate of this one.
                progress.reset(task, total=total, completed=done)
            speed = progress.tasks[task].finished_speed or progress.tasks[task].speed
            progress.update(task, completed=done, rate="" if speed is None else f"{speed:,.0f} {unit}/s,")

        yield told
