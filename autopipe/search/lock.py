"""One measurement at a time on a machine: two tunes queue up instead of disturbing each other, whoever runs them.

The lock is a name among Linux's abstract sockets: no file that somebody could have put a link, a folder or a pipe in
the place of, none to clean up, and the kernel drops it when its process ends, however it ends. It is one for all users
and for all containers that share the host's network; a container with a network of its own has a lock of its own.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable, Iterator

MEASURING = "autopipe-measuring"

_POLL_SECONDS = 0.2
_CREDENTIALS = struct.Struct("3i")  # process, user and group, as SO_PEERCRED gives them
_BACKLOG = 128  # nobody is ever let in: whoever knocks only reads whose door it is

_LOG = logging.getLogger(__name__)


class Queue:
    """Waits for whoever measures on this machine, and knows how long: that is held against no budget."""

    def __init__(self, on_wait: Callable[[str], None]) -> None:
        """Wait quietly but for `on_wait`, which is told who holds the lock."""
        self.seconds = 0.0  # waited so far
        self._on_wait = on_wait

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold a lock while the block runs."""
        asked = time.monotonic()
        with held(name, self._on_wait):
            self.seconds += time.monotonic() - asked
            yield


@contextlib.contextmanager
def held(name: str, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock while the block runs, after waiting for it as long as it takes.

    Args:
        name: the lock's.
        on_wait: called once with who holds it, if it has to be waited for.
    """
    waited = False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        while not _taken(door, name):
            if not waited:
                waited = True
                on_wait(_who(name))
            time.sleep(_POLL_SECONDS)
        yield


def _taken(door: socket.socket, name: str) -> bool:
    try:
        door.bind(f"\0{name}")
        door.listen(_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        _LOG.warning("Other tunes cannot be kept from measuring at the same time: %s.", error.strerror)
    return True


def _who(name: str) -> str:
    """Return who holds the lock, as the kernel knows it."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
            knocking.setblocking(False)
            knocking.connect(f"\0{name}")
            told = knocking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:  # it has just been let go, or too many have knocked
        return "another process"
    process, user, _ = _CREDENTIALS.unpack(told)
    if user == os.getuid():
        return f"process {process}"
    return f"process {process} of {_user(user)}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
