"""What a trial's process prints, kept in a file without a name: nothing remains of it, however the parent ends."""

from __future__ import annotations

import fcntl
import os
import tempfile

TAIL_BYTES = 6000
LIMIT_BYTES = 64 << 20


class ChildLog:
    """A file for stdout and stderr of a child. The parent reads its end; the child only appends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        # Appending is by the kernel, so that the file can be cut while the child writes.
        fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) | os.O_APPEND)
        self._mark = 0

    @property
    def fd(self) -> int:
        """Return the file descriptor to hand to the child."""
        return self._file.fileno()

    @property
    def size_bytes(self) -> int:
        """Return how much there is now."""
        return os.fstat(self.fd).st_size

    def mark(self) -> None:
        """Forget what was printed so far: the tail begins here."""
        self._mark = self.size_bytes

    def cut(self) -> None:
        """Drop everything if it has grown out of bounds."""
        if self.size_bytes > LIMIT_BYTES:
            os.ftruncate(self.fd, 0)
            self._mark = 0

    def tail(self) -> str:
        """Return the last lines since the mark."""
        size = self.size_bytes
        start = max(self._mark, size - TAIL_BYTES)
        text = os.pread(self.fd, size - start, start).decode(errors="replace")
        if start > self._mark:  # the first line is a piece of one
            text = text.partition("\n")[2] or text
        return text.strip()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
