"""Rows of arrays in memory, in .npy files and in .npz archives; their contract is in test_sources.py."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import DataError
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import FieldKind
from tests.fakes import damage

pytestmark = pytest.mark.usefixtures("cache")

IMAGES = np.arange(4 * 3 * 2 * 3, dtype=np.uint8).reshape(4, 3, 2, 3)
LABELS = np.array([3, 1, 4, 1])


def parts(data: ap.Arrays, index: int) -> tuple[Any, Any]:
    value = data.read(index)
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("in_file", [False, True])
def test_numbers_in_another_order_of_bytes_become_this_machines(tmp_path: Path, *, in_file: bool) -> None:
    x = np.arange(4 * 6 * 6, dtype=">u2").reshape(4, 6, 6, 1)
    np.save(tmp_path / "x.npy", x)
    data = ap.Arrays(tmp_path / "x.npy" if in_file else x, LABELS.astype(">i4"))
    plan = make_plan(ap.Workload(data=data, ops=[ap.Resize(3, 3)], batch_size=2))
    assert [plan.source.x.dtype, plan.source.y and plan.source.y.dtype] == [np.dtype("uint16"), np.dtype("int32")]
    value, _ = parts(data, 3)
    small, _ = ap.Resize(3, 3).apply((value, 1), plan.source, np.empty(0))
    np.testing.assert_array_equal(small, cv2.resize(x[3].astype(np.uint16), (3, 3))[..., None])
    assert data.spans is None  # the library does not turn them round


def test_several_inputs_without_y_are_x_alone() -> None:
    data = ap.Arrays((IMAGES, LABELS))
    value: Any = data.read(1)
    ((image, number),) = value
    np.testing.assert_array_equal(image, IMAGES[1])
    assert (number, data.y_kind) == (1, None)


def test_rows_cannot_be_written_to_and_the_users_array_still_can() -> None:
    mine = IMAGES.copy()
    x, _ = parts(ap.Arrays(mine, LABELS), 0)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 0
    mine[0] = 0


def test_an_array_that_maps_a_file_pickles_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.zeros((1000, 100), np.float32))
    pickled = pickle.dumps(ap.Arrays(np.load(file, mmap_mode="r")))
    data = pickle.loads(pickled)
    assert (len(pickled) < 1000, len(data), data.files()) == (True, 1000, [str(file)])
    assert not np.asarray(data.read(0)).flags.writeable


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_a_file_in_either_order_are_those_of_the_array(tmp_path: Path, order: Literal["C", "F"]) -> None:
    x = np.arange(7 * 30, dtype=np.int16).reshape(7, 5, 6)
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))
    for index in (0, 3, 6):
        row: Any = ap.Arrays(tmp_path / "x.npy").read(index)
        np.testing.assert_array_equal(row, x[index])
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 1


def test_a_part_of_a_mapped_file_and_changes_in_memory_pickle_with_their_content(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed += 1
    for rows, wanted in (
        (np.load(tmp_path / "x.npy", mmap_mode="r")[5:], [5, 6, 7, 8, 9]),
        (changed, list(range(1, 11))),
        (changed[:], list(range(1, 11))),
    ):
        data = pickle.loads(pickle.dumps(ap.Arrays(rows)))
        assert ([data.read(i) for i in range(len(data))], data.files()) == (wanted, [])


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (IMAGES, LABELS, (FieldKind.IMAGE, FieldKind.LABEL)),
        (IMAGES, IMAGES[..., 0], (FieldKind.IMAGE, FieldKind.MASK)),
        (IMAGES, IMAGES, (FieldKind.IMAGE, FieldKind.MASK)),
        (IMAGES, LABELS.astype("float32"), (FieldKind.IMAGE, FieldKind.ARRAY)),
        (IMAGES, np.eye(4, dtype=int), (FieldKind.IMAGE, FieldKind.ARRAY)),
        (IMAGES[..., 0], LABELS, (FieldKind.IMAGE, FieldKind.LABEL)),
        (np.zeros((4, 3, 2)), None, (FieldKind.ARRAY, None)),
        (np.zeros((4, 5, 5, 7)), None, (FieldKind.ARRAY, None)),
    ],
)
def test_kinds_follow_from_shapes_and_dtypes(x: NDArray[Any], y: NDArray[Any] | None, expected: object) -> None:
    data = ap.Arrays(x, y)
    assert expected == (data.x_kind, data.y_kind)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ([np.zeros((0, 3))], "at least one row of plain numbers"),
        ([np.array(3)], "at least one row of plain numbers"),
        ([np.array([object()])], "at least one row of plain numbers"),
        ([[1, 2, 3]], r"must be a NumPy array .*numpy\.asarray"),
        ([(IMAGES, LABELS[:3])], r"`x\.0` and `x\.1` must be equally long, but got 4 and 3 rows"),
        ([IMAGES[:2], {"kind": np.array(["a", "b"])}], r"`y\.kind` must hold numbers, but holds text\. .*numpy\.uni"),
        ([IMAGES[:2], np.array([b"a", b"b"])], "`y` must hold numbers, but holds text"),
        ([IMAGES, None, LABELS], r"`sample_weight` weights the loss of targets and needs `y`"),
    ],
)
def test_what_are_no_rows_of_numbers_is_refused(arrays: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        ap.Arrays(*arrays)


def test_the_digest_covers_shape_and_content() -> None:
    digests = {ap.Arrays(x).digest() for x in (IMAGES, IMAGES[:3], IMAGES + 1, IMAGES.astype("int16"))}
    assert len(digests) == 4
    assert ap.Arrays(IMAGES, LABELS).digest() != ap.Arrays(IMAGES, LABELS + 1).digest()
    assert ap.Arrays(IMAGES, LABELS).digest() == ap.Arrays(IMAGES.copy(), LABELS.copy()).digest()


def test_a_file_that_holds_no_single_array_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    with pytest.raises(DataError, match=r"x\.npy` does not exist"):
        ap.Arrays(file)
    for content in (b"", b"\x93NUMPY", b"no array at all", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4"):
        file.write_bytes(content)
        no_header = "it does not begin like one" if content[:6] != b"\x93NUMPY" else ""
        with pytest.raises(DataError, match=rf"must be a \.npy file.*cannot be read as one: {no_header}"):
            ap.Arrays(file)
    np.savez(tmp_path / "x.npz", a=LABELS)
    with pytest.raises(DataError, match="archive of several arrays"):
        ap.Arrays(tmp_path / "x.npz")


def of_numbers(path: Path) -> Path:
    np.savez_compressed(path, x=np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3), y=np.arange(20))
    return path


def test_what_is_no_archive_of_such_arrays_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        ap.NPZ("nowhere.npz")
    (tmp_path / "other").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"cannot be read as a \.npz archive"):
        ap.NPZ(tmp_path / "other")
    np.savez(tmp_path / "set.npz", x_train=np.zeros((3, 2)))
    with pytest.raises(DataError, match="no array `x`; its arrays are `x_train`"):
        ap.NPZ(tmp_path / "set.npz", y=None)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("x", "no array")
    with pytest.raises(DataError, match="has no array `x`; it has no arrays"):
        ap.NPZ(tmp_path / "photos.zip", y=None)


def test_an_array_of_objects_in_an_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((2, 3)), kinds=np.array([None, "cat"]))
    said = r"^The array `kinds` of `.*/set\.npz` must be one of plain numbers, but .*objects.* without objects"
    with pytest.raises(DataError, match=said):
        ap.NPZ(tmp_path / "set.npz", y="kinds")


def test_a_changed_archive_is_unpacked_again(tmp_path: Path) -> None:
    for value in (1, 2):
        np.savez(tmp_path / "set.npz", x=np.full((3, 4 + value), value))
        np.testing.assert_array_equal(ap.NPZ(tmp_path / "set.npz", y=None).read(2), np.full(4 + value, value))


@pytest.mark.parametrize("left", [0, 130])
def test_an_unpacked_array_that_a_power_cut_has_left_is_unpacked_again(tmp_path: Path, cache: Path, left: int) -> None:
    np.savez(tmp_path / "set.npz", x=np.arange(6).reshape(3, 2))
    ap.NPZ(tmp_path / "set.npz", y=None)
    (unpacked,) = cache.rglob("*.npy")
    os.truncate(unpacked, left)
    np.testing.assert_array_equal(ap.NPZ(tmp_path / "set.npz", y=None).read(2), (4, 5))


def test_a_cache_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((3, 2)))
    (tmp_path / "cache").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataError, match=r"set\.npz.* cannot be unpacked into .*/cache/autopipe/.*Set XDG_CACHE_HOME"):
        ap.NPZ(tmp_path / "set.npz", y=None)


def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(tmp_path: Path) -> None:
    assert damage.unnamed(ap.NPZ, of_numbers(tmp_path / "a.npz"), tries=60) == []


def test_an_archive_of_a_later_version_is_refused_by_its_name(tmp_path: Path) -> None:
    whole = of_numbers(tmp_path / "a.npz").read_bytes()
    entry = whole.index(b"PK\1\2")  # of the directory; the version that it takes to read it stands 6 bytes behind
    (tmp_path / "a.npz").write_bytes(whole[: entry + 6] + b"\xff" + whole[entry + 7 :])
    with pytest.raises(DataError, match=r"a\.npz.*version 25\.5"):
        ap.NPZ(tmp_path / "a.npz")
