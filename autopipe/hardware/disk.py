"""The file system under a path, and how fast files come from it.

Measures and reports; whether a format fits on the disk, or a disk bounds a loader, is decided elsewhere.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from autopipe.hardware import mounts, pagecache

_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "virtiofs")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system under a path. Two are equal if they are of the same kind, however full."""

    kind: str  # the file system type as mounted: `ext4`, `nfs4`, `overlay`, `tmpfs`, ...; else `unknown`
    free_bytes: int = field(compare=False)  # what this user could still write when it was read

    @property
    def network(self) -> bool:
        """Whether files come over a network or from outside of a virtual machine; every FUSE file system counts."""
        return self.kind in _NETWORK or self.kind.startswith("fuse")


def detect(path: Path, root: Path = mounts.ROOT) -> Disk:
    """Return the file system that holds `path`, or would hold it once it exists."""
    place = path.resolve()
    while not place.exists():
        place = place.parent
    mount = _mount_of(place, mounts.read(root))
    return Disk(kind=mount.kind if mount else "unknown", free_bytes=shutil.disk_usage(place).free)


def read_bytes_per_second(
    paths: Sequence[Path],
    *,
    readers: int = 4,
    seconds_limit: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return how fast files come from the disk, in bytes per second; 0 for no bytes.

    They are dropped from the page cache, and then read from beginning to end, for at most about `seconds_limit`.

    Args:
        paths: what to read: some hundred files of the data set, or one large one.
        readers: threads that read at once, each its share of the files. One alone underrates SSDs and networks.
        seconds_limit: stop after this time.
        clock: the timer.
    """
    pagecache.drop(paths)
    started = clock()
    deadline = started + seconds_limit

    def read(shares: Sequence[Path]) -> int:
        total = 0
        for path in shares:
            for count in pagecache.chunks(path):
                total += count
                if clock() >= deadline:
                    return total
        return total

    with ThreadPoolExecutor(readers) as pool:
        read_bytes = sum(pool.map(read, (paths[first::readers] for first in range(readers))))
    return read_bytes / (clock() - started) if read_bytes else 0.0


def _mount_of(place: Path, listed: Sequence[mounts.Mount]) -> mounts.Mount | None:
    """Return the innermost mount that holds `place`; of several at one point the last, which hides the others."""
    holding = [mount for mount in listed if place.is_relative_to(mount.point)]
    return max(reversed(holding), key=lambda mount: len(Path(mount.point).parts), default=None)
