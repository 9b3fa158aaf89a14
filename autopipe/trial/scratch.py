"""The temporary folders of a trial's process, which go with the process that owns them, however that ends.

Its owner holds the folder itself locked (`flock`), which the kernel undoes when a process dies. So whoever makes the
next one can tell which folders are nobody's any more, also where processes cannot see each other, and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "autopipe-trial-"
_ATTEMPTS = 3


class Scratch:
    """A folder for one process to own; `close` removes it with all that is in it."""

    def __init__(self, folder: Path | None = None) -> None:
        """Remove what dead processes left in `folder`, the system's temporary one unless told, and make one there."""
        parent = Path(tempfile.gettempdir()) if folder is None else folder
        collect(parent)
        for _ in range(_ATTEMPTS):  # another process may collect a folder between these two statements
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = _locked(self.path)
            if self._lock is not None and self.path.is_dir():
                return
            self.close()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # without a lock, which not every disk has

    def close(self) -> None:
        """Remove the folder. Calling it twice is fine."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def collect(folder: Path) -> None:
    """Remove the folders of this user in `folder` whose owners are dead."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and (lock := _locked(Path(entry.path))) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(path: Path) -> int | None:
    """Return a descriptor that holds the folder locked; None if it is another's, or is none, or somebody holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
