"""What `HDF5` refuses and makes of its columns, and its rows, which are the same however they lie in the file."""

from __future__ import annotations

import sys
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


# ---------------------------------------------------------------- rows

COUNT = 40
BYTES = h5py.vlen_dtype(np.uint8)


def image(number: int, size: int = 0) -> bytes:
    return bytes([number]) * (size or 700 * (1 + number % 9))


def written(path: Path, size: int = 0, userblock: int = 0, **settings: Any) -> Path:
    with h5py.File(path, "w", userblock_size=userblock) as file:
        x = file.create_dataset("x", COUNT, BYTES, **settings)
        for number in range(COUNT):
            x[number] = np.frombuffer(image(number, size), np.uint8)
        file["y"] = np.arange(COUNT)
    return path


LAYOUTS: dict[str, dict[str, Any]] = {
    "in one piece": {},
    "many in a heap": {"size": 20},
    "one in a heap": {"size": 70_000},
    "in chunks": {"chunks": (7,), "compression": "gzip"},
    "in chunks of one": {"chunks": (1,)},
    "that may grow": {"maxshape": (None,)},
    "behind a user block": {"userblock": 1024},
}


@pytest.mark.parametrize("settings", LAYOUTS.values(), ids=LAYOUTS)
def test_encoded_images_are_read_however_they_lie(settings: dict[str, Any], tmp_path: Path) -> None:
    data = HDF5(written(tmp_path / "set.h5", **settings))
    for number in range(COUNT):
        assert data.read(number) == (image(number, settings.get("size", 0)), number)


PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 2, 2, 3), np.uint8)
ARRAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "in one piece": (PIXELS, {}),
    "in chunks": (PIXELS, {"chunks": (7, 2, 2, 3), "compression": "gzip"}),
    "cut within rows": (PIXELS, {"maxshape": (None, 2, 2, 3), "chunks": (16, 1, 2, 3)}),
    "of other byte order": (PIXELS.astype(">f4"), {}),
    "truths": (PIXELS > 99, {}),
    "of one number each": (np.arange(COUNT) % 2 == 0, {}),
}


@pytest.mark.parametrize(("x", "settings"), ARRAYS.values(), ids=ARRAYS)
def test_arrays_are_read_however_they_lie(x: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w", userblock_size=512) as file:
        file.create_dataset("x", data=x, **settings)
        file.create_dataset("y", data=np.arange(COUNT), chunks=(5,), compression="gzip")
    data = HDF5(tmp_path / "set.h5")
    for number in range(COUNT):
        found, label = data.read(number)
        np.testing.assert_array_equal(found, x[number])
        assert label == number
    assert data.read(3)[0].dtype.isnative


def test_images_that_were_written_again_or_never_are_what_the_library_reads(tmp_path: Path) -> None:
    path = written(tmp_path / "set.h5")
    with h5py.File(path, "r+") as file:
        for number in range(0, COUNT, 3):
            file["x"][number] = np.frombuffer(image(number, 1 + 500 * number), np.uint8)
        file["x"][4] = np.empty(0, np.uint8)
        file.create_dataset("sparse", COUNT, BYTES, chunks=(4,))[1] = np.frombuffer(image(1), np.uint8)
        wanted = [[row.tobytes() for row in file[name]] for name in ("x", "sparse")]
    for name, images in zip(("x", "sparse"), wanted, strict=True):
        assert [HDF5(path, x=name, y=None).read(number) for number in range(COUNT)] == images


def test_a_damaged_chunk_spoils_its_own_rows_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "set.h5")
    with h5py.File(path, "r+") as file:
        labels = file.create_dataset("labels", data=np.arange(COUNT), chunks=(5,), compression="gzip")
        chunk = labels.id.get_chunk_info(3)
    with path.open("r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    data = HDF5(path, y="labels")
    assert data.read(14) == (image(14), 14)
    with pytest.raises(BadSampleError, match="read"):
        data.read(15)


def test_a_damaged_image_spoils_no_other(tmp_path: Path) -> None:
    path = written(tmp_path / "set.h5", size=70_000)
    content = path.read_bytes()
    at = content.index(image(COUNT - 1, 70_000))
    path.write_bytes(content[: at - 32] + b"\xff" * 32 + content[at:])  # the headers of its heap and of its object
    data = HDF5(path)
    assert data.read(0) == (image(0, 70_000), 0)
    with pytest.raises((BadSampleError, OSError)):
        data.read(COUNT - 1)


def test_rows_behind_an_external_link_are_those_of_the_linked_file(tmp_path: Path) -> None:
    x = np.arange(COUNT * 4, dtype=np.uint8).reshape(COUNT, 2, 2)
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        file["x"], file["y"] = x, np.arange(COUNT)
    with h5py.File(tmp_path / "master.h5", "w") as file:
        file["x"] = 255 - x  # at the same place, of the same kind
        file["there"] = h5py.ExternalLink("linked.h5", "/x")
        file["y"] = h5py.ExternalLink("linked.h5", "/y")
    data = HDF5(tmp_path / "master.h5", x="there")
    assert all(np.array_equal(data.read(number)[0], x[number]) for number in range(COUNT))


def test_a_file_that_is_read_cannot_be_opened_for_writing(tmp_path: Path) -> None:
    data = HDF5(written(tmp_path / "set.h5"))
    data.read(0)
    with pytest.raises(OSError, match="already open"):
        h5py.File(tmp_path / "set.h5", "r+")


def test_rows_that_cannot_be_read_do_not_count_in_the_mean_size(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        x = file.create_dataset("x", (COUNT, 8, 8), np.uint8, chunks=(10, 8, 8), compression="gzip")
        x[:] = np.arange(COUNT * 64, dtype=np.uint8).reshape(COUNT, 8, 8)
        file["y"] = np.arange(COUNT)
        place = x.id.get_chunk_info(1).byte_offset
    with (tmp_path / "set.h5").open("r+b") as damaged:
        damaged.seek(place)
        damaged.write(b"\xff" * 8)
    assert HDF5(tmp_path / "set.h5").mean_bytes() == 8 * 8 + 8
