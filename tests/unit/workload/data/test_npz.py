"""What `NPZ` refuses. Its contract is in test_sources.py."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from autopipe.errors import DataError
from autopipe.workload.data.columns import NPZ
from tests.fakes import damage


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def of_numbers(path: Path) -> Path:
    np.savez_compressed(path, x=np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3), y=np.arange(20))
    return path


def test_what_is_no_archive_of_such_arrays_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        NPZ("nowhere.npz")
    (tmp_path / "other").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"cannot be read as a \.npz archive"):
        NPZ(tmp_path / "other")
    np.savez(tmp_path / "set.npz", x_train=np.zeros((3, 2)))
    with pytest.raises(DataError, match="no array `x`; its arrays are `x_train`"):
        NPZ(tmp_path / "set.npz", y=None)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("x", "no array")
    with pytest.raises(DataError, match="has no array `x`; its arrays are none"):
        NPZ(tmp_path / "photos.zip", y=None)


def test_an_array_of_objects_in_an_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((2, 3)), kinds=np.array([None, "cat"]))
    said = r"^The array `kinds` of `.*/set\.npz` must be one of plain numbers, but .*objects.* without objects"
    with pytest.raises(DataError, match=said):
        NPZ(tmp_path / "set.npz", y="kinds")


def test_a_changed_archive_is_unpacked_again(tmp_path: Path) -> None:
    for value in (1, 2):
        np.savez(tmp_path / "set.npz", x=np.full((3, 4 + value), value))
        np.testing.assert_array_equal(NPZ(tmp_path / "set.npz", y=None).read(2), np.full(4 + value, value))


def test_a_cache_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((3, 2)))
    (tmp_path / "cache").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataError, match=r"set\.npz.* cannot be unpacked into .*/cache/autopipe/.*Set XDG_CACHE_HOME"):
        NPZ(tmp_path / "set.npz", y=None)


def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(tmp_path: Path) -> None:
    assert damage.unnamed(NPZ, of_numbers(tmp_path / "a.npz"), tries=60) == []


def test_an_archive_of_a_later_version_is_refused_by_its_name(tmp_path: Path) -> None:
    whole = of_numbers(tmp_path / "a.npz").read_bytes()
    entry = whole.index(b"PK\1\2")  # of the directory; the version that it takes to read it stands 6 bytes behind
    (tmp_path / "a.npz").write_bytes(whole[: entry + 6] + b"\xff" + whole[entry + 7 :])
    with pytest.raises(DataError, match=r"a\.npz.*version 25\.5"):
        NPZ(tmp_path / "a.npz")
