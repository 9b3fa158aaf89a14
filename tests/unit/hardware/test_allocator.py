"""The allocator's settings can be made anywhere, and twice; what they are for is seen by benchmarks only."""

from __future__ import annotations

import ctypes

import pytest

from autopipe.hardware import allocator


def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, int]] = []

    class Library:
        @staticmethod
        def mallopt(parameter: int, value: int) -> int:
            called.append((parameter, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    allocator.keep_freed_memory()
    assert called == [(-3, 32 << 20), (-1, 256 << 20), (-2, 64 << 20)]


def test_where_the_c_library_has_no_such_settings_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    allocator.keep_freed_memory()
