"""`convert --to baseline`: a folder's progressive JPEG files rewritten, and whatever can happen meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import cv2
import filelock
import numpy as np
import pytest

from autopipe.errors import BadSampleError, ConfigError, DataError, StorageError
from autopipe.pipeline.storage import rewrite as rewriting
from autopipe.pipeline.storage.rewrite import Rewritten
from autopipe.workload.ops import progressive, region
from autopipe.workload.ops.decode import decode

pytestmark = pytest.mark.skipif(progressive.why_not() is not None, reason="needs a C compiler and libjpeg's headers")

SLOW = [f"{name}/{number}.jpg" for name in ("cat", "dog") for number in range(6)]
OTHERS = ["cat/9.jpg", "dog/9.png", "labels.csv"]
HIDDEN = ["cat/.DS_Store", ".git/1.jpg"]


def image(number: int, suffix: str, *settings: int) -> bytes:
    coarse = np.random.default_rng(number).integers(0, 256, (5, 6, 3), np.uint8)
    return bytes(cv2.imencode(suffix, cv2.resize(coarse, (61, 43), interpolation=cv2.INTER_CUBIC), settings)[1])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of progressive files, and others among them."""
    folder = tmp_path / "photos"
    for number, name in enumerate([*SLOW, *OTHERS, *HIDDEN]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = (cv2.IMWRITE_JPEG_PROGRESSIVE, int(name in SLOW))
        is_image = path.suffix in (".jpg", ".png")
        path.write_bytes(
            image(number, path.suffix, *(settings if path.suffix == ".jpg" else ())) if is_image else b"mine"
        )
        os.utime(path, ns=(10**18, 10**18 + number * 10**10))
    (folder / SLOW[0]).chmod(0o640)
    return folder


def rewrite(folder: Path, out: Path, **how: Any) -> Rewritten:
    return rewriting.rewrite((str(folder),), out, **{"workers": 2, **how})


def content(folder: Path) -> dict[str, bytes]:
    """The files at any depth but for hidden ones."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if "/." not in f"/{name}"}


@pytest.fixture
def whole(photos: Path, tmp_path: Path) -> dict[str, bytes]:
    """The files of an undisturbed run."""
    rewrite(photos, tmp_path / "undisturbed")
    return content(tmp_path / "undisturbed")


def failing(error: BaseException, after: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails after so many calls."""
    calls = iter(range(after))

    def call(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return function(*arguments)

    return call


def test_progressive_files_are_rewritten_and_all_others_linked_in_the_same_layout(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "photos"
    told: list[tuple[int, int]] = []
    found = rewrite(photos, out, on_progress=lambda done, of: told.append((done, of)))
    assert (found.rewritten, found.others, found.kept, found.left) == (len(SLOW), len(OTHERS), 0, ())
    assert found.folders == {str(photos): str(out)}
    assert (told[0], told[-1]) == ((0, 15), (15, 15))
    made = content(out)
    assert sorted(made) == sorted([*SLOW, *OTHERS])
    for name in SLOW:
        old = (photos / name).read_bytes()
        assert not progressive.is_progressive(made[name])
        np.testing.assert_array_equal(decode(made[name], 3), decode(old, 3))
        assert (out / name).stat().st_mtime_ns == (photos / name).stat().st_mtime_ns
    assert all((out / name).samefile(photos / name) for name in OTHERS)
    assert stat.S_IMODE((out / SLOW[0]).stat().st_mode) == 0o640


def test_a_second_run_writes_what_has_changed(photos: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out = tmp_path / "undisturbed"
    assert rewrite(photos, out).kept == 15
    (photos / SLOW[1]).write_bytes(image(99, ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1))
    (photos / OTHERS[0]).unlink()
    (photos / OTHERS[0]).write_bytes(b"another")
    (out / SLOW[2]).unlink()
    (out / SLOW[3]).write_bytes(b"")  # as a power cut may leave it
    os.utime(out / SLOW[3], ns=(10**18, (photos / SLOW[3]).stat().st_mtime_ns))
    found = rewrite(photos, out)
    assert (found.rewritten, found.others, found.kept) == (3, 1, 11)
    made = content(out)
    assert made[OTHERS[0]] == b"another"
    assert {name for name in made if made[name] != whole[name]} == {SLOW[1], OTHERS[0]}


def test_what_was_finished_before_a_failure_is_kept(
    photos: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new"
    for error in (MemoryError(), KeyboardInterrupt()):
        with monkeypatch.context() as patch:
            patch.setattr(progressive, "rewritten", failing(error, 4, progressive.rewritten))
            with pytest.raises(type(error)):
                rewrite(photos, out, workers=1)
        assert not list(out.rglob("*.part"))
    (out / "cat" / ".1-2.part").write_bytes(b"half")  # of a run that was killed
    found = rewrite(photos, out)
    assert found.kept >= 8
    assert found.kept + found.rewritten + found.others == 15
    assert content(out) == whole
    assert not list(out.rglob("*.part"))


def test_a_full_disk_is_named_and_finished_files_stay(
    photos: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, full = tmp_path / "new", OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", failing(full, 3, shutil.copyfileobj))
        with pytest.raises(StorageError, match=r"disk is full.* after 3 of 15 files\. These are kept"):
            rewrite(photos, out, workers=1)
    assert len(content(out)) == rewrite(photos, out).kept == 3
    assert content(out) == whole


def test_nothing_is_begun_without_room(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)  # of which records take all
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(StorageError, match="must have room for the set"):
        rewrite(photos, tmp_path / "new")
    assert content(tmp_path / "new") == {}


def test_on_another_disk_the_others_are_copied(
    photos: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> NoReturn:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    out = tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        assert rewrite(photos, out).others == len(OTHERS)
    assert not any((out / name).samefile(photos / name) for name in OTHERS)
    assert content(out) == whole
    assert rewrite(photos, out).kept == 15


def test_a_damaged_file_is_left_as_it_is_and_named(photos: Path, tmp_path: Path) -> None:
    damaged = photos / SLOW[1]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    (photos / SLOW[2]).write_bytes(b"")
    found = rewrite(photos, tmp_path / "new")
    assert (found.rewritten, found.left) == (10, (str(damaged),))
    assert [(tmp_path / "new" / name).read_bytes() for name in SLOW[1:3]] == [damaged.read_bytes(), b""]


@pytest.mark.parametrize("kind", ["broken link", "link to a pipe"])
def test_what_a_training_could_not_read_is_named(photos: Path, tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (photos / "cat" / "broken.jpg").symlink_to("nowhere.jpg" if kind == "broken link" else tmp_path / "pipe")
    (photos / "cat" / "notes").symlink_to("nowhere")  # no image: nobody reads it
    os.mkfifo(photos / "cat" / "pipe.jpg")  # no file: no source counts it
    with pytest.raises(
        BadSampleError, match=rf"`{photos}/cat/broken\.jpg` (cannot be read: No such|must be a regular)"
    ):
        rewrite(photos, tmp_path / "new")


def test_links_are_followed_and_each_folder_is_read_once(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").symlink_to(photos / "cat")
    (photos / "cat" / "again").symlink_to(photos / "cat")
    (tmp_path / "set" / "one.jpg").symlink_to(photos / SLOW[0])
    rewrite(tmp_path / "set", tmp_path / "new")
    made = content(tmp_path / "new")
    assert sorted(made) == sorted([*(f"a/{number}.jpg" for number in (0, 1, 2, 3, 4, 5, 9)), "one.jpg"])
    assert not any(path.is_symlink() for path in (tmp_path / "new").rglob("*"))
    assert made["one.jpg"] == made["a/0.jpg"]


def test_a_name_that_is_no_text_or_as_long_as_can_be_is_kept(photos: Path, tmp_path: Path) -> None:
    names = [os.fsdecode(b"caf\xe9.jpg"), f"{'a' * 251}.jpg"]
    for name in names:
        shutil.copy(photos / SLOW[0], photos / "cat" / name)
    assert rewrite(photos, tmp_path / "new").rewritten == len(SLOW) + 2
    assert all((tmp_path / "new" / "cat" / name).is_file() for name in names)


def test_several_folders_keep_their_places_beside_each_other(photos: Path, tmp_path: Path) -> None:
    folders = (str(photos / "cat"), str(photos / "dog"))
    found = rewriting.rewrite(folders, tmp_path / "new")
    assert found.folders == {folder: str(tmp_path / "new" / Path(folder).name) for folder in folders}
    assert sorted(content(tmp_path / "new")) == sorted([*SLOW, *OTHERS[:2]])


@pytest.mark.parametrize(
    ("out", "said"), [("photos", "must not be"), ("photos/cat/new", "must not lie in"), (".", "must not hold"),
                      ("link", "must not be")]
)  # fmt: skip
def test_a_folder_that_is_not_apart_from_the_originals_is_refused(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(photos)
    before = content(photos)
    with pytest.raises(ConfigError, match=f"{said} the one of the originals, but got"):
        rewrite(photos, Path(out))
    assert content(photos) == before


def test_a_folder_of_other_files_is_refused_and_left_as_it_is(photos: Path, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "new", tmp_path / "others"
    out.mkdir()
    (out / "cat").write_bytes(b"mine")
    with pytest.raises(StorageError, match=r"must hold nothing else, but .* has 1 other files: `cat`"):
        rewrite(photos, out)
    assert content(out) == {"cat": b"mine"}
    shutil.copytree(photos, elsewhere)
    rewrite(photos, tmp_path / "of photos")
    with pytest.raises(StorageError, match=f"holds the rewritten files of `{photos}`, not of `{elsewhere}`"):
        rewrite(elsewhere, tmp_path / "of photos")
    (photos / SLOW[0]).unlink()
    with pytest.raises(StorageError, match=r"1 files that are not among the originals; the first is `.*/cat/0\.jpg`"):
        rewrite(photos, tmp_path / "of photos")


def test_a_folder_that_another_run_writes_to_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with (
        filelock.FileLock(tmp_path / "new" / ".lock-0-of-1"),
        pytest.raises(StorageError, match="Another conversion is at work"),
    ):
        rewrite(photos, tmp_path / "new")


def test_a_missing_folder_or_one_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        rewrite(tmp_path / "photos", tmp_path / "new")
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match="There are no files in"):
        rewrite(tmp_path / "photos", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_without_a_compiler_what_is_missing_is_named(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region, "compiled", lambda: "region.c cannot be compiled: no compiler")
    with pytest.raises(
        ConfigError, match=r"No JPEG can be rewritten here: .*no compiler\. First install .*libjpeg-dev"
    ):
        rewrite(photos, tmp_path / "new")
    assert not (tmp_path / "new").exists()
