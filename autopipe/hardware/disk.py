"""The file system under a path, the speed of its files, the page cache, and atomic writes.

Measures and reports; whether a format fits on the disk, or a disk bounds a loader, is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

import numpy as np

from autopipe.hardware import machine

# -------------------- pagecache
# A trial that reads the files of the trial before it measures memory, not the disk. So the regime, warm or cold, is
# chosen for a whole study (`regime`), established before each trial (`warm`, `drop`) and recorded with the result. No
# root needed.


Regime = Literal["warm", "cold"]  # whether files are in memory when a trial begins

_CHUNK_BYTES = 1 << 20
_WRITTEN_SECONDS = 120  # changes are on disk after 30 s (vm.dirty_expire_centisecs) unless a kernel is set otherwise


def regime(choice: Literal["warm", "cold", "auto"], data_bytes: int, usable_bytes: int) -> Regime:
    """Decide whether trials read from memory or disk; `auto` is cold if the data are larger than memory."""
    return choice if choice != "auto" else "cold" if data_bytes > usable_bytes else "warm"


def share_in_memory(paths: Iterable[Path]) -> float | None:
    """Return the share of the files' pages in memory, 0 to 1, by `mincore` (a read would begin to read ahead); None of
    no bytes, and of others' files, of which Linux says "all" since 5.2.
    """
    pages = b""
    try:
        for path in paths:
            if (path.stat().st_uid == os.geteuid() or os.access(path, os.W_OK)) and path.stat().st_size:
                pages += _pages(path)
    except OSError:
        return None
    return float(np.mean(np.frombuffer(pages, np.uint8) & 1)) if pages else None


def _pages(path: Path) -> bytes:
    """Return one byte a page of the file; its lowest bit says whether the page is in memory."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as view:
        address = np.frombuffer(view, np.uint8).ctypes.data
        pages = ctypes.create_string_buffer(-(-len(view) // mmap.PAGESIZE))
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(view)), pages):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return pages.raw


def warm(paths: Iterable[Path]) -> int:
    """Read all files into the page cache, as far as they fit; return the bytes read."""
    return sum(count for path in paths for count in chunks(path))


def chunks(path: Path) -> Iterator[int]:
    """Read a file from beginning to end into a scratch buffer, and yield the bytes of each read."""
    buffer = bytearray(_CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield count


def drop(paths: Iterable[Path]) -> None:
    """Take files out of the page cache by `posix_fadvise(DONTNEED)`, recently changed ones after a write to disk. Pages
    that a process has mapped stay, and so do those of a tmpfs, of ZFS and of a file server.
    """
    for path in paths:
        with path.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_ctime < _WRITTEN_SECONDS:
                os.fdatasync(file.fileno())  # for all files it would take 1 s for 2000, against 0.05 s
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "virtiofs")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system under a path."""

    kind: str  # the file system type as mounted: `ext4`, `nfs4`, `overlay`, `tmpfs`, ...; else `unknown`
    free_bytes: int  # bytes that this user could still write at the time of reading

    @property
    def network(self) -> bool:
        """True if files come over a network or from outside of a virtual machine; every FUSE file system counts."""
        return self.kind in _NETWORK or self.kind.startswith("fuse")


def detect(path: Path, root: Path = machine.ROOT) -> Disk:
    """Return the file system that holds `path`, or would hold it once it exists."""
    place = path.resolve()
    while not place.exists():
        place = place.parent
    holding = [mount for mount in machine.read(root) if place.is_relative_to(mount.point)]
    # The innermost one; of several at one point the last, which hides the others.
    mount = max(reversed(holding), key=lambda mount: len(Path(mount.point).parts), default=None)
    return Disk(kind=mount.kind if mount else "unknown", free_bytes=shutil.disk_usage(place).free)


def read_bytes_per_second(
    paths: Sequence[Path],
    *,
    readers: int = 4,
    seconds_limit: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the bytes a second of files on the disk, 0 for no bytes: dropped from the page cache, then read for about
    `seconds_limit` by several `readers` at once, as one underrates SSDs and networks.
    """
    drop(paths)
    started = clock()
    deadline = started + seconds_limit

    def read(shares: Sequence[Path]) -> int:
        total = 0
        for path in shares:
            for count in chunks(path):
                total += count
                if clock() >= deadline:
                    return total
        return total

    with ThreadPoolExecutor(readers) as pool:
        read_bytes = sum(pool.map(read, (paths[first::readers] for first in range(readers))))
    return read_bytes / (clock() - started) if read_bytes else 0.0


# -------------------- atomic: a complete temporary file takes the place of the old one


PART_SUFFIX: Final = ".part"  # how the name of an unfinished file ends: who finds an old one may remove it


@contextlib.contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream whose content becomes the file's when the block ends; if it fails, the old file stays. With `sync`
    that holds for a power cut, too. Raises OSError, or ValueError for an impossible name, e.g. with a NUL.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{PART_SUFFIX}")
    try:
        with unfinished.open("wb") as stream:
            yield stream
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        unfinished.replace(path)
    except BaseException:
        remove(unfinished)
        raise


def remove(path: Path) -> None:
    """Remove a file, if that can be done."""
    with contextlib.suppress(OSError, ValueError):
        path.unlink(missing_ok=True)
