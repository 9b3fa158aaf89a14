"""Files as other programs write them: the pixels are those of tifffile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from autopipe.extensions.raster.windows import Windows

HIGH, WIDE = 70, 90
DEEP = np.random.default_rng(0).integers(0, 60_000, (HIGH, WIDE, 4)).astype(np.uint16)
# As smooth as photographs are, for codecs that lose some of it.
COLOURS = np.stack([np.add.outer(np.arange(HIGH), np.arange(WIDE) * n) % 200 for n in (1, 2, 1)], -1).astype(np.uint8)
TILE = {"tile": (32, 48)}
PACKED = TILE | {"compression": "zlib"}
PLANES = {"planarconfig": "separate", "byteorder": ">"}
PALETTE = np.arange(768, dtype=np.uint16).reshape(3, 256)


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
    "planes, predictor 2, big-endian": (np.moveaxis(DEEP, 2, 0), PACKED | PLANES | {"predictor": 2}),
    "predictor 3": (DEEP.astype(np.float32) / 7, PACKED | {"predictor": 3, "planarconfig": "contig"}),
    "predictor 3, planes, big-endian": (np.moveaxis(DEEP / 7, 2, 0), PACKED | PLANES | {"predictor": 3}),
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
    "palette": (COLOURS[..., 0], PACKED | {"photometric": "palette", "colormap": PALETTE}),
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
@pytest.mark.parametrize("packing", [PACKED, {"compression": None}], ids=["packed", "plain"])
def test_smaller_copies_and_a_mask_in_a_file_are_no_bands(
    scene: NDArray[Any], packing: dict[str, Any], tmp_path: Path
) -> None:
    options = packing | {"photometric": "rgb" if scene is COLOURS else "minisblack"}
    options |= {"planarconfig": "contig"} if scene.ndim == 3 else {}
    halves, mask = (scene[::2, ::2], scene[::4, ::4]), scene.reshape(HIGH, WIDE, -1)[..., 0] > 100
    for ome, path in ((False, tmp_path / "a.tif"), (True, tmp_path / "a.ome.tif")):
        with tifffile.TiffWriter(path, ome=ome) as file:
            file.write(scene, subifds=2, metadata={"axes": "YXS"[: scene.ndim]} if ome else None, **options)
            for each in halves:
                file.write(each, subfiletype=1, metadata=None, **options)
    with tifffile.TiffWriter(tmp_path / "gdal.tif") as file:  # which has both as pages behind the first
        for kind, array in ((0, scene), (4, mask), (1, halves[0]), (5, mask[::2, ::2]), (1, halves[1])):
            kinds = {"photometric": "minisblack"} | packing if kind & 4 else options
            file.write(array, subfiletype=kind, metadata=None, **kinds)
    for path in tmp_path.iterdir():
        assert assert_as_tifffile_reads_it(path).shape == (HIGH, WIDE, scene.size // (HIGH * WIDE))
