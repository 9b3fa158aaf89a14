from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.hardware import disk

Play = Callable[[dict[str, str]], Path]

ROOT_MOUNT = "27 1 254:0 / / rw - ext4 /dev/vda rw\n"


def test_the_innermost_mount_holds_a_path(play: Play, tmp_path: Path) -> None:
    inner = tmp_path / "data"
    inner.mkdir()
    root = play({"proc/self/mountinfo": f"40 27 0:44 / {inner} rw - nfs4 server:/data rw\n{ROOT_MOUNT}"})
    assert disk.detect(inner, root).kind == "nfs4"
    assert disk.detect(tmp_path, root).kind == "ext4"


def test_of_two_mounts_at_one_point_the_later_counts(play: Play, tmp_path: Path) -> None:
    lines = f"40 27 0:44 / {tmp_path} rw - nfs4 server:/data rw\n41 40 0:45 / {tmp_path} rw - tmpfs tmpfs rw\n"
    assert disk.detect(tmp_path, play({"proc/self/mountinfo": ROOT_MOUNT + lines})).kind == "tmpfs"


def test_a_folder_yet_to_be_made_is_judged_by_the_one_above(play: Play, tmp_path: Path) -> None:
    found = disk.detect(tmp_path / "a/b/c", play({"proc/self/mountinfo": ROOT_MOUNT}))
    assert found.kind == "ext4"
    assert found.free_bytes > 0


def test_without_a_list_of_mounts_the_kind_is_unknown(tmp_path: Path) -> None:
    assert disk.detect(tmp_path, tmp_path).kind == "unknown"


@pytest.mark.parametrize(("kind", "network"), [("nfs4", True), ("fuse.sshfs", True), ("ext4", False), ("tmpfs", False)])
def test_files_from_elsewhere_are_told_by_their_file_system(kind: str, network: bool) -> None:
    assert disk.Disk(kind=kind, free_bytes=0).network is network


def files(folder: Path, count: int, size: int) -> list[Path]:
    paths = [folder / f"{index}.bin" for index in range(count)]
    for path in paths:
        path.write_bytes(bytes(size))
    return paths


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second at each look."""
    seconds = itertools.count()
    return lambda: float(next(seconds))


def test_a_probe_reads_every_file_once(tmp_path: Path) -> None:
    rate = disk.read_bytes_per_second(files(tmp_path, 5, 1000), readers=2, seconds_limit=60, clock=ticking())
    assert rate == 5000 / 6  # a look after each of five files, and one at the end


def test_a_probe_ends_at_its_limit(tmp_path: Path) -> None:
    rate = disk.read_bytes_per_second(files(tmp_path, 9, 1000), readers=1, seconds_limit=3, clock=ticking())
    assert rate == 3000 / 4


def test_a_probe_of_nothing_finds_no_speed() -> None:
    assert disk.read_bytes_per_second([]) == 0.0
