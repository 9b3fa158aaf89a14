from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from autopipe.trial import log as log_module
from autopipe.trial.log import TAIL_BYTES, ChildLog


@pytest.fixture
def log() -> Iterator[ChildLog]:
    log = ChildLog()
    yield log
    log.close()


def test_the_tail_is_what_was_printed(log: ChildLog) -> None:
    os.write(log.fd, b"one\ntwo\n")
    assert log.tail() == "one\ntwo"


def test_the_tail_begins_at_the_mark(log: ChildLog) -> None:
    os.write(log.fd, b"before\n")
    log.mark()
    os.write(log.fd, b"after\n")
    assert log.tail() == "after"


def test_a_long_tail_is_cut_at_a_line(log: ChildLog) -> None:
    os.write(log.fd, b"".join(b"line %d\n" % number for number in range(5000)))
    tail = log.tail()
    assert len(tail) <= TAIL_BYTES
    assert tail.startswith("line ")
    assert tail.endswith("line 4999")


def test_one_endless_line_still_has_a_tail(log: ChildLog) -> None:
    os.write(log.fd, b"x" * (3 * TAIL_BYTES))
    assert log.tail() == "x" * TAIL_BYTES


def test_bytes_that_are_no_text_do_no_harm(log: ChildLog) -> None:
    os.write(log.fd, b"\xff\xfe ok")
    assert log.tail().endswith("ok")


def test_a_log_out_of_bounds_is_emptied_and_goes_on(log: ChildLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "LIMIT_BYTES", 10)
    os.write(log.fd, b"much too much\n")
    log.cut()
    os.write(log.fd, b"more\n")
    assert log.size_bytes == 5
    assert log.tail() == "more"
