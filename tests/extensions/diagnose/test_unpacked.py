"""What reads of packed arrays unpack beside what they use, counted by line: the advice that is given ends it."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import cv2
import h5py
import numpy as np
import PIL.Image
import pytest
import zarr

from autopipe.extensions.diagnose.unpacked import Decoded, Filtered, Unpacked, look_at_resizes

COUNT, SIZE = 64, 256  # 16 samples are as many bytes as HDF5 holds of an array


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for owner in (h5py.Dataset, np.lib.npyio.NpzFile, zarr.Array):
        monkeypatch.setattr(owner, "__getitem__", owner.__getitem__)  # it is given back
    monkeypatch.setattr(gzip.GzipFile, "close", gzip.GzipFile.close)
    monkeypatch.setattr(np, "load", np.load)
    found: list[str] = []
    for module in (h5py, np, zarr):
        Unpacked(lambda message, line: found.append(message)).look_at(module)
    return found


def images(path: Path, chunks: tuple[int, ...] | None, compression: str | None = "gzip") -> Any:
    with h5py.File(path, "w") as file:
        values = np.ones((COUNT, SIZE, SIZE), np.uint8)
        file.create_dataset("images", data=values, chunks=chunks, compression=compression)
    return h5py.File(path)["images"]


READS: dict[str, Callable[[Any, int], Any]] = {
    "one by one": lambda data, at: data[37 * at % COUNT],
    "lists": lambda data, at: data[[at, at + 16, at + 32]],
    "masks": lambda data, at: data[np.arange(COUNT) == 37 * at % COUNT],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_samples_that_are_picked_out_of_chunks_are_told_of_and_the_advice_ends_it(
    read: Callable[[Any, int], Any], told: list[str], tmp_path: Path
) -> None:
    for chunks in ((16, SIZE, SIZE), (1, SIZE, SIZE)):
        data = images(tmp_path / f"{chunks[0]}.h5", chunks)
        for at in range(16):
            read(data, at)
    (message,) = told
    assert "16 times" in message
    assert "chunks=(1, 256, 256)" in message


def test_windows_of_a_volume_get_chunks_of_their_shape(told: list[str], tmp_path: Path) -> None:
    data = images(tmp_path / "volume.h5", (16, SIZE, SIZE))
    for at in range(16):
        data[4 * (5 * at % 16), 2:4, 2:4]
    assert "chunks=(1, 2, 2)" in told[0]


ORDERLY: dict[str, Callable[[Any], Any]] = {
    "samples in order": lambda data: [data[at] for at in range(COUNT)],
    "whole chunks": lambda data: [data[16 * at : 16 * at + 16] for at in (3, 1, 2, 0) * 4],
    "everything": lambda data: [data[...] for _ in range(16)],
}


@pytest.mark.parametrize("read", ORDERLY.values(), ids=ORDERLY)
def test_what_uses_its_chunks_is_not_told_of(read: Callable[[Any], Any], told: list[str], tmp_path: Path) -> None:
    read(images(tmp_path / "images.h5", (16, SIZE, SIZE)))
    assert told == []


def test_chunks_that_hdf5_still_holds_are_not_unpacked_again(told: list[str], tmp_path: Path) -> None:
    data = images(tmp_path / "images.h5", (4, SIZE, SIZE))
    for at in range(32):
        data[5 * at % 16]  # of four chunks
    assert told == []


def test_chunks_that_are_not_packed_are_not_unpacked(told: list[str], tmp_path: Path) -> None:
    for name, chunks in (("whole", None), ("plain", (16, SIZE, SIZE))):
        data = images(tmp_path / f"{name}.h5", chunks, compression=None)
        for at in range(16):
            data[37 * at % COUNT]
    assert told == []


def test_reads_that_cannot_be_counted_are_as_unwatched(told: list[str], tmp_path: Path) -> None:
    values = np.zeros(32, [("image", np.uint8, (4,)), ("label", np.int32)])
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=values, chunks=(16,), compression="gzip")
        file["scalar"] = 3
        for _ in range(16):
            assert file["rows"]["label"].tolist() == [0] * 32
            assert file["rows"][0, "label"] == 0
            assert file["scalar"][()] == 3
    assert told == []


def test_an_npz_member_that_is_read_for_each_sample_is_told_of(told: list[str], tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "images.npz", images=np.zeros((2**20,), np.uint8), labels=np.zeros(8))
    file = np.load(tmp_path / "images.npz")
    for at in range(16):
        file["images"][at], file["labels"][at % 8]
    (message,) = told
    assert "`images`, 1 MB" in message


def test_files_of_one_sample_each_are_not_told_of(told: list[str], tmp_path: Path) -> None:
    for at in range(16):
        np.savez_compressed(tmp_path / f"{at}.npz", image=np.zeros((2**20,), np.uint8))
        np.load(tmp_path / f"{at}.npz")["image"]
    assert told == []


@pytest.mark.parametrize(("files", "mode", "is_told"), [(2, None, True), (8, None, False), (2, "r", False)])
def test_npy_files_that_are_read_again_and_again_are_told_of(
    files: int, mode: Literal["r"] | None, is_told: bool, told: list[str], tmp_path: Path
) -> None:
    for at in range(files):
        np.save(tmp_path / f"{at}.npy", np.zeros((4, 2**18), np.uint8))
    for at in range(24):
        np.load(tmp_path / f"{at % files}.npy", mmap_mode=mode)[at % 4]
    assert ["2 files" in message and "mmap_mode" in message for message in told] == [True] * is_told


@pytest.mark.parametrize("files", [2, 8])
@pytest.mark.parametrize("library", ["tifffile", "rasterio"])
def test_rasters_that_are_read_as_a_whole_again_and_again_are_told_of(
    library: str, files: int, told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = pytest.importorskip(library)
    owner, name = (module, "imread") if library == "tifffile" else (module.io.DatasetReader, "read")
    monkeypatch.setattr(owner, name, getattr(owner, name))
    Unpacked(lambda message, line: told.append(message)).look_at(module)
    warnings.filterwarnings("ignore", message="Dataset has no geotransform")
    for at in range(files):
        cv2.imwrite(str(tmp_path / f"{at}.tif"), np.zeros((1024, 1024), np.uint16))
    for at in range(24):
        path = tmp_path / f"{at % files}.tif"
        assert (module.imread(path) if library == "tifffile" else module.open(path).read(1)).shape == (1024, 1024)
    assert ["2 files" in each and "2 MB" in each and "read(window=...)" in each for each in told] == [True] * (
        files < 8
    )


def test_windows_of_a_zarr_array_are_told_of_if_its_chunks_are_much_larger(told: list[str], tmp_path: Path) -> None:
    for name, side in (("large", 256), ("fitting", 16)):
        scene = zarr.create_array(tmp_path / f"{name}.zarr", data=np.ones((SIZE, SIZE), "u2"), chunks=(side, side))
        for at in range(16):
            scene[16 * at : 16 * at + 16, 32:48]
    (message,) = told
    assert "256 times" in message
    assert "chunks=(16, 16)" in message


def test_windows_that_rasterio_reads_are_told_of_if_blocks_are_much_larger(
    told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rasterio = pytest.importorskip("rasterio")
    warnings.filterwarnings("ignore", message="Dataset has no geotransform")
    monkeypatch.setattr(rasterio.io.DatasetReader, "read", rasterio.io.DatasetReader.read)
    Unpacked(lambda message, line: told.append(message)).look_at(rasterio)
    for name, codec, sides in (("wide", "deflate", {}), ("tiled", "deflate", {"tiled": True}), ("plain", None, {})):
        values = np.ones((6, 1024, 1024), np.uint16)
        described = {"height": 1024, "width": 1024, "count": 6, "dtype": "uint16", "driver": "GTiff"}
        described |= {"compress": codec, "blockxsize": 128, "blockysize": 128} | sides if sides else {"compress": codec}
        with rasterio.open(tmp_path / f"{name}.tif", "w", interleave="pixel", **described) as file:
            file.write(values)
        for at in range(16):
            with rasterio.open(tmp_path / f"{name}.tif") as scene:
                window = rasterio.windows.Window(128 * (at % 8), 128 * (at // 8), 128, 128)
                assert scene.read(window=window).shape == (6, 128, 128)
        with rasterio.open(tmp_path / f"{name}.tif") as scene:
            for _ in range(16):  # GDAL holds these blocks
                scene.read(window=((0, 128), (0, 128)))
    (message,) = told
    assert "wide.tif" in message
    assert "8 times" in message
    assert "(128, 128)" in message


@pytest.mark.parametrize(
    ("each", "told_of"),
    [(3.4, True), (1.5, True), (2.0, False), (2.2, False), (1.0, False), (1.1, False)],
    ids=["skipped", "half as many", "pairs", "pairs that are ahead", "all", "a few"],
)
def test_images_that_are_decoded_and_not_trained_on_are_counted(
    each: float, told_of: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv2, "imdecode", cv2.imdecode)  # it is given back
    monkeypatch.setattr(cv2, "imread", cv2.imread)
    decoded, png = Decoded(), cv2.imencode(".png", np.zeros((2, 2), np.uint8))[1]
    decoded.look_at(cv2)
    for _ in range(round(each * 800)):
        cv2.imdecode(png, cv2.IMREAD_COLOR)
    said = decoded.dropped(800 - 8, 4)  # two batches are ahead
    assert [" images for each sample" in words for words in said] == [True] * told_of


@pytest.mark.parametrize("module", [cv2, PIL.Image])
@pytest.mark.parametrize(
    ("classes", "by_nearest", "said"),
    [(5, False, ["resizes an image of 5 values to "]), (5, True, []), (2, False, []), (200, False, [])],
)
def test_masks_that_are_resized_with_interpolation_are_told_of(
    module: Any, classes: int, by_nearest: bool, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = cv2 if module is cv2 else module.Image
    monkeypatch.setattr(owner, "resize", owner.resize)  # it is given back
    told = list[str]()
    look_at_resizes(module, lambda message, line: told.append(message))
    mask = np.random.default_rng(0).integers(0, classes, (40, 40), np.uint8) * np.uint8(255 // classes)
    for _ in range(3):
        if module is cv2:
            cv2.resize(mask, (9, 9), interpolation=cv2.INTER_NEAREST if by_nearest else cv2.INTER_LINEAR)
            cv2.resize(np.dstack([mask] * 3), (9, 9))  # a photograph
        else:
            PIL.Image.fromarray(mask).resize((9, 9), 0 if by_nearest else None)
            PIL.Image.new("RGB", (9, 9)).resize((3, 3))
    assert [each in message for each, message in zip(said, told, strict=True)] == [True] * len(said)


def volume_slice(path: Path, number: int) -> Any:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8).reshape(16, 256, 512)[number]


def test_slices_of_packed_volumes_that_are_unpacked_for_each_are_told_of(told: list[str], tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.nii.gz").write_bytes(gzip.compress(bytes(2**21), 1))
    for at in range(32):
        volume_slice(tmp_path / f"{'abc'[at % 3]}.nii.gz", at % 16)
    (message,) = told
    assert "has unpacked 3 files 8 times, `b.nii.gz` to 2 MB" in message


def test_files_of_gzip_that_are_read_once_or_in_part_are_not_told_of(told: list[str], tmp_path: Path) -> None:
    for at in range(16):
        path = tmp_path / f"{at}.gz"
        path.write_bytes(gzip.compress(bytes(2**21), 1))
        volume_slice(path, 0)
        for _ in range(4):
            with gzip.open(path) as file:
                file.read(348)
            with gzip.open(tmp_path / "log.gz", "wb") as file:
                file.write(b"line")
    with gzip.open(tmp_path / "none.gz", "wb") as file:
        file.close()
    assert told == []


def test_a_volume_that_nibabel_unpacks_for_each_slice_is_told_of(told: list[str], tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(np.random.default_rng(0).integers(0, 99, (128, 128, 64)).astype(np.int16), np.eye(4))
    nibabel.save(image, tmp_path / "scan.nii.gz")
    for at in range(16):
        nibabel.load(tmp_path / "scan.nii.gz").get_fdata()[:, :, at]
    (message,) = told
    assert "`scan.nii.gz` to 2 MB" in message


def test_samples_that_a_filter_of_grain_throws_away_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    grain = pytest.importorskip("grain")
    for kind in (grain.MapDataset, grain.IterDataset):
        monkeypatch.setattr(kind, "filter", kind.filter)  # it is given back

    class Even(grain.transforms.Filter):  # type: ignore[name-defined]  # imported only if it is there
        def filter(self, element: int) -> bool:
            return element % 2 == 0

    seen = Filtered(grain)
    numbers = grain.MapDataset.source(list(range(100)))
    even = numbers.filter(Even()).to_iter_dataset()
    assert list(even.filter(lambda number: number < 90)) == list(range(0, 90, 2))
    (said,) = seen.said()  # the second keeps nine of ten
    assert "50% of the samples" in said
