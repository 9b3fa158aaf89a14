"""`HDF5`: samples that are rows of datasets in an HDF5 file; encoded images or arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from autopipe.core.script import located
from autopipe.data.columns import Columns
from autopipe.data.paths import PathList, spread
from autopipe.errors import DataError, MissingExtraError, near

_PROBES = 64  # encoded images whose sizes are looked at


class HDF5(Columns):
    """Rows of an HDF5 file: `(file[x][i], file[y][i])`. It needs the extra `hdf5`.

    Each process opens the file for itself, once. A dataset x of variable-length bytes (`h5py.vlen_dtype("uint8")`)
    holds encoded images; otherwise x and y are taken for images, labels and masks as by `Arrays`. A dataset that is
    cut into chunks of many rows is read slowly in a shuffled order: chunks of one row are best.

    Args:
        path: the file; a relative path starts at the folder of the script that writes it.
        x: the name of the dataset that holds the images or other arrays.
        y: the name of the one that holds the targets; None for x alone.

    Raises:
        DataError: the file is missing or no HDF5 file, lacks a dataset, or they are not equally long.
        MissingExtraError: h5py is not installed.

    Example:
        >>> data = ap.HDF5("photos.h5", x="images", y="labels")   # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], x: str = "x", y: str | None = "y") -> None:
        self._path = str(Path(located(path)).absolute())
        self._keys = (x,) if y is None else (x, y)
        self._opened: tuple[int, Any, tuple[Any, ...]] | None = None
        datasets = self._datasets()
        lengths = {len(dataset) for dataset in datasets}
        if len(lengths) != 1 or lengths == {0}:
            shown = ", ".join(f"`{key}` {dataset.shape}" for key, dataset in zip(self._keys, datasets, strict=True))
            raise DataError(f"Datasets of `{self._path}` must be equally long and not empty, but they are {shown}.")
        self._count = lengths.pop()
        self._is_encoded = _is_encoded(datasets[0])
        self._find_kinds()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"HDF5({self._path!r}: {self._count} rows of {', '.join(self._keys)})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def name(self, index: int) -> str:
        """Return the number of a row, and the file it is in."""
        return f"row {index} of {self._path}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the file, whichever samples are asked for."""
        return [self._path]

    def mean_bytes(self) -> float:
        """Return the mean size of a row of x and y together; of encoded images, that of 64 of them."""
        x, *y = self._datasets()
        fixed = sum(dataset.nbytes / self._count for dataset in y)
        if not self._is_encoded:
            return float(fixed + x.nbytes / self._count)
        rows = spread(self._count, _PROBES)
        return float(fixed + sum(len(x[row]) for row in rows) / len(rows))

    def digest(self) -> str:
        """Describe the file (name, size, time) and the shapes and dtypes of the datasets, without reading rows."""
        parts = (
            f"{part}={key.replace(' ', '_')}:{dataset.dtype.str}[{'x'.join(map(str, dataset.shape))}]"
            for part, key, dataset in zip(("x", "y"), self._keys, self._datasets(), strict=False)
        )
        return " ".join((_listed(self._path).digest(), *parts))

    def _row(self, index: int) -> list[Any]:
        x, *y = (dataset[index] for dataset in self._datasets())
        return [x.tobytes() if self._is_encoded else x, *y]

    def _datasets(self) -> tuple[Any, ...]:
        """Return the datasets, opened by this process: a handle that came by a fork belongs to the parent."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            file = _open(self._path)
            self._opened = opened = (os.getpid(), file, tuple(_dataset(file, key, self._path) for key in self._keys))
        return opened[2]


def _listed(path: str) -> PathList:
    folder, _, name = os.fsencode(path).rpartition(b"/")
    return PathList(folder or b"/", [(b"", name)])


def _open(path: str) -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError.of("hdf5", "h5py") from None
    try:
        return h5py.File(path, "r")
    except FileNotFoundError as error:
        raise DataError(f"The file `{path}` does not exist.") from error
    except OSError as error:
        raise DataError(f"`{path}` cannot be read as an HDF5 file: {error}") from error


def _dataset(file: Any, key: str, path: str) -> Any:
    import h5py

    found = file.get(key)
    if not isinstance(found, h5py.Dataset):
        known: list[str] = []
        file.visititems(lambda name, each: known.append(name) if isinstance(each, h5py.Dataset) else None)
        raise DataError(
            f"`{path}` has no dataset `{key}`; its datasets are {', '.join(f'`{name}`' for name in known) or 'none'}."
            f"{near(key, known)}",
            hint='Name them: ap.HDF5(path, x="...", y="..." or None).',
        )
    return found


def _is_encoded(dataset: Any) -> bool:
    import h5py

    base = h5py.check_vlen_dtype(dataset.dtype)
    return base is not None and np.dtype(base) == np.uint8
