"""`array`: samples as arrays, after all or some of the deterministic ops, in .npy files that are read by ranges.

For each shard and part of a sample (x, y, others) there is a .npy file with a row for each sample. If samples differ in
shape, the file has their values end to end, and a .shapes.npy file beside it a row for each. No file is mapped into
memory: one that is cut short, or on a disk that fails, would end the process.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Column, Folder, Shard, Storage, shard_file
from autopipe.workload.data.paths import OpenFile
from autopipe.workload.sample import Field, FieldKind, Part, Sample, SampleSpec

_SHAPE_BYTES = 24  # a row of a .shapes.npy file
_HEADER_BYTES = 192  # of each .npy file that rows are appended to: their number is written at the end
_BUFFER_BYTES = 1 << 16  # a larger sample goes to the file without another copy
_NO_AXIS = -1  # fills the rows of samples with fewer axes


class Array(Storage):
    """Decoded samples."""

    name: ClassVar[str] = "array"
    on_disk: ClassVar[bool] = True  # each sample is read by itself, and is small
    holds_arrays: ClassVar[bool] = True

    def can_hold(self, spec: SampleSpec) -> bool:
        return all(field.kind is not FieldKind.ENCODED for field in spec.fields)

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        total = 0.0
        for number, field in enumerate(spec.columns):
            if field is not None and field.shape is not None:
                total += field.bytes
            elif field is not None:
                sizes = [np.asarray(sample[number]).nbytes for sample in probes]
                total += _SHAPE_BYTES + sum(sizes) / max(len(sizes), 1)
        return total

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, to: Path) -> None:
        with contextlib.ExitStack() as opened:
            files = {
                number: (opened.enter_context((to / f"{name}.npy").open("wb", _BUFFER_BYTES)), field)
                for number, name, field in _columns(spec)
            }
            shapes: dict[int, list[tuple[int, ...]]] = {number: [] for number in files}
            for file, _ in files.values():
                file.write(bytes(_HEADER_BYTES))
            for sample in samples:
                for number, (file, field) in files.items():
                    if sample is None or sample[number] is None:  # zeros in the place of a bad one
                        array = np.zeros((0,) if field.shape is None else field.shape, field.dtype)
                    else:
                        array = np.asarray(sample[number], field.dtype, order="C")
                    file.write(array.reshape(-1).view(np.uint8).data)
                    shapes[number].append(array.shape)
            for number, name, field in _columns(spec):
                _finish(files[number][0], field, shapes[number], to / f"{name}.shapes.npy")

    def open(self, folder: Folder, spec: SampleSpec, number: int) -> Shard:
        assert folder.path is not None  # `Storage.at` refuses a URL
        columns: list[Any] = [None] * len(spec.columns)
        for position, name, field in _columns(spec):
            file, shapes = (folder.path / shard_file(f"{name}.{end}", number) for end in ("npy", "shapes.npy"))
            columns[position] = _opened(file, field, shapes)
        return columns


def _opened(path: Path, field: Field, shapes: Path) -> Column | Sequence[Part] | NDArray[Any]:
    with path.open("rb") as stream:
        np.lib.format.read_magic(stream)
        (count, *shape), _, dtype = np.lib.format.read_array_header_1_0(stream)
        first = stream.tell()
    if dtype != field.dtype:
        raise ValueError(f"`{path}` holds {dtype}, not {field.dtype}")
    if shapes.exists():
        table = np.load(shapes, allow_pickle=False).tolist()
        each = [tuple(size for size in row if size != _NO_AXIS) for row in table]
        sizes = (math.prod(shape) * dtype.itemsize for shape in each)
        return Column(field, OpenFile(path), [*itertools.accumulate(sizes, initial=first)], shapes=each)
    if field.shape == ():  # numbers, of which a read each would cost more than all of them
        values: NDArray[Any] = np.load(path, allow_pickle=False)
        return values.data if field.kind is FieldKind.LABEL else values  # which gives Python integers
    size = math.prod(shape) * dtype.itemsize
    return Column(field, OpenFile(path), (first + size * np.arange(count + 1)).data)


def _finish(file: BinaryIO, field: Field, shapes: Sequence[tuple[int, ...]], beside: Path) -> None:
    shape: tuple[int, ...] = (len(shapes), *(field.shape or ()))
    if any(each != field.shape for each in shapes):
        shape = (sum(map(math.prod, shapes)),)
        axes = max(map(len, shapes))
        rows = [(*each, *[_NO_AXIS] * (axes - len(each))) for each in shapes]
        np.save(beside, np.array(rows, np.int64), allow_pickle=False)
    assert field.dtype is not None
    described = {"descr": np.lib.format.dtype_to_descr(field.dtype), "fortran_order": False, "shape": shape}
    text = repr(described).ljust(_HEADER_BYTES - 11) + "\n"
    header = np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text.encode()
    assert len(header) == _HEADER_BYTES
    file.seek(0)
    file.write(header)


def _columns(spec: SampleSpec) -> list[tuple[int, str, Field]]:
    names = ["x", "y", *("".join(letters) for letters in itertools.product("z", ascii_lowercase, ascii_lowercase))]
    columns = zip(itertools.count(), names, spec.columns, strict=False)
    return [(number, name, field) for number, name, field in columns if field is not None]


STORAGES.register(Array.name, Array())
