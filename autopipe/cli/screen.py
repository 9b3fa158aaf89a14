"""What a command shows: its result on stdout, and on stderr what a person is told beside it.

Rich is imported when something is shown, and not before: `--help` does without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from autopipe import again
from autopipe.errors import SearchInterruptedError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.status import Status


def show(result: RenderableType) -> None:
    """Print a result to stdout; its lines are as long as they are."""
    from autopipe.reports.terminal import Console

    Console().print(result, soft_wrap=True)


def say(line: str) -> None:
    """Print a line to stderr as it is."""
    from autopipe.reports.terminal import Console

    Console(stderr=True).print(line, soft_wrap=True, highlight=False)


def warning() -> Callable[[object], None]:
    """Return what says, once each, what a trial's process warns of; it is told every event of trials."""
    from autopipe.trial import protocol

    said = set()

    def told(event: object) -> None:
        if isinstance(event, protocol.Log) and event.text not in said:  # each child that starts says it again
            said.add(event.text)
            say(f"warning: {event.text}")

    return told


@contextmanager
def saying_how_to_go_on() -> Iterator[None]:
    """Where Ctrl-C, or SIGTERM, ends the block, say which command goes on."""
    try:
        yield
    except (KeyboardInterrupt, SearchInterruptedError):
        say(f"to go on  {again.going_on()}")
        raise


def aside() -> AbstractContextManager[object]:
    """Return a context in which whatever a workload's own code prints goes to stderr: stdout is the result's."""
    return redirect_stdout(sys.stderr)


def working(on: str) -> Status:
    """Return a context in which stderr, if it is a terminal, says what is being worked on."""
    from autopipe.reports.terminal import Console

    return Console(stderr=True).status(on)


@contextmanager
def bar(what: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while the block runs; it yields what is to be told how much is done, and of how much."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from autopipe.reports.terminal import Console

    rate = TextColumn("{task.fields[rate]}", style="progress.data.speed")
    columns = (TextColumn(f"{what:<10}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None, rate="")

        def told(done: int, total: int) -> None:
            if progress.tasks[task].total is None:
                # What was done by an earlier run must not count into the rate of this one.
                progress.reset(task, total=total, completed=done)
            speed = progress.tasks[task].finished_speed or progress.tasks[task].speed
            progress.update(task, completed=done, rate="" if speed is None else f"{speed:,.0f} {unit}/s,")

        yield told
