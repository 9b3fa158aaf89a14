"""`HDF5`: samples that are rows of datasets in an HDF5 file; and their rows, read without the library if they lie there
unchanged.

h5py has one lock for a whole process, and takes it for each row: threads that decode would wait for those that read. A
dataset of numbers in one piece, or in chunks of whole rows, is read at its offsets, many rows of a batch by one call.
Images of variable length are read from the global heap, as "HDF5 File Format Specification Version 3.0" describes it in
III.E. The library reads datasets that are compressed, lie in another file, or differ from direct reads.

Nothing stays mapped into memory: pages that a process has mapped cannot be dropped for a cold trial.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import struct
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, DataError, extra_module
from autopipe.workload.data.arrays import text_refused
from autopipe.workload.data.columns import Columns, Names, Selection, missing_column, read_as
from autopipe.workload.data.paths import PathList, located, read_at, spread
from autopipe.workload.sample import Batch, gather, leaves

_REFERENCE = np.dtype([("bytes", "<u4"), ("heap", "<u8"), ("number", "<u4")])  # to an image, in a dataset
_ADDRESS_BYTES = (8, 8)  # of addresses and of sizes, in the files that are read past the library
_MOST_CHUNKS = 200_000  # whose places are looked up: every process does it anew
_HEAP_BYTES = 16  # of its header: signature, version and size
_OBJECT = struct.Struct("<HH4xQ")  # header of an object in a heap: number, references, bytes
_ALIGNED = 8  # bytes
_PROBES = 8  # rows that are compared with the library's

Gather: TypeAlias = Callable[[NDArray[np.integer], NDArray[Any]], None]
"""Writes the rows of some numbers to an array that has a row for each."""


class Rows(Protocol):
    """Reads a row by its number: bytes of encoded images, else an array or a number."""

    def __getitem__(self, index: int, /) -> Any: ...


def rows_of(dataset: Any, path: str) -> Rows:
    """Return the rows of an open, non-empty dataset of h5py in the file `path`."""
    is_encoded = _is_encoded(dataset)
    by_library: Rows = _Decoded(dataset) if is_encoded else _in_own_order(dataset)
    direct: Rows | None = None
    if Path(dataset.file.filename).samefile(path):  # and not behind an external link
        direct = _heap_rows(dataset, path) if is_encoded else _in_pieces(dataset, path)
    if direct is not None and _agree(direct, by_library, len(dataset)):
        return direct
    if dataset.ndim == 1 and dataset.dtype.kind in "biuf":  # 8 bytes a row, mostly
        with contextlib.suppress(OSError):  # a damaged part spoils its own rows alone
            return np.asarray(_in_own_order(dataset)[:])
    return by_library


def gather_of(rows: Rows) -> Gather | None:
    """Return the function that writes many rows by one call; None if rows come one by one."""
    if isinstance(rows, np.ndarray):
        return functools.partial(gather, rows)
    return rows.gather if isinstance(rows, _FileRows) else None


class _Decoded:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, index: int) -> bytes:
        content: bytes = self._dataset[index].tobytes()
        return content


class _FileRows:
    """Arrays of one shape, in pieces of as many rows, one behind the other."""

    def __init__(
        self, path: str, pieces: tuple[NDArray[np.int64], int], dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._path, self._dtype, self._shape = path, dtype, shape
        self._starts, self._per_piece = pieces
        self._bytes = math.prod(shape) * dtype.itemsize
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, index: int) -> NDArray[Any]:
        piece, row = divmod(index, self._per_piece)
        read = read_at(self._file, self._bytes, int(self._starts[piece]) + row * self._bytes)
        if len(read) != self._bytes:
            raise BadSampleError(_gone(index, self._path))
        found: NDArray[Any] = np.frombuffer(read, self._dtype).reshape(self._shape)
        return found if self._dtype.isnative else found.astype(self._dtype.newbyteorder("="))

    def gather(self, indices: NDArray[np.integer], out: NDArray[Any]) -> None:
        """Write rows to an array, adjacent ones by one read; raise BadSampleError if a row is no longer in the file."""
        fits = out.dtype == self._dtype and out.flags.c_contiguous
        room = out if fits else np.empty((len(indices), *self._shape), self._dtype)
        content, size = room.reshape(-1).view(np.uint8).data, self._bytes
        pieces, rows = np.divmod(indices, self._per_piece)
        places = self._starts[pieces] + rows * size
        runs = np.flatnonzero(np.diff(places, prepend=places[0]) != size)
        for first, end in itertools.pairwise([*runs.tolist(), len(places)]):
            part = content[first * size : end * size]
            read = os.preadv(self._file, [part], places[first])
            if read < len(part):
                rest = read_at(self._file, len(part) - read, int(places[first]) + read)
                part[read : read + len(rest)] = rest
                read += len(rest)
            if read != len(part):
                raise BadSampleError(_gone(int(indices[first]), self._path))
        if not fits:
            out[...] = room


class _HeapRows:
    """Encoded images, read from the global heap: one read of the file for an image that has a heap of its own."""

    def __init__(self, path: str, references: NDArray[Any], base: int) -> None:
        self._path, self._references, self._base = path, references, base
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, index: int) -> bytes:
        size, heap, number = self._references[index].item()
        if size == 0:
            return b""
        at = self._base + heap + _HEAP_BYTES
        try:
            read = read_at(self._file, _OBJECT.size + size, at)
            found, _, held = _OBJECT.unpack_from(read)
            while found not in (number, 0):  # 0 is the room that is left, behind all objects
                at += _OBJECT.size + -(-held // _ALIGNED) * _ALIGNED
                read = read_at(self._file, _OBJECT.size + size, at)
                found, _, held = _OBJECT.unpack_from(read)
        except (struct.error, OverflowError):  # behind the end of the file
            held = -1
        if held != size or found != number or len(read) != _OBJECT.size + size:
            raise BadSampleError(_gone(index, self._path))
        return read[_OBJECT.size :]


def _gone(index: int, path: str) -> str:
    return f"row {index} of {path} is not in the file any more, or the file is damaged."


def _is_encoded(dataset: Any) -> bool:
    import h5py

    base = h5py.check_vlen_dtype(dataset.dtype)
    return dataset.ndim == 1 and base is not None and np.dtype(base) == np.uint8


def _in_own_order(dataset: Any) -> Any:
    """Return a reader of a dataset in the byte order of this machine: JAX takes no other."""
    if dataset.dtype.kind not in "iuf" or dataset.dtype.isnative:
        return dataset
    return dataset.astype(dataset.dtype.newbyteorder("="))


def _in_pieces(dataset: Any, path: str) -> Rows | None:
    """Return the rows of a dataset of numbers that are unchanged in the file; None of others, and of empty ones."""
    import h5py

    is_plain = dataset.ndim > 1 and dataset.dtype.kind in "biuf" and 0 not in dataset.shape
    if not is_plain or not dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)):
        return None
    if dataset.chunks is not None and len(dataset) > _MOST_CHUNKS * dataset.chunks[0]:
        return None
    pieces = _pieces(dataset)
    return None if pieces is None else _FileRows(path, pieces, dataset.dtype, dataset.shape[1:])


def _heap_rows(dataset: Any, path: str) -> Rows | None:
    created = dataset.file.id.get_create_plist()
    pieces = _pieces(dataset)
    if pieces is None or created.get_sizes() != _ADDRESS_BYTES:
        return None
    starts, rows = pieces
    content = np.memmap(path, np.uint8, "r").view(np.ndarray)
    try:
        read = sliding_window_view(content, rows * _REFERENCE.itemsize)[starts]
    except (ValueError, IndexError):  # beyond the end of the file
        return None
    return _HeapRows(path, read.reshape(-1).view(_REFERENCE)[: len(dataset)], created.get_userblock())


def _pieces(dataset: Any) -> tuple[NDArray[np.int64], int] | None:
    """Return the offsets of a dataset's pieces, and the rows of each; None if there are no such pieces."""
    offset = dataset.id.get_offset()
    if offset is not None:
        return np.array([offset]), len(dataset)
    if dataset.chunks is None or dataset.id.get_create_plist().get_nfilters() or not hasattr(dataset.id, "chunk_iter"):
        return None
    rows, *whole = dataset.chunks
    if tuple(whole) != dataset.shape[1:]:
        return None
    starts = np.zeros(-(-len(dataset) // rows), np.int64)

    def found(chunk: Any) -> None:
        if chunk.byte_offset is not None:  # else nothing was written there
            starts[chunk.chunk_offset[0] // rows] = chunk.byte_offset

    dataset.id.chunk_iter(found)
    return (starts, rows) if starts.all() else None


def _agree(direct: Rows, by_library: Rows, count: int) -> bool:
    """Return True if some rows, the first and the last among them, are the same in both."""
    try:
        return all(bytes(direct[row]) == bytes(by_library[row]) for row in spread(count, _PROBES))
    except (BadSampleError, OSError):  # one that neither can read spoils no other
        return False


# -------------------- the source


class HDF5(Columns):
    """Rows of an HDF5 file: `(file[x][i], file[y][i])`. It needs the extra `hdf5`.

    Each process opens the file for itself, once. A dataset of variable-length bytes (`h5py.vlen_dtype("uint8")`) holds
    encoded images; others are taken for images, labels and masks as by `Arrays`.

    Datasets in one piece, or in chunks of whole rows, and encoded images that are not compressed again, are read
    without the lock that h5py has for a process, so that threads do not wait for each other; small arrays, whole
    batches by one call. Others, such as those with `compression=`, are read by h5py, and slowly in a shuffled order if
    they are cut into chunks of many rows: chunks of one row are best.

    Args:
        path: the file; a relative path starts at the folder of the script that writes it.
        x: the name of the dataset that holds the images or other arrays. For a model with several inputs: a dictionary
            of such names by the names of the model's inputs, or a list of them.
        y: the same for the targets; None for x alone.
        sample_weight: the same for the weights of the samples in the loss, as in Keras's `fit`.

    Raises:
        DataError: the file is missing or no HDF5 file, lacks a dataset, or they are not equally long.
        MissingExtraError: h5py is not installed.

    Example:
        >>> data = ap.HDF5("photos.h5", x="images", y="labels")   # doctest: +SKIP
    """

    def __init__(
        self, path: str | os.PathLike[str], x: Names = "x", y: Names | None = "y", sample_weight: Names | None = None
    ) -> None:
        self._path = str(Path(located(path)).absolute())
        self._selection = Selection.of(x, y, sample_weight)
        self._opened: tuple[int, list[Rows], list[Any]] | None = None
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
        self._count: int = lengths.pop()
        self._described = " ".join(
            f"{place}={column.replace(' ', '_')}:{datasets[column].dtype.str}"
            f"[{'x'.join(map(str, datasets[column].shape))}]"
            for place, column in self._selection.places
        )
        self._find_kinds()
        self._flat = self._flat_columns()
        self._gathers = all(gather_of(rows) is not None for rows in self._all_rows())

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"HDF5({self._path!r}: {self._count} rows of {', '.join(self._selection.columns)})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def read_many(self) -> Callable[[NDArray[np.int64], Batch], None] | None:
        return self._read_many if self._gathers else None

    def name(self, index: int) -> str:
        return f"row {index} of {self._path}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return [self._path]

    def digest(self) -> str:
        """Describe the file (name, size, time) and the shapes and dtypes of the datasets, without reading rows."""
        folder, _, name = os.fsencode(self._path).rpartition(b"/")
        return f"{PathList(folder or b'/', [(b'', name)]).digest()} {self._described}"

    def _row(self, index: int) -> list[Any]:
        return [rows[index] for rows in self._all_rows()]

    def _read_many(self, indices: NDArray[np.int64], out: Batch) -> None:
        rows_of_column = dict(zip(self._selection.columns, self._all_rows(), strict=True))
        for column, room in zip(self._flat, out, strict=True):
            if column is not None:
                gather = gather_of(rows_of_column[column])
                assert gather is not None  # else there is no batch half
                gather(indices, room)

    def _all_rows(self) -> list[Rows]:
        """Return the rows of each dataset, opened by this process: a handle from before a fork is the parent's."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            datasets = self._datasets()
            self._opened = opened = (os.getpid(), [rows_of(each, self._path) for each in datasets], datasets)
        return opened[1]

    def _datasets(self) -> list[Any]:
        """Return the open datasets; they keep the file open, and the library's lock of it."""
        file = _open(self._path)
        return [_dataset(file, column, self._path) for column in self._selection.columns]


def _open(path: str) -> Any:
    try:
        return extra_module("hdf5", "h5py").File(path, "r")
    except FileNotFoundError as error:
        raise DataError(f"The file `{path}` does not exist.") from error


def _dataset(file: Any, column: str, path: str) -> Any:
    import h5py

    found = file.get(column)
    if not isinstance(found, h5py.Dataset):
        known: list[str] = []
        file.visititems(lambda name, each: known.append(name) if isinstance(each, h5py.Dataset) else None)
        hint = 'Name them: ap.HDF5(path, x="...", y="..." or None).'
        raise missing_column(column, known, f"`{path}`", "datasets", hint)
    return found
