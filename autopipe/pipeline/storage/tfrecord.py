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
from autopipe.pipeline.storage.form import Place, RemotePath, ShardFiles, Storage, file_name
from autopipe.workload.data import remote
from autopipe.workload.data.paths import read_at
from autopipe.workload.data.records import HEADER_BYTES, frame, serialise
from autopipe.workload.sample import Field, FieldKind, Part, Sample, SampleSpec, is_int64

IMAGE_KEY = "image/encoded"
LABEL_KEY = "image/class/label"
MASK_KEY = "image/segmentation/class/encoded"

_FRAME_AND_INDEX_BYTES = 16 + 32
_INDEX = ("index", "npy")
_RECORDS = ("data", "tfrecord")


class TFRecord(Storage):
    """Encoded images, with a label or an encoded mask each."""

    name: ClassVar[str] = "tfrecord"
    has_places: ClassVar[bool] = True

    def can_hold(self, spec: SampleSpec) -> bool:
        if spec.structure is not None:
            arrays = [field for field in spec.fields if field.kind is not FieldKind.ENCODED]
            return spec.x.kind is FieldKind.ENCODED and all(field.shape is not None for field in arrays)
        return spec.x.kind is FieldKind.ENCODED and (spec.y is None or _fits(spec.y))

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        sizes = [len(serialise(_features(sample, spec))) + _FRAME_AND_INDEX_BYTES for sample in probes]
        return sum(sizes) / max(len(sizes), 1)

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        records = files.create(*_RECORDS)
        rows = []
        for sample in samples:
            features = _features(sample, spec)
            message = serialise(features)
            rows.append(_index_row(features, message, records.size + HEADER_BYTES))
            records.write(frame(message))
        np.save(files.create(*_INDEX), np.array(rows, np.int64), allow_pickle=False)

    def open(self, folder: Place, spec: SampleSpec, number: int, samples: int) -> _Records:
        return _Records(folder, spec, number)


class _Records:
    """A file of records: an open one, read without moving a position, so by many threads at once.

    Behind a URL each part of a record is a request, and there is no connection to keep.
    """

    def __init__(self, folder: Place, spec: SampleSpec, number: int) -> None:
        self._spec, self._fields = spec, spec.fields
        self._has_label = LABEL_KEY in _keys(spec)
        content = (folder / file_name(_INDEX[0], number, _INDEX[1])).read_bytes()
        table: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
        self._index = table.reshape(-1).data  # gives Python integers
        self._path = folder / file_name(_RECORDS[0], number, _RECORDS[1])
        if isinstance(self._path, Path):
            self._descriptor = os.open(self._path, os.O_RDONLY)

    def read(self, row: int) -> Sample:
        first = 2 * len(self._fields) * row
        if self._has_label:
            return self._content(first), self._index[first + 2]
        contents = [self._content(first + 2 * number) for number in range(len(self._fields))]
        return self._spec.aligned(list(map(_part, contents, self._fields)))

    def place(self, row: int) -> list[int]:
        """Return the open file, and start and length of each part of a sample; a label itself, and 0."""
        first = 2 * len(self._fields) * row
        return [self._descriptor, *self._index[first : first + 2 * len(self._fields)]]

    def _content(self, entry: int) -> bytes:
        """Return the bytes of an entry of the index: start and length."""
        start, length = self._index[entry], self._index[entry + 1]
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


def _part(content: bytes, field: Field) -> Part:
    if field.kind is FieldKind.ENCODED:
        return content
    array: NDArray[Any] = np.frombuffer(content, field.dtype).reshape(field.shape or ())
    return array.item() if field.kind is FieldKind.LABEL and array.ndim == 0 else array[()]


def _bytes(part: Part, field: Field) -> bytes:
    return bytes(part) if field.kind is FieldKind.ENCODED else np.asarray(part, field.dtype, order="C").tobytes()


def _keys(spec: SampleSpec) -> tuple[str, ...]:
    if spec.structure is not None:
        return (IMAGE_KEY, *spec.labels[1:])
    return IMAGE_KEY, MASK_KEY if spec.y is None or spec.y.kind is FieldKind.ENCODED else LABEL_KEY


def _features(sample: Sample | None, spec: SampleSpec) -> dict[str, bytes | int]:
    """Return the parts of a sample by their keys; empty ones in the place of a bad sample."""
    features: dict[str, bytes | int] = {}
    for number, (key, field) in enumerate(zip(_keys(spec), spec.columns, strict=True)):
        if key == LABEL_KEY:
            features[key] = 0 if sample is None else _label(sample[number])
        elif field is not None:
            features[key] = b"" if sample is None else _bytes(sample[number], field)
    return features


def _label(y: Part) -> int:
    label = int(y)
    if not is_int64(label):  # an unsigned one may not be
        raise StorageError(
            f"A label in a TFRecord file must be from -2**63 to 2**63 - 1, but got {label}.",
            hint="Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True).",
        )
    return label


def _index_row(features: dict[str, bytes | int], message: bytes, offset: int) -> list[int]:
    """Return the start and length of each part of a sample; a label itself, and 0."""
    row: list[int] = []
    for part in features.values():  # equal bytes found elsewhere in the message do as well
        row += [offset + message.index(part), len(part)] if isinstance(part, bytes) else [part, 0]
    return row


STORAGES.register(TFRecord.name, TFRecord())
