"""How much of some files is in the kernel's page cache: what a cold or warm measurement rests on."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)


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
