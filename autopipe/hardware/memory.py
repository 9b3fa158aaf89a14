"""How much memory this process may use, and how much is free now.

Reads and reports; what is reserved for the model, or refused, is decided where memory is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from autopipe.hardware import cgroup, mounts


class _Files(NamedTuple):
    limits: tuple[str, ...]
    use: str
    cache: tuple[str, str, str]  # lines of memory.stat: pages of files, inactive and active, and the mapped among them
    kills: str  # has a line `oom_kill`


_UNIFIED = _Files(
    ("memory.max", "memory.high"),
    "memory.current",
    ("inactive_file", "active_file", "file_mapped"),
    "memory.events",
)
_LEGACY = _Files(
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file", "total_mapped_file"),
    "memory.oom_control",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Main memory. Two are equal if they are the same size, however full."""

    usable_bytes: int  # the least of the machine's memory and the limits of all enclosing cgroups
    # what could be allocated when this was read, page cache that can be given up counted as free
    available_bytes: int = field(compare=False)


def detect(root: Path = mounts.ROOT) -> Memory:
    """Return this machine's memory, limited to what this process may use."""
    total, available = _meminfo(root)
    for limit, used in _limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(usable_bytes=total, available_bytes=available)


def oom_kills(root: Path = mounts.ROOT) -> int:
    """Return how often the kernel has killed a process of this one's own cgroup for memory; 0 if none tells.

    The machine's count in /proc/vmstat has those of all containers beside this one, too. `memory.failcnt` tells of no
    kill: it rises whenever a group at its limit has to give up pages of files.
    """
    return sum(
        _entries(hierarchy.folders[0] / (_UNIFIED if hierarchy.unified else _LEGACY).kills).get("oom_kill", 0)
        for hierarchy in cgroup.hierarchies("memory", root)
    )


def size_text(count_bytes: float) -> str:
    """Return a size for people to read.

    >>> size_text(64 * 2**20), size_text(25_165_824_000)
    ('64 MiB', '23.4 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(count_bytes, 1) < 1024:  # as it is shown
            return f"{_short(count_bytes)} {unit}"
        count_bytes /= 1024
    return f"{_short(count_bytes)} TiB"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _meminfo(root: Path) -> tuple[int, int]:
    """Return total and available bytes of the machine, from /proc/meminfo (in KiB there)."""
    entries = _entries(root / "proc/meminfo")
    total = entries.get("MemTotal", 0) * 1024
    return total, entries.get("MemAvailable", total // 1024) * 1024


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use, both in bytes, of every enclosing cgroup that has a limit.

    `memory.high` counts as a limit: above it the kernel slows a process down until it gives memory back. Pages of files
    count as free, as in the machine's own MemAvailable: a data set that was read twice is on the active list, and goes
    when there is need. Not so what is mapped, libraries in use above all. A version 1 group without a limit says almost
    2**63, which is above any machine's memory.
    """
    for hierarchy in cgroup.hierarchies("memory", root):
        files = _UNIFIED if hierarchy.unified else _LEGACY
        for folder in hierarchy.folders:
            limits = [max(0, limit) for name in files.limits if (limit := cgroup.number(folder / name)) is not None]
            if limits:
                entries = _entries(folder / "memory.stat")
                inactive, active, mapped = (entries.get(name, 0) for name in files.cache)
                cache = max(inactive, inactive + active - mapped)
                yield min(limits), max(0, (cgroup.number(folder / files.use) or 0) - cache)


def _entries(path: Path) -> dict[str, int]:
    """Return the lines `name number` or `name: number unit` of a kernel file."""
    pairs = [line.split()[:2] for line in mounts.text_of(path).splitlines()]
    return {
        pair[0].rstrip(":"): value for pair in pairs if len(pair) == 2 and (value := cgroup.whole(pair[1])) is not None
    }
