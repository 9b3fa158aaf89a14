"""The contract of sources on HDF5 files; what `HDF5` refuses, and what it makes of its columns."""

import functools
import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from autopipe.errors import BadSampleError, DataError, MissingExtraError
from autopipe.extensions.hdf5.source import HDF5
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind, Source
from autopipe.workload.workload import Workload
from tests.contract import test_sources as contract
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import Case
from tests.fakes import damage

del test_every_source_of_the_core_is_here  # noqa: F821


def saved(path: Path, *, chunks: Any = None, **columns: Any) -> Path:
    """Write columns; images in bytes become arrays of several lengths, and `x` has these chunks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            if name == "image" and isinstance(values[0], bytes):
                images = np.empty(len(values), object)  # as h5py writes them at once
                images[:] = [np.frombuffer(each, np.uint8) for each in values]
                file.create_dataset(name, data=images, dtype=h5py.vlen_dtype(np.uint8))
            elif name == "x" and chunks:
                file.create_dataset(name, data=values, chunks=chunks)
            else:
                file[name.replace("__", "/")] = values
    return path


def hdf5(root: Path, count: int, chunks: Any = None) -> Source:
    x, y = contract.rows(count)
    return HDF5(saved(root / "set.h5", x=x, y=y, chunks=chunks))


def encoded_hdf5(root: Path, count: int) -> Source:
    images = [contract.image(number) for number in range(count)]
    return HDF5(saved(root / "set.h5", image=images, y=np.arange(count) * 7), "image")


def hdf5_of_several(root: Path, count: int) -> Source:
    columns = contract.columns_of_several(count)
    floats = {name: np.array(columns[name], np.float32) for name in ("features", "weight")}
    return HDF5(saved(root / "set.h5", **columns | floats), **contract.SEVERAL)


def hdf5_of_several_arrays(root: Path, count: int) -> Source:
    x, y = contract.rows(count)
    features, weight = np.arange(2 * count).reshape(count, 2), np.arange(count, dtype=np.float32)
    path = saved(root / "set.h5", pixels=x, label=y, features=features, weight=weight)
    return HDF5(path, x=["features", "pixels"], y={"kind": "label"}, sample_weight="weight")


CASES = {
    "HDF5": Case(hdf5, contract.row, "set.h5", None),
    "HDF5 in chunks": Case(functools.partial(hdf5, chunks=(4, 2, 2, 3)), contract.row, "set.h5", None),
    "HDF5 of several arrays": Case(hdf5_of_several_arrays, contract.of_several_arrays, "set.h5", None),
    "HDF5 of encoded images": Case(encoded_hdf5, lambda number: (contract.image(number), 7 * number), "set.h5", None),
    "HDF5 of several parts": Case(hdf5_of_several, contract.of_several, "set.h5", None),
}


IMAGES = np.zeros((3, 4, 4, 3), np.uint8)
SET: dict[str, Any] = {"group__images": IMAGES, "labels": np.zeros(4), "bytes": [b"cat"] * 3}
OTHERS: dict[str, Any] = {"link": h5py.SoftLink("/link"), "texts": np.array(["cat"] * 3, h5py.string_dtype())}
NO_NUMBERS = r"The dataset `{}` of `.*` must hold numbers, but holds text.*numpy\.unique"


@pytest.mark.parametrize(
    ("name", "x", "y", "said"),
    [
        ("nowhere.h5", "x", "y", "does not exist"),
        ("other", "x", "y", "cannot be read as an HDF5 file"),
        ("set.h5", "group/images", "label", r"datasets are .*`group/images`, .*`labels`.*Did you mean `labels`"),
        ("set.h5", "group/images", "labels", "equally long"),
        ("set.h5", {"a": "group/images", "b": "labels"}, None, r"equally long and not empty, but .*`labels` \(4,\)"),
        ("set.h5", "group/images", "bytes", NO_NUMBERS.format("bytes")),
        ("set.h5", "group/images", "texts", NO_NUMBERS.format("texts")),
        ("set.h5", "group/images", "link", r"set\.h5"),  # to itself
    ],
)
def test_what_cannot_be_read_is_named(
    name: str, x: Any, y: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").write_bytes(b"nothing of the kind")
    file = saved(tmp_path / "set.h5", **SET, **OTHERS)
    with pytest.raises(DataError, match=said):
        HDF5(tmp_path / name, x=x, y=y)
    assert len(HDF5(file, x="group/images", y=None)) == 3
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match="`h5py` is not installed; the extra `hdf5` brings it"):
        HDF5("nowhere.h5")


def test_columns_become_the_parts_that_a_model_wants(tmp_path: Path) -> None:
    columns = {"photos": IMAGES, "numbers": np.zeros((3, 5), np.float32), "price": np.arange(3)}
    file = saved(tmp_path / "set.h5", **columns)
    data = HDF5(file, {"numbers": "numbers", "image": "photos"}, "price", "price")
    source = planner.make_plan(Workload(data=data, ops=[], batch_size=2)).source
    assert source.labels == ("x.image", "y", "x.numbers", "sample_weight")
    assert (source.x.kind, source.y and source.y.kind) == (FieldKind.IMAGE, FieldKind.LABEL)
    pair = HDF5(file, ["photos", "numbers"], None)
    assert [part.shape for part in pair.read(0)[0]] == [(4, 4, 3), (5,)]
    assert planner.make_plan(Workload(data=pair, ops=[], batch_size=2)).source.labels == ("x.0", "y", "x.1")


@pytest.mark.parametrize("x", [np.arange(48).reshape(12, 4).astype(">f4"), np.arange(48).reshape(12, 4) > 9])
def test_rows_have_the_byte_order_of_this_machine(x: Any, tmp_path: Path) -> None:
    data = HDF5(saved(tmp_path / "set.h5", x=x), y=None)
    found = np.stack([data.read(number) for number in range(12)])
    np.testing.assert_array_equal(found, x)
    assert found.dtype.isnative


def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(tmp_path: Path) -> None:
    x = np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3)
    assert damage.unnamed(HDF5, saved(tmp_path / "a.h5", x=x, y=np.arange(20)), tries=60) == []


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
