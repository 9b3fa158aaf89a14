"""The lines of the user's own files on which the making of batches spends its time.

A thread looks every 5 ms where all threads of the process stand (`sys._current_frames`), and so does one in each
process that is forked meanwhile. A thread makes batches if something that reads data for Keras has called a frame of
the user's; its line is that of the innermost such frame. Processes that were not forked are not seen, nor is code that
is no Python. A look needs Python's lock: what an operator does while it holds it counts for the next call.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import enum
import fcntl
import functools
import itertools
import linecache
import os
import sys
import sysconfig
import threading
import time
import traceback
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.values import Value
from autopipe.workload.data.paths import SUFFIXES

_MOST = 0.5  # of a line's time: that much of one kind decides what may help
_FOR_THREADS = ("acquire", "get", "join", "map", "put", "result", "wait")  # methods that wait for them
_SUMS = ("seconds", "processor_seconds", "waiting_seconds", "locked_seconds")


class Remedy(enum.StrEnum):
    """What may stand in the place of a line, or help it."""

    DECODE = "decode"  # images
    MASK_TO_CLASS = "mask_to_class"  # for a mask that is compared with colours
    ONE_HOT = "one_hot"
    PROCESSES = "worker_processes"  # for Python code, which one thread at a time runs
    WORKERS = "workers"  # for what waits, as workers wait side by side
    LOCK = "lock"  # of the user's own, that its threads wait for


class Line(Value):
    """A place in the user's files, and the time of threads that stood there."""

    file: str
    line: int
    code: str  # the source line
    call: str | None = None  # the function that was called, or the operation; None for anything else
    made_for: Remedy | None = None  # what could stand in its place, by what it does
    beside: bool = False  # in a thread of the user's own, that nothing which reads data for Keras has called
    seconds: float = 0.0
    processor_seconds: float = 0.0
    # about, by the state of the thread at some looks
    waiting_seconds: float = 0.0  # for a file, the network or a clock
    locked_seconds: float = 0.0  # for a lock, Python's own among them
    reader: Literal["cv2.imread", "PIL.Image.open"] | None = None  # of the image, if it decodes one
    images: tuple[str, ...] = ()  # files that it read, a few
    mask: tuple[int, int] | None = None  # height and width of what it compares with colours

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of its time, 0 to 1: running, waiting, and waiting for locks. The rest is for want of a free core."""
        waits = min(1.0, self.waiting_seconds / self.seconds)
        locked = min(1 - waits, self.locked_seconds / self.seconds)
        return min(1 - waits - locked, self.processor_seconds / self.seconds), waits, locked

    @property
    def remedy(self) -> Remedy | None:
        """What may help; None if nothing is known."""
        _, waits, locked = self.shares
        if waits >= _MOST:
            return Remedy.WORKERS
        if locked >= _MOST:
            its_own = self.code.startswith("with ") or (self.call or "").rpartition(".")[2] in _FOR_THREADS
            return Remedy.LOCK if its_own else Remedy.PROCESSES
        return self.made_for


class Lines(Value):
    """Calls of lines that take time when batches are made: of the slowest line first, of the user's threads last."""

    lines: tuple[Line, ...] = ()
    seconds: float = 0.0  # of all that was seen of threads that make batches
    forked: bool = False  # some of it in processes that were forked
    # processor seconds for an image: of the first line that something stands ready for, and of that
    tried: dict[Remedy, dict[str, float]] = pydantic.Field(default_factory=dict)

    @classmethod
    def together(cls, parts: Sequence[Lines]) -> Lines:
        """Add up what was seen in several processes, or at several instructions of a line."""
        found: dict[Any, Line] = {}
        whole = collections.defaultdict[tuple[str, int], float](float)  # seconds by line, whatever it calls
        for line in (line for part in parts for line in part.lines):
            whole[line.file, line.line] += line.seconds
            before = found.setdefault(place := (line.file, line.line, line.call, line.beside), line)
            if before is not line:
                sums: dict[str, Any] = {name: getattr(before, name) + getattr(line, name) for name in _SUMS}
                images = tuple(dict.fromkeys(before.images + line.images))[:_IMAGES]
                known = line if before.reader is None else before  # Pillow's is seen at some looks only
                found[place] = known.model_copy(update={**sums, "images": images})
        return cls(
            lines=tuple(
                sorted(found.values(), key=lambda each: (each.beside, -whole[each.file, each.line], -each.seconds))
            ),
            seconds=sum(line.seconds for line in found.values() if not line.beside),
            forked=any(part.forked for part in parts),
        )


_SHOWN = 8
_LEAST_SHARE = 0.03
_LEAST_SECONDS = 0.1  # seen in all: less tells nothing
_IMAGES = 6

# -------------------- the looks

_PERIOD_SECONDS = 0.005
_STATE_EVERY = 4  # looks: to read the state of a thread takes longer
_TELL_SECONDS = 0.25  # from one report of a forked process to the next, of which the last one is lost
# How long a look waits for Python's lock before another thread must give it up. By Python's own 5 ms a look would come
# when a thread gives it up by itself, in `cv2.imread` say, and never see the 4 ms of Python before that.
_SWITCH_SECONDS = 0.0002
_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(os.uname().machine)  # the system's call for locks


class LineWatch:
    """Looks at this process from `start` to `stop`, and from now on at those that it forks."""

    def __init__(self) -> None:
        # Forked processes write here, one JSON object a line, until it is sealed.
        self._told = os.memfd_create("autopipe-lines", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._tally = _Tally()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autopipe-lines", daemon=True)
        self._found: Lines | None = None
        os.register_at_fork(after_in_child=self._begin_in_child)

    def start(self) -> None:
        """Begin to look. Once."""
        self._thread.start()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> Lines | None:
        """Stop looking, and return the lines; None if too little time was seen. A second call returns the same."""
        if self._found is None:
            self._stopping.set()
            if self._thread.ident is not None:
                self._thread.join()
            fcntl.fcntl(self._told, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
            told = os.pread(self._told, os.fstat(self._told).st_size, 0).splitlines()
            os.close(self._told)
            every = Lines.together([self._tally.lines(), *map(Lines.model_validate_json, told)])
            kept = [line for line in every.lines[1:_SHOWN] if line.seconds >= _LEAST_SHARE * every.seconds]
            self._found = every.model_copy(update={"lines": (*every.lines[:1], *kept)})
            self._tally = _Tally()
        return self._found if self._found.seconds >= _LEAST_SECONDS else None

    def _begin_in_child(self) -> None:
        if self._found is None:  # it is the parent's to stop
            self._found, self._tally, self._stopping = Lines(), _Tally(), threading.Event()
            threading.Thread(target=self._run, kwargs={"forked": True}, name="autopipe-lines", daemon=True).start()

    def _run(self, *, forked: bool = False) -> None:
        told = time.monotonic()
        with contextlib.suppress(OSError), _switching():  # a forked process tells until it is sealed
            while not self._stopping.wait(_PERIOD_SECONDS):
                self._tally.look()
                if forked and time.monotonic() - told >= _TELL_SECONDS:
                    found, told = self._tally.lines().model_copy(update={"forked": True}), time.monotonic()
                    os.write(self._told, found.model_dump_json().encode() + b"\n")


@contextlib.contextmanager
def _switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@dataclasses.dataclass(slots=True)
class _Place:
    """An instruction at which threads stood."""

    line: Line
    node: ast.expr | None
    sums: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(len(_SUMS)))
    images: set[str] = dataclasses.field(default_factory=set)


class _Tally:
    """The places where the threads of this process stood."""

    def __init__(self) -> None:
        self._places: dict[tuple[types.CodeType, int, bool], _Place] = {}
        self._clocks: dict[int, tuple[int, float]] = {}  # of threads that make batches: its id, and its last reading
        self._last = time.perf_counter()
        self._count = 0

    def lines(self) -> Lines:
        """Return the lines, with their times since the last call."""
        found = []
        for place in self._places.values():
            sums: dict[str, Any] = dict(zip(_SUMS, place.sums.tolist(), strict=True))
            found.append(place.line.model_copy(update={**sums, "images": tuple(place.images)}))
            place.sums[:] = 0
        return Lines.together([Lines(lines=tuple(line for line in found if line.seconds))])

    def look(self) -> None:
        """Add the time since the last look to the places where threads stand now."""
        own, main = threading.get_ident(), threading.main_thread().ident
        standing = [  # first, and quickly, as threads go on when this one has to give up Python's lock
            (ident, frame, *found)
            for ident, frame in sys._current_frames().items()
            if ident != own and (found := _standing(frame, is_main=ident == main)) is not None
        ]
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        self._count += 1
        ran = self._ran([ident for ident, *_ in standing])
        for ident, top, user, instruction, beside in standing:
            if ident not in ran:  # it is new
                continue
            place = self._places.get(key := (user.f_code, instruction, beside))
            if place is None:
                place = self._places[key] = _place(user, instruction, beside=beside)
            if place.line.reader is None and _is_pillow_reading(top, user):
                decodes = {"reader": "PIL.Image.open", "made_for": Remedy.DECODE}
                place.line = place.line.model_copy(update=decodes)
            call = _call(self._clocks[ident][0]) if self._count % _STATE_EVERY == 0 else ""
            # A thread that ran until this look came waits for Python's lock since then only.
            locked, waits = call == _FUTEX and ran[ident] < passed / 2, call not in ("", _FUTEX)
            states = (_STATE_EVERY * passed * waits, _STATE_EVERY * passed * locked)
            place.sums += (passed, min(passed, ran[ident]), *states)
            if place.line.reader is not None and len(place.images) < _IMAGES:
                place.images.update(_images(place.node, user))

    def _ran(self, standing: Iterable[int]) -> dict[int, float]:
        """Return the processor seconds of threads since the last look, if they were known by then."""
        found = {}
        for ident in {*self._clocks, *standing}:
            before = self._clocks.pop(ident, None)
            with contextlib.suppress(OSError):  # the thread has ended
                clock = time.pthread_getcpuclockid(ident) if before is None else before[0]
                self._clocks[ident] = clock, time.clock_gettime(clock)
                if before is not None:
                    found[ident] = self._clocks[ident][1] - before[1]
        return found


def _call(clock: int) -> str:
    """Return the call of the system in which the thread with this clock waits; "" if it runs, or that is not known.

    Linux makes the id of a thread's clock of the thread's own id. For the file see `man 5 proc`.
    """
    with contextlib.suppress(OSError), open(f"/proc/self/task/{~(clock >> 3)}/syscall", encoding="ascii") as file:
        return file.read().split()[0].replace("running", "")
    return ""


# -------------------- whose frames they are

_OWN: Final = str(Path(__file__).resolve().parents[1])
_READERS: Final = (  # read data for Keras, and call the user's code
    "/keras/src/trainers/data_adapters/",
    "/tensorflow/python/data/",
    "/tensorflow/python/ops/script_ops.py",  # numpy_function, py_function, from_generator
    "/torch/utils/data/",
    "-packages/grain/",
    f"{_OWN}/pipeline/",
    f"{_OWN}/workload/",
)
_LIBRARIES: Final = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_OTHERS: Final = ("-packages/", "__autograph_generated", f"{_OWN}/", *_LIBRARIES)


@functools.cache
def _is_reader(file: str) -> bool:
    return any(part in file for part in _READERS)


@functools.cache
def _is_users(file: str) -> bool:
    is_file = not file.startswith("<") or file.startswith("<ipython")
    return is_file and not any(part in file for part in _OTHERS)


def _standing(top: types.FrameType, *, is_main: bool) -> tuple[types.FrameType, int, bool] | None:
    """Return the innermost frame of the user's, its instruction, and whether nothing that reads data has called it.
    None if there is no such frame, or the main thread is not making a batch.
    """
    user: tuple[types.FrameType, int] | None = None
    for frame, _ in traceback.walk_stack(top):
        if user is None:
            user = (frame, frame.f_lasti) if _is_users(frame.f_code.co_filename) else None
        elif _is_reader(frame.f_code.co_filename):
            return *user, False
    return None if user is None or is_main else (*user, True)


# -------------------- the names of a place

_LONGEST = 48  # characters of an expression that is shown
_LETS_GO = ("bz2", "gzip", "hashlib", "lzma", "zlib")  # of the standard library: they do not hold Python's lock
_MANY = 1000  # elements: what is done to so many is not Python's any more


def _place(user: types.FrameType, instruction: int, *, beside: bool) -> _Place:
    file, names = user.f_code.co_filename, user.f_globals
    line, node = _expression(user.f_code, instruction, names)
    parts = [] if node is None else list(ast.walk(node))
    arrays = [each for each in (_value(part, user) for part in parts) if isinstance(each, np.ndarray)]
    colours = (each.shape[-3:-1] for each in arrays if each.ndim >= 3 and each.shape[-1] in (3, 4))
    mask = next(colours, None) if any(isinstance(part, ast.Compare) for part in parts) else None
    call = None
    if isinstance(node, ast.Call | ast.BinOp | ast.Compare | ast.Subscript):
        call = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    is_imread = call in ("cv2.imread", "imread")
    made_for = Remedy.DECODE if is_imread else None if mask is None else Remedy.MASK_TO_CLASS
    found = Line(
        file=str(Path(file).absolute()).removeprefix(f"{Path.cwd()}{os.sep}"),
        line=line,
        code=linecache.getline(file, line, names).strip(),
        call=call if call is None or len(call) <= _LONGEST else f"…{call[1 - _LONGEST :]}",
        made_for=made_for or _made_for(node, arrays, user),
        beside=beside,
        reader="cv2.imread" if is_imread else None,
        mask=mask,
    )
    return _Place(line=found, node=node)


def _is_pillow_reading(top: types.FrameType, user: types.FrameType) -> bool:
    inner = itertools.takewhile(lambda frame: frame is not user, (frame for frame, _ in traceback.walk_stack(top)))
    return any(frame.f_code.co_filename.endswith("/PIL/ImageFile.py") for frame in inner)


def _expression(code: types.CodeType, instruction: int, names: dict[str, Any]) -> tuple[int, ast.expr | None]:
    """Return the line of an instruction, and the expression that it is compiled from; None for a statement."""
    place: Any = types.SimpleNamespace()
    positions = next(itertools.islice(code.co_positions(), max(0, instruction) // 2, None))
    place.lineno, place.end_lineno, place.col_offset, place.end_col_offset = positions
    with contextlib.suppress(SyntaxError, ValueError, IndexError):  # or the file has changed
        source = ast.get_source_segment("".join(linecache.getlines(code.co_filename, names)), place)
        return positions[0] or code.co_firstlineno, ast.parse(f"({source})", mode="eval").body
    return positions[0] or code.co_firstlineno, None


def _made_for(node: ast.expr | None, arrays: list[NDArray[Any]], user: types.FrameType) -> Remedy | None:
    called = node.value if isinstance(node, ast.Subscript) else node
    if not isinstance(called, ast.Call):
        return None if any(each.size > _MANY for each in arrays) else Remedy.PROCESSES
    if ast.unparse(called.func).rpartition(".")[2] in ("eye", "to_categorical"):
        return Remedy.ONE_HOT
    root = called.func
    while isinstance(root, ast.Attribute):
        root = root.value
    owner = _value(root, user)  # a function, or the module or object that it belongs to
    library = str(getattr(owner, "__module__", None) or getattr(owner, "__name__", "")).partition(".")[0]
    return Remedy.PROCESSES if library in sys.stdlib_module_names and library not in _LETS_GO else None


def _value(node: ast.AST, user: types.FrameType) -> Any:
    """Return the value of a name, an attribute or an element, without running code of the user's; else None."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        known: Iterable[Any] = (user.f_locals, user.f_globals, user.f_builtins)
        return next((names[node.id] for names in known if node.id in names), None)
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, user), "__dict__", {}).get(node.attr)
    if isinstance(node, ast.Subscript):
        owner, key = _value(node.value, user), _value(node.slice, user)
        with contextlib.suppress(LookupError, TypeError, ValueError):
            return owner[key] if type(owner) in (list, tuple, dict, np.ndarray) and key is not None else None
    return None


def _images(node: ast.expr | None, user: types.FrameType) -> Iterator[str]:
    """Yield the paths of images that an expression names, or a variable of its function."""
    values = [] if node is None else [_value(each, user) for each in ast.walk(node)]
    for value in (*values, *user.f_locals.values()):
        if isinstance(value, str | bytes | os.PathLike) and os.fsencode(value).lower().endswith(SUFFIXES):
            path = os.path.abspath(os.fsdecode(value))  # noqa: PTH100  no objects for texts
            if os.path.isfile(path):  # noqa: PTH113
                yield path
