"""Optuna's journal in a file, whose own failures are errors of a storage here, as those of a database are.

Optuna raises a ValueError where a line cannot be read, whatever Python does with a line that is no record, and a
RuntimeError where the lock was taken away. What such an error means for a search is `autopipe.search.storage`'s.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages.journal import JournalFileBackend

_OF_EVERY_RECORD = {"op_code", "worker_id"}


class JournalError(StorageInternalError):
    """A journal holds what is no record, or its lock was lost; the message says so without its cause."""


class Journal(JournalFileBackend):
    """A journal file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records from one on.

        Raises:
            JournalError: a line is none.
        """
        number = log_number_from
        try:
            for record in super().read_logs(log_number_from):
                if not isinstance(record, dict) or not record.keys() >= _OF_EVERY_RECORD:
                    raise self._broken(number)
                yield record
                number += 1
        except ValueError as error:  # JSON's, and that of bytes which are no text
            raise self._broken(number) from error

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write records.

        Raises:
            JournalError: the lock is not there any more when it is to be let go of.
        """
        try:
            super().append_logs(logs)
        except RuntimeError as error:
            raise JournalError(f"another process took or removed the lock of the journal `{self._path}`") from error

    def _broken(self, number: int) -> JournalError:
        return JournalError(f"line {number + 1} of the journal `{self._path}` is no record of Optuna's")
