"""A process that has imported the framework, and forks those of trials: an import takes seconds, and a fork none.

A fork is safe as long as nothing has run. A framework that is only imported has begun no threads of its own and looked
for no accelerator; the allocator and the BLAS, which may have threads by then, provide for forks. The workload is
imported in the forked process; if it sets variables that the framework has read by then, such as `KERAS_BACKEND`, or
where there is no server, or it fails, processes are started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from autopipe.hardware import processes

_SERVER: Final = "autopipe.measure.trial.forkserver"
_ANSWER_SECONDS = 10.0  # to fork
_MOST_BYTES, _MOST_FILES = 1 << 16, 3  # of a request
_LOST = -signal.SIGKILL  # the status of a process whose server has gone: it ends as soon as it sees that

# -------------------- the side of the study


class Forked:
    """A process that a server forked, with the methods of `subprocess.Popen` that a trial needs."""

    def __init__(self, status: int) -> None:
        """Read the process's id from this pipe, on which the server writes it and, later, the status. Raises OSError if
        the server does not answer.
        """
        self._status = status
        self.returncode: int | None = None
        if not _has_said(status, _ANSWER_SECONDS) or not (said := os.read(status, _MOST_BYTES)):
            raise OSError("The server of processes does not answer.")
        begun, _, self._ended = said.partition(b"\n")  # it may have ended already
        self.pid, *self.files = map(int, begun.split())

    def poll(self) -> int | None:
        return self._after(0.0)

    def wait(self, timeout: float) -> int:
        """Return the exit status, negative for a signal. Raises `subprocess.TimeoutExpired`, as Popen does."""
        if (status := self._after(timeout)) is None:
            raise subprocess.TimeoutExpired(_SERVER, timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _after(self, seconds: float) -> int | None:
        if self.returncode is None and (self._ended or _has_said(self._status, seconds)):
            said = self._ended or os.read(self._status, _MOST_BYTES)
            self.returncode = int(said) if said else _LOST
            os.close(self._status)
        return self.returncode


def _has_said(pipe: int, seconds: float) -> bool:
    poll = select.poll()  # `select` takes no number above 1023
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(1000.0 * max(0.0, seconds)))


class ForkServer:
    """The server of one search; a context manager. `begin` starts it, beside the first process of the search."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._is_ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def has_begun(self) -> bool:
        return self._process is not None

    def begin(self, environment: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*processes.started(_SERVER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def wait(self, seconds: float) -> bool:
        """Return True once the framework is imported, and False if it is not by then: nothing is forked any more."""
        if self._connection is not None and not self._is_ready:
            with contextlib.suppress(OSError):
                self._connection.settimeout(seconds)
                self._is_ready = self._connection.recv(1) != b""
            if not self._is_ready:
                self.close()
        return self._is_ready

    def fork(
        self, environment: Mapping[str, str], directory: Path | None, log: int, files: Sequence[int]
    ) -> Forked | None:
        """Fork a process that serves trials over the first of `files`; it gets the others, too. None if that fails."""
        if self._connection is None or not self._is_ready:
            return None
        order = {"environment": dict(environment), "directory": None if directory is None else str(directory)}
        status, theirs = os.pipe()
        try:
            try:
                socket.send_fds(self._connection, [json.dumps(order).encode()], [theirs, log, *files])
            finally:
                os.close(theirs)
            return Forked(status)
        except OSError:
            os.close(status)
            self.close()
            return None

    def close(self) -> None:
        """End the server; what it forked ends by itself. Safe to call twice."""
        self._is_ready = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


# -------------------- the server's side


def _serve(connection: socket.socket) -> NoReturn:
    ends: dict[int, int] = {}  # of processes, the pipes for their status
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    connection.send(b"r")
    while True:
        readable = select.select([connection.fileno(), woken], [], [])[0]
        if woken in readable:
            os.read(woken, _MOST_BYTES)
            _reap(ends)
        if connection.fileno() in readable:
            order, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 2 + _MOST_FILES)
            if not order:
                os._exit(0)
            status, *others = files
            server = os.getpid()
            if (pid := os.fork()) == 0:
                for each in (connection.detach(), woken, wakes, status, *ends.values()):
                    os.close(each)
                _become(json.loads(order), server, *others)
            ends[pid] = status
            for each in others:
                os.close(each)
            with contextlib.suppress(OSError):
                os.write(status, f"{pid} {' '.join(map(str, others[1:]))}\n".encode())


def _reap(ends: dict[int, int]) -> None:
    """Write the status of each process that has ended, before its number becomes free."""
    while ends and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with contextlib.suppress(OSError):
            os.write(ends[ended.si_pid], str(status).encode())
        os.close(ends.pop(ended.si_pid))
        os.waitpid(ended.si_pid, 0)


def _become(order: dict[str, Any], server: int, log: int, channel: int, *_: int) -> NoReturn:
    """Turn this forked process into one that serves trials, with nothing of the server's but its modules."""
    import numpy as np

    from autopipe.measure.trial import runner

    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for each in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(log, each)
        os.close(log)
        os.environ.update(order["environment"])
        tempfile.tempdir = None  # it is in the environment
        if order["directory"] is not None:
            os.chdir(order["directory"])
        np.random.seed()
        runner.serve(channel, server, forked=True)
    finally:
        os._exit(1)


def main() -> NoReturn:
    """Import what trials need, and fork until the study closes its connection."""
    connection = socket.socket(fileno=int(sys.argv.pop()))
    connection.set_inheritable(False)
    from autopipe.measure import session as session  # imports Keras
    from autopipe.measure.trial import runner as runner

    _serve(connection)
