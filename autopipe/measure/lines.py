"""The lines of the user's own files on which the making of batches spends its time.

A thread looks every 5 ms where all threads of the process stand (`sys._current_frames`), and so does one in each
process that is forked meanwhile. A thread makes batches if something that reads data for Keras has called a frame of
the user's; its line is that of the innermost such frame. If that something calls a library's own dataset, and this no
code of the user's, the line is of the dataset's file. Processes that were not forked are not seen, nor is code that is
no Python. A look needs Python's lock: what an operator does while it holds it counts for the next call.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import inspect
import itertools
import linecache
import operator
import os
import sys
import threading
import time
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import is_users
from autopipe.values import Value

_SUMS = ("seconds", "processor_seconds")


class Line(Value):
    """A place in the user's files, and the time of threads that stood there."""

    file: str
    line: int
    code: str  # the source line
    beside: bool = False  # in a thread of the user's own, that nothing which reads data for Keras has called
    seconds: float = 0.0
    processor_seconds: float = 0.0  # the rest was waited: for a file, the network, a lock or a free core


class Lines(Value):
    """Lines that take time when batches are made: the slowest first, those of the user's own threads last."""

    lines: tuple[Line, ...] = ()
    seconds: float = 0.0  # of all that was seen of threads that make batches
    forked: bool = False  # some of it in processes that were forked
    own: tuple[Line, ...] = ()  # of the main thread that make and await no batch, if it is looked at as a whole

    @classmethod
    def together(cls, parts: Sequence[Lines]) -> Lines:
        found: dict[Any, Line] = {}
        for line in (line for part in parts for line in part.lines):
            before = found.setdefault(place := (line.file, line.line, line.beside), line)
            if before is not line:
                sums = {name: getattr(before, name) + getattr(line, name) for name in _SUMS}
                found[place] = before.model_copy(update=sums)
        return cls(
            lines=tuple(sorted(found.values(), key=lambda each: (each.beside, -each.seconds))),
            seconds=sum(line.seconds for line in found.values() if not line.beside),
            forked=any(part.forked for part in parts),
        )


class LineWatch:
    """Looks at this process from `start` to `stop`, and from now on at those that it forks."""

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: look also at what the main thread does beside making batches and waiting for them."""
        # Forked processes write here, one JSON object a line, until it is sealed.
        self._told = os.memfd_create("autopipe-lines", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._tally = _Tally(whole=whole)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autopipe-lines", daemon=True)
        self._found: Lines | None = None
        self.paused = False  # nothing is looked at, also in processes that are forked meanwhile
        self.has_forked = False
        noting = functools.partial(setattr, self, "has_forked", True)
        os.register_at_fork(after_in_parent=noting, after_in_child=self._begin_in_child)

    @property
    def is_new(self) -> bool:
        return self._thread.ident is None

    def start(self) -> None:
        self._thread.start()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> Lines | None:
        """Stop looking, and return the slowest eight lines; None if too little was seen. Once more, it is the same."""
        if self._found is None:
            self._stopping.set()
            if self._thread.ident not in (None, threading.get_ident()):  # there, garbage is collected that stops this
                self._thread.join()
            fcntl.fcntl(self._told, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
            told = os.pread(self._told, os.fstat(self._told).st_size, 0).splitlines()
            os.close(self._told)
            here = self._tally.lines()
            every = Lines.together([here, *map(Lines.model_validate_json, told)])
            kept = [line for line in every.lines[1:8] if line.seconds >= 0.03 * every.seconds]
            self._found = every.model_copy(update={"lines": (*every.lines[:1], *kept), "own": here.own[:8]})
            self._tally = _Tally()
        return self._found if self._found.seconds >= 0.1 or self._found.own else None

    def _begin_in_child(self) -> None:
        if self._found is None and not self.paused:  # it is the parent's to stop
            self._found, self._tally, self._stopping = Lines(), _Tally(), threading.Event()
            threading.Thread(target=self._run, kwargs={"forked": True}, name="autopipe-lines", daemon=True).start()

    def _run(self, *, forked: bool = False) -> None:
        told = time.monotonic() - 0.2  # the first time soon, as some workers end quickly
        with contextlib.suppress(OSError), _switching():  # a forked process tells until it is sealed
            while not self._stopping.wait(0.005):
                self._tally.look(counted=not self.paused)
                if forked and time.monotonic() - told >= 0.25:  # what is not told by its end is lost
                    found, told = self._tally.lines().model_copy(update={"forked": True}), time.monotonic()
                    os.write(self._told, found.model_dump_json().encode() + b"\n")


@contextlib.contextmanager
def _switching() -> Iterator[None]:
    """Have threads give Python's lock up after 0.2 ms: by Python's 5 ms a look comes when one does so by itself, in
    `cv2.imread` say, and never sees the 4 ms of Python before that.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, 0.0002))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep garbage from being collected in the block. `sys._current_frames` holds a lock of the interpreter as it makes
    objects, for which the end of a `threading.local` waits, too: collected there, one stops the process for ever
    (github.com/python/cpython/issues/106883).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Tally:
    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._places: dict[_Place, NDArray[np.float64]] = {}
        self._clocks: dict[int, tuple[int, float]] = {}  # of threads that make batches: its id, and its last reading
        self._last = time.perf_counter()

    def lines(self) -> Lines:
        """Return the lines, with their times since the last call."""
        found, own = list[Line](), list[Line]()
        for (file, line, beside), sums in self._places.items():
            if sums[0]:
                shown = file.partition(_PACKAGES)[2] or str(Path(file).absolute()).removeprefix(f"{Path.cwd()}{os.sep}")
                code, seconds = linecache.getline(file, line).strip(), dict(zip(_SUMS, sums.tolist(), strict=True))
                of = own if beside is None else found
                of.append(Line(file=shown, line=line, code=code, beside=bool(beside), **seconds))
            sums[:] = 0
        each = [Lines.together([Lines(lines=tuple(lines))]) for lines in (found, own)]
        return each[0].model_copy(update={"own": each[1].lines})

    def look(self, *, counted: bool = True) -> None:
        """Add the time since the last look, if it is `counted`, to the places where threads stand now."""
        own, main = threading.get_ident(), threading.main_thread().ident
        with _no_collection():
            standing = [  # first, and quickly, as threads go on when this one has to give up Python's lock
                (ident, place)
                for ident in sys._current_frames()
                if ident != own and (place := _standing(_stack(ident), is_main=ident == main, whole=self._whole))
            ]
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        ran = self._ran([ident for ident, _ in standing])
        for ident, place in standing:
            if ident in ran and counted:  # else it is new
                self._places.setdefault(place, np.zeros(len(_SUMS)))[:] += (passed, min(passed, ran[ident]))

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


# -------------------- whose frames they are

_OWN: Final = str(Path(__file__).resolve().parents[1])
_READERS: Final = (  # read data for Keras, and call the user's code
    "/keras/src/trainers/data_adapters/",
    "/tensorflow/python/data/",
    "/tensorflow/python/distribute/input_lib.py",  # waits for what tf.data makes
    "/tensorflow/python/ops/script_ops.py",  # numpy_function, py_function, from_generator
    "/torch/utils/data/",
    "-packages/grain/",
    f"{_OWN}/pipeline/",
    f"{_OWN}/workload/",
    f"{_OWN}/extensions/diagnose/loop.py",  # for a loop of the user's own
)
_PACKAGES: Final = "-packages/"
_FORKS: Final = "/multiprocessing/popen_fork.py"
_OF_DATASETS: Final = ("__getitem__", "__getitems__", "__next__", "__iter__")  # that readers call
_WATCHERS: Final = (f"{_OWN}/frameworks/", f"{_OWN}/extensions/diagnose/")  # stand between a reader and what it calls


@functools.cache
def _is_reader(file: str) -> bool:
    return any(part in file for part in _READERS)


def _is_librarys(code: types.CodeType) -> bool:
    """Return True for the code of a dataset that a package has, such as ImageDataGenerator's, or a generator there."""
    file = code.co_filename
    is_package = _PACKAGES in file and f"{_PACKAGES}numpy/" not in file and not file.startswith(_OWN)
    is_asked = code.co_name in _OF_DATASETS or bool(code.co_flags & inspect.CO_GENERATOR)
    return is_package and is_asked and not _is_reader(file)


def users_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the innermost frame of the user's, from this one on outwards; None if there is none."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _stack(thread: int) -> list[types.FrameType]:
    """Return the frames of a thread, the innermost first; none if it has ended. They are taken by one call in C, within
    which no other thread gets Python's lock. Walked one by one, as the thread went on, they have led to what is no
    frame (Python 3.11.7).
    """
    top = map(operator.itemgetter(thread), iter(sys._current_frames, None))
    frames: list[types.FrameType] = []
    with contextlib.suppress(AttributeError, KeyError):  # of None, which is behind the outermost; it has ended
        frames.extend(
            itertools.accumulate(itertools.chain(itertools.islice(top, 1), itertools.repeat("f_back")), getattr)
        )
    return frames[:-1]


_Place: TypeAlias = tuple[str, int, bool | None]
"""A file, a line, and whether it is in another thread than the main one, where nothing that reads data has called it;
None: in the main one, which makes and awaits no batch.
"""


def _standing(stack: Iterable[types.FrameType], *, is_main: bool, whole: bool = False) -> _Place | None:
    """Return the place of the innermost frame of the user's. If there is none, but a library's own dataset has been
    called, that is the innermost line of the dataset's file. None if the main thread is not making a batch, and waits
    for one or is not looked at as a `whole`.
    """
    user: tuple[str, int] | None = None
    waits = False  # for what a reader does
    called: types.FrameType | None = None  # by the frame that is looked at
    inside: dict[str, int] = {}  # files in which nothing of the user's has been called, and their innermost lines
    for frame in stack:
        file, line = frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno
        if user is None and is_users(file):
            user = file, line
        elif _is_reader(file):
            if user is not None:
                return *user, False
            if called is not None and _is_librarys(called.f_code):
                return called.f_code.co_filename, inside[called.f_code.co_filename], False
            waits = True
        if user is None and called is not None and called.f_code.co_name == "_bootstrap" and _FORKS in file:
            return None  # a worker that waits for a task: the frames further out are those that have forked it
        if not file.startswith(_WATCHERS):
            called = frame
        inside.setdefault(file, line)
    is_asked = not is_main or (whole and not waits)
    return (*user, None if is_main else True) if user is not None and is_asked else None
