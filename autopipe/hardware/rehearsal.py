"""A machine that is not here: its cores, devices, memory and storage as timelines that all processes of a tune share.

Work that is rehearsed takes no processor time. It reserves one of the cores for as long as it was measured to take
here, and sleeps until that time is over. Reservations are made in a mapped file, so that threads and processes queue
for the same cores. What a process asks about its machine (`autopipe.hardware.machine`) is answered for the rehearsed
one while `playing` is open, here and in all processes started meanwhile. The part of reading and ops under Python's
lock is played as well, for each process. What loaders do themselves runs on the cores that are here.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import math
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pydantic

from autopipe.errors import ConfigError
from autopipe.values import Strict

VARIABLE: Final = "AUTOPIPE_REHEARSAL"
"""The folder of the rehearsal that this process is a part of."""

_SLICE_SECONDS = 0.01  # of a core, that a thread gets in one piece, as from a scheduler
_MOST_PIECES = 3200  # a second on all cores together: each wakes a thread, which the cores that are here have to do
_LATE_SECONDS = 0.05  # by which a thread that woke late may be behind its own time
_EXCHANGE_SHARE = 0.1  # of a step, for an all-reduce between very many devices


class Rehearsal(Strict):
    """A machine to be rehearsed.

    Example:
        ```python
        ap.tune("train.py:workload", rehearse=ap.Rehearsal(cores=32, gpus=4, step_seconds=0.008))
        ```

    Attributes:
        cores: its cores; each is taken to be as fast as one of this machine.
        gpus: its accelerators.
        step_seconds: how long one accelerator takes for a step of the workload's whole batch; on several, each takes
            its part of that.
        memory_bytes: its free memory; None: as much as is free here.
        exchange_seconds: how long the all-reduce of a step takes between two devices; between n of them it takes
            2 (n - 1) / n times as long, as a ring does (P. Patarasuk and X. Yuan, 2009). None: a tenth of the step.
        samples: the number of samples in an epoch, if more than the data set has here: its samples come several times.
    """

    cores: int = pydantic.Field(ge=1, le=1024)
    gpus: int = pydantic.Field(default=1, ge=1, le=64)
    step_seconds: float = pydantic.Field(gt=0, allow_inf_nan=False)
    memory_bytes: int | None = pydantic.Field(default=None, ge=1)
    exchange_seconds: float | None = pydantic.Field(default=None, ge=0, allow_inf_nan=False)
    samples: int | None = pydantic.Field(default=None, ge=1, le=2**31 - 1)

    @property
    def text(self) -> str:
        """The option of a command line that asks for it."""
        said = [f"cores={self.cores}", f"gpus={self.gpus}", f"step={1000 * self.step_seconds:g}ms"]
        said += [] if self.memory_bytes is None else [f"memory={self.memory_bytes}B"]
        said += [] if self.exchange_seconds is None else [f"exchange={1000 * self.exchange_seconds:g}ms"]
        said += [] if self.samples is None else [f"samples={self.samples}"]
        return ",".join(said)

    @property
    def words(self) -> str:
        devices = f"{self.gpus} accelerator{'s' if self.gpus > 1 else ''} of {1000 * self.step_seconds:g} ms a step"
        return f"{self.cores} core{'s' if self.cores > 1 else ''}, {devices}"

    def step(self, share: float, devices: int) -> float:
        """Return the seconds of a step of this `share` of the workload's batch, on so many devices, with all-reduce."""
        exchange = _EXCHANGE_SHARE * self.step_seconds if self.exchange_seconds is None else self.exchange_seconds
        ring = 2 * (devices - 1) / devices * exchange
        return self.step_seconds * share / devices + ring


# -------------------- the rehearsal that this process is a part of

_suspended = False


def current() -> Rehearsal | None:
    """Return the rehearsed machine; None if this process runs on its own."""
    folder = os.environ.get(VARIABLE)
    return None if folder is None or _suspended else _read(folder)


@functools.cache
def _read(folder: str) -> Rehearsal:
    return Rehearsal.model_validate(json.loads((Path(folder) / "machine.json").read_text(encoding="utf-8")))


def folder() -> Path:
    """Return the folder that the processes of the rehearsal share."""
    return Path(os.environ[VARIABLE])


@contextlib.contextmanager
def playing(rehearsal: Rehearsal | None) -> Iterator[None]:
    """Rehearse a machine inside, in this process and those that it starts; nothing if there is none to rehearse.

    Raises:
        ConfigError: this process rehearses another machine already.
    """
    if rehearsal is None:
        yield
        return
    if VARIABLE in os.environ:
        raise ConfigError(f"This process rehearses a machine already: {_read(os.environ[VARIABLE]).words}.")
    with tempfile.TemporaryDirectory(prefix="autopipe-rehearsal-") as made:
        (Path(made) / "machine.json").write_text(rehearsal.model_dump_json(), encoding="utf-8")
        (Path(made) / "timelines").write_bytes(bytes(8 * (rehearsal.cores + 1)))
        os.environ[VARIABLE] = made
        try:
            yield
        finally:
            del os.environ[VARIABLE]


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Let this process see its own machine inside: what the parts of a rehearsal cost is measured there."""
    global _suspended
    before, _suspended = _suspended, True
    try:
        yield
    finally:
        _suspended = before


# -------------------- timelines


class Timelines:
    """When each core and the storage of the rehearsed machine are free, for all of its processes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)
        self._map = mmap.mmap(self._file, 0)
        self._free = np.ndarray(len(self._map) // 8, np.float64, self._map)
        self._cores, self._storage = self._free[:-1], self._free[-1:]
        self._mine = threading.Lock()  # a lock of the file is the whole process's

    @property
    def cores(self) -> int:
        return len(self._cores)

    def core(self, ready: float, seconds: float) -> float:
        """Reserve the core that is free first, from `ready` on; return when the work is over."""
        return self._reserve(self._cores, ready, seconds)

    def storage(self, ready: float, seconds: float) -> float:
        """Reserve the storage, which serves one read after the other."""
        return self._reserve(self._storage, ready, seconds)

    def _reserve(self, free: np.ndarray[tuple[int], np.dtype[np.float64]], ready: float, seconds: float) -> float:
        with self._mine:
            fcntl.flock(self._file, fcntl.LOCK_EX)  # a process that dies gives it back
            try:
                at = int(free.argmin())
                end = max(ready, float(free[at])) + seconds
                free[at] = end
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        return end


class _Time(threading.local):
    """A thread's own time: sleeps that end late are made up for, so that errors do not add up."""

    at = -math.inf  # when its last piece of work was over
    woke = -math.inf  # when it went on after that


class Player:
    """Lets the time of rehearsed work go by, in this process. One for all threads."""

    def __init__(self, timelines: Timelines) -> None:
        self._timelines = timelines
        self.slice_seconds = max(_SLICE_SECONDS, timelines.cores / _MOST_PIECES)
        self._time = _Time()
        self._lock = threading.Lock()
        self._lock_free = -math.inf  # Python's lock on the rehearsed machine, one for each process

    def work(self, seconds: float, *, locked: float = 0.0) -> None:
        """Take a core for so many seconds, of which `locked` are under Python's lock."""
        at, left = self._now(), seconds
        while left > 0:
            piece = left if left < 2 * self.slice_seconds else self.slice_seconds
            if locked > 0:
                held = locked * piece / seconds
                with self._lock:  # what is left free for a while goes to a thread that woke late
                    free = max(self._lock_free, time.monotonic() - _LATE_SECONDS)
                    at, self._lock_free = max(at, free), free + held
            at = self._timelines.core(at, piece)
            left -= piece
            self._until(at)
            at = self._now()

    def wait(self, seconds: float) -> None:
        """Wait without a core."""
        if seconds > 0:
            self._until(self._now() + seconds)

    def read(self, seconds: float) -> None:
        """Have the storage for so many seconds."""
        if seconds > 0:
            self._until(self._timelines.storage(self._now(), seconds))

    def _now(self) -> float:
        now, mine = time.monotonic(), self._time
        return max(mine.at + now - mine.woke, now - _LATE_SECONDS) if mine.at > -math.inf else now

    def _until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)
        self._time.at, self._time.woke = moment, time.monotonic()


def player() -> Player:
    """Return the player of this process, which takes part in a rehearsal."""
    return _player(folder())


@functools.cache
def _player(folder: Path) -> Player:
    return Player(Timelines(folder / "timelines"))
