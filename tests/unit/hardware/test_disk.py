"""File systems, what they hold in memory, and files that are replaced as a whole."""

import contextlib
import itertools
import os
from pathlib import Path

import pytest

from autopipe.hardware import disk
from tests.fakes.commands import python, succeeded
from tests.unit.hardware.conftest import Play

ROOT_MOUNT = "27 1 254:0 / / rw - ext4 /dev/vda rw\n"


def test_the_innermost_mount_holds_a_path_and_of_two_at_one_point_the_later(play: Play, tmp_path: Path) -> None:
    (inner := tmp_path / "data").mkdir()
    nfs, tmpfs = f"40 27 0:44 / {inner} rw - nfs4 server:/ rw\n", f"41 40 0:45 / {inner} rw - tmpfs tmpfs rw\n"
    root = play({"proc/self/mountinfo": nfs + ROOT_MOUNT})
    assert (disk.detect(inner, root).kind, disk.detect(tmp_path, root).kind) == ("nfs4", "ext4")
    assert disk.detect(inner, play({"proc/self/mountinfo": ROOT_MOUNT + nfs + tmpfs})).kind == "tmpfs"
    unmade = disk.detect(tmp_path / "a/b/c", root)  # judged by the folder above
    assert (unmade.kind, unmade.free_bytes > 0) == ("ext4", True)
    assert disk.detect(tmp_path, tmp_path).kind == "unknown"  # no list of mounts
    network = {"nfs4": True, "fuse.sshfs": True, "ext4": False, "tmpfs": False}
    assert {kind: disk.Disk(kind=kind, free_bytes=0).network for kind in network} == network


def test_a_probe_reads_every_file_once_and_ends_at_its_limit(tmp_path: Path) -> None:
    def rate(count: int, readers: int, seconds_limit: int) -> float:
        """Read files of 1000 bytes by a clock that goes on by a second at each look."""
        for path in (paths := [tmp_path / str(index) for index in range(count)]):
            path.write_bytes(bytes(1000))
        clock = itertools.count(0.0).__next__
        return disk.read_bytes_per_second(paths, readers=readers, seconds_limit=seconds_limit, clock=clock)

    assert rate(5, readers=2, seconds_limit=60) == 5000 / 6  # a look after each of five files, and one at the end
    assert rate(9, readers=1, seconds_limit=3) == 3000 / 4
    assert disk.read_bytes_per_second([]) == 0.0


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Files on a real disk, of which one is empty and one is not a whole number of pages."""
    if disk.detect(tmp_path).kind in {"tmpfs", "ramfs", "zfs"}:
        pytest.skip("the files of this file system cannot be dropped")
    paths = [tmp_path / name for name in ("a", "b", "empty")]
    for path, size in zip(paths, (3 << 20, 5001, 0), strict=True):
        path.write_bytes(bytes(size))
    return paths


def test_dropped_files_are_out_and_warmed_files_are_in(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    disk.drop(paths)
    assert disk.share_in_memory(paths) == 0.0
    assert (disk.warm(paths[:1]), disk.share_in_memory(paths)) == (3 << 20, 768 / 770)
    assert (disk.warm(paths), disk.share_in_memory(paths)) == ((3 << 20) + 5001, 1.0)
    assert [disk.share_in_memory([none]) for none in (paths[2], paths[0] / "gone")] == [None, None]
    os.sync()
    monkeypatch.setattr("time.time", lambda: paths[0].stat().st_ctime + 3600)  # old files need no wait for the disk
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: pytest.fail("waited for the disk"))
    disk.drop(paths)
    assert disk.share_in_memory(paths) == 0.0


def test_the_share_of_files_that_others_own_is_not_told(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: paths[0].stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: path == paths[1])
    disk.drop(paths)
    disk.warm(paths[1:])
    assert (disk.share_in_memory(paths), disk.share_in_memory(paths[:1])) == (1.0, None)


@pytest.mark.parametrize("sync", [False, True])
def test_the_content_takes_the_place_of_the_old_file_only_at_the_end(tmp_path: Path, sync: bool) -> None:
    path, before = tmp_path / "a.json", os.umask(0o022)
    path.write_bytes(b"old")
    try:
        with contextlib.suppress(KeyboardInterrupt), disk.replacing(path, sync=sync) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt
        assert path.read_bytes() == b"old"
        with disk.replacing(path, sync=sync) as stream:
            stream.write(b"new")
            assert path.read_bytes() == b"old"
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644  # read by whom the umask allows
    for name in ("missing/a.json", "a\0.json"):
        with pytest.raises((OSError, ValueError)), disk.replacing(tmp_path / name, sync=sync):
            pass
    assert [*tmp_path.iterdir()] == [path]


def test_what_a_killed_process_leaves_is_found_by_its_name(tmp_path: Path) -> None:
    script = "import os, pathlib\nfrom autopipe.hardware import disk\nwith disk.replacing(pathlib.Path('a.json')): {}"
    succeeded(python("-c", script.format("os._exit(0)"), cwd=tmp_path))
    (left,) = tmp_path.glob(f"*{disk.PART_SUFFIX}")
    assert left.name.startswith(".a.json.")
