from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.hardware import atomic


@pytest.mark.parametrize("sync", [False, True])
def test_the_content_takes_the_place_of_the_old_file_only_at_the_end(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with atomic.replacing(path, sync=sync) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic.replacing(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_leaves_is_found_by_its_name(tmp_path: Path) -> None:
    script = f"""
import os, pathlib
from autopipe.hardware import atomic
with atomic.replacing(pathlib.Path({str(tmp_path)!r}) / "a.json"):
    os._exit(0)
"""
    root = str(Path(__file__).parents[3])
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env={**os.environ, "PYTHONPATH": root})
    (left,) = tmp_path.glob(f"*{atomic.PART_SUFFIX}")
    assert left.name.startswith(".a.json.")


def test_it_may_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with atomic.replacing(tmp_path / "a.json"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["missing/a.json", "a\0.json"])
def test_what_cannot_be_written_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises((OSError, ValueError)), atomic.replacing(tmp_path / name):
        pass
    assert list(tmp_path.iterdir()) == []
