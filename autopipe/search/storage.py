"""The user's storage: opens it by its URL, explains its errors, and writes a study to it.

A search has its study in memory (`autopipe.search.record`) and writes each trial to the storage as it goes. The disk
may fill up, another process may lock the database, a server may go away: a write is tried again while its failure may
pass. After a failure for good nothing is written any more, and the search goes on.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import grpc
import optuna
import sqlalchemy
from optuna.exceptions import OptunaError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, GrpcStorageProxy, RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    OperationalError,
    PendingRollbackError,
    ProgrammingError,
    SQLAlchemyError,
)

from autopipe.errors import TrialError

STORAGE_ERRORS = (
    *(OptunaError, SQLAlchemyError, grpc.RpcError, OSError),
    *(LookupError, ValueError, TypeError, RuntimeError),  # a study that was deleted; whatever a broken row leads to
)
"""The errors of an Optuna storage that are the storage's fault."""

HEARTBEAT_SECONDS = 10
GRACE_SECONDS = 60
"""After this time without a heartbeat, another process may run a trial of a shared study."""

OnStale: TypeAlias = Callable[[optuna.Study, FrozenTrial], None]

_BUSY_SECONDS = 1.0  # that SQLite waits by itself, deaf to Ctrl-C; `Patience` goes on from there
_PAUSE_SECONDS = 0.2
_TABLES = 4  # that Optuna makes one after the other, and may be outrun at
_READY_SECONDS = 30.0
_GRPC_PORT = 13000  # Optuna's default
_PASSWORD = re.compile(r"(?<=://)([^/:@]*):[^@]*(?:@[^@/?]*)*@")  # SQLAlchemy takes all up to the last @

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The wait for a locked storage or a silent server."""

    seconds: float = 60.0
    on_wait: Callable[[str], None] = lambda reason: None  # gets the reason, once for each wait
    clock: Callable[[], float] = time.monotonic  # monotonic seconds
    sleep: Callable[[float], None] = time.sleep  # waits so many seconds

    def ask(self, act: Callable[[], _Answer]) -> _Answer:
        """Call `act`, again while it fails for a reason that may pass, and return its result. Raises one of
        `STORAGE_ERRORS` if it fails for good, or for longer than `seconds`.
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


def open_storage(url: str, patience: Patience | None = None, on_stale: OnStale | None = None) -> BaseStorage:
    """Open a storage; raises TrialError if it cannot be used.

    Besides the URLs of databases there is `grpc://host:port`, Optuna's proxy of a storage
    (`optuna.storages.run_grpc_proxy_server`). `patience` is the wait for a locked database. `on_stale` gets each trial
    of a process that died; the storage, a database, has heartbeats then.
    """
    kind, _, place = url.partition("://")
    options: dict[str, Any] = {}
    if url.startswith("sqlite:"):
        options["engine_kwargs"] = {"connect_args": {"timeout": _BUSY_SECONDS, "factory": _Connection}}
    if on_stale is not None:
        options |= {"heartbeat_interval": HEARTBEAT_SECONDS, "grace_period": GRACE_SECONDS}
        options["heartbeat_stale_trial_callback"] = on_stale
    try:
        with experimental():
            if kind == "grpc":
                host, _, port = place.rstrip("/").partition(":")
                proxy = GrpcStorageProxy(host=host, port=int(port or _GRPC_PORT))
                proxy.wait_server_ready(timeout=_READY_SECONDS)
                return proxy
            return (patience or Patience()).ask(lambda: _database(url, options))
    except (*STORAGE_ERRORS, ImportError) as error:
        raise unusable(url, error) from error


@contextmanager
def experimental() -> Iterator[None]:
    """Silence Optuna's warnings about its proxy and its heartbeats, which it calls experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def _database(url: str, options: dict[str, Any]) -> RDBStorage:
    """Open a database. Another process may create the same tables at the same time; that is no error."""
    for _ in range(_TABLES):
        with suppress(IntegrityError, ProgrammingError):
            return RDBStorage(url, **options)
    return RDBStorage(url, **options)


def url_of(file: Path) -> str:
    """Return the URL of a study in a file; a `?` or a `%` in its folder's name does not change the path."""
    return sqlalchemy.URL.create("sqlite", database=str(file.absolute())).render_as_string()


def is_shared(url: str | None) -> bool:
    """Return True if several machines can reach a storage; SQLite's and the one in memory are for one."""
    return url is not None and not url.startswith("sqlite:")


def can_be_joined(url: str | None) -> bool:
    """Return True if several processes can run one study in a storage: a database server, which has heartbeats."""
    return url is not None and is_shared(url) and not url.startswith("grpc:")


def without_password(url: str) -> str:
    """Return a URL that may be shown and kept."""
    return _PASSWORD.sub(r"\1@", url, count=1)


def unusable(url: str | None, error: BaseException) -> TrialError:
    """Return the error for a study that cannot be opened."""
    return TrialError(
        f"The storage {None if url is None else without_password(url)!r} cannot be used: {reason(error)}.",
        hint="Give an Optuna storage URL with --storage, e.g. sqlite:///study.db, whose folder is there, has room and "
        "can be written to; postgresql+psycopg://user@host/name; or grpc://host:13000.",
    )


class StoredStudy:
    """A study in the user's storage, which a search writes to as it goes. `name` exists already, `storage` is
    open, and `on_lost` gets the reason when it has failed for good.
    """

    def __init__(self, storage: BaseStorage, name: str, patience: Patience, on_lost: Callable[[str], None]) -> None:
        self.lost: str | None = None  # why nothing is written any more; None as long as it is
        self.study = patience.ask(lambda: optuna.load_study(study_name=name, storage=storage))
        self._id = patience.ask(lambda: storage.get_study_id_from_name(name))
        self._storage, self._patience, self._on_lost = storage, patience, on_lost
        self._file = _file_of(storage)
        self._inode = None if self._file is None else self._file.stat().st_ino

    def do(self, act: Callable[[], _Answer]) -> _Answer | None:
        """Call `act`, which uses the storage, and return its result; None once the storage has failed for good."""
        if self.lost is not None:
            return None
        try:
            if self._file is not None and self._is_gone(self._file):
                why = f"`{self._file}` is gone"
            else:
                return self._patience.ask(act)
        except STORAGE_ERRORS as error:
            why = reason(error)
        self.lost = why
        self.settle()
        self._on_lost(why)
        return None

    def trials(self) -> list[FrozenTrial]:
        return self.do(lambda: self.study.get_trials(deepcopy=False)) or []

    def claim(self, number: int, owner: Mapping[str, str]) -> bool:
        """Begin a trial that waits; False if another process has begun it."""
        return self.do(lambda: self._claimed(number, owner)) is not False

    def write(self, trial: FrozenTrial, number: int | None = None) -> int | None:
        """Write a trial as it is now, and return its number here; None if the storage has failed.

        `number` is for a trial without an owner; else the owner's attribute identifies it here.
        """
        return self.do(lambda: self._written(trial, number))

    def fail_stale(self) -> None:
        with experimental():
            self.do(lambda: optuna.storages.fail_stale_trials(self.study))

    @contextmanager
    def beating(self, number: int) -> Iterator[None]:
        """Send heartbeats for a trial while the block runs: other processes see that this one is alive."""
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(number, over), name="autopipe-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def settle(self) -> None:
        """Put everything into the storage's one file, so that it can be copied; the storage stays usable."""
        settle(self._storage)

    def _is_gone(self, file: Path) -> bool:
        """True if the file was removed or replaced: SQLite would go on writing to an unreachable one."""
        try:
            return file.stat().st_ino != self._inode
        except OSError:
            return True

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def _find(self, trial: FrozenTrial) -> FrozenTrial | None:
        there = reversed(self.study.get_trials(deepcopy=False))
        return next((each for each in there if each.user_attrs.get("owner") == trial.user_attrs["owner"]), None)

    def _claimed(self, number: int, owner: Mapping[str, str]) -> bool:
        with suppress(UpdateFinishedTrialError):
            if self._storage.set_trial_state_values(self._trial_id(number), TrialState.RUNNING):
                self._storage.set_trial_user_attr(self._trial_id(number), "owner", owner)
                return True
        return False

    def _written(self, trial: FrozenTrial, number: int | None) -> int:
        """Write a trial, whatever of it was written before: the answer to an earlier try may have been lost."""
        there = self._find(trial) if number is None else self.study.get_trials(deepcopy=False)[number]
        if there is not None and not there.state.is_finished():
            with suppress(UpdateFinishedTrialError):
                self._update(there, trial)
                return there.number
            there = self._find(trial)
        # Others may have taken this process for dead, and finished the trial without its outcome.
        if there is None or (there.state, there.user_attrs) != (trial.state, trial.user_attrs):
            self.study.add_trial(trial)
            there = self._find(trial)
        assert there is not None
        return there.number

    def _update(self, there: FrozenTrial, trial: FrozenTrial) -> None:
        trial_id = self._trial_id(there.number)
        for name in trial.params.keys() - there.params.keys():
            drawn_from = trial.distributions[name]
            self._storage.set_trial_param(trial_id, name, drawn_from.to_internal_repr(trial.params[name]), drawn_from)
        for name, value in trial.user_attrs.items():
            if name not in there.user_attrs or there.user_attrs[name] != value:
                self._storage.set_trial_user_attr(trial_id, name, value)
        for name in trial.system_attrs.keys() - there.system_attrs.keys():
            self._storage.set_trial_system_attr(trial_id, name, trial.system_attrs[name])
        if trial.state.is_finished():
            self._storage.set_trial_state_values(trial_id, trial.state, trial.values)

    def _beat(self, number: int, over: threading.Event) -> None:
        assert isinstance(self._storage, RDBStorage)
        while True:
            with suppress(*STORAGE_ERRORS):
                self._storage.record_heartbeat(self._trial_id(number))
            if over.wait(HEARTBEAT_SECONDS):
                break
        self._storage.scoped_session.remove()  # the connection of this thread


def _file_of(storage: BaseStorage) -> Path | None:
    if not isinstance(storage, RDBStorage) or storage.engine.dialect.name != "sqlite":
        return None
    name = storage.engine.url.database
    return None if name in (None, "", ":memory:") else Path(name)


def settle(storage: BaseStorage) -> None:
    """Put everything into the one file, so that it can be copied; the storage stays usable."""
    if isinstance(storage, RDBStorage):
        storage.scoped_session.remove()
        storage.engine.dispose()


def reason(error: BaseException) -> str:
    """Describe in a few words why a storage failed."""
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
    inner = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
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
