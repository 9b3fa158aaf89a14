"""Image files in folders of classes."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np


def in_classes(root: Path, count: int, size: tuple[int, int], *, classes: int = 2, suffix: str = ".png") -> Path:
    """Write so many images of noise, in turns into folders `class_0`, `class_1` and so on, and return their folder."""
    generator = np.random.default_rng(0)
    for number in range(count):
        path = root / f"class_{number % classes}" / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), generator.integers(0, 256, (*size, 3), np.uint8))
    return root
