from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from autopipe.data.arrays import Arrays
from autopipe.hardware import pagecache
from autopipe.measure.pages import PageCache

SMALL = Arrays(np.zeros((2, 4, 4, 3), np.uint8), np.arange(2))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was done to which file."""
    done: list[tuple[str, str]] = []
    for name in ("warm", "drop"):
        monkeypatch.setattr(pagecache, name, lambda paths, name=name: done.extend((name, path.name) for path in paths))
    return done


def files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_bytes(b"x")
    return [str(folder / name) for name in names]


def test_warm_files_are_read_once(tmp_path: Path, read: list[tuple[str, str]]) -> None:
    pages = PageCache(SMALL, "warm")
    pages.prepare(files(tmp_path, "a", "b"))
    pages.prepare(files(tmp_path, "b", "b", "c"))
    assert sorted(read) == [("warm", "a"), ("warm", "b"), ("warm", "c")]


def test_cold_files_are_dropped_before_each_trial(tmp_path: Path, read: list[tuple[str, str]]) -> None:
    pages = PageCache(SMALL, "cold")
    pages.prepare(files(tmp_path, "a"))
    pages.prepare(files(tmp_path, "a"))
    assert read == [("drop", "a"), ("drop", "a")]


def test_what_is_no_file_is_left_alone(tmp_path: Path, read: list[tuple[str, str]]) -> None:
    for regime in ("warm", "cold"):
        PageCache(SMALL, regime).prepare([str(tmp_path), str(tmp_path / "gone")])
    assert read == []


def test_reading_ahead_ends_when_it_takes_too_long(tmp_path: Path, read: list[tuple[str, str]]) -> None:
    ticks = itertools.count(0, 15)
    pages = PageCache(SMALL, "warm", clock=lambda: float(next(ticks)))
    many = files(tmp_path, *map(str, range(100)))
    assert not pages.prepare(many)
    assert len(read) == 64
    assert not pages.prepare(many)  # 20 seconds for all trials: no later one waits for the disk again
    assert len(read) == 64
    assert pages.prepare(many[:64])


def test_dropping_files_has_its_time_before_each_trial(tmp_path: Path, read: list[tuple[str, str]]) -> None:
    ticks = itertools.count(0, 15)
    pages = PageCache(SMALL, "cold", clock=lambda: float(next(ticks)))
    many = files(tmp_path, *map(str, range(100)))
    assert not pages.prepare(many)
    assert not pages.prepare(many)
    assert len(read) == 128


def test_auto_is_warm_for_data_that_fit_into_memory() -> None:
    assert PageCache(SMALL, "auto").regime == "warm"


def test_auto_is_cold_for_data_larger_than_memory() -> None:
    class Huge:
        def __len__(self) -> int:
            return 10**9

        def mean_bytes(self) -> float:
            return 1e6

        def read(self, index: int) -> bytes:
            return b""

    assert PageCache(Huge(), "auto").regime == "cold"
