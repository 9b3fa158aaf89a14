"""`tfrecord`: the encoded samples as tf.train.Example messages in TFRecord files that any TensorFlow program reads.

Samples of several parts keep those beside the encoded image as bytes under their names: "x.features", "sample_weight".
`tf.io.decode_raw` reads the arrays and numbers among them. Each file has an index of its samples' bytes, so that one is
read in any order and without parsing.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, StorageError
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Place, Reader, RemotePath, ShardFiles, ShardReader, Storage
from autopipe.workload.data import remote
from autopipe.workload.data.paths import read_at
from autopipe.workload.data.records import HEADER_BYTES, frame, serialise
from autopipe.workload.sample import Field, FieldKind, Part, Sample, SampleSpec, is_int64

IMAGE_KEY = "image/encoded"
LABEL_KEY = "image/class/label"
MASK_KEY = "image/segmentation/class/encoded"

_FRAME_AND_INDEX_BYTES = 16 + 32
_NO_SAMPLE: Sample = (b"", 0)


class TFRecord(Storage):
    """Encoded images, with a label or an encoded mask each."""

    name: ClassVar[str] = "tfrecord"

    def can_hold(self, spec: SampleSpec) -> bool:
        if spec.structure is not None:
            return spec.x.kind is FieldKind.ENCODED and all(map(_has_fixed_bytes, spec.fields))
        return spec.x.kind is FieldKind.ENCODED and (spec.y is None or _fits(spec.y))

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        sizes = [len(serialise(_features(sample, spec))) + _FRAME_AND_INDEX_BYTES for sample in probes]
        return sum(sizes) / max(len(sizes), 1)

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        records = files.create(_records_name)
        rows = []
        for sample in samples:
            features = _features(sample, spec)
            message = serialise(features)
            rows.append(_index_row(features, message, records.size + HEADER_BYTES))
            records.write(frame(message))
        np.save(files.create(_index_name), np.array(rows, np.int64), allow_pickle=False)

    def open(self, folder: Place, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        return _Records(folder, spec, shards)


class _Records(ShardReader["_Shard"]):
    """Reads a set of records."""

    def read(self, index: int) -> Sample:
        number, row = divmod(index, self._per_shard)
        shard, fields = self._shard(number), self._spec.fields
        first = max(4, 2 * len(fields)) * row
        if self._spec.structure is None and len(fields) > 1 and fields[1].kind is FieldKind.LABEL:
            return shard.read(first), shard.index[first + 2]
        contents = [shard.read(first + 2 * number) for number in range(len(fields))]
        return self._spec.aligned(list(map(_part, contents, fields)))

    def _opened(self, number: int) -> _Shard:
        return _Shard(self._folder, number)


class _Shard:
    """A file of records: an open one, read without moving a position, so by many threads at once.

    Behind a URL each part of a record is a request, and there is no connection to keep.
    """

    def __init__(self, folder: Place, number: int) -> None:
        table: NDArray[Any] = np.load(io.BytesIO((folder / _index_name(number)).read_bytes()), allow_pickle=False)
        self.index = table.reshape(-1).data  # gives Python integers
        self._path = folder / _records_name(number)
        if isinstance(self._path, Path):
            self._descriptor = os.open(self._path, os.O_RDONLY)

    def read(self, entry: int) -> bytes:
        """Return the bytes of an entry of the index: start and length."""
        start, length = self.index[entry], self.index[entry + 1]
        if isinstance(self._path, RemotePath):
            content = remote.reader(self._path.url).read(self._path.url, start, start + length)
        else:
            content = read_at(self._descriptor, length, start)
        if len(content) != length:
            raise BadSampleError(f"The record at byte {start} of `{self._path}` is cut short: the file has shrunk.")
        return content

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone before this is
        if hasattr(self, "_descriptor"):
            close(self._descriptor)


def _fits(y: Field) -> bool:
    """True for an encoded mask, or one whole number; any other target would be cut to one."""
    if y.kind is FieldKind.LABEL:
        return y.shape == () and y.dtype is not None and y.dtype.kind in "biu"
    return y.kind is FieldKind.ENCODED


def _records_name(number: int) -> str:
    return f"data-{number:05d}.tfrecord"


def _index_name(number: int) -> str:
    return f"index-{number:05d}.npy"


def _has_fixed_bytes(field: Field) -> bool:
    return field.kind is FieldKind.ENCODED or (field.shape is not None and field.dtype is not None)


def _part(content: bytes, field: Field) -> Part:
    if field.kind is FieldKind.ENCODED:
        return content
    array: NDArray[Any] = np.frombuffer(content, field.dtype).reshape(field.shape or ())
    return array.item() if field.kind is FieldKind.LABEL and array.ndim == 0 else array[()]


def _bytes(part: Part, field: Field) -> bytes:
    return bytes(part) if field.kind is FieldKind.ENCODED else np.asarray(part, field.dtype, order="C").tobytes()


def _features(sample: Sample | None, spec: SampleSpec) -> dict[str, bytes | int]:
    if spec.structure is not None:
        names = (IMAGE_KEY, *spec.labels[1:])
        return {
            name: b"" if sample is None else _bytes(sample[number], field)
            for number, (name, field) in enumerate(zip(names, spec.columns, strict=True))
            if field is not None
        }
    x, y = _NO_SAMPLE if sample is None else sample
    if spec.y is None:
        return {IMAGE_KEY: bytes(x)}
    if spec.y.kind is FieldKind.ENCODED:
        return {IMAGE_KEY: bytes(x), MASK_KEY: bytes(y) if y else b""}
    return {IMAGE_KEY: bytes(x), LABEL_KEY: _label(y)}


def _label(y: Part) -> int:
    label = int(y)
    if not is_int64(label):  # an unsigned one may not be
        raise StorageError(
            f"A label in a TFRecord file must be from -2**63 to 2**63 - 1, but got {label}.",
            hint="Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True).",
        )
    return label


def _index_row(features: dict[str, bytes | int], message: bytes, offset: int) -> list[int]:
    """Return the place of a sample's parts: start and length of x, then the label, or start and length of the mask.

    Of several parts: start and length of each.
    """
    row: list[int] = []
    for part in features.values():  # equal bytes found elsewhere in the message do as well
        row += [offset + message.index(part), len(part)] if isinstance(part, bytes) else [part, 0]
    return row if len(row) > 2 else [*row, 0, 0]


STORAGES.register(TFRecord.name, TFRecord())
