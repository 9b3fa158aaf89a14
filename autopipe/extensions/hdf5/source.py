"""`HDF5`: samples that are rows of datasets in an HDF5 file, read by h5py.

h5py has one lock for a whole process and takes it for each row, so threads that decode wait for those that read:
processes do not.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from autopipe.errors import DataError, DataWarning, extra_module
from autopipe.workload.data.arrays import text_refused
from autopipe.workload.data.columns import Columns, Names, Selection, missing_column, read_as
from autopipe.workload.data.paths import PathList, located
from autopipe.workload.sample import leaves


def _rows_of(dataset: Any) -> Callable[[int], Any]:
    """Return the function that reads a row of an open h5py dataset of at least one; encoded images are bytes."""
    import h5py

    base = h5py.check_vlen_dtype(dataset.dtype)
    if dataset.ndim == 1 and base is not None and np.dtype(base) == np.uint8:
        return lambda index: dataset[index].tobytes()
    rows = dataset
    if dataset.dtype.kind in "iuf" and not dataset.dtype.isnative:  # JAX takes no other byte order than the machine's
        rows = dataset.astype(dataset.dtype.newbyteorder("="))
    if dataset.ndim == 1 and dataset.dtype.kind in "biuf":  # 8 bytes a row, mostly
        with contextlib.suppress(OSError):  # a damaged part spoils its own rows alone
            rows = np.asarray(rows[:])
    return rows.__getitem__  # type: ignore[no-any-return]  # h5py has no types


class HDF5(Columns):
    """Rows of an HDF5 file: `(file[x][i], file[y][i])`. It needs the extra `hdf5`.

    Each process opens the file for itself, once. A dataset of variable-length bytes (`h5py.vlen_dtype("uint8")`) holds
    encoded images; others are taken for images, labels and masks as by `Arrays`.

    h5py reads one row at a time in a process, so worker processes are faster than threads here. Chunks of many rows are
    slow in a shuffled order: chunks of one row are best.

    Args:
        path: the file; a relative path starts at the folder of the script that writes it.
        x: the name of the dataset that holds the images or other arrays. For a model with several inputs: a dictionary
            of such names by the names of the model's inputs, or a list of them.
        y: the same for the targets; None for x alone.
        sample_weight: the same for the weights of the samples in the loss, as in Keras's `fit`.

    Raises:
        DataError: the file is missing or no HDF5 file, lacks a dataset, or they are not equally long.
        MissingExtraError: h5py is not installed.

    Examples:
        >>> data = ap.HDF5("photos.h5", x="images", y="labels")   # doctest: +SKIP
    """

    def __init__(
        self, path: str | os.PathLike[str], x: Names = "x", y: Names | None = "y", sample_weight: Names | None = None
    ) -> None:
        self._path = str(Path(located(path)).absolute())
        self._selection = Selection.of(x, y, sample_weight)
        self._opened: tuple[int, list[Any], list[Any]] | None = None
        with read_as(self._path, "an HDF5 file"):
            self._look()

    def _look(self) -> None:
        h5py = extra_module("hdf5", "h5py")
        datasets = dict(zip(self._selection.columns, self._datasets(), strict=True))
        lengths = {dataset.shape[0] if dataset.shape else 0 for dataset in datasets.values()}
        if len(lengths) != 1 or lengths == {0}:
            shown = ", ".join(f"`{column}` {dataset.shape}" for column, dataset in datasets.items())
            raise DataError(f"Datasets of `{self._path}` must be equally long and not empty, but they are {shown}.")
        for column in (column for slot in self._selection.slots[1:] for column in leaves(slot)):
            if h5py.check_string_dtype(datasets[column].dtype) is not None:
                raise text_refused(f"The dataset `{column}` of `{self._path}`")
        for name, each in datasets.items():
            is_packed = each.ndim > 1 and each.chunks and each.compression and each.chunks[0] > 3
            if is_packed and each.nbytes > each.id.get_access_plist().get_chunk_cache()[1]:
                said = f"Chunks of `{name}` of `{self._path}` are {each.chunks}: a read unpacks {each.chunks[0]} rows. "
                said += f"For a shuffled order write it with chunks={(1, *each.shape[1:])}."
                warnings.warn(said, DataWarning, stacklevel=4)
        self._count: int = lengths.pop()
        self._described = " ".join(
            f"{place}={column.replace(' ', '_')}:{datasets[column].dtype.str}"
            f"[{'x'.join(map(str, datasets[column].shape))}]"
            for place, column in self._selection.places
        )
        self._find_kinds()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"HDF5({self._path!r}: {self._count} rows of {', '.join(self._selection.columns)})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def name(self, index: int) -> str:
        return f"row {index} of {self._path}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return [self._path]

    def digest(self) -> str:
        """Describe the file (name, size, time) and the shapes and dtypes of the datasets, without reading rows."""
        folder, _, name = os.fsencode(self._path).rpartition(b"/")
        return f"{PathList(folder or b'/', [(b'', name)]).digest()} {self._described}"

    def _row(self, index: int) -> list[Any]:
        opened = self._opened
        if opened is None or opened[0] != os.getpid():  # a handle from before a fork is the parent's
            datasets = self._datasets()
            self._opened = opened = (os.getpid(), [_rows_of(each) for each in datasets], datasets)
        return [row(index) for row in opened[1]]

    def _datasets(self) -> list[Any]:
        """Return the open datasets; they keep the file open, and the library's lock of it."""
        h5py = extra_module("hdf5", "h5py")
        try:
            file = h5py.File(self._path, "r")
        except FileNotFoundError as error:
            raise DataError(f"The file `{self._path}` does not exist.") from error
        datasets, known = {column: file.get(column) for column in self._selection.columns}, list[str]()
        for column, each in datasets.items():
            if not isinstance(each, h5py.Dataset):
                file.visititems(lambda name, each: known.append(name) if isinstance(each, h5py.Dataset) else None)
                hint = 'Name them: ap.HDF5(path, x="...", y="..." or None).'
                raise missing_column(column, known, f"`{self._path}`", "datasets", hint)
        return [*datasets.values()]
