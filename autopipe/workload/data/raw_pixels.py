"""Raw pixels in records: their array, and whole batches of them gathered from mapped files.

Where a record holds its pixels, and its label, is found out once, by whoever reads the record and verifies its
checksum; from then on it is two numbers, and a batch of such records is gathered without a look at each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError
from autopipe.workload.data.arrays import looks_like_image
from autopipe.workload.data.example import ExampleError
from autopipe.workload.plain_code import Lines
from autopipe.workload.sample import Batch, FieldKind


class RawPixels:
    """Arrays of one shape and dtype in the records of some files; a pickle forgets where they lie."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> None:
        """Describe them; there are `count` records.

        Raises:
            DataError: there is no such array, or it does not hold plain numbers.
        """
        plain = dtype.kind in "uifb" and dtype.isnative
        if not plain or not all(isinstance(side, int | np.integer) and side > 0 for side in shape):
            raise DataError(
                "Raw pixels must be plain numbers in a shape of whole numbers above 0, "
                f"but got shape={shape} and dtype={dtype}.",
                hint='For example shape=(32, 32, 3), dtype="uint8".',
            )
        self.__setstate__((tuple(map(int, shape)), dtype, count))

    def __repr__(self) -> str:
        return f"{self._dtype}[{'x'.join(map(str, self._shape))}]"

    def __getstate__(self) -> tuple[tuple[int, ...], np.dtype[Any], int]:
        return self._shape, self._dtype, len(self._starts)

    def __setstate__(self, state: tuple[tuple[int, ...], np.dtype[Any], int]) -> None:
        self._shape, self._dtype, count = state
        self._bytes = math.prod(self._shape) * self._dtype.itemsize
        self._starts = np.zeros(count, np.int64)  # the byte of its file at which a record's pixels start; 0: not known
        self._labels = np.zeros(count, np.int64)
        self._mapped: dict[bytes, NDArray[np.uint8]] = {}

    @property
    def kind(self) -> FieldKind:
        """What the arrays are taken for, as of `Arrays`."""
        return FieldKind.IMAGE if looks_like_image(self._shape, self._dtype) else FieldKind.ARRAY

    def array(self, content: bytes) -> NDArray[Any]:
        """Return the array that these bytes are.

        Raises:
            ExampleError: they are too many or too few.
        """
        self._require(len(content))
        return np.frombuffer(content, self._dtype).reshape(self._shape)

    def not_found(self, indices: NDArray[np.int64]) -> list[int]:
        """Return those of the indices of which `found` was not told."""
        missing: list[int] = indices[self._starts[indices] == 0].tolist()
        return missing

    def found(self, index: int, start: int, length: int, label: int) -> None:
        """Note at which byte of its file the pixels of a record start, and its label.

        Raises:
            ExampleError: they are too many bytes or too few.
        """
        self._require(length)
        self._labels[index] = label  # before the start, which says that it is there
        self._starts[index] = start

    def gather(
        self, indices: NDArray[np.int64], files: NDArray[np.intp], path: Callable[[int], bytes], out: Batch
    ) -> None:
        """Write records that were found to the arrays (x, y) of a batch.

        Each is in the file of that number in `files`, whose path `path` returns.
        """
        pixels = out[0].reshape(len(indices), -1).view(np.uint8)
        for file in np.unique(files).tolist():
            rows = np.flatnonzero(files == file)
            content = self._map(path(file))
            pixels[rows] = np.lib.stride_tricks.sliding_window_view(content, self._bytes)[self._starts[indices[rows]]]
        if out[1] is not None:
            out[1][...] = self._labels[indices]

    def plain_numpy(self) -> Lines:
        """Return what makes the array of the bytes `x` in NumPy."""
        return [f'x = np.frombuffer(x, "{self._dtype}").reshape{self._shape}']

    def plain_tensorflow(self) -> Lines:
        """Return what makes the array of the bytes `x` in TensorFlow."""
        return [f"x = tf.reshape(tf.io.decode_raw(x, tf.{self._dtype}), {self._shape})"]

    def _map(self, path: bytes) -> NDArray[np.uint8]:
        mapped = self._mapped.get(path)
        if mapped is None:
            mapped = self._mapped[path] = np.memmap(os.fsdecode(path), np.uint8, "r").view(np.ndarray)
        return mapped

    def _require(self, length: int) -> None:
        if length != self._bytes:
            raise ExampleError(f"holds {length} bytes of pixels, but {self!r} takes {self._bytes}")
