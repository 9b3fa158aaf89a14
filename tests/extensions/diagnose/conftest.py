"""What every diagnosis leaves behind: no thread that looks at lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_watch_left() -> Iterator[None]:
    """Fail if a thread that looks at lines, which slows a training down, goes on after a test."""
    before = set(threading.enumerate())
    yield
    assert [each.name for each in {*threading.enumerate()} - before if each.name == "autopipe-lines"] == []
