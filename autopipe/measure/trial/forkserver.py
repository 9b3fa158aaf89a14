"""A process that has imported the framework, and forks those of trials: an import takes seconds, and a fork none.

A fork is safe as long as nothing has run. A framework that is only imported has begun no threads of its own and looked
for no accelerator; the allocator and the BLAS, which may have threads by then, provide for forks. The workload is
imported in the forked process; if it sets variables that the framework has read by then, such as `KERAS_BACKEND`, or
where there is no server, or it fails, processes are started.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, Self

from autopipe.hardware import processes
from autopipe.pipeline.batching import process

_SERVER: Final = "autopipe.measure.trial.forkserver"
_LOST = -signal.SIGKILL  # the status of a process whose server has gone: it ends as soon as it sees that

# -------------------- the side of the study


def wait_until(done: Callable[[], bool], seconds: float) -> None:
    """Look every 10 ms until it is done, or the time is up."""
    give_up = time.monotonic() + seconds
    while not done() and time.monotonic() < give_up:
        time.sleep(0.01)


class Forked:
    """A process that a server forked, with the methods of `subprocess.Popen` that a trial needs."""

    def __init__(self, server: ForkServer, pid: int, files: list[int]) -> None:
        self._server, self.pid = server, pid
        self.files = files  # the numbers that its files have there
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            self._status = self._server.ended(self.pid)
        return self._status

    def wait(self, timeout: float) -> int:
        """Return the exit status, negative for a signal. Raises `subprocess.TimeoutExpired`, as Popen does."""
        wait_until(lambda: self.poll() is not None, timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(_SERVER, timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its server has gone, and it has
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class ForkServer:
    """The server of one search; a context manager. `begin` starts it, beside the first process of the search."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def begin(self, environment: Mapping[str, str]) -> None:
        """Start the server, unless that was done."""
        if self._process is not None:
            return
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
        if self._channel is not None and not self._is_ready:
            self._channel.settimeout(seconds)
            try:
                process.receive(self._channel)
                self._channel.settimeout(10.0)  # for a fork
                self._is_ready = True
            except (EOFError, OSError):
                self.close()
        return self._is_ready

    def fork(
        self, environment: Mapping[str, str], directory: Path | None, log: int, files: Sequence[int]
    ) -> Forked | None:
        """Fork a process that serves trials over the first of `files`; it gets the others, too. None if that fails."""
        if self._channel is None or not self._is_ready:
            return None
        try:
            with processes.uninterrupted():  # else the next question would get this one's answer
                pid, (_, *copies) = process.fork(self._channel, (environment, directory), [log, *files])
        except (EOFError, OSError):
            self.close()
            return None
        return Forked(self, pid, copies)

    def ended(self, pid: int) -> int | None:
        """Return the exit status of a process that the server forked, negative for a signal; None while it runs."""
        try:
            with processes.uninterrupted():  # as above
                return _LOST if self._channel is None else process.ended(self._channel, pid)
        except (EOFError, OSError):
            return _LOST

    def close(self) -> None:
        """End the server; what it forked ends by itself. Safe to call twice."""
        self._is_ready = False
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


# -------------------- the server's side


def _become(server: int, asked: tuple[Mapping[str, str], Path | None], files: Sequence[int]) -> NoReturn:
    """Turn this forked process into one that serves trials, with nothing of the server's but its modules."""
    import numpy as np

    from autopipe.measure.trial import runner

    (environment, directory), (log, channel, *_) = asked, files
    try:
        os.setsid()
        for each in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(log, each)
        os.close(log)
        os.environ.update(environment)
        tempfile.tempdir = None  # it is in the environment
        if directory is not None:
            os.chdir(directory)
        np.random.seed()
        runner.serve(channel, server, forked=True)
    finally:
        os._exit(1)


def main() -> None:
    """Import what trials need, and fork until the study closes its connection."""
    channel = socket.socket(fileno=int(sys.argv.pop()))
    channel.set_inheritable(False)
    from autopipe.measure import session as session  # imports Keras
    from autopipe.measure.trial import runner as runner

    process.send(channel, b"ready")
    process.serve_forks(channel, process.tasks(channel, os.getppid()), functools.partial(_become, os.getpid()))
