"""The contract of sources, on HDF5 files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autopipe.extensions.hdf5.source import HDF5
from autopipe.workload.sample import Source
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import (
    SEVERAL,
    Case,
    columns_of_several,
    image,
    of_several,
    of_several_arrays,
    row,
    rows,
)

del test_every_source_of_the_core_is_here  # noqa: F821


def hdf5(root: Path, count: int) -> Source:
    return _hdf5(root, *rows(count))


def encoded_hdf5(root: Path, count: int) -> Source:
    return _hdf5(root, in_bytes([image(number) for number in range(count)]), np.arange(count) * 7)


def in_bytes(images: list[bytes]) -> Any:
    """Return images as h5py writes them at once."""
    made = np.empty(len(images), object)
    made[:] = [np.frombuffer(each, np.uint8) for each in images]
    return made


def hdf5_in_chunks(root: Path, count: int) -> Source:
    return _hdf5(root, *rows(count), chunks=(4, 2, 2, 3))


def _hdf5(root: Path, x: Any, y: Any, **settings: Any) -> Source:
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    with h5py.File(root / "set.h5", "w") as file:
        file.create_dataset("x", data=x, dtype=h5py.vlen_dtype(np.uint8) if x.dtype == object else None, **settings)
        file["y"] = y
    return HDF5(root / "set.h5")


def hdf5_of_several(root: Path, count: int) -> Source:
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    columns = columns_of_several(count)
    with h5py.File(root / "set.h5", "w") as file:
        file.create_dataset("image", data=in_bytes(columns["image"]), dtype=h5py.vlen_dtype(np.uint8))
        file["features"] = np.array(columns["features"], np.float32)
        file["weight"] = np.array(columns["weight"], np.float32)
        file["label"] = np.array(columns["label"])
    return HDF5(root / "set.h5", **SEVERAL)


def hdf5_of_several_arrays(root: Path, count: int) -> Source:
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    x, y = rows(count)
    with h5py.File(root / "set.h5", "w") as file:
        file["image"], file["label"] = x, y
        file["features"], file["weight"] = np.arange(2 * count).reshape(count, 2), np.arange(count, dtype=np.float32)
    return HDF5(root / "set.h5", x=["features", "image"], y={"kind": "label"}, sample_weight="weight")


CASES = {
    "HDF5": Case(hdf5, row, "set.h5", None),
    "HDF5 in chunks": Case(hdf5_in_chunks, row, "set.h5", None),
    "HDF5 of several arrays": Case(hdf5_of_several_arrays, of_several_arrays, "set.h5", None),
    "HDF5 of encoded images": Case(encoded_hdf5, lambda number: (image(number), 7 * number), "set.h5", None),
    "HDF5 of several parts": Case(hdf5_of_several, of_several, "set.h5", None),
}
