"""Where the control groups of this process lie, and the numbers in their files (`man 7 cgroups`).

Finds folders and reads them, for version 1, version 2 and both at once; inside a container too, where the kernel names
groups by paths that are not mounted. What a limit means is said in `cpu` and `memory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autopipe.hardware import mounts

UNIFIED = "cgroup2"
LEGACY = "cgroup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The groups that limit this process in one mounted hierarchy."""

    unified: bool  # version 2; otherwise version 1
    folders: tuple[Path, ...]  # this process's own group, then its parents up to the mount point; limits of all hold


def hierarchies(controller: str, root: Path = mounts.ROOT) -> list[Hierarchy]:
    """Return the hierarchies that can limit this process by `controller` ("cpu" or "memory").

    Version 2 is listed wherever it is mounted: with both versions at once it has no files for a controller that
    version 1 has taken, and reading those finds no limit.
    """
    groups = _own_groups(root)
    found = []
    for mount in mounts.read(root):
        unified = mount.kind == UNIFIED
        if unified or (mount.kind == LEGACY and controller in mount.options):
            group = groups.get("" if unified else controller, "/")
            found.append(Hierarchy(unified=unified, folders=_folders(mount, group, root)))
    return found


def words(path: Path) -> list[str]:
    """Return the words of a group's file; none if it is missing."""
    return mounts.text_of(path).split()


def number(path: Path) -> int | None:
    """Return the number in a group's file; None if it is missing or says `max`."""
    return whole(next(iter(words(path)), ""))


def whole(word: str) -> int | None:
    """Return the integer that `word` is, or None."""
    try:
        return int(word)
    except ValueError:
        return None


def _own_groups(root: Path) -> dict[str, str]:
    """Map controller to this process's group; version 2 has the controller "". Lines are `id:controllers:path`."""
    lines = mounts.text_of(root / "proc/self/cgroup").splitlines()
    fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return {controller: group for _, controllers, group in fields for controller in controllers.split(",")}


def _folders(mount: mounts.Mount, group: str, root: Path) -> tuple[Path, ...]:
    base = root / mount.point.lstrip("/")
    try:
        inside = PurePosixPath(group).relative_to(mount.inner)
    except ValueError:  # a container sees its own group as the mount point, whatever the host calls it
        return (base,)
    if ".." in inside.parts:  # outside of this cgroup namespace
        return (base,)
    own = base / inside
    return (own, *list(own.parents)[: len(inside.parts)])
