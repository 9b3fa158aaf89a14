"""Between processes: tests/integration/test_search.py kills one that holds it."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

from autopipe.errors import NothingMeasuredError
from autopipe.search import lock
from tests.unit.search.conftest import some


@pytest.fixture
def name() -> str:
    return f"autopipe-test-{uuid.uuid4()}"


HOLDS = """import sys
from autopipe.search import lock
with lock.Queue(print).held(sys.argv[1]):
    print()
    sys.stdin.read()
"""
BEGAN = time.time()


@contextlib.contextmanager
def holding(name: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold the lock."""
    command = [sys.executable, "-u", "-X", "study=db://me:password@host", "-c", HOLDS, name]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_waits_until_the_first_is_done_and_is_told_for_whom(name: str) -> None:
    order: list[str] = []
    told = threading.Event()

    def wait(holder: str) -> None:
        order.append(f"waits for {holder}")
        told.set()

    def second() -> None:
        with lock.Queue(wait).held(name):
            order.append("second")

    thread = threading.Thread(target=second)
    with lock.Queue(order.append).held(name):
        thread.start()
        assert told.wait(20)
        order.append("first")
    thread.join(20)
    assert order[0].startswith(f"waits for process {os.getpid()} ")
    assert order[1:] == ["first", "second"]


@pytest.mark.parametrize(
    ("state", "patience_seconds", "advice"),
    [
        ("running", 0.01, "end it by `kill {process}`"),
        ("stopped", 3600.0, "`kill -CONT {process}`"),
        ("running of {user}", 0.01, "or ask {user} to end it."),  # who alone can
    ],
)
def test_a_process_is_waited_for_no_longer_than_was_said_and_named_with_its_state(
    name: str, monkeypatch: pytest.MonkeyPatch, state: str, patience_seconds: float, advice: str
) -> None:
    waited, own, user = list[str](), os.getuid(), pwd.getpwuid(os.getuid()).pw_name
    kind, _, whose = state.format(user=user).partition(" ")
    with holding(name) as holder:
        if kind == "stopped":
            os.kill(holder.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
            monkeypatch.setattr(lock, "_STOPPED_SECONDS", 0.0)
        if whose:
            monkeypatch.setattr("os.getuid", lambda: own + 1)
        queue = lock.Queue(waited.append, patience_seconds)
        with pytest.raises(NothingMeasuredError) as refused, queue.held(name):
            pytest.fail("it got in")
    (told,) = waited
    assert told in refused.value.message
    assert told.startswith(" ".join(filter(None, (f"process {holder.pid}", whose, "("))))
    assert "import lock" in told  # of its command
    assert f"begun at {datetime.datetime.fromtimestamp(BEGAN):%Y-}" in told
    assert told.endswith(f"{kind})")
    assert "password" not in refused.value.message
    assert advice.format(process=holder.pid, user=user) in some(refused.value.hint)
    assert not whose or "kill" not in some(refused.value.hint)


def test_a_machine_that_has_no_such_sockets_measures_all_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(self: socket.socket, address: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with lock.Queue(pytest.fail).held(name):
        pass
    assert "cannot be kept from measuring at the same time: Permission denied" in caplog.text
