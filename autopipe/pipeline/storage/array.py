"""`array`: samples as arrays, after all or some of the deterministic ops, in files that are mapped and not read.

For each shard and field (x, y, others) there is a .bin file with the samples' values end to end, in C order. If samples
differ in shape, a .shapes.npy file beside it has a row for each. A read sample is a view of mapped memory: no copy, no
parsing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Place, ShardFiles, Storage, file_name
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Sample, SampleSpec, gather

_SHAPE_BYTES = 24  # a row of a .shapes.npy file
_DATA, _SHAPES = "bin", "shapes.npy"
_NO_AXIS = -1  # fills the rows of samples with fewer axes


class Array(Storage):
    """Decoded samples, memory-mapped."""

    name: ClassVar[str] = "array"
    mapped: ClassVar[bool] = True
    holds_arrays: ClassVar[bool] = True

    def can_hold(self, spec: SampleSpec) -> bool:
        return all(field.kind is not FieldKind.ENCODED for field in spec.fields)

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        return sum(
            field.bytes if field.shape is not None else _mean_bytes([sample[number] for sample in probes])
            for number, field in enumerate(spec.columns)
            if field is not None
        )

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        writers = {number: _Writer(name, field, files) for number, name, field in _columns(spec)}
        for sample in samples:
            for number, writer in writers.items():
                writer.add(None if sample is None else sample[number])
        for writer in writers.values():
            writer.finish()

    def open(self, folder: Place, spec: SampleSpec, number: int, samples: int) -> _Mapped:
        assert isinstance(folder, Path)  # `Storage.at` refuses a URL
        columns: list[_Rows | None] = [None] * len(spec.columns)
        for position, name, field in _columns(spec):
            columns[position] = _rows(folder, name, field, number, samples)
        return _Mapped(columns)


class _Rows(Protocol):
    def __getitem__(self, row: int, /) -> Part: ...


class _Mapped:
    """The columns of a shard, mapped into memory."""

    def __init__(self, columns: Sequence[_Rows | None]) -> None:
        self._columns = columns

    def read(self, row: int) -> Sample:
        return tuple([None if column is None else column[row] for column in self._columns])

    def read_many(self, rows: NDArray[np.integer], out: Batch) -> None:
        for column, part in zip(self._columns, out, strict=True):
            if isinstance(column, _Ragged):
                raise TypeError("samples of several shapes fill no batch")
            if part is not None:
                gather(np.asarray(column), rows, part)


class _Ragged:
    """Samples of several shapes, end to end in one array."""

    def __init__(self, flat: NDArray[Any], shapes: NDArray[np.int64]) -> None:
        self._flat = flat
        self._shapes = [tuple(size for size in row if size != _NO_AXIS) for row in shapes.tolist()]
        self._starts = list(itertools.accumulate(map(math.prod, self._shapes), initial=0))

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self._flat[self._starts[row] : self._starts[row + 1]].reshape(self._shapes[row])


def _rows(folder: Path, name: str, field: Field, number: int, count: int) -> _Rows:
    data, dtype = folder / file_name(name, number, _DATA), np.dtype(field.dtype)
    if field.kind is FieldKind.LABEL and field.shape == ():
        return np.fromfile(data, dtype).data  # gives Python integers, as the sources do
    flat = np.empty(0, dtype) if data.stat().st_size == 0 else np.memmap(data, dtype, "r").view(np.ndarray)
    shapes = folder / file_name(name, number, _SHAPES)
    if shapes.exists():
        return _Ragged(flat, np.load(shapes, allow_pickle=False))
    assert field.shape is not None
    rows: NDArray[Any] = flat.reshape(count, *field.shape)
    return rows


class _Writer:
    def __init__(self, name: str, field: Field, files: ShardFiles) -> None:
        self._name, self._field, self._files = name, field, files
        self._data = files.create(name, _DATA)
        self._shapes: list[tuple[int, ...]] = []

    def add(self, part: Part) -> None:
        if part is None:
            array = np.zeros((0,) if self._field.shape is None else self._field.shape, self._field.dtype)
        else:
            array = np.asarray(part, self._field.dtype, order="C")
        self._data.write(array)
        self._shapes.append(array.shape)

    def finish(self) -> None:
        """Write the shapes if they are not those of the field."""
        if all(shape == self._field.shape for shape in self._shapes):
            return
        axes = max(map(len, self._shapes))
        rows = [(*shape, *[_NO_AXIS] * (axes - len(shape))) for shape in self._shapes]
        shapes = self._files.create(self._name, _SHAPES)
        np.save(shapes, np.array(rows, np.int64), allow_pickle=False)


def _columns(spec: SampleSpec) -> list[tuple[int, str, Field]]:
    """Return the position, the name and the field of each part that there is."""
    names = ["x", "y", *("".join(letters) for letters in itertools.product("z", ascii_lowercase, ascii_lowercase))]
    columns = zip(itertools.count(), names, spec.columns, strict=False)
    return [(number, name, field) for number, name, field in columns if field is not None]


def _mean_bytes(parts: Sequence[Part]) -> float:
    return _SHAPE_BYTES + sum(np.asarray(part).nbytes for part in parts) / max(len(parts), 1)


STORAGES.register(Array.name, Array())
