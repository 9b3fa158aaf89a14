"""Between processes: tests/integration/test_search_resume.py kills one that holds it."""

from __future__ import annotations

import errno
import os
import socket
import threading
import uuid
from pathlib import Path

import pytest

from autopipe.search import lock


@pytest.fixture
def name() -> str:
    return f"autopipe-test-{uuid.uuid4()}"


def ignore(holder: str) -> None:
    pytest.fail(f"it waits for {holder}")


def test_nobody_waits_for_a_free_lock(name: str) -> None:
    for _ in range(2):
        with lock.held(name, ignore):
            pass


def test_the_second_waits_until_the_first_is_done_and_is_told_for_whom(name: str) -> None:
    order: list[str] = []
    told = threading.Event()

    def wait(holder: str) -> None:
        order.append(f"waits for {holder}")
        told.set()

    def second() -> None:
        with lock.held(name, wait):
            order.append("second")

    thread = threading.Thread(target=second)
    with lock.held(name, order.append):
        thread.start()
        assert told.wait(20)
        order.append("first")
    thread.join(20)
    assert order == [f"waits for process {os.getpid()}", "first", "second"]


def test_nothing_is_written_where_others_could_have_put_a_link(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    for suffix in ("lock", "owner"):
        (shared / f"autopipe-measuring.{suffix}").symlink_to(victim)
        (shared / f"{name}.{suffix}").symlink_to(victim)
    for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(shared))
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    before = sorted(shared.iterdir())
    with lock.held(name, ignore):
        assert sorted(shared.iterdir()) == before
    assert victim.read_text() == "precious"


def test_a_machine_that_has_no_such_sockets_measures_all_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(self: socket.socket, address: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with lock.held(name, ignore):
        pass
    assert "cannot be kept from measuring at the same time: Permission denied" in caplog.text
