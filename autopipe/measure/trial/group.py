"""The processes of a trial, seen from outside: its members, their memory, and their end.

A trial's child leads a process group. Everything it starts is in that group or descends from it, and ends with it; only
a process that made its own session and lost its parent to a sudden death is out of reach. This module sends signals,
and delays those that would interrupt the start or end of processes; its callers decide when.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Set
from types import FrameType
from typing import Final

import psutil

from autopipe.hardware import processes

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals that end this process until the block has run.

    Python handles signals in the main thread, so in other threads there is nothing to delay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    try:
        with contextlib.ExitStack() as handlers:
            for number in _SIGNALS:
                if callable(handler := signal.getsignal(number)):  # else it is ignored, or ends the process on the spot
                    handlers.callback(signal.signal, number, handler)
                    signal.signal(number, hold)
            yield
    finally:
        if held:
            signal.raise_signal(held[0])


_KILL_SECONDS = 2.0
_POLL_SECONDS = 0.01
_RESOURCE_TRACKER = "multiprocessing.resource_tracker"


def members(leader: int) -> list[psutil.Process]:
    """Return the living processes of the group that `leader` leads, itself included."""
    return [process for pid in psutil.pids() if _group_of(pid) == leader for process in _living(pid)]


def memory_bytes(leader: int) -> int:
    """Return the memory that only this group keeps in use.

    Pages of files (a memory-mapped data set, say) are left out, since the kernel drops them when it needs room. Shared
    memory is counted once.
    """
    each = [processes.resident(process.pid) for process in members(leader)]
    return sum(one.anonymous_bytes for one in each) + max((one.shared_bytes for one in each), default=0)


def descendants(leader: int) -> set[psutil.Process]:
    """List the descendants of `leader`, also those in groups of their own. Only a living leader has any."""
    try:
        return set(psutil.Process(leader).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def kill(leader: int, family: Set[psutil.Process] = frozenset()) -> bool:
    """Kill the rest of a group, and `family`; True if it is gone.

    Python's resource tracker, which removes the shared memory of the dead, is left to end last and by itself if it can.
    """
    for patient in (True, False):
        for process in _alive(leader, family):
            if not (patient and _is_resource_tracker(process)):
                _signal(process, signal.SIGKILL)
        give_up = time.monotonic() + _KILL_SECONDS
        while _alive(leader, family) and time.monotonic() < give_up:
            time.sleep(_POLL_SECONDS)
    return not _alive(leader, family)


def kill_others() -> None:
    """Kill all processes started by the calling one, which leads its group. The resource tracker ends after them."""
    leader = os.getpid()
    for process in _alive(leader, descendants(leader)):
        if process.pid != leader and not _is_resource_tracker(process):
            _signal(process, signal.SIGKILL)


def _alive(leader: int, family: Set[psutil.Process]) -> set[psutil.Process]:
    return {process for process in family if _is_alive(process)}.union(members(leader))


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _living(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return []
    return [process] if _is_alive(process) else []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.is_running()
    except psutil.NoSuchProcess:
        return False


def _is_resource_tracker(process: psutil.Process) -> bool:
    try:
        return any(_RESOURCE_TRACKER in word for word in process.cmdline())
    except psutil.Error:
        return False


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
