"""Put photographs that scikit-image ships into one tar archive, CLASS/NUMBER.jpg: demo/photos.tar beside this file.

The same arguments give the same bytes, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

import cv2
import numpy as np
import skimage.data

DEMO = Path(__file__).resolve().parent / "demo" / "photos.tar"
SIDE = 300


def make(path: Path, per_class: int, seed: int = 0) -> int:
    """Write the archive, in place of an older one, and return the number of its members."""
    rng = np.random.default_rng(seed)
    photos = {
        "astronaut": skimage.data.astronaut(),
        "cat": skimage.data.chelsea(),
        "coffee": skimage.data.coffee(),
        "rocket": skimage.data.rocket(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    with tarfile.open(unfinished, "w") as archive:
        for name, photo in photos.items():
            for number in range(per_class):
                top, left = (int(rng.integers(side - SIDE + 1)) for side in photo.shape[:2])
                part = photo[top : top + SIDE, left : left + SIDE]
                _, encoded = cv2.imencode(".jpg", cv2.cvtColor(part, cv2.COLOR_RGB2BGR))
                member = tarfile.TarInfo(f"{name}/{number:04d}.jpg")
                member.size = encoded.nbytes
                archive.addfile(member, io.BytesIO(encoded.tobytes()))
    unfinished.replace(path)
    return per_class * len(photos)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEMO, help="archive to write (default: %(default)s)")
    parser.add_argument("--per-class", type=int, default=64, help="photos in each class (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{make(arguments.out, arguments.per_class)} photos in {arguments.out}")


if __name__ == "__main__":
    main()
