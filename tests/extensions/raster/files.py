"""Scenes and volumes, files that hold them, and what their windows must be."""

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import zarr
from numpy.typing import NDArray

from autopipe.extensions.raster.windows import Windows
from tests.fakes.nifti import nii

SCENE = np.random.default_rng(0).integers(0, 60_000, (70, 90, 6)).astype(np.uint16)
VOLUME = np.random.default_rng(0).integers(-900, 3000, (6, 20, 30)).astype(np.int16)
SLICES = (1, None, None)


def saved(path: Path, array: NDArray[Any] = SCENE, *, nodata: object = None, **options: Any) -> Path:
    """Write an array as the ending of its path says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".nii" in path.name:
        return nii(path, array, **options)
    if path.suffix == ".tif":
        chosen = {"photometric": "minisblack", "planarconfig": "contig"} | options
        if array.ndim == 2 or array.shape[2:] == (1,):
            array, chosen["planarconfig"] = array.reshape(array.shape[:2]), None
        tags = [] if nodata is None else [(42113, "s", 0, str(nodata), True)]
        array = np.moveaxis(array, 2, 0) if chosen["planarconfig"] == "separate" else array
        tifffile.imwrite(path, array, **{"extratags": tags} | chosen)
    elif path.suffix == ".zarr":
        zarr.create_array(path, data=array, **options)
    else:
        (np.save if path.suffix == ".npy" else np.savez_compressed)(path, array)
    return path


def tiled(path: Path, array: NDArray[Any] = SCENE, **options: Any) -> Path:
    return saved(path, array, **{"tile": (32, 16), "compression": "zlib"} | options)


def pieces(path: Path) -> tuple[int, ...]:
    """Return where the tiles or strips of a TIFF file begin."""
    with tifffile.TiffFile(path) as file:
        return tuple(file.pages.first.dataoffsets)


def slices_of(file: Path) -> Windows:
    return Windows(file, size=SLICES)


def every(data: Windows) -> list[Any]:
    return [data.read(number) for number in range(len(data))]


def assert_windows(data: Windows, scene: NDArray[Any] = SCENE) -> None:
    """Compare each window of a grid, the last of which are moved inside, with its place in the scene."""
    found = every(data)
    high, wide = found[0].shape[:2]
    tops, lefts = (
        [*range(0, whole - size, size), whole - size] for whole, size in zip(scene.shape[:2], (high, wide), strict=True)
    )
    wanted = [scene[top : top + high, left : left + wide] for top in tops for left in lefts]
    np.testing.assert_array_equal(found, wanted, strict=True)
    assert all(each.dtype.isnative for each in found)


def assert_same(wanted: Any, found: Any) -> None:
    """Compare arrays, one by one."""
    for first, second in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(first, second, strict=True)
