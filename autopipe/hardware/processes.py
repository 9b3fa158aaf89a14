"""The process tree of a training or trial: its CPU time and memory, samples of both, and this process's own rules.

Nothing here knows trials or loaders.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import itertools
import linecache
import os
import signal
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, Self

from autopipe.hardware import machine
from autopipe.hardware.gpu import GpuUse, Nvml

PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Resident(NamedTuple):
    """The memory of one process in RAM, by kind."""

    anonymous_bytes: int = 0  # its own, and what it still shares with the parent that forked it
    file_bytes: int = 0  # mapped files and libraries, which others may map as well
    shared_bytes: int = 0  # shared memory, /dev/shm and memfd


def resident(pid: int, proc: Path = PROC) -> Resident:
    """Read a process's resident memory from /proc/PID/status; zero if it has gone."""
    return Resident(*_sizes(pid, "status", (b"RssAnon", b"RssFile", b"RssShmem"), proc))


def own_bytes(pid: int, proc: Path = PROC) -> int:
    """Return a process's share of memory that is no file's; pages that processes share are divided. Slow."""
    return sum(_sizes(pid, "smaps_rollup", (b"Pss_Anon", b"Pss_Shmem"), proc))


def _sizes(pid: int, file: str, names: Sequence[bytes], proc: Path) -> list[int]:
    sizes = dict.fromkeys(names, 0)
    for line in _read(pid, file, proc).splitlines():
        name, _, value = line.partition(b":")
        if name in sizes:
            sizes[name] = int(value.split()[0]) * 1024
    return [*sizes.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a process tree."""

    seconds: float = 0.0  # when, by `time.monotonic`, which on Linux all processes of a machine share
    cpu_seconds: float = 0.0  # since the first process began, user and system, of the living and the dead, to 10 ms
    memory_bytes: int = 0  # private memory of all processes, and the shared memory of the one that has most of it
    processes: int = 1  # how many are alive
    workers_bytes: int = 0  # private memory of all but the first
    # CPU time of everything on the cores that may be used until now, time stolen by a hypervisor included
    machine_cpu_seconds: float = 0.0
    gpus: tuple[GpuUse, ...] = ()  # the use of each GPU by all processes


@dataclass(frozen=True, slots=True)
class _Process:
    kin: frozenset[int]  # its parent, the leader of its process group and that of its session
    parent: int
    ticks: int  # its own and those of its children that it has waited for
    started: int  # in ticks since boot: tells a process from a later one with the same number
    has_ended: bool  # and waits for its parent to take notice


class ProcessTree:
    """The processes that descend from `pid`; `proc` is the folder of the kernel's process files.

    A process belongs to the tree if its parent, or the leader of its process group or session, does, and stays in it:
    the children of a worker that has died still count. Shared pages count once, with the process that has most of them:
    resident sizes would count the blocks of a loader once a worker, and the kernel's fair figure (PSS) takes 7 ms for a
    process that has imported JAX, during which it cannot map memory. What a forked child still shares with its parent
    is counted for both. The time of a process is in its own figures, then in those of the parent that waited for it. If
    that is outside of the tree, the last reading is kept; so is time that is missing in two readings in a row, as of a
    parent that ignores SIGCHLD (`man 2 wait`), such as Ray's.
    """

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self._pid, self._proc = pid, proc
        self._cores = machine.allowed()  # of all samples: cores that come or go would bring or take hours
        first = self._process(pid)
        self._members: Mapping[int, _Process] = {} if first is None else {pid: first}
        self._unrelated: frozenset[int] = frozenset()
        self._lost_ticks = self._ticks = 0
        self._fell = False

    def running(self) -> set[int]:
        self._look()
        return {pid for pid, process in self._members.items() if not process.has_ended}

    def read(self, nvml: Nvml | None = None, clock: Callable[[], float] = time.monotonic) -> Sample:
        self._look()
        each = {pid: resident(pid, self._proc) for pid in self._members}
        own = sum(one.anonymous_bytes for one in each.values())
        shared = max((one.file_bytes + one.shared_bytes for one in each.values()), default=0)
        return Sample(
            seconds=clock(),
            cpu_seconds=self._ticks / _TICKS_PER_SECOND,
            memory_bytes=own + shared,
            processes=len(self._members),
            workers_bytes=own - each.get(self._pid, Resident()).anonymous_bytes,
            machine_cpu_seconds=busy_seconds(self._proc, self._cores),
            gpus=() if nvml is None else nvml.use(),
        )

    def queued_seconds(self) -> float:
        """Return the seconds for which the tree's threads have waited for a core, added up; 0 if not counted."""
        waited = 0
        for file in itertools.chain(*((self._proc / str(pid) / "task").glob("*/schedstat") for pid in self._members)):
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited += int(file.read_text().split()[1])
        return waited / 1e9

    def _look(self) -> None:
        members = self._living()
        self._lost_ticks += sum(
            last.ticks for pid, last in self._members.items() if pid not in members and last.parent not in self._members
        )
        self._members = members
        missing = self._ticks - self._lost_ticks - sum(process.ticks for process in members.values())
        if missing > 0 and self._fell:  # once may be between a child's end and its parent's reading
            self._lost_ticks += missing
        self._fell = missing > 0
        self._ticks -= min(0, missing)

    def _living(self) -> dict[int, _Process]:
        listed = frozenset[int]()
        with contextlib.suppress(OSError):
            listed = frozenset(int(name) for name in os.listdir(self._proc) if name.isdecimal())  # noqa: PTH208 - no objects for a thousand names
        candidates = {pid: process for pid in listed - self._unrelated if (process := self._process(pid)) is not None}
        living = {
            pid: process
            for pid, last in self._members.items()
            if (process := candidates.get(pid)) is not None and process.started == last.started
        }
        family = {self._pid, *living}
        while joining := {pid for pid in candidates.keys() - family if not candidates[pid].kin.isdisjoint(family)}:
            living |= {pid: candidates[pid] for pid in joining}
            family |= joining
        self._unrelated = listed - living.keys()
        return living

    def _process(self, pid: int) -> _Process | None:
        """Read /proc/PID/stat (`man 5 proc`); None if the process has gone. Its name may hold spaces and brackets."""
        fields = _read(pid, "stat", self._proc).rpartition(b") ")[2].split()
        if len(fields) < 20:
            return None
        parent, group, session = map(int, fields[1:4])
        ticks, started = sum(map(int, fields[11:15])), int(fields[19])
        return _Process(frozenset((parent, group, session)), parent, ticks, started, fields[0] in (b"Z", b"X"))


def _read(pid: int, name: str, proc: Path) -> bytes:
    with contextlib.suppress(OSError):  # ESRCH: it went between open and read
        descriptor = os.open(f"{proc}/{pid}/{name}", os.O_RDONLY)
        try:
            return os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    return b""


def runs(pid: int, proc: Path = PROC) -> bool:
    """Return False if a process has gone, or has ended and waits for its parent to take notice, which may never be."""
    return _read(pid, "stat", proc).rpartition(b") ")[2][:1] not in (b"", b"Z", b"X")


def started(module: str, places: Iterable[str] = ()) -> list[str]:
    """Return the command that runs the `main` of a module of this very autopipe in a new Python. `places` come after
    what is installed, so that a `socket.py` in the working directory, say, runs in the place of none.
    """
    root = str(Path(__file__).parents[2])
    path = f"sys.path.insert(0, {root!r}); import autopipe; del sys.path[0]; sys.path += {[root, *places]!r}"
    return [sys.executable, "-P", "-c", f"import sys; {path}; from {module} import main; main()"]


CTRL_C: Final = (signal.SIGINT,)


@contextlib.contextmanager
def uninterrupted(signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) -> Iterator[None]:
    """Delay signals that end this process until the block has run (in other threads than the main one there are none).
    Ctrl-C in `next` of a `tf.data` iterator leaves an executor of TensorFlow half replaced, so that Python may hang.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    # Others are ignored, or end the process on the spot.
    before = {number: handler for number in signals if callable(handler := signal.getsignal(number))}
    try:
        for number in before:
            signal.signal(number, lambda number, _: held.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def line_of(frame: FrameType) -> str:
    """Return the place and the text of the line at which a frame stands."""
    file, line = os.path.relpath(frame.f_code.co_filename), frame.f_lineno
    return f"{file}:{line} `{linecache.getline(file, line).strip()}`"


class Binding:
    """Sees what binds this process to fewer cores than it had: an import, or a call of Python's own."""

    def __init__(self) -> None:
        self._before = machine.allowed()
        self._by: str | None = None
        self._import, self._bind = builtins.__import__, os.sched_setaffinity
        builtins.__import__, os.sched_setaffinity = self._importing, self._binding

    def _importing(self, name: str, *arguments: Any, **named: Any) -> Any:
        module = self._import(name, *arguments, **named)
        self._look(lambda: f"`import {name}`")
        return module

    def _binding(self, pid: int, mask: Any) -> None:
        self._bind(pid, mask)
        self._look(functools.partial(line_of, sys._getframe(1)))

    def _look(self, by: Callable[[], str]) -> None:
        if self._by is None and len(machine.allowed()) < len(self._before):
            self._by = by()

    def end(self) -> str | None:
        """Stop looking. Return what bound the process and how that is undone; None if it may use all cores again."""
        builtins.__import__, os.sched_setaffinity = self._import, self._bind
        count, before = len(machine.allowed()), self._before
        if count >= len(before):
            return None
        them = f"range({len(before)})" if before == set(range(len(before))) else str(before)
        return (
            f"{self._by or 'A library'} bound this process to {count} of its {len(before)} cores, and workers inherit "
            f"that: `os.sched_setaffinity(0, {them})` after it gives them back."
        )


_LIBRARY_VARIABLES: Final = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    "OPENCV_FOR_THREADS_NUM",
)
_asked = list[int]()  # how many threads each holder lets libraries have
_own_threads: tuple[int, contextlib.ExitStack] | None = None  # how many they have now, and what gives them theirs back
_asking = threading.Lock()


def library_variables(count: int) -> dict[str, str]:
    """Return environment variables by which libraries have so many threads in a process that is started; 0: none."""
    return dict.fromkeys(_LIBRARY_VARIABLES, str(count)) if count else {}


def set_library_threads(count: int = 1) -> None:
    """Have OpenCV and BLAS use so many threads of their own pools, for good; they would compete with workers."""
    with _asking:
        _asked.append(count)
        _apply_threads()


@contextlib.contextmanager
def library_threads(count: int = 1) -> Iterator[None]:
    """Have them use so many within a block, or fewer if another holder asks; the last one gives theirs back."""
    set_library_threads(count)
    try:
        yield
    finally:
        with _asking:
            _asked.remove(count)
            _apply_threads()


def _apply_threads() -> None:
    global _own_threads  # it is about the process
    wanted = min(_asked, default=None)
    if wanted == (None if _own_threads is None else _own_threads[0]):
        return
    if _own_threads is not None:  # imports nothing: the interpreter may be ending
        _own_threads[1].close()
        _own_threads = None
    if wanted is not None:
        import cv2
        import threadpoolctl

        _own_threads = wanted, contextlib.ExitStack()
        _own_threads[1].callback(cv2.setNumThreads, cv2.getNumThreads())
        _own_threads[1].enter_context(threadpoolctl.threadpool_limits(wanted, user_api="blas"))
        cv2.setNumThreads(wanted)


# -------------------- usage: samples of a process tree, and the figures derived from them


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The samples of some time, oldest first. Peaks are of the samples: changes between two are not seen."""

    samples: tuple[Sample, ...]
    # That a CPU quota keeps the tree from anyway: so many may others use and take nothing from it.
    spare_cores: float = 0.0

    def between(self, start_seconds: float, stop_seconds: float) -> Usage:
        """Return the part from the last sample before the start to the first after the stop."""
        times = [sample.seconds for sample in self.samples]
        first, last = bisect_right(times, start_seconds) - 1, bisect_left(times, stop_seconds)
        return replace(self, samples=self.samples[max(0, first) : last + 1])

    @property
    def others_cores(self) -> float | None:
        """The usable cores that others kept busy on average: all use of them, less that of the tree."""
        spent = [(each.seconds, each.machine_cpu_seconds - each.cpu_seconds) for each in self.samples]
        if not spent or (seconds := spent[-1][0] - spent[0][0]) < _FEW_SECONDS:
            return None
        return max(0.0, (spent[-1][1] - spent[0][1]) / seconds - self.spare_cores)

    @property
    def peak_processes(self) -> int | None:
        return max((sample.processes for sample in self.samples), default=None)


# -------------------- neighbours
# Cores outside of the process's affinity (taskset, a container's cpuset) do not count; nor do, under a CPU quota, as
# many cores as the quota leaves idle.


_FEW_SECONDS: Final = 0.2  # in which the same count tells nothing of what others use
_LEAST_SECONDS: Final = 1.0  # the kernel counts in hundredths of a second, of each core by itself
_SHARE: Final = 0.0025  # of the time, that looking may take: all processes of the machine are gone through


_BUSY: Final = (0, 1, 2, 5, 6, 7)  # user, nice, system, interrupts and steal; guests are in the first two


def busy_seconds(proc: Path = PROC, cores: Collection[int] | None = None) -> float:
    """Return the busy core-seconds of some cores (None: the usable ones) since boot, time that was stolen included."""
    ours = {f"cpu{core}" for core in (machine.allowed() if cores is None else cores)}
    lines = (line.split() for line in machine.text_of(proc / "stat").splitlines() if line.startswith("cpu"))
    ticks = (int(counts[field]) for name, *counts in lines if name in ours for field in _BUSY if field < len(counts))
    return sum(ticks) / _TICKS_PER_SECOND


class Neighbours:
    """Counts the usable cores that others than this process's tree keep busy, and limits how often it looks."""

    def __init__(
        self, look: Callable[[], Sample] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._clock = look or functools.partial(ProcessTree(os.getpid()).read, clock=clock), clock
        self._cores = 0.0
        self._before = self._read()

    def cores(self) -> float:
        if self._clock() - self._before.seconds >= self._pause:
            before, self._before = self._before, self._read()
            between = Usage(samples=(before, self._before), spare_cores=machine.spare_cores())
            self._cores = between.others_cores or 0.0
        return self._cores

    def _read(self) -> Sample:
        began, found = self._clock(), self._look()
        self._pause = max(_LEAST_SECONDS, (self._clock() - began) / _SHARE)
        return found


class Sampler:
    """Samples this process's tree from `start` to `stop`, or within a `with` block; a given `nvml` stays open."""

    def __init__(
        self, *, period_seconds: float = 0.25, nvml: Nvml | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree, self._clock = ProcessTree(os.getpid()), clock
        self._period, self._spare = period_seconds, machine.spare_cores()
        self._given, self._nvml = nvml, nvml
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autopipe-sampler", daemon=True)

    def start(self) -> None:
        """Take the first sample and go on in a thread. A sampler starts once."""
        self._nvml = self._given or Nvml()
        self._sample()
        self._thread.start()

    def stop(self) -> Usage:
        """Take the last sample, end the thread and return everything; a second call returns the same."""
        if self._thread.is_alive() and not self._stopping.is_set():
            self._stopping.set()
            if self._thread is not threading.current_thread():  # where garbage is collected that stops this
                self._thread.join()
            self._sample()
            if self._nvml is not None and self._given is None:
                self._nvml.close()
        return self.usage

    @property
    def usage(self) -> Usage:
        return Usage(samples=tuple(self._samples), spare_cores=self._spare)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.wait(self._period):
            self._sample()

    def _sample(self) -> None:
        self._samples.append(self._tree.read(self._nvml, self._clock))


# -------------------- allocator: the C library keeps the memory of freed images instead of giving it back
# Each decoded image is a block of some megabytes that lives for a moment. By default glibc maps such a block from the
# kernel and unmaps it, and the kernel clears every page of it again; several workers wait for each other there. Keeping
# it made 960x720 PNG files decode 1.35 times as fast on two threads. Batches of 19 MB made in a thread, as by
# `keras.utils.PyDataset`, each had a heap of their own, which glibc unmapped with the batch: 451 images/s instead of
# 921. The padding at the top keeps the last heap of each thread. TensorFlow sets the trim threshold to 128 KiB when it
# makes its first dataset of a Python generator (its log says "Memory patch applied"), so the code that makes one calls
# this again afterwards: an MLP on 28x28 arrays trained 140,000 images/s otherwise, not 300,000.


# Variable of the environment, number in <malloc.h> (https://man7.org/linux/man-pages/man3/mallopt.3.html), and bytes.
_ALLOCATOR: Final = (
    ("MALLOC_MMAP_THRESHOLD_", -3, 32 << 20),  # glibc refuses more
    ("MALLOC_TRIM_THRESHOLD_", -1, 256 << 20),  # freed memory at the end of a heap that stays with the process
    ("MALLOC_TOP_PAD_", -2, 64 << 20),  # address space of a thread's heap (HEAP_MAX_SIZE in glibc's malloc/arena.c)
)
KEEPING: Final[Mapping[str, str]] = {variable: str(size) for variable, _, size in _ALLOCATOR}
"""Environment variables by which a process that is started keeps freed memory. A forked one does as its parent."""

_keeps = False


def keep_freed_memory() -> None:
    """Have this process keep freed blocks for the next image, for good. Does nothing if the C library is not glibc."""
    global _keeps  # it is about the process
    _keeps = True
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for _, number, size in _ALLOCATOR:
            mallopt(number, size)


def keep_again() -> None:
    """Tell the C library again, if this process keeps freed memory: a dataset of a generator changes that."""
    if _keeps:
        keep_freed_memory()
