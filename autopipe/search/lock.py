"""One measurement at a time on a machine: two tunes queue up instead of disturbing each other.

The lock is a name among Linux's abstract sockets: no file that could be replaced by a link, a folder or a pipe, none to
clean up, and the kernel drops it when its process ends in any way. It is one for all users, and for all containers that
share the host's network; a container with its own network has its own lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import logging
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable, Iterator

import psutil

from autopipe.errors import NothingMeasuredError, shortened

MEASURING = "autopipe-measuring"
PATIENCE_SECONDS = 3600.0  # the longest wait unless it is given

_STOPPED_SECONDS = 15.0  # the longest wait for a stopped process, which may continue in a moment
_CREDENTIALS = struct.Struct("3i")  # process, user and group, as SO_PEERCRED gives them

_LOG = logging.getLogger(__name__)


class Queue:
    """Waits for other measuring processes on this machine, and sums the waiting: it counts against no budget."""

    def __init__(self, on_wait: Callable[[str], None], patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Call `on_wait` with the holder of the lock, and wait for at most `patience_seconds` each time."""
        self.seconds = 0.0  # waited so far
        self._on_wait = on_wait
        self._patience_seconds = patience_seconds

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold the lock while the block runs, after waiting for it; raises NothingMeasuredError if that takes too long.
        If it has to wait, `on_wait` is called once.
        """
        began, holder = time.monotonic(), None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            while not _taken(door, name):
                if holder is None:
                    holder = _holder(name)
                    self._on_wait(str(holder))
                waited = time.monotonic() - began
                if waited >= self._patience_seconds or (waited >= _STOPPED_SECONDS and holder.is_stopped()):
                    holder = _holder(name)  # may be another by now
                    raise NothingMeasuredError(
                        "Processes measure on a machine one at a time, but after "
                        f"{waited:.0f} s of waiting, {holder} still measures.",
                        hint=holder.advice(),
                    )
                time.sleep(0.2)
            self.seconds += time.monotonic() - began
            yield


def _taken(door: socket.socket, name: str) -> bool:
    try:
        door.bind(f"\0{name}")
        door.listen(128)  # no connection is accepted: a client only reads the owner of the socket
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        _LOG.warning("Other tunes cannot be kept from measuring at the same time: %s.", error.strerror)
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class _Holder:
    process: int = 0  # its id; 0 if it cannot be seen from here
    user: int = -1

    def __str__(self) -> str:
        whose = "" if self.user in (-1, os.getuid()) else f" of {_user(self.user)}"
        if not self.process:
            return f"another process{whose}"
        known = []
        with contextlib.suppress(psutil.Error):
            seen = psutil.Process(self.process)
            words = [word for word in seen.cmdline() if "://" not in word]  # a URL may hold a password
            known.append(shortened(" ".join(words)))
            known.append(f"begun at {datetime.datetime.fromtimestamp(seen.create_time()):%Y-%m-%d %H:%M:%S}")
            known.append("stopped" if self.is_stopped() else "running")
        return f"process {self.process}{whose}" + (f" ({', '.join(known)})" if known else "")

    def is_stopped(self) -> bool:
        """True if it is stopped: by Ctrl-Z, `kill -STOP` or a debugger."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return False

    def advice(self) -> str:
        if not self.process:
            return "Wait until it has ended: it may be in another container that shares this one's network."
        if self.user != os.getuid():
            return f"Wait until it has ended, or ask {_user(self.user)} to end it."
        if self.is_stopped():
            return (
                f"Let it go on by `kill -CONT {self.process}` (`fg` in its shell), or end it by `kill -KILL "
                f"{self.process}`."
            )
        return f"Wait until it has ended, or end it by `kill {self.process}`. A longer budget waits longer."


def _holder(name: str) -> _Holder:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
            knocking.setblocking(False)
            knocking.connect(f"\0{name}")
            told = knocking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:  # it has just been let go, or too many have knocked
        return _Holder()
    process, user, _ = _CREDENTIALS.unpack(told)
    return _Holder(process, user)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
