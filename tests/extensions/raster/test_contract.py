"""The contract of sources, on windows of rasters and slices of volumes."""

import functools
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.extensions.raster.windows import Windows
from autopipe.workload.sample import Source
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import Case, Parts
from tests.extensions.raster.files import SLICES, saved

del test_every_source_of_the_core_is_here  # noqa: F821

HEIGHT, WIDTH = 2, 3


def pixels(count: int) -> NDArray[Any]:
    """Return a scene that holds `count` windows, one beside the other."""
    return np.arange(HEIGHT * WIDTH * count * 2, dtype=np.uint16).reshape(HEIGHT, WIDTH * count, 2)


def windows(root: Path, count: int, ending: str = ".npy", **options: Any) -> Source:
    return Windows(saved(root / f"scene{ending}", pixels(count), **options), size=(HEIGHT, WIDTH))


def in_pairs(root: Path, count: int, ending: str = ".npy") -> Source:
    """The first of two scenes or volumes holds most windows or slices."""
    for name, first, end in (("a", 0, count - 2), ("b", count - 2, count)):
        images = [image_of(number, count) for number in range(first, end)]
        image = np.concatenate(images, 1) if ending == ".npy" else np.stack(images)
        saved(root / "images" / f"{name}{ending}", image)
        saved(root / "masks" / f"{name}_mask{ending}", image[..., 0].astype(np.uint8))
    size: Any = (HEIGHT, WIDTH) if ending == ".npy" else SLICES
    return Windows(root / "images", root / "masks" / f"*_mask{ending}", size=size)


def several(root: Path, count: int) -> Source:
    image, mask = saved(root / "image.npy", pixels(count)), pixels(count)[..., 0].astype(np.uint8)
    height, target = saved(root / "height.npy", mask.astype(np.float32)), saved(root / "mask.npy", mask)
    return Windows({"image": image, "height": height}, {"kind": target}, size=(HEIGHT, WIDTH), bands={"image": (2, 1)})


def random(root: Path, count: int) -> Source:
    return Windows(saved(root / "scene.npy", pixels(50)), size=(HEIGHT, WIDTH), random=count)


def spoiled(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def image_of(number: int, count: int = 11) -> NDArray[Any]:
    return pixels(count)[:, number * WIDTH : (number + 1) * WIDTH]


def pair_of(number: int) -> Parts:
    return image_of(number), image_of(number)[..., 0].astype(np.uint8)


def several_of(number: int) -> Parts:
    image, mask = pair_of(number)
    return {"image": image[:, :, ::-1], "height": mask.astype(np.float32)[:, :, None]}, {"kind": mask}


def scene_in(ending: str, **options: Any) -> Case:
    file = "scene.zarr/zarr.json" if ending == ".zarr" else f"scene{ending}"
    make = functools.partial(windows, ending=ending, **options)
    return Case(make, lambda number: (image_of(number),), file, None)


def both_in(ending: str, cut: Any = os.remove) -> Case:
    return Case(functools.partial(in_pairs, ending=ending), pair_of, f"images/a{ending}", cut)


CASES = {
    "npy": scene_in(".npy"),
    "npz": scene_in(".npz"),
    "TIFF as it is": scene_in(".tif"),
    "TIFF in tiles": scene_in(".tif", tile=(16, 16), compression="zlib"),
    "TIFF in strips of planes": scene_in(".tif", planarconfig="separate", rowsperstrip=1, compression="lzw"),
    "Zarr": scene_in(".zarr", chunks=(2, 300, 1)),
    "images and masks": both_in(".npy"),
    "NIfTI": both_in(".nii"),
    "NIfTI, packed": both_in(".nii.gz", spoiled),
    "several parts": Case(several, several_of, "height.npy", None),
    "at random positions": Case(random, lambda number: (np.array([number, 0]),), "scene.npy", None),
}
