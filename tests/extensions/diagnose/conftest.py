"""What every diagnosis leaves behind, no thread that looks at lines, and a clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


class Clock:
    """What a test sets forward by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def no_watch_left() -> Iterator[None]:
    """Fail if a thread that looks at lines, which slows a training down, goes on after a test."""
    before = set(threading.enumerate())
    yield
    assert [each.name for each in {*threading.enumerate()} - before if each.name == "autopipe-lines"] == []
