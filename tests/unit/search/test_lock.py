"""Between processes: tests/integration/test_search_resume.py kills one that holds it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from autopipe.search import lock


def test_nobody_waits_for_a_free_lock(tmp_path: Path) -> None:
    waited: list[str] = []
    for _ in range(2):
        with lock.held(tmp_path / "lock", waited.append):
            pass
    assert waited == []


def test_the_second_waits_until_the_first_is_done_and_is_told_for_whom(tmp_path: Path) -> None:
    order: list[str] = []
    told = threading.Event()

    def wait(holder: str) -> None:
        order.append(f"waits for {holder}")
        told.set()

    def second() -> None:
        with lock.held(tmp_path / "lock", wait):
            order.append("second")

    thread = threading.Thread(target=second)
    with lock.held(tmp_path / "lock", order.append):
        thread.start()
        assert told.wait(20)
        order.append("first")
    thread.join(20)
    assert order == [f"waits for process {os.getpid()}", "first", "second"]
