"""Files in the kernel's page cache: put them in, take them out, ask how much is in. None of it needs root.

A trial that reads what the trial before it has read measures memory, not the disk. So the regime, warm or cold, is
chosen for a whole study (`regime`), brought about before each trial (`warm`, `drop`) and recorded with the result.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from autopipe.errors import ConfigError, near

Regime = Literal["warm", "cold"]
"""Whether files are in memory when a trial begins."""

Choice = Literal["warm", "cold", "auto"]
"""What can be asked for; `auto` becomes one of the regimes."""

_CHUNK_BYTES = 1 << 20
_WRITTEN_SECONDS = (
    120  # what was changed is on disk after 30 s (vm.dirty_expire_centisecs) unless a kernel is told otherwise
)
_LIBC = ctypes.CDLL(None, use_errno=True)


def regime(choice: str, data_bytes: int, usable_bytes: int) -> Regime:
    """Decide whether trials read from memory or from disk.

    Args:
        choice: `warm`, `cold`, or `auto`: cold if the data are larger than memory, which no epoch can then find warm.
        data_bytes: size of the whole data set as it is read, not of a trial's part.
        usable_bytes: memory that this process may use (`memory.Memory.usable_bytes`).

    Raises:
        ConfigError: for any other choice.
    """
    match choice:
        case "warm" | "cold":
            return choice
        case "auto":
            return "cold" if data_bytes > usable_bytes else "warm"
    raise ConfigError(
        f"`page_cache` must be `warm`, `cold` or `auto`, but got {choice!r}.{near(choice, ('warm', 'cold', 'auto'))}"
    )


def warm(paths: Iterable[Path]) -> int:
    """Read all files, so that they are in the page cache as far as it holds them; return the bytes read."""
    return sum(count for path in paths for count in chunks(path))


def chunks(path: Path) -> Iterator[int]:
    """Read a file from beginning to end into a scratch buffer, and yield the bytes of each read."""
    buffer = bytearray(_CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield count


def drop(paths: Iterable[Path]) -> None:
    """Take files out of the page cache by `posix_fadvise(DONTNEED)`.

    The kernel drops clean pages only, so a file changed lately is written to disk first; older ones it has written by
    itself. Pages that a process has mapped stay, and so do the files of a tmpfs (which are nowhere else) and the caches
    of ZFS and of a file server: `resident_share` tells.
    """
    for path in paths:
        with path.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_ctime < _WRITTEN_SECONDS:
                os.fdatasync(file.fileno())  # for all files it would take 1 s for 2000, against 0.05 s
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(paths: Iterable[Path]) -> float | None:
    """Return which part of the files' bytes is in the page cache, 0 to 1, by `mincore`.

    Returns:
        None if there is nothing to ask about: no bytes, or files that are neither owned by this user nor writable for
        them, for which the kernel has said "all of it" since Linux 5.2, whatever is true.
    """
    resident, total = 0, 0
    for path in paths:
        if _may_ask(path):
            pages = _resident(path)
            resident += int(np.count_nonzero(pages & 1))
            total += pages.size
    return resident / total if total else None


def _may_ask(path: Path) -> bool:
    return path.stat().st_uid == os.geteuid() or os.access(path, os.W_OK)


def _resident(path: Path) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return one byte a page of the file; its lowest bit says whether the page is in memory."""
    size = path.stat().st_size
    pages = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
    if size:
        with path.open("rb") as file:
            view = np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), dtype=np.uint8)
        address, result = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        if _LIBC.mincore(address, ctypes.c_size_t(size), result) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return pages
