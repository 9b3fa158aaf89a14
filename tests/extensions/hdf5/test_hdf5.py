"""What `HDF5` refuses, and what it makes of its columns. Its contract is in test_contract.py."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from autopipe.errors import BadSampleError, DataError, MissingExtraError
from autopipe.extensions.hdf5.source import HDF5
from autopipe.workload.ops import geometry, planner
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload
from tests.fakes import damage


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match="`h5py` is not installed; the extra `hdf5` brings it"):
        HDF5("nowhere.h5")


def test_a_file_that_is_missing_or_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        HDF5("nowhere.h5")
    (tmp_path / "other").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="cannot be read as an HDF5 file"):
        HDF5(tmp_path / "other")


def test_arrays_that_are_not_there_and_lengths_that_differ_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["group/images"], file["labels"] = np.zeros((3, 2)), np.zeros(4)
    with pytest.raises(DataError, match=r"datasets are `group/images`, `labels`.*Did you mean `labels`"):
        HDF5(tmp_path / "set.h5", x="group/images", y="label")
    with pytest.raises(DataError, match="equally long"):
        HDF5(tmp_path / "set.h5", x="group/images", y="labels")
    with pytest.raises(DataError, match=r"equally long and not empty, but they are .*`labels` \(4,\)"):
        HDF5(tmp_path / "set.h5", x={"images": "group/images", "more": "labels"}, y=None)
    assert len(HDF5(tmp_path / "set.h5", x="group/images", y=None)) == 3


@pytest.mark.parametrize("dtype", ["S3", h5py.string_dtype()])
def test_texts_in_a_file_are_no_targets(tmp_path: Path, dtype: Any) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["x"] = np.zeros((2, 4, 4, 3), np.uint8)
        file.create_dataset("y", data=[b"cat", b"dog"], dtype=dtype)
    with pytest.raises(DataError, match=r"The dataset `y` of `.*` must hold numbers, but holds text.*numpy\.unique"):
        HDF5(tmp_path / "set.h5")


def test_columns_become_the_parts_that_a_model_wants(tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 2, 2, 3)
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["photos"], file["numbers"], file["price"] = pixels, np.zeros((4, 5), np.float32), np.arange(4)
    data = HDF5(tmp_path / "set.h5", {"numbers": "numbers", "image": "photos"}, "price", "price")
    plan = planner.make_plan(Workload(data=data, ops=[geometry.RandomFlip()], batch_size=2))
    assert plan.source.labels == ("x.image", "y", "x.numbers", "sample_weight")
    assert (plan.source.x.kind, plan.source.y and plan.source.y.kind) == (FieldKind.IMAGE, FieldKind.LABEL)
    pair = HDF5(tmp_path / "set.h5", ["photos", "numbers"], None)
    assert [part.shape for part in pair.read(0)[0]] == [(2, 2, 3), (5,)]
    assert planner.make_plan(Workload(data=pair, ops=[], batch_size=2)).source.labels == ("x.0", "y", "x.1")


def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3), np.arange(20)
    assert damage.unnamed(HDF5, tmp_path / "a.h5", tries=60) == []


def test_a_link_to_itself_is_refused_by_the_files_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.arange(20), h5py.SoftLink("/y")
    with pytest.raises(DataError, match=r"a\.h5"):
        HDF5(tmp_path / "a.h5")


@pytest.mark.parametrize(
    "x", [np.arange(48).reshape(12, 4).astype(">f4"), np.arange(48).reshape(12, 4) > 9, np.arange(12) % 2 == 0]
)
def test_rows_have_the_byte_order_of_this_machine(x: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["x"] = x
    data = HDF5(tmp_path / "set.h5", y=None)
    found = np.stack([data.read(number) for number in range(12)])
    np.testing.assert_array_equal(found, x)
    assert found.dtype.isnative


def test_a_damaged_chunk_spoils_its_own_rows_alone_which_do_not_count_in_the_mean_size(tmp_path: Path) -> None:
    x = np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8)
    with h5py.File(tmp_path / "set.h5", "w") as file:
        images = file.create_dataset("x", data=x, chunks=(10, 8, 8), compression="gzip")
        labels = file.create_dataset("y", data=np.arange(40), chunks=(5,), compression="gzip")
        places = [images.id.get_chunk_info(1), labels.id.get_chunk_info(5)]
    with (tmp_path / "set.h5").open("r+b") as raw:
        for place in places:
            raw.seek(place.byte_offset)
            raw.write(b"\xff" * place.size)
    data = HDF5(tmp_path / "set.h5")
    assert data.mean_bytes() == 8 * 8 + 8
    for number in range(40):
        if number in (*range(10, 20), *range(25, 30)):
            with pytest.raises(BadSampleError, match="read"):
                data.read(number)
        else:
            np.testing.assert_array_equal(data.read(number)[0], x[number])
            assert data.read(number)[1] == number


@pytest.mark.parametrize(("rows", "codec", "is_told"), [(64, "gzip", True), (1, "gzip", False), (64, None, False)])
def test_chunks_of_many_rows_are_told_with_a_shape(rows: int, codec: str | None, is_told: bool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        x = np.zeros((512, 64, 64, 2), np.uint16)
        file.create_dataset("x", data=x, chunks=(rows, 32, 64, 2), compression=codec)
        file.create_dataset("y", data=np.zeros(512), chunks=(256,), compression=codec)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        HDF5(tmp_path / "set.h5")
    assert ["unpacks 64 rows" in str(each.message) for each in told] == [True] * is_told
    assert all("chunks=(1, 64, 64, 2)" in str(each.message) for each in told)
