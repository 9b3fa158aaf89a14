"""Files in the kernel's page cache: put them in, take them out. None of it needs root.

A trial that reads what the trial before it has read measures memory, not the disk. So the regime, warm or cold, is
chosen for a whole study (`regime`), brought about before each trial (`warm`, `drop`) and recorded with the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from autopipe.errors import ConfigError, near

Regime = Literal["warm", "cold"]
"""Whether files are in memory when a trial begins."""

Choice = Literal["warm", "cold", "auto"]
"""What can be asked for; `auto` becomes one of the regimes."""

_CHUNK_BYTES = 1 << 20
_PLACES = 4  # of a file that are looked at, at most one a chunk: a look may have the kernel read what is around
_WRITTEN_SECONDS = (
    120  # what was changed is on disk after 30 s (vm.dirty_expire_centisecs) unless a kernel is told otherwise
)


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


def share_in_memory(paths: Iterable[Path]) -> float | None:
    """Return which part of the files is in the page cache, 0 to 1, judged by a few places.

    Returns:
        None if there is nothing to look at, or the file system does not tell: it takes a read that must not wait,
        which a Python that is built for the oldest systems, as conda's is, does not have.
    """
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    found = []
    try:
        for path in paths:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # else a look reads ahead, up to the next
                count = min(_PLACES, -(-size // _CHUNK_BYTES))
                found += [_in_memory(file.fileno(), (2 * place + 1) * size // (2 * count)) for place in range(count)]
    except (OSError, NotImplementedError):  # the latter of a Python that knows the flag and has no call that takes it
        return None
    return sum(found) / len(found) if found else None


def _in_memory(descriptor: int, offset: int) -> bool:
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


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
    of ZFS and of a file server.
    """
    for path in paths:
        with path.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_ctime < _WRITTEN_SECONDS:
                os.fdatasync(file.fileno())  # for all files it would take 1 s for 2000, against 0.05 s
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
