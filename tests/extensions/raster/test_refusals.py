"""Scenes, volumes and arguments that `Windows` refuses, each with its file's name: never other pixels in silence."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import random
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from autopipe.errors import BadSampleError, DataError, DataWarning, MissingExtraError
from autopipe.extensions.raster import nifti
from autopipe.extensions.raster.windows import Windows
from tests.extensions.raster.files import SCENE, SLICES, VOLUME, saved, slices_of, tiled
from tests.fakes import damage
from tests.fakes.nifti import header_of, nii

SPLIT = {"validation_split": 0.5, "subset": "training", "split_by": "window"}


CUBE = {"tile": (16, 16, 16), "volumetric": True, "photometric": "minisblack"}
HYPER = {"imagej": True, "metadata": {"axes": "ZCYX"}, "compression": None}
FILES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{f"{name}/a.tif": (SCENE[..., :2], {}) for name in ("bands", "dtype", "size", "nodata", "twice")},
    "bands/b.tif": (SCENE[..., :1], {}),
    "dtype/b.tif": (SCENE[..., :2].astype(np.int16), {}),
    "size/b.tif": (SCENE[:20, :30, :2], {}),
    "nodata/b.tif": (SCENE[..., :2], {"nodata": 5}),
    **dict.fromkeys(("x/a.tif", "pairs/a.tif", "pairs/b.tif", "twice/a.npy"), (SCENE, {})),
    "y/a.npy": (SCENE[:60, :, 0], {}),
    "row.npy": (np.zeros(5), {}),
    "complex.npy": (SCENE[..., 0].astype(np.complex64), {}),
    "pages.tif": (SCENE[None, :, :, :3].repeat(2, 0), {"photometric": "rgb"}),
    "cube.tif": (np.zeros((32, 32, 32), np.uint8), CUBE | {"planarconfig": None}),
    "hyper.tif": (np.zeros((4, 3, 8, 9), np.uint8), HYPER | {"planarconfig": None}),
    "volume.nii": (VOLUME, {}),
    "masks/volume.nii.gz": (VOLUME[:5], {}),
    "scaled/a.nii": (VOLUME, {}),
    "scaled/b.nii.gz": (VOLUME, {"slope": 2}),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are refused, alone or together."""
    root = tmp_path_factory.mktemp("places")
    for name, (array, options) in FILES.items():
        saved(root / name, array, **options)
    (root / "empty").mkdir()
    (root / "a.jp2").write_bytes(b"")
    np.savez(root / "two.npz", a=SCENE, b=SCENE)
    zarr.create_group(root / "group.zarr").create_array("0", data=SCENE)
    return root


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        ("bands", {}, r"same bands, but `.*a\.tif` has 2, and `.*b\.tif` has 1"),
        ("bands", {"bands": (2,)}, r"from 1 to 1 in `.*b\.tif`, but got 2"),
        ("dtype", {}, r"same dtype, but `.*a\.tif` has uint16, and `.*b\.tif` has int16"),
        ("nodata", {}, r"same nodata, but `.*a\.tif` has None, and `.*b\.tif` has 5\.0.* nodata=0 replaces"),
        ("size", {"size": 32}, r"size=\(32, 32\), and `.*b\.tif` has 20x30.*smaller windows"),
        ("x y", {}, r"70x90 as `.*a\.tif`, but `.*a\.npy` has 60x90"),
        ("pairs y", {}, r"needs its `y`, but 1 have none, such as `.*b\.tif`"),
        ("twice", {}, r"one raster of each scene, but .*a\.npy` and .*a\.tif` are"),
        ("empty", {}, "No scenes were found for `x`"),
        ("none.tif", {}, r"`.*none\.tif` does not exist"),
        ("a.jp2", {}, "must be a raster, by its ending"),
        ("two.npz", {}, r"two\.npz` must hold one array"),
        ("group.zarr", {}, r"group\.zarr` must be.* is a group; its arrays are 0.*\*\.zarr/0"),
        ("row.npy", {}, r"row\.npy`.* its shape is \(5,\)"),
        ("complex.npy", {}, r"complex\.npy`.* its dtype is complex64"),
        ("pages.tif", {}, r"pages\.tif` must hold one raster.*2 pages"),
        ("cube.tif", {}, r"cube\.tif` must hold one raster.*ZYX"),
        ("hyper.tif", {"size": SLICES}, r"hyper\.tif`.*ZCYX"),
        ("volume.nii masks/volume.nii.gz", {"size": SLICES}, r"6x20x30 as `.*nii`, but `.*gz` has 5x20x30"),
        ("scaled", {"size": SLICES}, r"has int16, and `.*b\.nii\.gz` has float32.*scale"),
        ("volume.nii", {}, r"holds a volume.*size of three"),
        ("volume.nii", {"size": (1, 1, 16)}, "`size` must be .* at most one axis of 1"),
        ("volume.nii", {"size": (1, 2, 3, 4)}, "`size` must be"),
        ("volume.nii", {"size": (0, 4, 4)}, "`size` must be"),
        ("volume.nii", {"size": (7, 4, 4)}, r"must fit.*\(7, 4, 4\), and `.*volume\.nii` has 6x20x30"),
        ("volume.nii", {"size": SLICES, "stride": (1, 1)}, "`stride` must be a whole number of pixels >= 1, or 3"),
        ("volume.nii", {"size": (1, 16, 16), "stride": (1, 8, 8)} | SPLIT, "do not overlap"),
        ("x", {"stride": 1} | SPLIT, "do not overlap"),
        ("x", {"stride": (1, 2, 3)}, "`stride` must be"),
        ("x", {"edge": "cut"}, "`edge` must be"),
        ("x", {"random": 0}, "`random` must be"),
        ("x", {"bands": (0, 1)}, "numbers from 1"),
        ("x", {"bands": {"z": (1,)}}, "`bands` must name parts, which are x, but got 'z'"),
        ("x", {"nodata": -1}, "`nodata` must be a value of uint16"),
        ("x", {"nodata": math.nan}, "`nodata` must be a value of uint16"),
        ("x", {"nodata": {"mask": 0}}, "`nodata` must name parts, which are x, but got 'mask'"),
        ("x", {"split_by": "pixel"}, "`split_by` must be"),
        ("x", {"validation_split": 0.2}, "given together"),
        ("x", {"validation_split": 0.2, "subset": "training"}, "leaves none"),
    ],
)
def test_what_is_no_scene_is_refused(names: str, options: dict[str, Any], said: str, places: Path) -> None:
    with pytest.raises(DataError, match=said):
        Windows(*[places / name for name in names.split()], **{"size": 16} | options)


def test_lists_of_scenes_are_of_one_length_and_not_empty(places: Path) -> None:
    image, nothing = places / "x" / "a.tif", list[Path]()
    for parts, said in (([[image, image], [image]], "equally long, but have 2 and 1"), ([nothing], "No scenes")):
        with pytest.raises(DataError, match=said):
            Windows(*parts, size=16)
    assert len(Windows(places / "bands", size=32, bands=(1,))) == 2 * 3 * 3  # a band that all have
    assert len(Windows(places / "*.zarr" / "0", size=16)) == 5 * 6


@pytest.mark.parametrize(
    ("crs", "left", "said"),
    [(32633, 505.0, None), (32633, 560.0, r"\(32633, 560.0, 90.0, 10.0\) in `.*y.tif`"), (32632, 500.0, "32632")],
)
def test_a_mask_that_lies_elsewhere_on_earth_is_told(crs: int, left: float, said: str | None, tmp_path: Path) -> None:
    for name, number, edge in (("x", 32633, 500.0), ("y", crs, left)):
        tags: list[Any] = [(33550, "d", 3, (10.0, 10.0, 0.0), True)]
        tags += [(33922, "d", 6, (0.0, 0.0, 0.0, edge, 90.0, 0.0), True)]
        tags += [(34735, "H", 8, (1, 1, 0, 1, 3072, 0, 1, number), True)]
        saved(tmp_path / f"{name}.tif", SCENE[..., 0], extratags=tags, compression="zlib")
    with pytest.warns(DataWarning, match=said) if said else contextlib.nullcontext():
        Windows(tmp_path / "x.tif", tmp_path / "y.tif", size=24)
    Windows(tmp_path / "x.tif", saved(tmp_path / "y.npy", SCENE[..., 0]), size=24)  # which does not say where it lies


def test_a_missing_library_or_codec_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Any:
        raise KeyError("LZW requires the 'imagecodecs' package")

    tiled(tmp_path / "a.tif", compression="lzw")
    zarr.create_array(tmp_path / "a.zarr", data=SCENE)
    with monkeypatch.context() as patch:
        patch.setattr(type(tifffile.TIFF.DECOMPRESSORS), "__getitem__", missing)
        with pytest.raises(DataError, match=r"compressed by LZW.*autopipe-tuner\[raster\]"):
            Windows(tmp_path / "a.tif", size=16)
    for module, name in (("tifffile", "a.tif"), ("zarr", "a.zarr")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=f"`{module}` is not installed; the extra `raster` brings it"):
            Windows(tmp_path / name, size=16)


# -------------------- volumes


def header(form: str, at: int, *values: float) -> bytes:
    """Return a volume whose header says something else in one place."""
    content = header_of((30, 20, 6), 4)
    struct.pack_into(form, content, at, *values)
    return bytes(content) + VOLUME.tobytes()


def dims(*values: int) -> bytes:
    return header("<8h", 40, *values, *[1] * (8 - len(values)))


TINY = bytes(header_of((1, 1, 1), 4))


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (dims(3, 32000, 32000, 32000), r"cut short.*\(32000, 32000, 32000\)"),
        (dims(7, *[32767] * 7), "cut short"),
        (dims(3, 30, -20, 6), r"damaged header.*\[3, 30, -20"),
        (dims(3, 30, 0, 6), "damaged header"),
        (dims(9), "damaged header"),
        (dims(5, 5, 4, 3, 2, 3), r"must hold a volume.*\(3, 2, 3, 4, 5\)"),
        (header("<h", 70, 128), "`datatype` is 128"),
        (header("<h", 70, 32), "`datatype` is 32"),
        *((header("<f", 108, each), f"begin at byte {each:.3g}") for each in (math.inf, math.nan, -352.0, 40.0)),
        (header("<f", 108, 1e12), "cut short"),
        (header("<2f", 112, math.inf, 0), "scales voxels by inf"),
        (header("<2f", 112, 2, math.nan), "scales voxels by 2.0 and nan"),
        (b"\x5c\x01\x00", "does not begin with a header"),
        (b"text that is no volume" * 50, "does not begin with a header"),
        (TINY.replace(b"n+1", b"ni1"), r"in one file.*ni1.*\.hdr and \.img"),
        (TINY.replace(b"n+1", b"\0\0\0"), "in one file"),
    ],
)
def test_headers_that_cannot_be_are_refused(content: bytes, said: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending == ".nii.gz" else content)
    with pytest.raises(DataError, match=said) as raised:
        slices_of(path)
    assert str(path) in str(raised.value)


def test_a_damaged_packed_volume_is_named_and_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, whole = list[str](), nifti.unpacked
    monkeypatch.setattr(nifti, "unpacked", lambda path, *given: unpacked.append(path) or whole(path, *given))  # type: ignore[func-returns-value]
    packed = nii(tmp_path / "a.nii.gz", VOLUME).read_bytes()
    flipped, checksum = bytearray(packed), bytearray(packed)
    flipped[len(packed) // 2] ^= 255
    checksum[-6] ^= 1
    path = tmp_path / "b.nii.gz"
    for content in (packed[: len(packed) // 2], gzip.compress(gzip.decompress(packed)[:4000]), flipped, checksum):
        path.write_bytes(content)
        data = slices_of(path)
        unpacked.clear()
        for index in range(3):
            with pytest.raises(BadSampleError, match=rf"b\.nii\.gz.*slices {index} to {index + 1}, rows 0 to 20"):
                data.read(index)
        assert len(unpacked) == 1
    path.write_bytes(b"not packed at all, but named so")
    with pytest.raises(DataError, match=r"b\.nii\.gz` cannot be read"):
        slices_of(path)
    data = slices_of(nii(tmp_path / "c.nii", VOLUME))
    os.truncate(tmp_path / "c.nii", 4000)
    with pytest.raises(BadSampleError, match=r"c\.nii` is cut short"):
        data.read(5)


# -------------------- damage


@pytest.mark.parametrize("name", ["a.tif", "b.tif", "a.npy", "a.npz", "a.nii", "a.nii.gz"])
def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(name: str, tmp_path: Path) -> None:
    path, scene = tmp_path / name, SCENE[:40, :40, :3]
    tiled(tmp_path / "a.tif", scene, tile=(16, 16))
    saved(tmp_path / "b.tif", scene, planarconfig="separate", compression="lzw", rowsperstrip=8)
    np.savez_compressed(saved(tmp_path / "a.npy", scene).with_suffix(".npz"), scene)
    nii(path, VOLUME) if ".nii" in name else None
    size = SLICES if ".nii" in name else 16
    assert damage.unnamed(lambda file: Windows(file, size=size), path, tries=60) == []


@pytest.mark.parametrize("version", [2, 3])
def test_whatever_is_wrong_with_a_zarr_array_is_told_with_its_name(version: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr", SCENE[:20, :20, :2], chunks=(10, 10, 2), zarr_format=version)
    chance = random.Random(2)
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        whole = file.read_bytes()
        for _ in range(10):
            content = bytearray(whole)
            content[chance.randrange(len(content))] = chance.randrange(256)
            file.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
            assert damage.is_named(lambda folder: Windows(folder, size=10), path)
        file.write_bytes(whole)


@given(st.data())
@settings(max_examples=60)
def test_whatever_a_tag_or_a_header_says_the_file_is_named_or_its_windows_are_read(data: st.DataObject) -> None:
    """Each change is to a tag or header itself, which random bytes seldom hit."""

    def changed(content: bytearray, first: int, last: int) -> None:
        content[data.draw(st.integers(first, last))] = data.draw(st.integers(0, 255))

    with tempfile.TemporaryDirectory() as folder:
        path = tiled(Path(folder) / "a.tif", SCENE[:32, :32, :2], tile=(16, 16))
        with tifffile.TiffFile(path) as file:
            tag = data.draw(st.sampled_from(list(file.pages.first.tags)))
        tagged = bytearray(path.read_bytes())
        changed(tagged, tag.offset, tag.offset + 11)
        path.write_bytes(tagged)
        assert damage.is_named(lambda file: Windows(file, size=8), path, lambda window: window.shape[:2] == (8, 8))
        header = header_of((5, 4, 3), 4, version=data.draw(st.sampled_from([1, 2])))
        for _ in range(data.draw(st.integers(1, 4))):
            changed(header, 0, len(header) - 1)
        header += bytes(data.draw(st.sampled_from([120, 60, 0])))
        for name, content in (("a.nii", header), ("a.nii.gz", gzip.compress(header, 1))):
            (Path(folder) / name).write_bytes(content)
            assert damage.is_named(slices_of, Path(folder) / name, lambda part: part.ndim == 3)
