"""What every source is asked, and the paths of files behind it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, DataError
from autopipe.workload.data import source
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.paths import PathList, read_file, scan, walk


class Own:
    """A user's source with nothing but the two methods."""

    gone: int | None = None

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> tuple[bytes, int]:
        if index == self.gone:
            raise OSError("gone")
        return b"x" * index, index


class Described(Own):
    def digest(self) -> str:
        return "mine"

    def mean_bytes(self) -> float:
        return 3.5

    def files(self, indices: object) -> list[Path]:
        return [Path("/a/b.jpg")]


def test_a_source_is_described_as_far_as_it_can_be_and_as_it_says_itself() -> None:
    assert (source.files(Own()), source.digest(Own())) == ([], "type=Own count=8")
    assert source.mean_bytes(Own()) == (0 + 2 + 4 + 7) / 4 + np.asarray(0).nbytes
    spoilt = Own()
    spoilt.gone = 7
    assert source.mean_bytes(spoilt) == (0 + 2 + 4) / 3 + np.asarray(0).nbytes  # of what can be read
    assert (source.files(Described(), [0]), source.digest(Described())) == (["/a/b.jpg"], "mine")
    parts = (np.zeros((4, 4, 3)), np.zeros(5))  # of other shapes
    assert source.sample_bytes((parts, b"ab")) == source.sample_bytes(({"a": parts[0], "b": parts[1]}, b"ab")) == 426
    assert source.mean_bytes(Described()) == 3.5


def test_a_difference_names_the_parts_and_a_digest_without_times_lacks_those_of_files_alone(tmp_path: Path) -> None:
    assert source.difference("files=3 sizes=a times=b", "files=3 sizes=c times=d") == "sizes, times"
    assert [source.difference(*pair) for pair in (("a=1", "b=1"), ("a=1", "a=1"), ("m", "y"))] == ["a, b", "", "m, y"]
    digest = "files=3 sizes=a times=b mask_sizes=c mask_times=d exposure_time=3 start_times=a timed=b"
    assert source.undated(digest) == "files=3 sizes=a mask_sizes=c exposure_time=3 start_times=a timed=b"
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    data = Arrays({"left eye": tmp_path / "x.npy", "exposure_time": np.ones(4)}, np.zeros(4, np.int64))
    kept = {each.partition("=")[0] for each in source.undated(data.digest()).split()}
    parts = ("x.left_eye", "x.exposure_time", "y")
    assert kept == {f"{part}_{what}" for part in parts for what in ("array", "content")}


class Shifted(Arrays):
    def read(self, index: int) -> Any:
        return super().read(3 - index)


class Around(Own):
    """A user's source that hands on whatever it does not do itself."""

    inner = Arrays(np.zeros((4, 2, 2, 3), np.uint8), np.arange(4))

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_spans_count_only_beside_the_read_that_they_speak_of() -> None:
    assert source.spans_half(Around.inner) is not None
    others: list[Any] = [Shifted(np.zeros((4, 2, 2, 3), np.uint8), np.arange(4)), Around(), Own()]
    assert [source.spans_half(other) for other in others] == [None] * 3


def write(path: Path, content: bytes = b"image") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_paths_come_back_as_they_were_given_and_are_shown_in_letters(tmp_path: Path) -> None:
    names = [(b"", b"a.jpg"), (b"d/e", b"\xff.png"), (b"", b"caf\xe9.jpg"), (b"/elsewhere", b"c.jpg")]
    paths, root = PathList(tmp_path, names), os.fsencode(tmp_path)
    expected = [root + b"/a.jpg", root + b"/d/e/\xff.png", root + b"/caf\xe9.jpg", b"/elsewhere/c.jpg"]
    assert expected == [paths.path(i) for i in range(4)] == list(map(os.fsencode, paths.files()))
    shown = f"{tmp_path}/caf\\udce9.jpg"
    assert (paths.text(0), paths.text(2)) == (f"{tmp_path}/a.jpg", shown)
    with pytest.raises(BadSampleError) as caught:
        paths.read(2)
    assert shown.encode() in str(caught.value).encode()


@pytest.mark.timeout(20)
def test_walk_goes_in_sorted_order_follows_links_and_ends_in_a_loop_and_only_regular_files_are_read(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "linked.jpg").symlink_to(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name, kind in (("pipe", "named pipe"), ("linked", "named pipe"), ("folder", "folder")):
        with pytest.raises(BadSampleError, match=rf"{name}\.jpg` must be a regular file, but is a {kind}"):
            read_file(os.fsencode(tmp_path / f"{name}.jpg"))
    with pytest.raises(BadSampleError, match=r"must be a regular file, but is a device"):
        read_file(b"/dev/null")
    for name in ("root/b/2.jpg", "root/b/1.jpg", "root/a/3.jpg", "root/a/deep/4.jpg", "root/0.jpg", "real/5.jpg"):
        write(tmp_path / name)
    (tmp_path / "root" / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "root" / "loop").symlink_to(tmp_path / "root")
    found = [b"/".join(filter(None, entry[:2])) for entry in walk(os.fsencode(tmp_path / "root"))]
    assert found == [b"0.jpg", b"a/3.jpg", b"a/deep/4.jpg", b"b/1.jpg", b"b/2.jpg", b"linked/5.jpg"]


def test_the_digest_tells_what_changed_and_stays_where_a_folder_moves(tmp_path: Path) -> None:
    def digest(folder: str = "old") -> str:
        return PathList(tmp_path / folder, walk(os.fsencode(tmp_path / folder))).digest()

    write(tmp_path / "old/a.jpg")
    write(tmp_path / "old/b.jpg")
    for change, told in (
        (lambda: write(tmp_path / "old/a.jpg", b"longer than before"), "sizes"),
        (lambda: (tmp_path / "old/a.jpg").rename(tmp_path / "old/aa.jpg"), "names"),
        (lambda: os.utime(tmp_path / "old/b.jpg", ns=(0, 1)), "times"),
        (lambda: write(tmp_path / "old/c.jpg"), "files"),
    ):
        before = digest()
        change()
        assert told in source.difference(before, digest())
    before = digest()
    (tmp_path / "old").rename(tmp_path / "new")
    assert before == digest("new")


def test_scan_sorts_leaves_out_what_is_hidden_or_no_image_and_names_what_is_beside_what_is_no_folder(
    tmp_path: Path,
) -> None:
    for name in ("b.JPG", "a.png", ".hidden.jpg", "notes.txt", "z/x.jpg", "y/x.jpg", ".git/x.jpg", "c.jpg/inner.jpg"):
        write(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "gone")  # is listed wherever it leads
    assert scan(os.fsencode(tmp_path)) == ([b"a.png", b"b.JPG", b"broken.jpg"], [b"c.jpg", b"y", b"z"])
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"photo` does not exist. Did you mean `photos`\?"):
        scan(os.fsencode(tmp_path / "photo"))
    with pytest.raises(DataError, match=r"a\.png` must be a folder, but is a file"):
        scan(os.fsencode(tmp_path / "a.png"))


@pytest.mark.parametrize("made", [ap.ImageFolder, ap.NPZ, ap.Table, ap.TFRecords])
def test_what_is_no_path_and_a_key_or_a_suffix_that_is_no_text_are_refused_in_words(made: Any) -> None:
    for place in (None, 3, b"photos"):
        with pytest.raises(DataError, match=r"must be text or a pathlib\.Path, but got"):
            made(place)
    with pytest.raises(DataError, match=r"must be text .*frame\.to_csv\("):
        made(SimpleNamespace(to_csv=print))
    for option in ("image_key", "label_key", "mask_key"):
        with pytest.raises(DataError, match=f"`{option}` must be the key of a feature, as text, but got 3"):
            ap.TFRecords("train-*", **{option: 3})  # type: ignore[arg-type]
    for option in ("image_suffix", "mask_suffix"):
        with pytest.raises(DataError, match=rf"`{option}` must be text, .* but got 3"):
            ap.ImagePairs("images", "masks", **{option: 3})  # type: ignore[arg-type]
