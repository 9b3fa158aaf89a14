"""What users have of their own: sources and functions, in a module that needs no autopipe. Tests copy it as `mine`."""

from pathlib import Path
from typing import Any

import numpy as np


def require_whole(index: object) -> None:
    """As a database does, which finds nothing by a number of NumPy's."""
    assert type(index) is int, type(index)


class Own:
    def __len__(self) -> int:
        return 6

    def read(self, index: int) -> Any:
        require_whole(index)
        return np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3) + np.uint8(index), index % 3


class Scenes:
    """Photographs with some numbers; of each its mask, its kind and its weight."""

    def __init__(self, folder: Path) -> None:
        self._photos, self._masks = (sorted((folder / name).iterdir()) for name in ("images", "masks"))

    def __len__(self) -> int:
        return len(self._photos)

    def read(self, index: int) -> Any:
        require_whole(index)
        x = {"numbers": np.array([index, -1], np.float32), "photo": self._photos[index].read_bytes()}
        return x, {"kind": index % 3, "mask": self._masks[index].read_bytes()}, np.float32(index / 4)


def thinned(x: Any) -> Any:
    return x[::2, ::3]


def jittered(x: Any, rng: Any) -> Any:
    return x ^ rng.integers(0, 2, x.shape, np.uint8)
