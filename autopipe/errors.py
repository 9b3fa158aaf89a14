"""Every exception that autopipe raises on purpose, and how its message is made.

A message names the rule that was broken, the value received and what to do. Failures that a study expects (a trial that
crashed, say) are values, not exceptions: see `autopipe.measure.outcome`.

    AutopipeError
    ├── WorkloadError          the training is impossible as described
    │   ├── DataError          ... because of the source of samples
    │   │   └── BadSampleError ... because of one sample
    │   ├── OpError            ... because an op failed
    │   └── ModelError         ... because of the model
    ├── ConfigError            a configuration that cannot be
    │   └── PlainCodeError     ... without autopipe
    ├── SpaceError             a search space that cannot be read
    ├── LoaderError            a loader could not start or go on
    │   └── WorkerDiedError    ... because its workers keep dying
    ├── PeerLostError          another process of the same training has ended
    ├── FrameworkError         the installed version of a framework is none that autopipe works with
    ├── StorageError           samples could not be kept in another form
    ├── TrialError             a trial could not be asked for
    │   └── NothingMeasuredError   ... or none gave a measurement
    │       └── SearchInterruptedError   ... because the user ended the search before
    ├── ArtifactError          a tuned artifact cannot be used
    └── MissingExtraError      an optional package is not installed
"""

from __future__ import annotations

import difflib
import functools
import importlib
import linecache
import os
import re
import resource
import sysconfig
import traceback
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

_T = TypeVar("_T")


class AutopipeError(Exception):
    """Root of all errors raised on purpose.

    Attributes:
        message: the rule that was broken and the value received.
        hint: what to do about it, or None.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = printable(message)
        self.hint = None if hint is None else printable(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), hint=self.hint), (self.message,)


class WorkloadError(AutopipeError):
    """The training is impossible as described."""


class DataError(WorkloadError):
    """The samples cannot be found or read."""


class BadSampleError(DataError):
    """One sample is missing, truncated or unfit for its ops."""


class OpError(WorkloadError):
    """An op raised, or was given an input that it cannot work on."""


class ModelError(WorkloadError):
    """The model cannot be built, or does not fit the batches."""


class ConfigError(AutopipeError):
    """A configuration that is unknown, incomplete or impossible."""


class PlainCodeError(ConfigError):
    """A pipeline, or an op or a source of it, that cannot be written without autopipe."""


class SpaceError(AutopipeError):
    """A search space file that cannot be read or makes no sense."""


class LoaderError(AutopipeError):
    """A loader could not start, or could not go on."""


class WorkerDiedError(LoaderError):
    """The worker processes of a loader keep dying on the same batch."""


class PeerLostError(AutopipeError):
    """Another process that trains together with this one has ended."""


class FrameworkError(AutopipeError):
    """The installed version of Keras, TensorFlow or JAX lacks an interface that autopipe uses."""


class StorageError(AutopipeError):
    """Samples could not be written to, or read from, another storage form."""


class TrialError(AutopipeError):
    """A trial could not be asked for at all."""


class NothingMeasuredError(TrialError):
    """Trials were run, and none of them gave a measurement."""


class SearchInterruptedError(NothingMeasuredError):
    """A search was interrupted before anything to use was measured."""


class ArtifactError(AutopipeError):
    """A tuned artifact is unreadable, of another version, or does not fit."""


class MissingExtraError(AutopipeError):
    """An optional package is needed and not installed."""

    @classmethod
    def of(cls, extra: str, package: str) -> MissingExtraError:
        from autopipe import again

        return cls(
            f"`{package}` is not installed; the extra `{extra}` brings it.",
            hint=f"Run: {again.installing_extra(extra)}",
        )


def extra_module(extra: str, name: str) -> Any:
    """Import a module that an extra brings. Raise MissingExtraError, which names the extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError.of(extra, name) from None


def printable(text: str) -> str:
    r"""Return a text with bytes that are no UTF-8, which Python holds as lone surrogates, as such as \udce9."""
    return text.encode("utf-8", "backslashreplace").decode()


def said_anew(error: AutopipeError, message: str, hint: str | None) -> AutopipeError:
    """Return an error of the nearest kind here with another message: only these are known to take one."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == __name__)
    made: AutopipeError = kind(message, hint=hint)
    return made


def called(function: Callable[..., _T], *arguments: Any) -> _T:
    """Return `function(*arguments)`, asked a second time if CPython fails as two threads parse at once. 3.11 counts the
    depth of all threads' syntax trees in one number (github.com/python/cpython/issues/106905), and `np.load` parses the
    header of a file.
    """
    try:
        return function(*arguments)
    except SystemError as error:
        if "AST constructor" not in str(error):
            raise
        return function(*arguments)


def worker_failure(error: BaseException) -> AutopipeError:
    """Return the consumer's error for a failed worker: `error` itself, if autopipe raised it on purpose."""
    if isinstance(error, AutopipeError):
        return error
    failure = LoaderError(f"A worker failed: {told(error)}")
    failure.__cause__ = error
    return failure


_OTHERS: Final = (
    *("/site-packages/", "/dist-packages/", "__autograph_generated"),
    *(f"{folder}/" for folder in (Path(__file__).parent, *map(sysconfig.get_path, ("stdlib", "platstdlib")))),
)


@functools.cache
def is_users(file: str) -> bool:
    """Return True for a file of the user's: neither of Python, nor of a package, nor of autopipe."""
    is_file = not file.startswith("<") or file.startswith("<ipython")
    return is_file and not file.endswith(".pyx") and not any(part in file for part in _OTHERS)


def told(error: BaseException, text: str | None = None) -> str:
    """Return an exception's type, as code names it, and its text, or another one: `ValueError: no`, `cv2.error: no`."""
    kind = type(error)
    name = kind.__name__ if kind.__name__[0].isupper() else f"{kind.__module__}.{kind.__name__}"
    return f"{name}: {error if text is None else text}"


def users_lines(error: BaseException, most: int = 1, *, or_any: bool = False) -> list[str]:
    """Return the last user's lines in a traceback, or any; behind the last, the paths that its function held."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    every = list(zip(traceback.extract_tb(error.__traceback__), frames, strict=True))
    own = [each for each in every if is_users(each[0].filename)]
    shown = (own or every if or_any else own)[-most:]
    lines = [f"  {Path(line.filename).name}, line {line.lineno}, in {line.name}: {line.line}" for line, _ in shown]
    return [*lines[:-1], lines[-1] + _held_paths(shown[-1][1])] if own else lines


def raised(call: str, error: BaseException, text: str | None = None) -> str:
    """Say that a call, written as code, raised an error, and at which line of the user's; `text` is as of `told`."""
    return f"`{call}` raised {told(error, text)}" + "".join(f" ({line.strip()})" for line in users_lines(error))


_PATHS, _LONGEST_PATH = 2, 300  # that are shown of a function


def _held_paths(frame: types.FrameType) -> str:
    held = [(name, frame.f_locals.get(name)) for name in frame.f_code.co_varnames]
    paths = [(name, os.fsdecode(value)) for name, value in held if isinstance(value, str | os.PathLike)]
    short = [(name, path) for name, path in paths if len(path) <= _LONGEST_PATH and "\n" not in path]
    shown = [f"{name}={path!r}" for name, path in short if os.sep in path or Path(path).suffix]
    return f" ({', '.join(shown[-_PATHS:])})" if shown else ""


def users_lines_in(text: str) -> list[str]:
    """Return the last line of the user's own code in a traceback that is text."""
    frames = re.findall(r'File "(.+)", line (\d+), in (.+)\n\s+(.+)', text)
    own = [each for each in frames if is_users(each[0])][-1:]
    return [f"  {Path(file).name}, line {line}, in {name}: {code}" for file, line, name, code in own]


def waits_at(dump: str) -> str | None:
    """Return the user's line at which a thread stands, by a dump of faulthandler, main thread last; or None."""
    for thread in reversed(re.split(r"(?m)^(?:Current t|T)hread .*$", dump)):
        frames = re.findall(r'File "(.+)", line (\d+) in (.+)', thread)
        for file, line, name in (each for each in frames if is_users(each[0])):
            return f"{Path(file).name}, line {line}, in {name}: `{linecache.getline(file, int(line)).strip()}`"
    return None


_OF_WORKERS: Final = {  # words of what worker processes of other libraries fail with, and what to do
    r"ancdata|Too many open files": "At most {files} files may be open at once (`ulimit -n`). Close those that are "
    "opened for each sample. A tensor that a worker process of torch made holds one open for as long as it is kept: "
    'keep copies (`.clone()`), or call torch.multiprocessing.set_sharing_strategy("file_system").',
    r"[Pp]ickle|local object": "Workers that are not forked get the dataset, `collate_fn` and `worker_init_fn` "
    "pickled: define them at the top of a file, as functions and classes, no lambdas, and open files in `__getitem__`.",
    r"before flags were parsed": "No `app.run` has parsed the flags of absl, which Grain's workers read, too: put "
    "`flags.FLAGS.mark_as_parsed()` at the top of the file, after `from absl import flags`.",
    r"RasterioIOError|IReadBlock": "The file may be damaged. If it was opened before workers were forked, or several "
    "threads read it, open it in `__getitem__`, once in each process and thread.",
    r"[Bb]us error|/dev/shm|shared memory": "Worker processes hand batches over in /dev/shm, which is full: fewer of "
    "them, fewer batches ahead, or a larger one (`docker run --shm-size=8g`).",
    r"environment variable (RANK|WORLD_SIZE|MASTER_)": "The script is to run in several processes: `torchrun "
    "--nproc-per-node=2 -m autopipe diagnose SCRIPT` watches them as `torchrun` runs them.",
    r"signal: Killed": "The system kills a process if memory is short: use fewer workers, smaller batches or fewer "
    "ahead (prefetch_factor=), and keep what all share as one array, not as a list of objects.",
    r"bootstrapping phase|exited unexpectedly": "Each worker that is not forked imports the file: put what trains "
    "there under `if __name__ == '__main__':`, and `ap.wrap` into a function, `def workload(): return ap.wrap(...)`. "
    "If a worker is killed without a word, memory is short: use fewer.",
}


def hint_of_workers(error: BaseException) -> str | None:
    """Return a hint for an error that is known of worker processes, such as torch's; None for any other error."""
    text = told(error)
    said = next((hint for words, hint in _OF_WORKERS.items() if re.search(words, text)), None)
    return said and said.replace("{files}", str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def near(word: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean `x`?" for the candidate nearest to `word`, or an empty string."""
    matches = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.5)
    return f" Did you mean `{matches[0]}`?" if matches else ""


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning if it has more characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shortened(value: object) -> str:
    """Return `repr(value)` in one line, cut to 120 characters, for use in a message."""
    return cut(" ".join(repr(value).split()), 120)


class DataWarning(UserWarning):
    """The data can be read, but they probably contain a mistake."""


def warn_of_data(message: str, *, level: int = 3) -> None:
    """Warn of a mistake in the data; `level` is the `stacklevel` in the caller."""
    warnings.warn(message, DataWarning, stacklevel=level + 1)


class FrameworkWarning(UserWarning):
    """The installed version of Keras, TensorFlow or JAX is newer than those that autopipe was tested with."""
