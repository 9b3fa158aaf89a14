"""What a command shows: its result on stdout, and on stderr what a person is told beside it.

Rich is imported when something is shown, and not before: `--help` does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def working(on: str) -> Status:
    """Return a context in which stderr, if it is a terminal, says what is being worked on."""
    from autopipe.reports.terminal import Console

    return Console(stderr=True).status(on)
