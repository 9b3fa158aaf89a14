"""The contract of sources, on HDF5 files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autopipe.extensions.hdf5.source import HDF5
from autopipe.workload.sample import Source
from tests.contract import test_sources as contract
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import Case

del test_every_source_of_the_core_is_here  # noqa: F821


def written_hdf5(root: Path, *, chunks: Any = None, **columns: Any) -> Path:
    """Write columns; images in bytes become arrays of several lengths, and `x` has these chunks."""
    import h5py

    root.mkdir(parents=True, exist_ok=True)
    with h5py.File(root / "set.h5", "w") as file:
        for name, values in columns.items():
            if isinstance(values[0], bytes):
                images = np.empty(len(values), object)  # as h5py writes them at once
                images[:] = [np.frombuffer(each, np.uint8) for each in values]
                file.create_dataset(name, data=images, dtype=h5py.vlen_dtype(np.uint8))
            else:
                file.create_dataset(name, data=values, chunks=chunks if name == "x" else None)
    return root / "set.h5"


def hdf5(root: Path, count: int, chunks: Any = None) -> Source:
    x, y = contract.rows(count)
    return HDF5(written_hdf5(root, x=x, y=y, chunks=chunks))


def hdf5_in_chunks(root: Path, count: int) -> Source:
    return hdf5(root, count, chunks=(4, 2, 2, 3))


def encoded_hdf5(root: Path, count: int) -> Source:
    return HDF5(written_hdf5(root, x=[contract.image(number) for number in range(count)], y=np.arange(count) * 7))


def hdf5_of_several(root: Path, count: int) -> Source:
    columns = contract.columns_of_several(count)
    floats = {name: np.array(columns[name], np.float32) for name in ("features", "weight")}
    return HDF5(written_hdf5(root, **columns | floats), **contract.SEVERAL)


def hdf5_of_several_arrays(root: Path, count: int) -> Source:
    x, y = contract.rows(count)
    features, weight = np.arange(2 * count).reshape(count, 2), np.arange(count, dtype=np.float32)
    path = written_hdf5(root, image=x, label=y, features=features, weight=weight)
    return HDF5(path, x=["features", "image"], y={"kind": "label"}, sample_weight="weight")


CASES = {
    "HDF5": Case(hdf5, contract.row, "set.h5", None),
    "HDF5 in chunks": Case(hdf5_in_chunks, contract.row, "set.h5", None),
    "HDF5 of several arrays": Case(hdf5_of_several_arrays, contract.of_several_arrays, "set.h5", None),
    "HDF5 of encoded images": Case(encoded_hdf5, lambda number: (contract.image(number), 7 * number), "set.h5", None),
    "HDF5 of several parts": Case(hdf5_of_several, contract.of_several, "set.h5", None),
}
