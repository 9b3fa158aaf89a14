"""Processes and threads: who may use a loader, what may be forked, and threads that the system does not allow.

A fork copies a loader's memory, not its threads, so only the process that opened it can use it. Whether worker
processes may be forked here, by Keras or by a dataset of the user's own, is decided here, too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

from autopipe import frameworks
from autopipe.errors import LoaderError, WorkloadError
from autopipe.hardware import backend


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


_RUN = {"tensorflow": "TensorFlow", "jax": "JAX"}  # by Keras's backends: what children must not inherit


def require_safe_fork(instead: str, *, in_training: bool = False) -> None:
    """Refuse to let Keras fork worker processes where they would hang, and say what to do `instead`.

    `in_training`: whether a model has run by the time that they are forked, if none has so far.

    Raises:
        LoaderError: processes are not forked here, or a framework has run in this one.
        WorkloadError: a framework will have, by then.
    """
    if (method := _start_method()) != "fork":
        raise LoaderError(
            f"`use_multiprocessing` of Keras is supported with the start method `fork` only, but it is `{method}`.",
            hint=instead,
        )
    _require_nothing_running("`use_multiprocessing` of Keras", instead)
    if in_training and (running := _RUN.get(str(backend.keras_backend()))) is not None:
        raise WorkloadError(
            f"`use_multiprocessing` of Keras forks, and children forked after {running} has run hang: a training runs "
            "it before it reads the first batch.",
            hint=instead,
        )


def require_safe_workers(dataset: Any) -> None:
    """Refuse to let a torch `DataLoader` fork its workers where they would hang; other datasets pass.

    Raises:
        LoaderError: it would, and a framework has run in this process.
    """
    if not any(kind.__module__.partition(".")[0] == "torch" for kind in type(dataset).__mro__):
        return
    workers = getattr(dataset, "num_workers", 0)
    started = getattr(dataset, "_iterator", None) is not None  # with persistent_workers, once
    context = getattr(dataset, "multiprocessing_context", None)
    if workers and not started and (context.get_start_method() if context else _start_method()) == "fork":
        _require_nothing_running(
            f"A torch DataLoader with num_workers={workers}",
            'Make it with multiprocessing_context="forkserver", whose workers begin anew (a script then trains under '
            '`if __name__ == "__main__":`), or with num_workers=0.',
        )


def _start_method() -> str:
    """Return how processes start here, without settling it where nobody has: a script may still do so."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _require_nothing_running(what: str, instead: str) -> None:
    if (running := frameworks.running_framework()) is not None:
        raise LoaderError(
            f"{what} forks, and children forked after {running} has run, as it has here, hang.", hint=instead
        )
