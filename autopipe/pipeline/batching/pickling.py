"""Recipes and conversions, pickled for processes that share no memory with this one, here or on another machine.

Functions and classes of the user's own files go by value, so that a worker need not import a training script (and with
it a framework). Data behind paths and URLs stay in place; only their names go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import inspect
import io
import itertools
import operator
import os
import pickle
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import cloudpickle
import numpy as np

from autopipe.errors import AutopipeError, LoaderError, is_users, shortened, told, worker_failure
from autopipe.pipeline.loader import Made
from autopipe.workload.op import Op

_CHARACTERS_TOLD = 20_000  # of a message, and of a traceback


def pickled(work: Any, loader: str) -> bytes:
    """Return a recipe or conversion pickled, with the search path. Raise LoaderError if that fails."""
    try:
        body = _by_value(_parts_of(work), lambda: cloudpickle.dumps(work))
    except Exception as error:
        raise LoaderError(
            f"`{loader}` must pickle the data and the ops for its workers, but that failed: {told(error)}",
            hint="Keep open files and locks out of the data and of functions in ap.Map, or use `Threads`.",
        ) from error
    return pickle.dumps((sys.path, body))


def unpickled(packed: bytes, *, elsewhere: bool = False) -> Any:
    """Return what `pickled` got; modules are found on its path first, but `elsewhere` on the own one first."""
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


def _parts_of(work: Any) -> list[Any]:
    """Return the class of the source, those of the ops, and mapped functions."""
    things: list[Any] = [type(work.source)]
    for step in work.steps:
        op: Any = step.op
        while isinstance(op, Op):  # one that acts on some parts of a sample holds another
            things += [type(op), getattr(op, "function", None)]
            op = getattr(op, "op", None)
    return things


def _by_value(things: Iterable[Any], pickle_them: Callable[[], Made]) -> Made:
    """Pickle classes and functions by value, if they are of modules that are in no installed package. If that fails,
    as a user's module may in any way, pickle references: they may still work.
    """
    names = {getattr(thing, "__module__", None) or "builtins" for thing in things}
    own = [name for name in names if name.split(".")[0] not in ("autopipe", "builtins", "__main__")]
    with contextlib.suppress(Exception), contextlib.ExitStack() as undo:
        for module in (sys.modules[name] for name in own if name in sys.modules):
            file = getattr(module, "__file__", None) or "site-packages"
            if not any(packages in file for packages in ("site-packages", "dist-packages")):  # Debian, Colab
                cloudpickle.register_pickle_by_value(module)
                undo.callback(cloudpickle.unregister_pickle_by_value, module)
        return pickle_them()
    return pickle_them()


# -------------------- a user's dataset, for workers that make batches by their index


def apart(dataset: Any) -> tuple[bytes, list[memoryview]]:
    """Return a user's dataset pickled, and apart from that the memory of its arrays as it lies. A process that
    unpickles it needs no framework to have Keras's base class. Raise LoaderError, which names the attribute, if the
    dataset does not pickle.
    """
    try:
        return _apart(dataset)
    except Exception as error:
        dataset = getattr(dataset, "of_samples", dataset)
        name, culprit = type(dataset).__name__, next(_refusing(dataset), None)
        what = f"`{name}.{culprit}`, {shortened(vars(dataset)[culprit])}," if culprit else f"`{name}`"
        raise LoaderError(
            f"`{name}` must be pickled for worker processes, but {what} cannot be: {told(error)}.",
            hint="Open files and the like in `__getitem__`, or leave them out in `__getstate__`; or use `Threads`.",
        ) from error


def _apart(dataset: Any) -> tuple[bytes, list[memoryview]]:
    held = list(getattr(dataset, "__dict__", {}).values())

    def dumped() -> tuple[bytes, list[memoryview]]:
        buffers: list[pickle.PickleBuffer] = []
        with io.BytesIO() as file:
            _Pickler(file, pickle.HIGHEST_PROTOCOL, buffers.append).dump(dataset)
            return file.getvalue(), [buffer.raw() for buffer in buffers]

    return _by_value([*type(dataset).__mro__, *held, *map(type, held)], dumped)


def _refusing(dataset: Any) -> Iterator[str]:
    for name, value in getattr(dataset, "__dict__", {}).items():
        try:
            _apart(value)
        except Exception:  # noqa: BLE001  # an object may refuse in any way
            yield name


def unpicklable(dataset: Any) -> list[str]:
    """Return the attributes for which a user's dataset cannot be pickled: [""] if it is none of them."""
    with contextlib.suppress(LoaderError):
        apart(dataset)
        return []
    return list(_refusing(dataset)) or [""]


def open_files(dataset: Any) -> list[str]:
    """Return the attributes of a user's dataset that are open files, or hold one, also in a list."""

    def is_open(value: Any) -> bool:
        value = _first_of(value)
        kind = type(value)
        is_file = isinstance(value, io.IOBase) and not isinstance(value, io.BytesIO | io.StringIO) and not value.closed
        of_library = kind.__module__.partition(".")[0] in _FILES and bool(value) and "Info" not in kind.__name__
        return is_file or of_library or kind.__name__ == "VideoCapture"

    return held(dataset, is_open)


def _first_of(value: Any) -> Any:
    many = value.values() if isinstance(value, dict) else value
    return next(iter(many), None) if isinstance(value, dict | list | tuple) else value


def moved_files(dataset: Any) -> list[str]:
    """Return the open files whose position threads would move: of no library that locks, and not only written."""

    def is_moved(file: Any) -> bool:
        is_locked = type(file).__module__.partition(".")[0] in _LOCKED
        return file.readable() if isinstance(file, io.IOBase) else not is_locked

    every = attributes(dataset)
    return [path for path in open_files(dataset) if is_moved(_first_of(every[path]))]


def moved_by_threads(dataset: Any) -> list[str]:
    """Return those of them that a dataset's code reads, if no lock lets one thread read at a time."""
    names, own = used(dataset), getattr(dataset, "__dict__", {})
    if any(hasattr(each, "acquire") for each in (*names.values(), *own.values())):
        return []
    read, every = [path for path in moved_files(dataset) if path.partition(".")[0] in names], attributes(dataset)
    return [path for path in read if type(_first_of(every[path])).__module__ != "sqlite3"]


def against_threads(dataset: Any, held: dict[str, Any], *, refilled: bool) -> str | None:
    """Return the reason why a dataset of samples or batches, which was asked for some, must not be asked by several
    threads at once: it `held` these attributes after the first, and has `refilled` the arrays of that; None if it has
    a lock.
    """
    kind, now = type(dataset).__name__, attributes(dataset)
    if any(hasattr(value, "acquire") for value in getattr(dataset, "__dict__", {}).values()):
        return None
    if moved := ", ".join(f"`{kind}.{name}`" for name in moved_files(dataset)):
        return f"threads would share {moved}, and move the position in it while others read"
    changed = [name for name, value in held.items() if now.get(name) is not value]
    if names := ", ".join(f"`{kind}.{name}`" for name in changed if not _only_counts(dataset, name)):
        return f"threads would share {names}, which each `{kind}[i]` sets"
    return f"threads would fill the same arrays, those of the `{kind}[i]` before" if refilled else None


def _only_counts(dataset: Any, name: str) -> bool:
    """Return True for a number that the dataset's code only adds to: at worst a thread's count is lost."""
    own = itertools.chain(*(vars(kind).items() for kind in type(dataset).__mro__))
    functions = [*(each for key, each in own if key != "__init__"), *used(dataset).values()]
    ways = set[str]()
    for code in itertools.chain(*map(_codes, functions)):
        ways |= {"vars", "__dict__"}.intersection(code.co_names)
        before = ""
        for step in dis.get_instructions(code):
            if step.argval == name and not step.opname.endswith(("FAST", "GLOBAL", "DEREF")):  # another's name
                ways.add(f"{before} {step.opname}")
            before = step.opname
    return type(vars(dataset).get(name)) in (int, float) and ways == _SUMMED


def drawn_for_nothing(dataset: Any) -> list[str]:
    """Return the attributes that a dataset's `on_epoch_end` shuffles or sets, if it draws an order and no other method
    of the class, but for `__init__` and `__len__`, reads one of them.
    """
    own = {name: each for kind in reversed(type(dataset).__mro__) for name, each in vars(kind).items()}
    changed, draws, is_sure = set[str](), False, True
    for code in _codes(own.get("on_epoch_end")):
        steps, itself = [*dis.get_instructions(code)], code.co_varnames[:1]
        before = [each.argval[-1:] if isinstance(each.argval, tuple) else (each.argval,) for each in steps]
        for at, step in enumerate(steps):
            if step.opname == "STORE_ATTR":  # of another object it may be read by that
                is_sure = is_sure and before[at - 1] == itself
                changed.add(step.argval)
            elif step.argval in _DRAWING and before[at - 1] != itself:  # no flag of the dataset
                draws = True
                if step.argval == "shuffle" and before[at + 1] == itself:
                    changed.add(steps[at + 2].argval)
    others = [each for name, each in own.items() if name not in ("__init__", "__len__", "on_epoch_end")]
    codes = (code for each in others for code in _codes(each) if is_users(code.co_filename))
    read = {*itertools.chain(*map(code_names, codes))}
    return sorted(changed) if draws and is_sure and read.isdisjoint({*changed, "vars", "__dict__", "getattr"}) else []


_DRAWING: Final = ("permutation", "permuted", "sample", "shuffle")


def _codes(each: Any) -> Iterator[types.CodeType]:
    """Yield the code of a function, a property or the like, and of functions within."""
    parts = (each, *(getattr(each, name, None) for name in ("__func__", "__wrapped__", "fget", "fset")))
    pending = [part.__code__ for part in parts if isinstance(part, types.FunctionType)]
    for code in pending:
        yield code
        pending += [part for part in code.co_consts if isinstance(part, types.CodeType)]


_SUMMED = {"COPY LOAD_ATTR", "SWAP STORE_ATTR"}  # the object is duplicated for both, and the sum put below it


def used(dataset: Any) -> dict[str, Any]:
    """Return by its name what the code of a dataset's `__getitem__` and `__iter__` uses, also in functions that it
    calls: attributes of the class, and globals of the user's files. Other names have None.
    """
    found, pending = dict[str, Any](), [getattr(type(dataset), name, None) for name in ("__getitem__", "__iter__")]
    for each in pending:
        function: Any = inspect.unwrap(each) if isinstance(each, (types.FunctionType, _CACHE)) else None
        if isinstance(function, types.FunctionType) and is_users(function.__code__.co_filename):
            for name in set(code_names(function.__code__)) - found.keys():
                found[name] = getattr(type(dataset), name, function.__globals__.get(name))
                pending.append(found[name])
    return found


def code_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names of attributes and globals in a function's code, and "global.attribute", also of inner ones."""
    yield from code.co_names
    pairs = itertools.pairwise(dis.get_instructions(code))
    yield from (f"{one.argval}.{other.argval}" for one, other in pairs if one.opname == "LOAD_GLOBAL")
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    yield from itertools.chain.from_iterable(map(code_names, inner))


def remembering(dataset: Any) -> list[str]:
    """Return the functions that make a dataset's samples and whose results `functools.lru_cache` keeps."""
    return [name for name, each in used(dataset).items() if isinstance(each, _CACHE)]


def filled(dataset: Any) -> list[str]:
    """Return the dictionaries and lists of a dataset that it puts values into, by key, as it makes samples."""
    functions = [getattr(type(dataset), name, None) for name in ("__getitem__", "__iter__")] + [*used(dataset).values()]
    codes = [inspect.unwrap(each).__code__ for each in functions if isinstance(each, types.FunctionType)]
    found, attributes = dict[str, None](), dict[Any, str]()
    for each in itertools.chain.from_iterable(map(dis.get_instructions, codes)):
        place = each.positions and (each.positions.lineno, each.positions.col_offset)  # where an expression begins
        if each.opname == "LOAD_ATTR" and isinstance(getattr(dataset, "__dict__", {}).get(each.argval), dict | list):
            attributes[place] = str(each.argval)
        elif each.opname == "STORE_SUBSCR" and place in attributes:
            found[attributes[place]] = None
    return [*found]


_CACHE: Final = type(functools.lru_cache(len))


def generators(dataset: Any) -> list[str]:
    """Return the attributes of a user's dataset that are generators of random numbers, or hold one."""
    return held(dataset, lambda value: isinstance(value, _GENERATORS))


def held(dataset: Any, is_one: Callable[[Any], bool]) -> list[str]:
    """Return a path of each value in a dataset, attributes of attributes among them, that is asked for."""
    found = reversed(attributes(dataset, is_one).items())  # of several paths of an object, the first
    return [*{id(value): path for path, value in found if is_one(value)}.values()][::-1]


def attributes(dataset: Any, is_last: Callable[[Any], bool] = lambda value: False) -> dict[str, Any]:
    """Return the attributes of a dataset, and their attributes unless `is_last`, also in lists, by their paths."""
    found, pending = dict[str, Any](), [*getattr(dataset, "__dict__", {}).items()]
    for path, value in pending:
        found[path] = value
        if is_last(value) or path.count(".") >= _DEEP:
            continue
        if isinstance(value, list | tuple):  # such as one of transforms
            pending += [(f"{path}[{n}]", each) for n, each in enumerate(value[:_FEW]) if hasattr(each, "__dict__")]
        elif not type(value).__module__.startswith(_NOT_ASKED):
            pending += [(f"{path}.{name}", each) for name, each in getattr(value, "__dict__", {}).items()]
        elif getattr(value, "_base_seed", None) is None and "random_generator" in getattr(value, "__dict__", {}):
            pending.append((f"{path}.random_generator", value.random_generator))  # albumentations 1.4.21 to 2.0.8
    return found


_NOT_ASKED = ("albumentations", "builtins", "keras", "numpy", "tensorflow")
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_FILES = ("av", "decord", "h5py", "lmdb", "netCDF4", "openslide", "rasterio", "sqlite3", "tables", "tarfile", "zipfile")
_LOCKED = ("h5py", "lmdb", "openslide", "zipfile")
_DEEP, _FEW = 2, 32  # attributes of attributes of attributes; items of a list


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, made: Any) -> Any:
        keras = sys.modules.get("keras")
        if keras is not None and made is keras.utils.PyDataset:
            return getattr, (sys.modules[__name__], PyDataset.__name__)
        if isinstance(made, _GENERATORS):
            return generator, (pickle.dumps(made),)
        if isinstance(made, types.CodeType):  # whose file cloudpickle leaves out, so that no traceback shows its lines
            rebuild, parts = self.dispatch_table[types.CodeType](made)
            file = os.path.abspath(made.co_filename)  # noqa: PTH100  # "<stdin>" is no path
            return rebuild, tuple(file if part == "<dynamic-code>" else part for part in parts)
        return super().reducer_override(made)


class PyDataset:
    """Stands for Keras's class of this name in workers, which import no framework for it."""

    workers = property(operator.attrgetter("_workers"))
    use_multiprocessing = property(operator.attrgetter("_use_multiprocessing"))
    max_queue_size = property(operator.attrgetter("_max_queue_size"))
    num_batches = property(len)

    def on_epoch_begin(self) -> None:
        pass

    def on_epoch_end(self) -> None:
        pass


def generator(packed: bytes) -> Any:
    """Return a random generator that was pickled."""
    return pickle.loads(packed)  # noqa: S301  # from the owner of this process


class DatasetUnpickler(pickle.Unpickler):
    """Unpickles a dataset, and notes its random generators, each with its pickle."""

    def __init__(self, body: bytes, buffers: Sequence[memoryview]) -> None:
        super().__init__(io.BytesIO(body), buffers=buffers)
        self.generators: list[tuple[Any, bytes]] = []

    def find_class(self, module: str, name: str) -> Any:
        return self._noted if (module, name) == (__name__, generator.__name__) else super().find_class(module, name)

    def _noted(self, packed: bytes) -> Any:
        made = generator(packed)
        self.generators.append((made, packed))
        return made
