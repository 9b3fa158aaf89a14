"""A process and all that descend from it: the CPU time and the memory that they take together, read from /proc.

Linux only; elsewhere a tree has no processes. When to read, and what to make of it, is the matter of `sampler`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Resident(NamedTuple):
    """The memory of one process that is in RAM, by what it is made of."""

    anonymous_bytes: int = 0
    """Its own, and what it still shares with the parent that forked it."""
    file_bytes: int = 0
    """Mapped files and libraries, which others may map as well."""
    shared_bytes: int = 0
    """Shared memory, /dev/shm and memfd."""


def resident(pid: int, proc: Path = PROC) -> Resident:
    """Read a process's resident memory from /proc/PID/status; nothing if it has gone."""
    sizes = dict.fromkeys((b"RssAnon", b"RssFile", b"RssShmem"), 0)
    for line in _read(pid, "status", proc).splitlines():
        name, _, value = line.partition(b":")
        if name in sizes:
            sizes[name] = int(value.split()[0]) * 1024
    return Resident(*sizes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReading:
    """What a process tree has taken, at one moment."""

    cpu_seconds: float  # since the first process began, user and system, of the living and the dead, to 10 ms
    memory_bytes: int  # private memory of all processes, and the shared memory of the one that has most of it
    processes: int  # how many are alive


@dataclass(frozen=True, slots=True)
class _Process:
    kin: frozenset[int]  # its parent, the leader of its process group and that of its session
    parent: int
    ticks: int  # its own and those of its children that it has waited for
    started: int  # in ticks since boot: tells a process from a later one with the same number


class ProcessTree:
    """The processes that descend from one.

    A process belongs to the tree if its parent, or the leader of its process group or session, does. Once in, it stays
    in, so that the children of a worker that has died, which the kernel gives to another parent, still count.

    Memory: the sum of resident sizes would count the shared blocks of a loader once a worker. The kernel's own fair
    figure (PSS, in smaps_rollup) takes 0.6 ms for a small process and 7 ms for one that has imported JAX, during which
    that process cannot map memory: 3 % of a core at 4 Hz, and a disturbance. So the shared pages (shared memory,
    libraries, mapped files) count once, with the process that has most of them, at 20 microseconds a process. With 4
    workers on one block of 256 MiB, resident sizes add up to 1469 MiB, PSS to 366, this to 374. Memory that a forked
    child still shares with its parent is counted for both.

    CPU: what a process used is in its own figures, then in those of the parent that waited for it. Where the parent is
    outside of the tree, its last reading is kept. A parent that ignores SIGCHLD never has its children's time (`man 2
    wait`), as in a cluster of Ray: what the tree has lost in two readings in a row is kept, too.

    Args:
        pid: the first process.
        proc: where the kernel shows processes; a test shows its own.
    """

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self._pid = pid
        self._proc = proc
        first = self._process(pid)
        self._members: Mapping[int, _Process] = {} if first is None else {pid: first}
        self._unrelated: frozenset[int] = frozenset()
        self._lost_ticks = 0
        self._ticks = 0
        self._fell = False

    def read(self) -> TreeReading:
        """Find the processes that joined and left, and return what the tree has taken until now."""
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
        return TreeReading(
            cpu_seconds=self._ticks / _TICKS_PER_SECOND, memory_bytes=self._memory_bytes(), processes=len(members)
        )

    def _living(self) -> dict[int, _Process]:
        """Return the members that are alive, old and new. What was found unrelated is not looked at again."""
        listed = self._listed()
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

    def _listed(self) -> frozenset[int]:
        try:
            return frozenset(int(name) for name in os.listdir(self._proc) if name.isdecimal())  # noqa: PTH208 - no objects for a thousand names
        except OSError:
            return frozenset()

    def _process(self, pid: int) -> _Process | None:
        """Read /proc/PID/stat (`man 5 proc`); None if the process has gone. Its name may hold spaces and brackets."""
        fields = _read(pid, "stat", self._proc).rpartition(b") ")[2].split()
        if len(fields) < 20:
            return None
        parent, group, session = map(int, fields[1:4])
        ticks, started = sum(map(int, fields[11:15])), int(fields[19])
        return _Process(frozenset((parent, group, session)), parent, ticks, started)

    def _memory_bytes(self) -> int:
        each = [resident(pid, self._proc) for pid in self._members]
        shared = max((one.file_bytes + one.shared_bytes for one in each), default=0)
        return sum(one.anonymous_bytes for one in each) + shared


def _read(pid: int, name: str, proc: Path) -> bytes:
    """Return a file of a process; empty if the process has gone meanwhile."""
    try:
        descriptor = os.open(f"{proc}/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:  # ESRCH: it went between open and read
        return b""
    finally:
        os.close(descriptor)
