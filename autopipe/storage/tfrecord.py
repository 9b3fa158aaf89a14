"""`tfrecord`: the encoded samples as tf.train.Example messages in TFRecord files that any TensorFlow program reads.

For each file there is an index of where its samples' bytes lie, so that one is read in any order and without parsing.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autopipe.core.config import STORAGES
from autopipe.core.sample import Field, FieldKind, Sample, SampleSpec
from autopipe.data import filesystem
from autopipe.data.example import serialise
from autopipe.data.records import HEADER_BYTES, frame
from autopipe.errors import BadSampleError
from autopipe.storage.form import Reader, Storage
from autopipe.storage.place import Place, RemotePath
from autopipe.storage.shard import ShardFiles

IMAGE_KEY = "image/encoded"
LABEL_KEY = "image/class/label"
MASK_KEY = "image/segmentation/class/encoded"

_FRAME_AND_INDEX_BYTES = 16 + 32
_NO_SAMPLE: Sample = (b"", 0)


class TFRecord(Storage):
    """Encoded images, with a label or an encoded mask each."""

    name: ClassVar[str] = "tfrecord"

    def can_hold(self, spec: SampleSpec) -> bool:
        return spec.x.kind is FieldKind.ENCODED and (spec.y is None or _fits(spec.y))

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        sizes = [len(serialise(_features(sample, spec))) + _FRAME_AND_INDEX_BYTES for sample in probes]
        return sum(sizes) / max(len(sizes), 1)

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        records = files.create(_records_name)
        rows = []
        for sample in samples:
            features = _features(_NO_SAMPLE if sample is None else sample, spec)
            message = serialise(features)
            rows.append(_index_row(features, message, records.size + HEADER_BYTES))
            records.write(frame(message))
        np.save(files.create(_index_name), np.array(rows, np.int64), allow_pickle=False)

    def open(self, folder: Place, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        return _Records(folder, None if spec.y is None else spec.y.kind, tuple(shards))


class _Records:
    """Reads a set of records; each shard's file and index are opened when it is first read."""

    def __init__(self, folder: Place, y_kind: FieldKind | None, counts: tuple[int, ...]) -> None:
        self._folder = folder
        self._y_kind = y_kind
        self._counts = counts
        self._per_shard = max(counts)  # all but the last shard are of one size
        self._shards: list[_Shard | _RemoteShard | None] = [None] * len(counts)

    def __reduce__(self) -> tuple[object, ...]:
        return _Records, (self._folder, self._y_kind, self._counts)

    def read(self, index: int) -> Sample:
        number, row = divmod(index, self._per_shard)
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = _opened(self._folder, number)
        first = 4 * row
        x = shard.read(first)
        if self._y_kind is FieldKind.LABEL:
            return x, shard.index[first + 2]
        return x, None if self._y_kind is None else shard.read(first + 2)


def _opened(folder: Place, number: int) -> _Shard | _RemoteShard:
    return _Shard(folder, number) if isinstance(folder, Path) else _RemoteShard(folder, number)


class _RemoteShard:
    """A file of records behind a URL; each part of one is a request. There is no connection to keep."""

    def __init__(self, folder: RemotePath, number: int) -> None:
        table: NDArray[Any] = np.load(io.BytesIO((folder / _index_name(number)).read_bytes()), allow_pickle=False)
        self.index = table.reshape(-1).data
        self._path = folder / _records_name(number)

    def read(self, entry: int) -> bytes:
        """Return the bytes that two numbers of the index, start and length, stand for."""
        start, length = self.index[entry], self.index[entry + 1]
        content = filesystem.read(self._path.url, start, start + length)
        if len(content) != length:
            raise BadSampleError(f"The record at byte {start} of `{self._path}` is cut short: the file has shrunk.")
        return content


class _Shard:
    """An open file of records, read without moving a position, so by many threads at once."""

    def __init__(self, folder: Path, number: int) -> None:
        table: NDArray[Any] = np.load(folder / _index_name(number), allow_pickle=False)
        self.index = table.reshape(-1).data  # gives Python integers
        self._path = folder / _records_name(number)
        self._descriptor = os.open(self._path, os.O_RDONLY)

    def read(self, entry: int) -> bytes:
        """Return the bytes that two numbers of the index, start and length, stand for."""
        start, length = self.index[entry], self.index[entry + 1]
        content = os.pread(self._descriptor, length, start)
        if len(content) != length:
            raise BadSampleError(f"The record at byte {start} of `{self._path}` is cut short: the file has shrunk.")
        return content

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone before this is
        if hasattr(self, "_descriptor"):
            close(self._descriptor)


def _fits(y: Field) -> bool:
    """Return whether a target is an encoded mask, or one whole number; any other would be cut to one."""
    if y.kind is FieldKind.LABEL:
        return y.shape == () and y.dtype is not None and y.dtype.kind in "biu"
    return y.kind is FieldKind.ENCODED


def _records_name(number: int) -> str:
    return f"data-{number:05d}.tfrecord"


def _index_name(number: int) -> str:
    return f"index-{number:05d}.npy"


def _features(sample: Sample, spec: SampleSpec) -> dict[str, bytes | int]:
    x, y = sample
    if spec.y is None:
        return {IMAGE_KEY: bytes(x)}
    if spec.y.kind is FieldKind.ENCODED:
        return {IMAGE_KEY: bytes(x), MASK_KEY: bytes(y) if y else b""}
    return {IMAGE_KEY: bytes(x), LABEL_KEY: int(y)}


def _index_row(features: dict[str, bytes | int], message: bytes, offset: int) -> tuple[int, int, int, int]:
    """Return where a sample's parts lie: start and length of x, then the label, or start and length of the mask."""
    x, y = features[IMAGE_KEY], features.get(MASK_KEY, features.get(LABEL_KEY, 0))
    assert isinstance(x, bytes)
    # Equal bytes found elsewhere in the message do as well.
    x_place = (offset + message.index(x), len(x))
    return (*x_place, offset + message.index(y), len(y)) if isinstance(y, bytes) else (*x_place, y, 0)


STORAGES.register(TFRecord.name, TFRecord())
