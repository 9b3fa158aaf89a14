"""One measurement at a time on a machine: two tunes queue up instead of disturbing each other.

The operating system holds the lock (`flock`) and drops it when its process ends, however it ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

_POLL_SECONDS = 0.2


@contextmanager
def held(path: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock while the block runs, after waiting for it as long as it takes.

    Args:
        path: the lock's file. If it belongs to a user whose files this one may not open, one beside it is taken.
        on_wait: called once with who holds it, if it has to be waited for.
    """
    usable = path if _may_open(path) else path.with_name(f"{path.stem}-{os.getuid()}{path.suffix}")
    owner = usable.with_suffix(".owner")
    lock = filelock.FileLock(usable, mode=0o666)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        on_wait(_who(owner))
        lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        with suppress(OSError):  # only a courtesy to those who wait
            owner.write_text(json.dumps({"pid": os.getpid()}), encoding="utf-8")
        yield
    finally:
        lock.release()


def _may_open(path: Path) -> bool:
    return not path.exists() or os.access(path, os.R_OK | os.W_OK)


def _who(owner: Path) -> str:
    try:
        return f"process {int(json.loads(owner.read_text(encoding='utf-8'))['pid'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
