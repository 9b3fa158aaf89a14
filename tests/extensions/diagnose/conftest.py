"""What every diagnosis leaves behind: no thread that looks at lines. And what tests of findings share."""

import threading
from collections.abc import Iterable, Iterator

import pytest


@pytest.fixture(autouse=True)
def no_watch_left() -> Iterator[None]:
    """Fail if a thread that looks at lines, which slows a training down, goes on after a test."""
    before = set(threading.enumerate())
    yield
    assert [each.name for each in {*threading.enumerate()} - before if each.name == "autopipe-lines"] == []


def only(found: Iterable[str], words: str | None) -> None:
    """Require that one thing is told, with these words in it, or nothing if there are none."""
    told = list(found)
    assert [str(words) in each for each in told] == [True] * (words is not None), told
