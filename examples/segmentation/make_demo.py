"""Cut image and mask pairs out of the photographs that scikit-image ships, laid out as CamVid is.

demo/images/NUMBER.png and demo/masks/NUMBER.png (960x720; each mask names a pixel's class by a colour) and
demo/palette.csv (red,green,blue of one class a line, 32 lines), beside this file. A pixel's class follows from the
colours around it. The same arguments give the same pixels, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import cv2
import numpy as np
import skimage.data
from numpy.typing import NDArray

DEMO = Path(__file__).resolve().parent / "demo"
CLASSES = 32
WIDTH, HEIGHT = 960, 720


def photographs() -> list[NDArray[np.uint8]]:
    """Return the photographs, as RGB."""
    return [
        skimage.data.astronaut(),
        skimage.data.chelsea(),
        skimage.data.coffee(),
        skimage.data.retina(),
        skimage.data.rocket(),
        skimage.data.stereo_motorcycle()[0],
    ]


def palette_of(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return one colour for each class, shape (classes, 3)."""
    levels = np.meshgrid([0, 64, 128, 192], [0, 128], [0, 64, 128, 192], indexing="ij")
    colours = np.stack(levels, axis=-1).reshape(-1, 3)
    return rng.permutation(colours)[:CLASSES].astype(np.uint8)


def cut(photo: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a random part of the photograph, 0.6 of its size or more, as a picture of 960x720 pixels."""
    scale = rng.uniform(0.6, 1.0) * min(photo.shape[0] / HEIGHT, photo.shape[1] / WIDTH)
    rows, columns = int(HEIGHT * scale), int(WIDTH * scale)
    top, left = rng.integers(photo.shape[0] - rows + 1), rng.integers(photo.shape[1] - columns + 1)
    part = photo[top : top + rows, left : left + columns]
    return np.asarray(cv2.resize(part, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), np.uint8)


def classes_of(picture: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the class of each pixel, from 0 to 31: its blurred colour in coarse steps."""
    steps = cv2.GaussianBlur(picture, (0, 0), 9).astype(np.intp) // 43
    return np.asarray((steps @ np.array([11, 7, 3])) % CLASSES, np.intp)


def make(folder: Path, count: int, seed: int = 0) -> int:
    """Write the set, in place of an older one, and return its number of pairs. A run that is cut leaves no half set."""
    rng = np.random.default_rng(seed)
    unfinished = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    for name in ("images", "masks"):
        (unfinished / name).mkdir(parents=True)
    photos, palette = photographs(), palette_of(rng)
    np.savetxt(unfinished / "palette.csv", palette, fmt="%d", delimiter=",")
    for number in range(count):
        picture = cut(photos[number % len(photos)], rng)
        for name, pixels in (("images", picture), ("masks", palette[classes_of(picture)])):
            path = unfinished / name / f"{number:04d}.png"
            if not cv2.imwrite(str(path), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)):
                raise OSError(f"cannot write {path}")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEMO, help="folder to write (default: %(default)s)")
    parser.add_argument("--count", type=int, default=36, help="pairs (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{make(arguments.out, arguments.count)} pairs in {arguments.out}")


if __name__ == "__main__":
    main()
