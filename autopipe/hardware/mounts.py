"""The mounted file systems, as the kernel lists them in /proc/self/mountinfo (`man 5 proc`).

`cgroup` looks here for its hierarchies, `disk` for the file system under a path. No more of either belongs here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
"""Where the functions of this layer look for /proc and /sys; tests give them a folder that plays another machine."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    kind: str  # the file system type, such as `ext4`, `overlay` or `cgroup2`
    inner: str  # the folder inside the file system that is mounted
    point: str  # where it is mounted
    options: tuple[str, ...]  # of the file system; a cgroup v1 hierarchy lists its controllers here


def read(root: Path = ROOT) -> list[Mount]:
    """Return the mounts in the order in which they were made; empty where the kernel lists none."""
    lines = text_of(root / "proc/self/mountinfo").splitlines()
    return [mount for mount in map(_parsed, lines) if mount is not None]


def text_of(path: Path) -> str:
    """Return the text of a small kernel file, or an empty string if it is missing or may not be read."""
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):  # ValueError: a name from the kernel that is no path, such as one with a NUL
        return ""


def _parsed(line: str) -> Mount | None:
    place, separator, system = line.partition(" - ")
    fields, tail = place.split(" "), system.split(" ")
    if not separator or len(fields) < 5 or len(tail) < 3:
        return None
    return Mount(
        kind=tail[0],
        inner=_unescaped(fields[3]),
        point=_unescaped(fields[4]),
        options=tuple(tail[2].split(",")),
    )


def _unescaped(field: str) -> str:
    """Undo the octal escapes of space, tab, newline and backslash."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
