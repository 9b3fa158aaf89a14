import errno
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pydantic
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.hardware.processes import ProcessTree, uninterrupted
from autopipe.measure.trial import child, runner
from autopipe.measure.trial.child import EVENT, TAIL_BYTES, Channel, Child, ChildLog, Launch, Log, Scratch


@pytest.fixture
def log() -> Iterator[ChildLog]:
    log = ChildLog()
    yield log
    log.close()


def test_the_tail_is_what_was_printed_since_the_mark(log: ChildLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for printed, expected in (
        (b"one\ntwo\n", "one\ntwo"),
        (b"x" * (3 * TAIL_BYTES), "x" * TAIL_BYTES),  # one endless line
        (b"\xff\xfe ok", "\ufffd\ufffd ok"),  # bytes that are no text
    ):
        os.write(log.fd, b"before\n")
        log.mark()
        os.write(log.fd, printed)
        assert log.tail() == expected
    os.write(log.fd, b"".join(b"line %d\n" % number for number in range(5000)))
    tail = log.tail()  # which is cut at a line
    assert (tail[:5], tail[-9:], len(tail) <= TAIL_BYTES) == ("line ", "line 4999", True)
    monkeypatch.setattr(child, "LIMIT_BYTES", 10)  # out of bounds it is emptied and goes on
    log.cut()
    os.write(log.fd, b"more\n")
    assert (log.size_bytes, log.tail()) == (5, "more")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_folder_goes_with_all_that_is_in_it_also_on_a_disk_without_locks(
    tmp_path_factory: pytest.TempPathFactory, temporary: Path, monkeypatch: pytest.MonkeyPatch, *, elsewhere: bool
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere") if elsewhere else temporary
    if elsewhere:
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOTSUP, "no locks")))
    own = Scratch(folder if elsewhere else None)
    (own.path / "converted").mkdir()
    assert list(folder.iterdir()) == [own.path]
    own.close()
    own.close()
    assert list(folder.iterdir()) == []


def test_what_nobody_owns_is_removed_and_all_else_stays(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / f"{child.PREFIX}dead" / "converted").mkdir(parents=True)
    (others := temporary / "somebody's").mkdir()
    precious = tmp_path_factory.mktemp("precious") / "photo.jpg"
    precious.touch()
    (link := temporary / f"{child.PREFIX}link").symlink_to(precious.parent)
    (file := temporary / f"{child.PREFIX}file").touch()
    first, second = Scratch(), Scratch()
    assert sorted(temporary.iterdir()) == sorted([others, link, file, first.path, second.path])
    assert precious.exists()
    (theirs := temporary / f"{child.PREFIX}theirs").mkdir()
    monkeypatch.setattr("os.getuid", lambda: theirs.stat().st_uid + 1)
    child.collect(temporary)
    assert theirs.exists()


def test_a_workload_that_no_process_can_be_given_is_refused_with_the_form_that_can_be(temporary: Path) -> None:
    data, lock = ap.Arrays(np.zeros((4, 2), np.uint8)), threading.Lock()
    model: Any = functools.partial(print, lock)
    locked = ap.Workload(data=data, ops=[], batch_size=2, model=model)
    dataset = tf.data.Dataset.range(8).map(lambda x: (x, x)).batch(4)
    unsent = ap.Workload(data=data, ops=[ap.Map(lambda x: (x, lock)[0])], batch_size=2)
    forms = ["ap.wrap(make_dataset", "train.py:workload", "train.py:workload"]
    for workload, form in zip((ap.wrap(dataset), locked, unsent), forms, strict=True):
        with pytest.raises(ap.WorkloadError, match="cannot be sent to another process") as raised:
            Child(Launch(workload=workload))
        assert form in str(raised.value)
    assert list(temporary.glob(f"{child.PREFIX}*")) == []
    child._pickled(ap.wrap(lambda: tf.data.Dataset.range(8).map(lambda x: (x, x)).batch(4))).close()


def test_that_the_temporary_folder_is_full_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/autopipe-trial-1")
    monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=full))
    with pytest.raises(ap.TrialError, match=r"No space left on device: '/full/autopipe-trial-1'") as caught:
        Child(Launch(workload="train.py:workload"))
    assert "TMPDIR" in str(caught.value.hint)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Python's own handler of Ctrl-C for both, as the command line has it."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_through_once_when_the_block_has_run(number: signal.Signals) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the order of both is what is tested
        with uninterrupted():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done.append("block")
        done.append("behind it")
    assert done == ["block"]
    assert signal.getsignal(number) is signal.default_int_handler


def handler_within() -> Any:
    with uninterrupted():
        return signal.getsignal(signal.SIGINT)


@pytest.mark.usefixtures("handlers")
def test_a_signal_is_not_lost_where_the_block_fails_and_elsewhere_nothing_is_to_be_held_back() -> None:
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012  both belong to the block
        signal.raise_signal(signal.SIGTERM)
        raise ValueError
    with ThreadPoolExecutor(1) as pool:  # another thread
        assert pool.submit(handler_within).result() is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert handler_within() is signal.SIG_IGN


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        yield channel, theirs
    channel.close()


def test_lines_come_whole_and_in_order_and_the_end_after_all_of_them(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    assert channel.receive(0.0) == []
    other.sendall(b"one\ntwo\nthr")
    assert channel.receive(1.0) == [b"one", b"two"]
    other.sendall(b"ee\n")
    other.close()
    assert channel.receive(1.0) == [b"three"]
    with pytest.raises(EOFError):
        channel.receive(1.0)
    with pytest.raises(OSError, match="Broken pipe"):
        channel.send(Log(text="anybody?"))


@pytest.mark.parametrize(("text", "arrives"), [("a\nb", "a\nb"), ("é: caf\udce9.jpg", "é: caf?.jpg")])
def test_a_message_is_one_line_in_which_half_a_character_is_a_question_mark(
    pair: tuple[Channel, socket.socket], text: str, arrives: str
) -> None:
    channel, other = pair
    channel.send(Log(text=text))
    line = other.recv(1000)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert EVENT.validate_json(line) == Log(text=arrives)
    for other_language in (b"", b"hello", b"{}", b'{"event": "done"}', b'{"event": "phase", "phase": "lunch"}'):
        with pytest.raises(pydantic.ValidationError):
            EVENT.validate_json(other_language)


FORKS = """
import os
held = bytearray(64 << 20)
held[::4096] = b"x" * (len(held) // 4096)
for _ in range(3):
    if os.fork() == 0:
        break
os.write(1, b".")
os.read(0, 1)
"""


def test_what_forks_share_counts_once_where_counting_it_twice_would_be_too_much() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FORKS], stdin=pipe, stdout=pipe, start_new_session=True) as leader:
        assert leader.stdout is not None
        tree = ProcessTree(leader.pid)
        try:
            assert leader.stdout.read(4) == b"...."
            assert child.held_bytes(tree) > 4 * (64 << 20)
            assert 64 << 20 < child.held_bytes(tree, 200 << 20) < 2 * (64 << 20)
        finally:
            assert child.kill(tree)


# ---------------------------------------------------------------- what it changes of TensorFlow


def test_a_trial_writes_no_cache_file_of_the_users_and_reads_a_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ours := tmp_path / "ours").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(ours))
    monkeypatch.setattr(tf.data.Dataset, "cache", tf.data.Dataset.cache)  # to have it back
    kept, rows = str(tmp_path / "kept"), tf.data.Dataset.range(4)
    theirs = rows.cache(kept)
    runner._cache_apart(tf)
    for _ in range(2):
        half = iter(rows.cache(kept))  # in the middle, as a trial may end
        assert (int(next(half)), [*tmp_path.iterdir()]) == (0, [ours])
    assert (len(list(rows.cache())), len(list(theirs))) == (4, 4)
    assert [int(each) for each in tf.data.Dataset.range(9).cache(kept)] == [0, 1, 2, 3]
