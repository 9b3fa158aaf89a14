"""What every source is asked, and the paths of files behind it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.errors import BadSampleError, DataError
from autopipe.workload.data import source
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.paths import PathList, read_file, scan, spread, walk


class Own:
    """A user's source with nothing but the two methods."""

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> tuple[bytes, int]:
        return b"x" * index, index


class Described(Own):
    def digest(self) -> str:
        return "mine"

    def mean_bytes(self) -> float:
        return 3.5

    def files(self, indices: object) -> list[Path]:
        return [Path("/a/b.jpg")]


def test_a_source_with_two_methods_is_described_as_far_as_it_can_be() -> None:
    assert source.files(Own()) == []
    assert source.digest(Own()) == "type=Own count=8"
    assert source.mean_bytes(Own()) == (0 + 2 + 4 + 7) / 4 + np.asarray(0).nbytes


class Spoilt(Own):
    def read(self, index: int) -> tuple[bytes, int]:
        if index == 7:
            raise OSError("gone")
        return super().read(index)


def test_the_mean_size_is_of_the_samples_that_can_be_read() -> None:
    assert source.mean_bytes(Spoilt()) == (0 + 2 + 4) / 3 + np.asarray(0).nbytes


def test_what_a_source_says_of_itself_is_taken() -> None:
    assert source.files(Described(), [0]) == ["/a/b.jpg"]
    assert source.digest(Described()) == "mine"
    assert source.mean_bytes(Described()) == 3.5


def test_a_difference_names_the_parts() -> None:
    assert source.difference("files=3 sizes=a times=b", "files=3 sizes=c times=d") == "sizes, times"
    assert source.difference("a=1", "b=1") == "a, b"
    assert source.difference("a=1", "a=1") == ""
    assert source.difference("mine", "yours") == "mine, yours"


@pytest.mark.parametrize(
    ("digest", "left"),
    [
        ("files=3 sizes=a times=b mask_sizes=c mask_times=d", "files=3 sizes=a mask_sizes=c"),
        ("x_array=a x_time=1 y.kind_content=b y.kind_time=2 sample_weight_time=3 time=4", "x_array=a y.kind_content=b"),
        ("exposure_time=3 start_times=a timed=b", "exposure_time=3 start_times=a timed=b"),
    ],
)
def test_a_digest_without_times_lacks_those_of_files_alone(digest: str, left: str) -> None:
    assert source.undated(digest) == left


def test_the_time_of_a_file_is_known_whatever_its_part_is_called(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    data = Arrays({"left eye": tmp_path / "x.npy", "exposure_time": np.ones(4)}, np.zeros(4, np.int64))
    kept = source.undated(data.digest()).split()
    parts = ("x.left_eye", "x.exposure_time", "y")
    assert {each.partition("=")[0] for each in kept} == {
        f"{part}_{what}" for part in parts for what in ("array", "content")
    }


class Shifted(Arrays):
    """A user's own reading of what has a batch half."""

    def read(self, index: int) -> Any:
        sample: Any = super().read(index)
        return sample[0], sample[1] + 1


class Around:
    """A user's source that hands on whatever it does not do itself."""

    def __init__(self, inner: Arrays) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def read(self, index: int) -> Any:
        return self._inner.read(len(self) - 1 - index)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_a_batch_half_counts_only_beside_the_read_that_it_speaks_of() -> None:
    arrays = np.zeros((4, 2, 2, 3), np.uint8), np.arange(4)
    assert source.batch_half(Arrays(*arrays)) is not None
    assert source.batch_half(Shifted(*arrays)) is None
    assert source.batch_half(Around(Arrays(*arrays))) is None
    assert source.batch_half(Own()) is None


def write(path: Path, content: bytes = b"image") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_paths_come_back_as_they_were_given(tmp_path: Path) -> None:
    paths = PathList(tmp_path, [(b"", b"a.jpg"), (b"d/e", b"\xff.png"), (b"", b"b.jpg"), (b"/elsewhere", b"c.jpg")])
    root = os.fsencode(tmp_path)
    expected = [root + b"/a.jpg", root + b"/d/e/\xff.png", root + b"/b.jpg", b"/elsewhere/c.jpg"]
    assert expected == [paths.path(i) for i in range(4)]
    assert paths.text(0) == f"{tmp_path}/a.jpg"


def test_names_that_are_no_text_are_shown_in_letters_and_opened_as_they_are(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.jpg"
    paths = PathList(tmp_path, [(b"", b"caf\xe9.jpg")])
    shown = f"{tmp_path}/caf\\udce9.jpg"
    assert (paths.text(0), list(map(os.fsencode, paths.files()))) == (shown, [name])
    with pytest.raises(BadSampleError) as caught:
        paths.read(0)
    assert shown in str(caught.value)
    str(caught.value).encode()


def test_a_million_paths_pickle_below_40_bytes_each() -> None:
    entries = ((b"n%08d" % (k // 1300), b"n%08d_%d.JPEG" % (k // 1300, k)) for k in range(100_000))
    assert len(pickle.dumps(PathList("/x", entries))) < 40 * 100_000


@pytest.mark.timeout(20)
def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "linked.jpg").symlink_to(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name, kind in (("pipe", "named pipe"), ("linked", "named pipe"), ("folder", "folder")):
        with pytest.raises(BadSampleError, match=rf"{name}\.jpg` must be a regular file, but is a {kind}"):
            read_file(os.fsencode(tmp_path / f"{name}.jpg"))
    with pytest.raises(BadSampleError, match=r"must be a regular file, but is a device"):
        read_file(b"/dev/null")


def test_walk_goes_folder_by_folder_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "b/1.jpg", "a/3.jpg", "a/deep/4.jpg", "0.jpg"):
        write(tmp_path / name)
    found = [b"/".join(filter(None, entry)) for entry in walk(os.fsencode(tmp_path))]
    assert found == [b"0.jpg", b"a/3.jpg", b"a/deep/4.jpg", b"b/1.jpg", b"b/2.jpg"]


def test_walk_follows_links_and_ends_in_a_loop(tmp_path: Path) -> None:
    write(tmp_path / "real" / "1.jpg")
    write(tmp_path / "root" / "2.jpg")
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "root" / "loop").symlink_to(tmp_path / "root")
    found = list(walk(os.fsencode(tmp_path / "root")))
    assert found == [(b"", b"2.jpg"), (b"linked", b"1.jpg")]


@pytest.mark.parametrize("change", ["content", "name", "time", "more"])
def test_the_digest_tells_what_changed(tmp_path: Path, change: str) -> None:
    write(tmp_path / "a.jpg")
    write(tmp_path / "b.jpg")
    before = PathList(tmp_path, walk(os.fsencode(tmp_path))).digest()
    status = (tmp_path / "a.jpg").stat()
    if change == "content":
        write(tmp_path / "a.jpg", b"longer than before")
    elif change == "name":
        (tmp_path / "a.jpg").rename(tmp_path / "aa.jpg")
    elif change == "time":
        os.utime(tmp_path / "a.jpg", ns=(0, status.st_mtime_ns + 1))
    else:
        write(tmp_path / "c.jpg")
    after = PathList(tmp_path, walk(os.fsencode(tmp_path))).digest()
    changed = {part.split("=")[0] for part in set(before.split()) ^ set(after.split())}
    assert {"content": "sizes", "name": "names", "time": "times", "more": "files"}[change] in changed


def test_a_moved_folder_has_the_same_digest(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a.jpg")
    before = PathList(tmp_path / "old", walk(os.fsencode(tmp_path / "old"))).digest()
    (tmp_path / "old").rename(tmp_path / "new")
    assert before == PathList(tmp_path / "new", walk(os.fsencode(tmp_path / "new"))).digest()


def test_spread_includes_first_and_last() -> None:
    assert list(spread(3, 5)) == [0, 1, 2]
    assert list(spread(101, 3)) == [0, 50, 100]


def test_scan_sorts_and_leaves_out_what_is_hidden_or_no_image(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", ".hidden.jpg", "notes.txt", "z/x.jpg", "y/x.jpg", ".git/x.jpg", "c.jpg/inner.jpg"):
        write(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "gone")  # is listed wherever it leads
    assert scan(os.fsencode(tmp_path)) == ([b"a.png", b"b.JPG", b"broken.jpg"], [b"c.jpg", b"y", b"z"])


def test_scan_of_what_is_no_folder_names_the_nearest_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "a.jpg")
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"photo` does not exist. Did you mean `photos`\?"):
        scan(os.fsencode(tmp_path / "photo"))
    with pytest.raises(DataError, match="Not a directory"):
        scan(os.fsencode(tmp_path / "a.jpg"))
