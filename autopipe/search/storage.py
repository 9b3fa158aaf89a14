"""The user's storage of studies, as Optuna opens it by its URL: its errors in words, and URLs that may be shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import optuna
from optuna.storages import RDBStorage

from autopipe.errors import AutopipeError, TrialError

_PASSWORD = re.compile(r"(?<=://)([^/:@]*):[^@]*(?:@[^@/?]*)*@")  # SQLAlchemy takes all up to the last @


@contextmanager
def opened(url: str) -> Iterator[RDBStorage]:
    """Open a storage; raises TrialError if it cannot be used, here or in the block."""
    try:
        with quiet():
            storage = _database(url)
            try:
                yield storage
            finally:
                close(storage)
    except AutopipeError:
        raise
    except Exception as error:
        raise TrialError(
            f"The storage {without_password(url)!r} cannot be used: {reason(error)}.",
            hint="Give an Optuna storage URL with --storage, e.g. sqlite:///study.db, whose folder is there, has room "
            "and can be written to; or postgresql+psycopg://user@host/name.",
        ) from error


def _database(url: str) -> RDBStorage:
    """Open a database. Another machine may create the same tables at the same time; that is no error. Optuna makes four
    one after the other, and may be outrun at each.
    """
    for _ in range(4):
        try:
            return RDBStorage(url)
        except Exception as error:
            if type(error).__name__ not in ("IntegrityError", "ProgrammingError"):  # as PEP 249 has each driver call it
                raise
    return RDBStorage(url)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's messages about new studies on stderr; the user's own setting stays."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def close(storage: RDBStorage) -> None:
    """Close the connections to a storage; it stays usable."""
    storage.remove_session()
    storage.engine.dispose()


def reason(error: BaseException) -> str:
    """Return the first line of the driver's own error, which Optuna and SQLAlchemy each wrap once."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def url_of(file: Path) -> str:
    """Return the URL of a study in a file; a `?` or a `%` in its folder's name does not change the path."""
    return f"sqlite:///{quote(str(file.absolute()), safe=' +/')}"


def is_shared(url: str | None) -> bool:
    """Return True if several machines can reach a storage; SQLite's and the one in memory are for one."""
    return url is not None and not url.startswith("sqlite:")


def without_password(url: str) -> str:
    """Return a URL that may be shown and kept."""
    return _PASSWORD.sub(r"\1@", url, count=1)
