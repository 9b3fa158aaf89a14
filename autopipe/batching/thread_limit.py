"""Threads of which the system may not allow as many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from autopipe.errors import LoaderError


@contextlib.contextmanager
def starting(takes: str, less: str, undo: Callable[[], object]) -> Iterator[None]:
    """Start threads in the block; where the system allows no more, `undo` ends those that were started.

    Args:
        takes: what takes how many threads, for the message.
        less: what would take fewer.
        undo: called before the error is raised.

    Raises:
        LoaderError: one could not be started.
    """
    try:
        yield
    except RuntimeError as error:
        undo()
        raise LoaderError(
            f"{takes}, but one could not be started: {error}.",
            hint=f"Use {less}, or raise the limit of threads (`ulimit -u`, or pids of a container).",
        ) from error
