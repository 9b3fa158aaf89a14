"""Make scenes of 6 bands out of the photographs that scikit-image ships, laid out as satellite scenes are.

demo/scenes/NAME.tif (1024x1024, 6 bands, uint16, tiles of 256 packed by deflate, 0 where there are no data) and
demo/classes/NAME_classes.tif (5 classes, uint8), beside this file. The same arguments give the same pixels, and nothing
is downloaded.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import skimage.data
import tifffile
from numpy.typing import NDArray

DEMO = Path(__file__).resolve().parent / "demo"
SIZE, TILE, CLASSES = 1024, 256, 5
_NODATA = (42113, "s", 0, "0", True)  # GDAL's tag


def scene_of(photo: NDArray[np.uint8], rng: np.random.Generator) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Return the bands (height, width, 6) and the classes (height, width) of a photograph, turned at random."""
    turned = np.ascontiguousarray(np.rot90(photo, int(rng.integers(4))))
    colours = cv2.resize(turned, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC).astype(np.float32) / 255
    red, green, blue = np.moveaxis(colours, 2, 0)
    mixed = [blue, green, red, 0.6 * red + 0.4 * green, 0.7 * green + 0.3 * blue, 1 - 0.5 * (red + blue)]
    bands = 300 + 4000 * np.stack(mixed, axis=-1) + rng.normal(0, 40, (SIZE, SIZE, 6))
    scene = np.clip(bands, 1, 10_000).astype(np.uint16)
    brightness = cv2.GaussianBlur(red + green + blue, (0, 0), 5)
    classes = np.digitize(brightness, np.quantile(brightness, [0.2, 0.4, 0.6, 0.8])).astype(np.uint8)
    beyond = np.add.outer(np.arange(SIZE), np.arange(SIZE)) < SIZE // 4  # a swath's edge
    scene[beyond] = 0
    return scene, classes


def make(folder: Path, count: int, seed: int = 0) -> int:
    """Write the set, in place of an older one, and return its number of scenes. A run that is cut leaves no half."""
    rng = np.random.default_rng(seed)
    unfinished = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    for name in ("scenes", "classes"):
        (unfinished / name).mkdir(parents=True)
    photos = [skimage.data.astronaut(), skimage.data.chelsea(), skimage.data.coffee(), skimage.data.rocket()]
    for number in range(count):
        scene, classes = scene_of(photos[number % len(photos)], rng)
        files: tuple[tuple[str, NDArray[Any], list[Any]], ...] = (
            (f"scenes/{number:02d}", scene, [_NODATA]),
            (f"classes/{number:02d}_classes", classes, []),
        )
        for name, pixels, tags in files:
            tifffile.imwrite(
                unfinished / f"{name}.tif",
                pixels,
                photometric="minisblack",
                planarconfig="contig" if pixels.ndim == 3 else None,
                tile=(TILE, TILE),
                compression="zlib",
                predictor=True,
                extratags=tags,
                metadata=None,
            )
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEMO, help="folder to write (default: %(default)s)")
    parser.add_argument("--count", type=int, default=8, help="scenes (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{make(arguments.out, arguments.count)} scenes in {arguments.out}")


if __name__ == "__main__":
    main()
