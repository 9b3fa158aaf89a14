"""`array`: samples as arrays, after all or some of the deterministic ops, in files that are mapped and not read.

For each shard and field (x, y, others) there is a .bin file with the samples' values end to end, in C order. If samples
differ in shape, a .shapes.npy file beside it has a row for each. A read sample is a view of mapped memory: no copy, no
parsing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Place, Reader, ShardFiles, ShardReader, Storage
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Sample, SampleSpec, gather

_SHAPE_BYTES = 24  # a row of a .shapes.npy file
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
        writers = {number: _Writer(column, files) for number, column in enumerate(_columns(spec)) if column is not None}
        for sample in samples:
            for number, writer in writers.items():
                writer.add(None if sample is None else sample[number])
        for writer in writers.values():
            writer.finish()

    def open(self, folder: Place, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        return _Mapped(folder, spec, shards)


class _Rows(Protocol):
    def __getitem__(self, row: int, /) -> Part: ...


class _Mapped(ShardReader[tuple[_Rows | None, ...]]):
    """Reads a set of arrays, mapped into memory."""

    def read(self, index: int) -> Sample:
        number, row = divmod(index, self._per_shard)
        return tuple([None if part is None else part[row] for part in self._shard(number)])

    def read_many(self, indices: NDArray[np.integer], out: Batch) -> None:
        order = np.argsort(indices)  # by shard
        wanted = indices[order]
        firsts = np.arange(len(self._counts)) * self._per_shard
        ends = [*np.searchsorted(wanted, firsts[1:]).tolist(), len(wanted)]
        sorted_parts = [None if part is None else np.empty_like(part) for part in out]
        start = 0
        for shard, end in enumerate(ends):
            if end > start:
                for rows, part in zip(self._shard(shard), sorted_parts, strict=True):
                    if part is not None:
                        gather(_one_array(rows), wanted[start:end] - firsts[shard], part[start:end])
            start = end
        for part, sorted_part in zip(out, sorted_parts, strict=True):
            if part is not None:
                part[order] = sorted_part

    def _opened(self, number: int) -> tuple[_Rows | None, ...]:
        assert isinstance(self._folder, Path)  # `Storage.at` refuses a URL
        return tuple(
            None if column is None else column.rows(self._folder, number, self._counts[number])
            for column in _columns(self._spec)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    name: str
    field: Field

    @property
    def dtype(self) -> np.dtype[Any]:
        assert self.field.dtype is not None
        return self.field.dtype

    def data_name(self, shard: int) -> str:
        return f"{self.name}-{shard:05d}.bin"

    def shapes_name(self, shard: int) -> str:
        return f"{self.name}-{shard:05d}.shapes.npy"

    def rows(self, folder: Path, shard: int, count: int) -> _Rows:
        data = folder / self.data_name(shard)
        if self.field.kind is FieldKind.LABEL and self.field.shape == ():
            return np.fromfile(data, self.dtype).data  # gives Python integers, as the sources do
        flat = (
            np.empty(0, self.dtype) if data.stat().st_size == 0 else np.memmap(data, self.dtype, "r").view(np.ndarray)
        )
        shapes = folder / self.shapes_name(shard)
        if shapes.exists():
            return _Ragged(flat, np.load(shapes, allow_pickle=False))
        assert self.field.shape is not None
        rows: NDArray[Any] = flat.reshape(count, *self.field.shape)
        return rows


class _Ragged:
    """Samples of several shapes, end to end in one array."""

    def __init__(self, flat: NDArray[Any], shapes: NDArray[np.int64]) -> None:
        self._flat = flat
        self._shapes = [tuple(size for size in row if size != _NO_AXIS) for row in shapes.tolist()]
        self._starts = list(itertools.accumulate(map(math.prod, self._shapes), initial=0))

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self._flat[self._starts[row] : self._starts[row + 1]].reshape(self._shapes[row])


def _one_array(rows: _Rows | None) -> NDArray[Any]:
    if isinstance(rows, _Ragged):
        raise TypeError("samples of several shapes fill no batch")
    return np.asarray(rows)


class _Writer:
    def __init__(self, column: _Column, files: ShardFiles) -> None:
        self._column = column
        self._files = files
        self._data = files.create(column.data_name)
        self._shapes: list[tuple[int, ...]] = []

    def add(self, part: Part) -> None:
        if part is None:
            shape = self._column.field.shape
            array = np.zeros((0,) if shape is None else shape, self._column.dtype)
        else:
            array = np.asarray(part, self._column.dtype, order="C")
        self._data.write(array)
        self._shapes.append(array.shape)

    def finish(self) -> None:
        """Write the shapes if they are not those of the field."""
        if all(shape == self._column.field.shape for shape in self._shapes):
            return
        axes = max(map(len, self._shapes))
        rows = [(*shape, *[_NO_AXIS] * (axes - len(shape))) for shape in self._shapes]
        shapes = self._files.create(self._column.shapes_name)
        np.save(shapes, np.array(rows, np.int64), allow_pickle=False)


def _columns(spec: SampleSpec) -> list[_Column | None]:
    names = ["x", "y", *("".join(letters) for letters in itertools.product("z", ascii_lowercase, ascii_lowercase))]
    return [None if field is None else _Column(name, field) for name, field in zip(names, spec.columns, strict=False)]


def _mean_bytes(parts: Sequence[Part]) -> float:
    return _SHAPE_BYTES + sum(np.asarray(part).nbytes for part in parts) / max(len(parts), 1)


STORAGES.register(Array.name, Array())
