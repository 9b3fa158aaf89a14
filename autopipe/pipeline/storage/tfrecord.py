"""`tfrecord`: the encoded samples as tf.train.Example messages in TFRecord files that any TensorFlow program reads.

Samples of several parts keep those beside the encoded image as bytes under their names: "x.features", "sample_weight".
`tf.io.decode_raw` reads the arrays and numbers among them. Each file has an index of its samples' bytes, so that one is
read in any order and without parsing.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import StorageError
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Column, Folder, Shard, Storage, shard_file
from autopipe.workload.data import remote
from autopipe.workload.data.paths import OpenFile
from autopipe.workload.data.records import HEADER_BYTES, frame, serialise
from autopipe.workload.sample import FieldKind, Part, Sample, SampleSpec, is_int64

IMAGE_KEY = "image/encoded"
LABEL_KEY = "image/class/label"
MASK_KEY = "image/segmentation/class/encoded"

_FRAME_AND_INDEX_BYTES = 16 + 32
_INDEX, _RECORDS = "index.npy", "data.tfrecord"


class TFRecord(Storage):
    """Encoded images, with a label or an encoded mask each."""

    name: ClassVar[str] = "tfrecord"

    def can_hold(self, spec: SampleSpec) -> bool:
        if spec.structure is not None:
            arrays = [field for field in spec.fields if field.kind is not FieldKind.ENCODED]
            return spec.x.kind is FieldKind.ENCODED and all(field.shape is not None for field in arrays)
        if (y := spec.y) is not None and y.kind is FieldKind.LABEL:  # any but one whole number would be cut to one
            fits = y.shape == () and y.dtype is not None and y.dtype.kind in "biu"
        else:
            fits = y is None or y.kind is FieldKind.ENCODED
        return spec.x.kind is FieldKind.ENCODED and fits

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        sizes = [len(serialise(_features(sample, spec))) + _FRAME_AND_INDEX_BYTES for sample in probes]
        return sum(sizes) / max(len(sizes), 1)

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, to: Path) -> None:
        rows = []
        with (to / _RECORDS).open("wb") as records:
            for sample in samples:
                features = _features(sample, spec)
                message = serialise(features)
                start, row = records.tell() + HEADER_BYTES, list[int]()
                for part in features.values():  # equal bytes found elsewhere in the message do as well
                    row += [start + message.index(part), len(part)] if isinstance(part, bytes) else [part, 0]
                rows.append(row)
                records.write(frame(message))
        np.save(to / _INDEX, np.array(rows, np.int64), allow_pickle=False)

    def open(self, folder: Folder, spec: SampleSpec, number: int) -> Shard:
        table: NDArray[Any] = np.load(io.BytesIO(folder.read(shard_file(_INDEX, number))), allow_pickle=False)
        file = folder / shard_file(_RECORDS, number)
        opened = remote.Object(file.place) if file.path is None else OpenFile(file.path)
        entries = iter(table.reshape(len(table), -1, 2).swapaxes(0, 1))  # as many as parts that there are
        columns: list[Any] = []
        for key, field in zip(_keys(spec), spec.columns, strict=True):
            if field is None:
                columns.append(None)
                continue
            starts, lengths = (np.ascontiguousarray(each).data for each in next(entries).T)  # Python integers
            columns.append(starts if key == LABEL_KEY else Column(field, opened, starts, lengths))
        return columns


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
        elif field is not None and sample is not None:
            part = sample[number]
            is_bytes = field.kind is FieldKind.ENCODED
            features[key] = bytes(part) if is_bytes else np.asarray(part, field.dtype, order="C").tobytes()
        elif field is not None:
            features[key] = b""
    return features


def _label(y: Part) -> int:
    label = int(y)
    if not is_int64(label):  # an unsigned one may not be
        raise StorageError(
            f"A label in a TFRecord file must be from -2**63 to 2**63 - 1, but got {label}.",
            hint="Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True).",
        )
    return label


STORAGES.register(TFRecord.name, TFRecord())
