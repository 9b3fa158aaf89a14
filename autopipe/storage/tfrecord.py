"""`tfrecord`: the encoded samples as tf.train.Example messages in TFRecord files that any TensorFlow program reads.

Beside each file lies the index of its records, so that they can be read in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from autopipe.core.config import STORAGES
from autopipe.core.sample import FieldKind, Sample, SampleSpec
from autopipe.data.example import serialise
from autopipe.data.records import OFFSETS_SUFFIX, frame
from autopipe.data.tfrecords import TFRecords
from autopipe.errors import StorageError
from autopipe.ops.plan import normalise
from autopipe.storage.form import Reader, Storage
from autopipe.storage.shard import ShardFiles

IMAGE_KEY = "image/encoded"
LABEL_KEY = "image/class/label"
MASK_KEY = "image/segmentation/class/encoded"

_OVERHEAD_BYTES = 96  # framing, keys and a label
_NO_SAMPLE: Sample = (b"", 0)


class TFRecord(Storage):
    """Encoded images, with a label or an encoded mask each."""

    name: ClassVar[str] = "tfrecord"

    def can_hold(self, spec: SampleSpec) -> bool:
        y_fits = spec.y is None or spec.y.kind in (FieldKind.LABEL, FieldKind.ENCODED)
        return spec.x.kind is FieldKind.ENCODED and y_fits

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        sizes = [len(serialise(_features(sample, spec))) + _OVERHEAD_BYTES for sample in probes]
        return sum(sizes) / max(len(sizes), 1)

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        records = files.create(_file_name)
        offsets = [0]
        for sample in samples:
            records.write(frame(serialise(_features(_NO_SAMPLE if sample is None else sample, spec))))
            offsets.append(records.size)
        index = files.create(lambda number: f"{_file_name(number)}{OFFSETS_SUFFIX.decode()}")
        np.save(index, np.array(offsets, np.uint64), allow_pickle=False)

    def open(self, folder: Path, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        kind = None if spec.y is None else spec.y.kind
        records = TFRecords(
            [folder / _file_name(number) for number in range(len(shards))],
            image_key=IMAGE_KEY,
            label_key=LABEL_KEY if kind is FieldKind.LABEL else None,
            mask_key=MASK_KEY if kind is FieldKind.ENCODED else None,
        )
        if len(records) != sum(shards):
            raise StorageError(
                f"`{folder}` must hold {sum(shards)} records, but holds {len(records)}.",
                hint="Remove the folder and convert again.",
            )
        return _Records(records)


class _Records:
    def __init__(self, records: TFRecords) -> None:
        self._records = records

    def read(self, index: int) -> Sample:
        return normalise(self._records.read(index))


def _file_name(number: int) -> str:
    return f"data-{number:05d}.tfrecord"


def _features(sample: Sample, spec: SampleSpec) -> dict[str, bytes | int]:
    x, y = sample
    if spec.y is None:
        return {IMAGE_KEY: bytes(x)}
    if spec.y.kind is FieldKind.ENCODED:
        return {IMAGE_KEY: bytes(x), MASK_KEY: bytes(y) if y else b""}
    return {IMAGE_KEY: bytes(x), LABEL_KEY: int(y)}


STORAGES.register(TFRecord.name, TFRecord())
