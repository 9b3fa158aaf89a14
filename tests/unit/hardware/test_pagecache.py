from __future__ import annotations

import os
from pathlib import Path

import pytest
from page_residency import resident_share

from autopipe.errors import ConfigError
from autopipe.hardware import disk, pagecache


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Files on a real disk, of which one is empty and one is not a whole number of pages."""
    if disk.detect(tmp_path).kind in {"tmpfs", "ramfs", "zfs"}:
        pytest.skip("the files of this file system cannot be dropped")
    paths = [tmp_path / name for name in ("a", "b", "empty")]
    for path, size in zip(paths, (3 << 20, 5001, 0), strict=True):
        path.write_bytes(bytes(size))
    return paths


def test_dropped_files_are_out_and_warmed_files_are_in(paths: list[Path]) -> None:
    pagecache.drop(paths)
    assert resident_share(paths) == 0.0
    assert pagecache.warm(paths) == (3 << 20) + 5001
    assert resident_share(paths) == 1.0


def test_a_look_at_some_places_tells_how_much_is_in_memory(paths: list[Path]) -> None:
    pagecache.drop(paths)
    if (found := pagecache.share_in_memory(paths)) is None:
        pytest.skip("this file system does not tell")
    assert found == 0.0
    pagecache.drop(paths)
    pagecache.warm(paths[:1])
    assert pagecache.share_in_memory(paths) == 3 / 4
    pagecache.warm(paths)
    assert pagecache.share_in_memory(paths) == 1.0


def test_what_holds_nothing_or_is_not_there_has_no_share_in_memory(paths: list[Path], tmp_path: Path) -> None:
    assert pagecache.share_in_memory([paths[2]]) is None
    assert pagecache.share_in_memory([tmp_path / "gone"]) is None


def test_a_python_without_reads_that_do_not_wait_tells_no_share(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_flags(*arguments: object) -> int:
        raise NotImplementedError("preadv2: flags unavailable on this platform")

    monkeypatch.setattr(os, "preadv", no_flags)
    assert pagecache.share_in_memory(paths) is None
    monkeypatch.delattr(os, "RWF_NOWAIT")
    assert pagecache.share_in_memory(paths) is None


def test_a_share_counts_pages(paths: list[Path]) -> None:
    pagecache.drop(paths)
    pagecache.warm(paths[1:])
    assert resident_share(paths) == 2 / (768 + 2)


def test_files_that_nobody_wrote_lately_are_dropped_without_waiting_for_the_disk(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.sync()
    monkeypatch.setattr("time.time", lambda: paths[0].stat().st_ctime + 3600)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: pytest.fail("waited for the disk"))
    pagecache.drop(paths)
    assert resident_share(paths) == 0.0


def test_no_bytes_have_no_share(paths: list[Path]) -> None:
    assert resident_share([]) is None
    assert resident_share([paths[2]]) is None


def test_the_kernel_is_not_asked_about_files_of_others(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: paths[0].stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert resident_share(paths) is None


@pytest.mark.parametrize(
    ("choice", "data_bytes", "regime"),
    [("warm", 101, "warm"), ("cold", 1, "cold"), ("auto", 100, "warm"), ("auto", 101, "cold")],
)
def test_auto_is_cold_for_data_larger_than_memory(choice: str, data_bytes: int, regime: str) -> None:
    assert pagecache.regime(choice, data_bytes, usable_bytes=100) == regime


def test_an_unknown_regime_is_named_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"must be `warm`, `cold` or `auto`, but got 'wram'\. Did you mean `warm`\?"):
        pagecache.regime("wram", 1, 1)
