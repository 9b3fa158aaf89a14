"""Draw houses with their rooms, age, price and how far to trust it, into demo/ beside this file.

The same arguments give the same files, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np

DEMO = Path(__file__).resolve().parent / "demo"


def make(folder: Path, houses: int, seed: int = 0) -> int:
    """Write the photographs and `houses.csv`, and return how many houses there are."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["photo,rooms,age,price,trust"]
    for number in range(houses):
        rooms, age = int(rng.integers(1, 9)), int(rng.integers(0, 100))
        photo = np.full((96, 128, 3), 230 - age, np.uint8)
        cv2.rectangle(photo, (20, 90 - 8 * rooms), (108, 90), (40, 90, 200 - age), -1)
        cv2.imwrite(str(folder / f"{number:04d}.jpg"), photo)
        lines.append(f"{number:04d}.jpg,{rooms},{age},{rooms * 1.5 - age / 50:.2f},{rng.uniform(0.2, 1):.2f}")
    (folder / "houses.csv").write_text("\n".join(lines) + "\n")
    return houses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEMO, help="folder to write to (default: %(default)s)")
    parser.add_argument("--houses", type=int, default=96, help="how many (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{make(arguments.out, arguments.houses)} houses in {arguments.out}")


if __name__ == "__main__":
    main()
