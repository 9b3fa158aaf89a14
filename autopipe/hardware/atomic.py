"""A file that is written whole or not at all: under another name first, which then takes the place of the old one.

What is written, and what an error means to the user, is the matter of who writes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

PART_SUFFIX: Final = ".part"
"""How the name of an unfinished file ends: who finds an old one may remove it."""


@contextlib.contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream whose content becomes the file's when the block ends; if the block fails, all stays as it was.

    Args:
        path: of the file.
        sync: wait until the content is on the disk before it gets its name, so that a power cut, too, leaves the old
            file or the new one. It takes along whatever else the disk has yet to write.

    Raises:
        OSError: it cannot be written.
        ValueError: `path` can be no file's, e.g. because it holds a NUL.
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
        with contextlib.suppress(OSError, ValueError):
            unfinished.unlink(missing_ok=True)
        raise
