"""Cut a demo set out of the photographs that scikit-image ships: demo/CLASS/NUMBER.jpg beside this file.

1,536 JPEG files of about 500x375 pixels in 8 classes. The same arguments give the same pixels, nothing is downloaded.
The classes are photographs, so a network learns them at once: the set is for speed, not for accuracy.
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
JPEG_QUALITY = 92


def photographs() -> dict[str, NDArray[np.uint8]]:
    """Return the photographs by class name, as RGB."""
    return {
        "astronaut": skimage.data.astronaut(),
        "cat": skimage.data.chelsea(),
        "coffee": skimage.data.coffee(),
        "galaxies": skimage.data.hubble_deep_field(),
        "motorcycle": skimage.data.stereo_motorcycle()[0],
        "retina": skimage.data.retina(),
        "rocket": skimage.data.rocket(),
        "tissue": skimage.data.immunohistochemistry(),
    }


def cut(photo: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a random part of the photograph, half its size or more, as a picture of about 500x375 pixels."""
    width, height = int(rng.integers(440, 561)), int(rng.integers(330, 421))
    largest = min(photo.shape[0] / height, photo.shape[1] / width)
    scale = rng.uniform(0.5, 1.0) * largest
    rows, columns = int(height * scale), int(width * scale)
    top, left = rng.integers(photo.shape[0] - rows + 1), rng.integers(photo.shape[1] - columns + 1)
    part = photo[top : top + rows, left : left + columns]
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)


def make(folder: Path, per_class: int, seed: int = 0) -> int:
    """Write the set, in place of an older one, and return its number of files. A run that is cut leaves no half set."""
    rng = np.random.default_rng(seed)
    unfinished = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    photos = photographs()
    for name, photo in photos.items():
        (unfinished / name).mkdir(parents=True)
        for number in range(per_class):
            picture = cv2.cvtColor(cut(photo, rng), cv2.COLOR_RGB2BGR)
            path = unfinished / name / f"{number:04d}.jpg"
            if not cv2.imwrite(str(path), picture, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]):
                raise OSError(f"cannot write {path}")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    return per_class * len(photos)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEMO, help="folder to write (default: %(default)s)")
    parser.add_argument("--per-class", type=int, default=192, help="files in each class (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{make(arguments.out, arguments.per_class)} photos in {arguments.out}")


if __name__ == "__main__":
    main()
