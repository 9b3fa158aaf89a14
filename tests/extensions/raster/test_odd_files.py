"""Files as other programs write them: the pixels are those of tifffile and nibabel, or one sentence refuses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from autopipe.errors import DataError
from autopipe.extensions.raster.windows import Windows

HIGH, WIDE = 70, 90
DEEP = np.random.default_rng(0).integers(0, 60_000, (HIGH, WIDE, 4)).astype(np.uint16)
# As smooth as photographs are, for codecs that lose some of it.
COLOURS = np.stack([np.add.outer(np.arange(HIGH), np.arange(WIDE) * n) % 200 for n in (1, 2, 1)], -1).astype(np.uint8)
TILE = {"tile": (32, 48)}
PACKED = TILE | {"compression": "zlib"}


def assert_as_tifffile_reads_it(path: Path) -> NDArray[Any]:
    """Compare each window of a grid with the first level of what tifffile makes of the whole; return that."""
    whole: NDArray[Any] = tifffile.imread(path, series=0, level=0)
    with tifffile.TiffFile(path) as file:
        in_front = file.series[0].axes[0] not in "Y"
    wanted = whole[:, :, None] if whole.ndim == 2 else np.moveaxis(whole, 0, 2) if in_front else whole
    data = Windows(path, size=(33, 41))
    places = [(top, left) for top in (0, 33, HIGH - 33) for left in (0, 41, WIDE - 41)]
    assert len(data) == len(places)
    for number, (top, left) in enumerate(places):
        found = data.read(number)
        assert found.dtype == wanted.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, wanted[top : top + 33, left : left + 41], path.name)
    return wanted


TIFFS: dict[str, tuple[NDArray[Any], dict[str, Any]]] = {
    "alpha": (np.dstack([COLOURS, COLOURS[..., 0]]), PACKED | {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
    "alpha of 16 bits, as it is": (DEEP, {"photometric": "rgb", "extrasamples": ["assocalpha"]}),
    "planes, predictor 2, big-endian": (
        np.moveaxis(DEEP, 2, 0),
        PACKED | {"planarconfig": "separate", "predictor": 2, "byteorder": ">"},
    ),
    "predictor 3": (DEEP.astype(np.float32) / 7, PACKED | {"predictor": 3, "planarconfig": "contig"}),
    "predictor 3, planes, big-endian": (
        np.moveaxis(DEEP.astype(np.float64) / 7, 2, 0),
        PACKED | {"predictor": 3, "planarconfig": "separate", "byteorder": ">"},
    ),
    "JPEG of 4:2:0": (COLOURS, TILE | {"compression": "jpeg", "photometric": "ycbcr", "subsampling": (2, 2)}),
    "JPEG of RGB": (COLOURS, TILE | {"compression": "jpeg", "photometric": "rgb"}),
    "JPEG of grey, in strips": (COLOURS[..., 0], {"compression": "jpeg", "rowsperstrip": 16}),
    "JPEG 2000 of 16 bits": (DEEP[..., 0], TILE | {"compression": "jpeg2000"}),
    "WebP": (COLOURS, TILE | {"compression": "webp", "photometric": "rgb"}),
    "LERC": (DEEP[..., 0].astype(np.float32), TILE | {"compression": "lerc"}),
    "LZMA": (DEEP[..., 0], TILE | {"compression": "lzma"}),
    "PackBits": (COLOURS[..., 0], {"compression": "packbits"}),
    "12 bits in 16": (DEEP[..., 0] >> 4, PACKED),
    "12 bits packed": (DEEP[..., 0] >> 4, {"bitspersample": 12, "compression": None}),
    "1 bit": (COLOURS[..., 0] > 100, {"compression": None}),
    "1 bit, deflate": (COLOURS[..., 0] > 100, {"compression": "zlib", "rowsperstrip": 9}),
    "4 bits": (COLOURS[..., 0] >> 4, {"bitspersample": 4, "compression": None}),
    "white is 0": (COLOURS[..., 0], PACKED | {"photometric": "miniswhite"}),
    "palette": (
        COLOURS[..., 0],
        PACKED | {"photometric": "palette", "colormap": np.arange(768, dtype=np.uint16).reshape(3, 256)},
    ),
    "int8": (COLOURS[..., 0].astype(np.int8), PACKED),
    "float16": (COLOURS[..., 0].astype(np.float16), PACKED),
    "uint64 in pages": (np.moveaxis(DEEP, 2, 0).astype(np.uint64), PACKED),
    "bits the other way round": (COLOURS[..., 0], {"compression": None, "extratags": [(266, "H", 1, 2, True)]}),
}


@pytest.mark.parametrize("name", TIFFS)
def test_a_tiff_has_the_pixels_that_tifffile_reads(name: str, tmp_path: Path) -> None:
    array, options = TIFFS[name]
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, array, **{"photometric": "minisblack", "metadata": None} | options)
    assert_as_tifffile_reads_it(path)


@pytest.mark.parametrize("scene", [DEEP, DEEP[..., 0], COLOURS], ids=["bands", "grey", "colours"])
@pytest.mark.parametrize("ome", [False, True])
@pytest.mark.parametrize("packing", [PACKED, {"compression": None}], ids=["packed", "plain"])
def test_smaller_copies_and_a_mask_in_a_file_are_no_bands(
    scene: NDArray[Any], ome: bool, packing: dict[str, Any], tmp_path: Path
) -> None:
    photometric = "rgb" if scene is COLOURS else "minisblack"
    options = packing | {"photometric": photometric} | ({"planarconfig": "contig"} if scene.ndim == 3 else {})
    halves = scene[::2, ::2], scene[::4, ::4]
    path = tmp_path / ("a.ome.tif" if ome else "a.tif")
    with tifffile.TiffWriter(path, ome=ome) as file:
        file.write(scene, subifds=2, metadata={"axes": "YXS"[: scene.ndim]} if ome else None, **options)
        for each in halves:
            file.write(each, subfiletype=1, metadata=None, **options)
    assert assert_as_tifffile_reads_it(path).shape[2] == (scene.shape[2] if scene.ndim == 3 else 1)
    if ome:
        return
    mask = scene.reshape(HIGH, WIDE, -1)[..., 0] > 100
    with tifffile.TiffWriter(path) as file:  # as GDAL has both: pages behind the first
        for kind, array in ((0, scene), (4, mask), (1, halves[0]), (5, mask[::2, ::2]), (1, halves[1])):
            kinds = {"photometric": "minisblack"} | packing if kind & 4 else options
            file.write(array, subfiletype=kind, metadata=None, **kinds)
    assert assert_as_tifffile_reads_it(path).shape[2] == (scene.shape[2] if scene.ndim == 3 else 1)


def test_files_of_gdal_have_the_pixels_that_it_reads(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    described = {"height": 600, "width": 700, "count": 3, "dtype": "uint8", "crs": "EPSG:32633"}
    described |= {"transform": rasterio.Affine(10, 0, 0, 0, -10, 0)}
    scene = np.tile(np.moveaxis(COLOURS, 2, 0), (1, 9, 8))[:, :600, :700]
    for name, options in (
        ("cog", {"driver": "COG", "blocksize": 128, "compress": "deflate", "overview_count": 2}),
        ("jpeg", {"driver": "COG", "blocksize": 128, "compress": "jpeg"}),
        ("band", {"driver": "GTiff", "interleave": "band", "compress": "lzw", "tiled": True}),
        ("sparse", {"driver": "GTiff", "tiled": True, "SPARSE_OK": True, "nodata": 7, "compress": "zstd"}),
    ):
        path = tmp_path / f"{name}.tif"
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **described | options) as file:
            if name == "sparse":
                file.write(scene[:, :200, :200], window=((0, 200), (0, 200)))
            else:
                file.write(scene)
                file.write_mask(scene[0] > 50)
        data = Windows(path, size=(300, 350))
        with rasterio.open(path) as file:
            for number, (top, left) in enumerate((top, left) for top in (0, 300) for left in (0, 350)):
                wanted = np.moveaxis(file.read(window=((top, top + 300), (left, left + 350))), 0, 2)
                apart = np.abs(data.read(number).astype(int) - wanted)
                # Colours of a JPEG that has fewer of them are spread in another way.
                assert apart.mean() < 2 if name == "jpeg" else not apart.any(), name


def test_pixels_without_data_are_found_by_what_the_pixels_can_hold(tmp_path: Path) -> None:
    for dtype, text, held in (
        ("int16", "-32768", -32768),
        ("float32", "-3.4028234663852886e+38", np.finfo(np.float32).min),
        ("float32", "0.1", np.float32(0.1)),
        ("float32", "nan", np.nan),
        ("uint8", "-9999", None),
        ("uint16", "nan", None),
    ):
        array = np.array([[1, 2], [3, 4]]).astype(dtype)
        if held is not None:
            array[1, 0] = held
        tifffile.imwrite(
            tmp_path / "a.tif",
            array,
            compression="zlib",
            photometric="minisblack",
            extratags=[(42113, "s", 0, text, True)],
        )
        found = Windows(tmp_path / "a.tif", size=2, nodata=9).read(0)[..., 0]
        np.testing.assert_array_equal(found, np.where([[0, 0], [held is not None, 0]], 9, array), text)


def rgb_pages(path: Path) -> None:
    tifffile.imwrite(path, np.stack([COLOURS, COLOURS]), photometric="rgb")


def complex_numbers(path: Path) -> None:
    tifffile.imwrite(path, DEEP[..., 0].astype(np.complex64))


def deep_tiles(path: Path) -> None:
    tifffile.imwrite(
        path, np.zeros((32, 32, 32), np.uint8), tile=(16, 16, 16), volumetric=True, photometric="minisblack"
    )


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (rgb_pages, "must hold one raster.*2 pages"),
        (complex_numbers, "complex64"),
        (deep_tiles, "must hold one raster.*ZYX"),
    ],
)
def test_what_is_no_raster_is_refused(write: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    write(tmp_path / "a.tif")
    with pytest.raises(DataError, match=said):
        Windows(tmp_path / "a.tif", size=8)


def test_axes_of_one_of_a_nifti_volume_are_left_out(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    for shape in ((7, 6, 5, 1, 3), (7, 6, 5, 1), (7, 6, 5, 4), (7, 6, 1), (7, 6)):
        array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / "a.nii.gz")
        data = Windows(tmp_path / "a.nii.gz", size=(1, None, None))
        wanted = array.reshape(7, 6, shape[2] if len(shape) > 2 else 1, -1)
        found = np.stack([data.read(number) for number in range(len(data))])
        np.testing.assert_array_equal(found, wanted.transpose(2, 1, 0, 3))
    nibabel.save(nibabel.Nifti1Image(np.zeros((7, 6, 5, 2, 3), np.int16), np.eye(4)), tmp_path / "a.nii")
    with pytest.raises(DataError, match=r"must hold a volume.*\(3, 2, 5, 6, 7\)"):
        Windows(tmp_path / "a.nii", size=(1, None, None))
