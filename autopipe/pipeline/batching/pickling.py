"""Recipes and conversions, pickled for processes that share no memory with this one, here or on another machine.

Functions and classes of the user's own files go by value, so that a worker need not import a training script (and with
it a framework). Data behind paths and URLs stay in place; only their names go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle

from autopipe.errors import AutopipeError, LoaderError, worker_failure
from autopipe.pipeline.loader import Recipe
from autopipe.workload.op import Op

if TYPE_CHECKING:  # which imports the formats of data sets
    from autopipe.pipeline.storage.form import Conversion

_CHARACTERS_TOLD = 20_000  # of a message, and of a traceback


def pickled(made: Recipe | Conversion, loader: str) -> bytes:
    """Return a recipe or a conversion pickled, with the search path of its modules, for the workers of `loader`. Raise
    LoaderError if a part of it does not pickle.
    """
    try:
        with contextlib.ExitStack() as by_value:
            for module in _users_modules(made):
                cloudpickle.register_pickle_by_value(module)
                by_value.callback(cloudpickle.unregister_pickle_by_value, module)
            body = cloudpickle.dumps(made)
    except Exception:  # noqa: BLE001  # a user's module may fail in any way; a reference may still work
        try:
            body = cloudpickle.dumps(made)
        except Exception as error:
            raise LoaderError(
                f"`{loader}` must pickle the data and the ops for its workers, but that failed: "
                f"{type(error).__name__}: {error}",
                hint="Keep open files and locks out of the data and of functions in ap.Map, or use `Threads`.",
            ) from error
    return pickle.dumps((sys.path, body))


def unpickled(packed: bytes, *, elsewhere: bool = False) -> Any:
    """Return the argument of `pickled`.

    Modules are found on the other process's path; with `elsewhere`, on another machine, on the own path first.
    """
    path, body = pickle.loads(packed)  # noqa: S301  # from the owner of this process
    first, then = (sys.path, path) if elsewhere else (path, sys.path)
    sys.path[:] = [*first, *(place for place in then if place not in first)]
    return pickle.loads(body)  # noqa: S301  # the same


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteFailure:
    """The answer of another process that failed: the error that the owner raises, and its traceback as text."""

    error: AutopipeError
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> RemoteFailure:
        """Return an error with its traceback, both cut to a limit."""
        text = "".join(traceback.format_exception(error))[-_CHARACTERS_TOLD:]
        failure = worker_failure(error)
        if len(failure.message) > _CHARACTERS_TOLD:
            failure = type(failure)(f"{failure.message[:_CHARACTERS_TOLD]}…", hint=failure.hint)
        return cls(failure, text)


def answered(answer: Any) -> Any:
    """Return another process's answer; raise its AutopipeError, with that process's traceback as the cause."""
    if isinstance(answer, RemoteFailure):
        raise answer.error from RemoteTraceback(f"\n{answer.traceback}")
    return answer


class RemoteTraceback(Exception):
    """Shows the traceback of another process as the cause of the error raised here."""


def _users_modules(made: Recipe | Conversion) -> list[ModuleType]:
    """Return the modules of the source, the ops and mapped functions that are in no installed package."""
    things: list[Any] = [type(made.source)]
    for step in made.steps:
        op: Any = step.op
        while isinstance(op, Op):  # one that acts on some parts of a sample holds another
            things += [type(op), getattr(op, "function", None)]
            op = getattr(op, "op", None)
    names = {getattr(thing, "__module__", None) for thing in things}
    own = [name for name in names if name and name.split(".")[0] not in ("autopipe", "builtins", "__main__")]
    modules = [sys.modules[name] for name in own if name in sys.modules]
    return [each for each in modules if "site-packages" not in (getattr(each, "__file__", None) or "site-packages")]
