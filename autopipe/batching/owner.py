"""The process that opened a loader, the only one that can use it: a fork copies a loader's memory, not its threads."""

from __future__ import annotations

import os

from autopipe.errors import LoaderError


class Owner:
    """Remembers the process that made it."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._pid

    def require(self) -> None:
        """Refuse to go on in any other process.

        Raises:
            LoaderError: this is a child that was forked after the loader was opened.
        """
        if not self.is_here:
            raise LoaderError(
                f"A loader is read by the process that opened it, {self._pid}, but process {os.getpid()}, "
                "which was forked from it, tried to.",
                hint="Build the loader in the process that reads it.",
            )
