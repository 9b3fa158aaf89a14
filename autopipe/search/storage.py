"""Where a study is kept: an Optuna storage by its URL. What is in the study is `autopipe.search.record`'s."""

from __future__ import annotations

import sqlite3
from typing import Any

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from autopipe.errors import TrialError

_BUSY_SECONDS = 60


class _Connection(sqlite3.Connection):
    """Lets a commit survive the death of this process without waiting for the disk.

    Each trial takes some twenty commits. Waiting for a busy disk at each of them cost up to a second a trial. A power
    cut may take the last trials, never the file.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


def open_storage(url: str | None) -> BaseStorage:
    """Open a storage; None keeps everything in memory.

    Raises:
        TrialError: it cannot be used.
    """
    if url is None:
        return InMemoryStorage()
    sqlite = {"connect_args": {"timeout": _BUSY_SECONDS, "factory": _Connection}}
    try:
        return RDBStorage(url, engine_kwargs=sqlite if url.startswith("sqlite:") else None)
    except (OSError, ValueError, ImportError, SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise TrialError(
            f"The storage {url!r} cannot be used: {str(error).splitlines()[0]}.",
            hint="Give an Optuna storage URL, e.g. sqlite:///study.db, whose folder is there and can be written to.",
        ) from error


def settle(storage: BaseStorage) -> None:
    """Put everything into the one file, so that it can be copied; the storage stays usable."""
    if isinstance(storage, RDBStorage):
        storage.scoped_session.remove()
        storage.engine.dispose()
