"""Where a study is kept: an Optuna storage by its URL, what its errors mean, and how long it is waited for.

What is in the study is `autopipe.search.record`'s; what happens when the storage fails for good is
`autopipe.search.mirror`'s.
"""

from __future__ import annotations

import re
import sqlite3
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, GrpcStorageProxy, InMemoryStorage, JournalStorage, RDBStorage
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    OperationalError,
    PendingRollbackError,
    ProgrammingError,
    SQLAlchemyError,
)

from autopipe.errors import TrialError
from autopipe.search.journal import Journal, JournalError

STORAGE_ERRORS = (StorageInternalError, SQLAlchemyError, grpc.RpcError, OSError)
"""What an Optuna storage raises where the database is at fault, or the file system of a journal, and not who asks."""

_BUSY_SECONDS = 1.0  # that SQLite waits by itself, deaf to Ctrl-C; `Patience` goes on from there
_PAUSE_SECONDS = 0.2
_TABLES = 4  # that Optuna makes one after the other, and may be outrun at
_PASSWORD = re.compile(r"(?<=://)([^/:@]*):[^@]*(?:@[^@/?]*)*@")  # SQLAlchemy takes all up to the last @
_READY_SECONDS = 30.0
_GRPC_PORT = 13000  # the one that Optuna takes where none is given

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a storage is waited for that is locked, or whose server does not answer."""

    seconds: float = 60.0
    on_wait: Callable[[str], None] = lambda reason: None  # told the reason, once for each wait
    clock: Callable[[], float] = time.monotonic  # monotonic seconds
    sleep: Callable[[float], None] = time.sleep  # waits so many seconds

    def ask(self, act: Callable[[], _Answer]) -> _Answer:
        """Return what `act` returns, tried again while it fails for a reason that may pass.

        Raises:
            StorageInternalError, SQLAlchemyError, OSError: it fails for good, or for longer than `seconds`.
        """
        ends: float | None = None
        while True:
            try:
                return act()
            except STORAGE_ERRORS as error:
                now = self.clock()
                if ends is None:
                    ends = now + self.seconds
                    if _may_pass(error) and self.seconds > 0:
                        self.on_wait(reason(error))
                if not _may_pass(error) or now >= ends:
                    raise
            self.sleep(_PAUSE_SECONDS)


class _Connection(sqlite3.Connection):
    """Lets a commit survive the death of this process without waiting for the disk.

    Each trial takes some twenty commits. Waiting for a busy disk at each of them cost up to a second a trial. A power
    cut may take the last trials, never the file.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


def open_storage(url: str | None, patience: Patience | None = None) -> BaseStorage:
    """Open a storage; None keeps everything in memory.

    Besides the URLs of databases there are `journal:///study.log`, Optuna's journal in a file, which a network file
    system may hold; and `grpc://host:port`, Optuna's proxy of a storage (`optuna.storages.run_grpc_proxy_server`).

    Raises:
        TrialError: it cannot be used.
    """
    if url is None:
        return InMemoryStorage()
    kind, _, place = url.partition("://")
    if kind == "journal":  # a path after the third slash, as in sqlite's
        try:
            return JournalStorage(Journal(path_of_journal(url)))
        except (OSError, ValueError, JournalError) as error:
            raise unusable(url, error) from error
    if kind == "grpc":
        return _proxied(url, place.rstrip("/"))
    connecting = {"connect_args": {"timeout": _BUSY_SECONDS, "factory": _Connection}}
    engine = connecting if url.startswith("sqlite:") else None
    try:
        return (patience or Patience()).ask(lambda: _database(url, engine))
    except (OSError, ValueError, ImportError, SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise unusable(url, error) from error


def path_of_journal(url: str) -> str:
    """Return the file that a URL such as `journal:///study.log` names, letter by letter: `%20` in it is no space."""
    return url.partition("://")[2].removeprefix("/")


def _database(url: str, engine: dict[str, Any] | None) -> BaseStorage:
    """Open a database, where another process may be making the same tables: who comes second goes on with those."""
    for _ in range(_TABLES):
        with suppress(IntegrityError, ProgrammingError):
            return RDBStorage(url, engine_kwargs=engine)
    return RDBStorage(url, engine_kwargs=engine)


def _proxied(url: str, place: str) -> BaseStorage:
    host, _, port = place.partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # Optuna's word for its proxy
            storage = GrpcStorageProxy(host=host, port=int(port or _GRPC_PORT))
        storage.wait_server_ready(timeout=_READY_SECONDS)
    except (ValueError, OSError, ImportError, grpc.RpcError) as error:
        raise unusable(url, error) from error
    return storage


def url_of(file: Path) -> str:
    """Return the URL of a study in a file of its own; a `?` or a `%` of its folder's name ends or changes no path."""
    return sqlalchemy.URL.create("sqlite", database=str(file.absolute())).render_as_string()


def is_shared(url: str | None) -> bool:
    """Return whether several machines can reach a storage; SQLite's and the one in memory are for one."""
    return url is not None and not url.startswith("sqlite:")


def without_password(url: str) -> str:
    """Return a URL as it may be shown and kept."""
    return _PASSWORD.sub(r"\1@", url, count=1)


def unusable(url: str | None, error: BaseException) -> TrialError:
    """Return the error that says why a study cannot be opened."""
    return TrialError(
        f"The storage {None if url is None else without_password(url)!r} cannot be used: {reason(error)}.",
        hint="Give an Optuna storage URL with --storage, e.g. sqlite:///study.db, whose folder is there, has room and "
        "can be written to; postgresql+psycopg://user@host/name; journal:///study.log; or grpc://host:13000.",
    )


def file_of(storage: BaseStorage) -> Path | None:
    """Return the SQLite file that a storage keeps everything in; None if it is another kind."""
    backend = getattr(storage, "_backend", storage)  # Optuna puts a cache in front of each RDBStorage
    if not isinstance(backend, RDBStorage) or backend.engine.dialect.name != "sqlite":
        return None
    name = backend.engine.url.database
    return None if name in (None, "", ":memory:") else Path(name)


def settle(storage: BaseStorage) -> None:
    """Put everything into the one file, so that it can be copied; the storage stays usable."""
    backend = getattr(storage, "_backend", storage)
    if isinstance(backend, RDBStorage):
        backend.scoped_session.remove()
        backend.engine.dispose()


def reason(error: BaseException) -> str:
    """Return in a few words why a storage failed."""
    cause = _of_the_database(error)
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the rest is the extended code
    known = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_BUSY: "another process holds the database locked",
        sqlite3.SQLITE_LOCKED: "another process holds the database locked",
        sqlite3.SQLITE_READONLY: "the database cannot be written to",
        sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    }
    lines = str(cause).strip().splitlines()
    return known.get(code) or (lines[0].rstrip(".") if lines else type(cause).__name__)


def _of_the_database(error: BaseException) -> BaseException:
    """Return the driver's own error, which Optuna and SQLAlchemy each wrap once."""
    wraps = isinstance(error, StorageInternalError) and not isinstance(error, JournalError)
    inner = error.__cause__ if wraps and error.__cause__ else error
    if isinstance(inner, PendingRollbackError) and inner.__context__:  # Optuna asks again in the transaction that broke
        inner = inner.__context__
    original = inner.orig if isinstance(inner, DBAPIError) else None
    return inner if original is None else original


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, grpc.RpcError):  # the proxy, or the way to it
        return True
    cause = _of_the_database(error)
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    wrapped = error.__cause__ if isinstance(error, StorageInternalError) else error
    # Of a server: the connection broke, before or within a transaction, or it is being restarted.
    return isinstance(wrapped, OperationalError | PendingRollbackError)
