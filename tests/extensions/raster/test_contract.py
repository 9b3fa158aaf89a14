"""The contract of sources, on windows of rasters and slices of volumes."""

from __future__ import annotations

import functools
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from autopipe.extensions.raster.windows import Windows
from autopipe.workload.sample import Source
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import Case, Parts
from tests.extensions.raster.test_windows import saved as npy
from tests.extensions.raster.test_windows import tiff as write_tiff
from tests.fakes.nifti import nii

del test_every_source_of_the_core_is_here  # noqa: F821

HEIGHT, WIDTH = 2, 3


def pixels(count: int, bands: int = 2) -> NDArray[Any]:
    """Return a scene that holds `count` windows, one beside the other."""
    return np.arange(HEIGHT * WIDTH * count * bands, dtype=np.uint16).reshape(HEIGHT, WIDTH * count, bands)


def masked(count: int) -> NDArray[Any]:
    return pixels(count, 1).astype(np.uint8)[:, :, 0]


def saved(path: Path, array: NDArray[Any], **options: Any) -> Path:
    if path.suffix == ".tif":
        return write_tiff(path, array, **options)
    if path.suffix == ".npy":
        return npy(path, array)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez_compressed(path, array)
    else:
        zarr.create_array(path, data=array, chunks=(2, 300, 1))
    return path


def windows(root: Path, count: int, ending: str = ".npy", **options: Any) -> Source:
    return Windows(saved(root / f"scene{ending}", pixels(count), **options), size=(HEIGHT, WIDTH))


def in_pairs(root: Path, count: int) -> Source:
    """The first of two scenes holds most windows."""
    for name, first, end in (("a", 0, count - 2), ("b", count - 2, count)):
        columns = slice(first * WIDTH, end * WIDTH)
        saved(root / "images" / f"{name}.npy", np.ascontiguousarray(pixels(count)[:, columns]))
        saved(root / "masks" / f"{name}_mask.npy", np.ascontiguousarray(masked(count)[:, columns]))
    return Windows(root / "images", root / "masks" / "*_mask.npy", size=(HEIGHT, WIDTH))


def several(root: Path, count: int) -> Source:
    image = saved(root / "image.npy", pixels(count))
    height = saved(root / "height.npy", masked(count).astype(np.float32))
    target = saved(root / "mask.npy", masked(count))
    return Windows({"image": image, "height": height}, {"kind": target}, size=(HEIGHT, WIDTH), bands={"image": (2, 1)})


def random(root: Path, count: int) -> Source:
    return Windows(saved(root / "scene.npy", pixels(50)), size=(HEIGHT, WIDTH), random=count)


def slices(root: Path, count: int, ending: str = ".nii") -> Source:
    """The first of two volumes holds most slices."""
    for name, first, end in (("a", 0, count - 2), ("b", count - 2, count)):
        volume = np.stack([pixels(count)[:, at * WIDTH : (at + 1) * WIDTH] for at in range(first, end)])
        nii(root / "images" / f"{name}{ending}", volume)
        nii(root / "masks" / f"{name}_seg{ending}", volume[..., 0].astype(np.uint8))
    return Windows(root / "images", root / "masks" / f"*_seg{ending}", size=(1, None, None))


def spoiled(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def image_of(number: int) -> NDArray[Any]:
    return pixels(11)[:, number * WIDTH : (number + 1) * WIDTH]


def mask_of(number: int) -> NDArray[Any]:
    return masked(11)[:, number * WIDTH : (number + 1) * WIDTH]


def one(number: int) -> Parts:
    return (image_of(number),)


def several_of(number: int) -> Parts:
    mask = mask_of(number)
    return {"image": image_of(number)[:, :, ::-1], "height": mask.astype(np.float32)[:, :, None]}, {"kind": mask}


def slice_of(number: int) -> Parts:
    return image_of(number), image_of(number)[..., 0].astype(np.uint8)


def tiff(**options: Any) -> Any:
    return functools.partial(windows, ending=".tif", **options)


STRIPS = tiff(planarconfig="separate", rowsperstrip=1, compression="lzw")
CASES = {
    "npy": Case(windows, one, "scene.npy", None),
    "npz": Case(functools.partial(windows, ending=".npz"), one, "scene.npz", None),
    "TIFF as it is": Case(tiff(planarconfig="contig"), one, "scene.tif", None),
    "TIFF in tiles": Case(tiff(planarconfig="contig", tile=(16, 16), compression="zlib"), one, "scene.tif", None),
    "TIFF in strips of planes": Case(STRIPS, one, "scene.tif", None),
    "Zarr": Case(functools.partial(windows, ending=".zarr"), one, "scene.zarr/zarr.json", None),
    "images and masks": Case(in_pairs, lambda number: (image_of(number), mask_of(number)), "images/a.npy", os.remove),
    "NIfTI": Case(slices, slice_of, "images/a.nii", os.remove),
    "NIfTI, packed": Case(functools.partial(slices, ending=".nii.gz"), slice_of, "images/a.nii.gz", spoiled),
    "several parts": Case(several, several_of, "height.npy", None),
    "at random positions": Case(random, lambda number: (np.array([number, 0]),), "scene.npy", None),
}
