"""`TFRecords`: images in TFRecord files of tf.train.Example messages, read in any order and without TensorFlow."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, DataError, shortened
from autopipe.values import count_text
from autopipe.workload.data import records, source
from autopipe.workload.data.columns import missing_column
from autopipe.workload.data.paths import Place
from autopipe.workload.data.records import read_record, scanned
from autopipe.workload.plain_code import Library, PlainSource, quoted
from autopipe.workload.sample import FieldKind, SampleSpec

_NAME_KEYS = 'Name the features: ap.TFRecords(pattern, image_key="...", label_key="..." or None).'
_OTHERS = "Targets of another kind are read by a function of your own: ap.wrap(function, model=...)."
_Feature: TypeAlias = tuple[str, Literal["bytes", "int64"]]  # its key, and what it holds
_KINDS = {"bytes": FieldKind.ENCODED, "int64": FieldKind.LABEL}
_PLAIN_SHUFFLED = 2_000  # encoded images that a buffer may hold
_PLAIN_PLACES = '''
def places() -> list[tuple[str, int, int]]:
    """Return the file of every record, where it starts and how long it is."""
    found = []
    for path in FILES:
        with open(path, "rb") as file:
            while header := file.read(12):  # the length, and its checksum
                length = int.from_bytes(header[:8], "little")
                found.append((path, file.tell(), length))
                file.seek(length + 4, 1)
    return found
'''


class TFRecords:
    """Encoded images, and labels or masks, from TFRecord files.

    The files are scanned once for where their records start (8 bytes a record, kept in the user's cache folder), so
    that any record can be read alone and an epoch has the same order as from files. Checksums are verified.

    Args:
        pattern: a glob such as "train-*.tfrecord" or "s3://bucket/train-*", or a sequence of paths or URLs.
        image_key: the bytes feature that holds the encoded image.
        label_key: the int64 feature that holds the label; None for images alone.
        mask_key: the bytes feature that holds an encoded mask; if given, y is the mask and no label is read.

    Attributes:
        remote: the kind of URL that the files are behind, such as "s3"; None for files on a disk.

    Raises:
        DataError: no file matches; one is compressed, cut short, or no TFRecord file; the first record lacks a key.

    Examples:
        >>> data = ap.TFRecords("imagenet/train-*")   # doctest: +SKIP
    """

    x_kind = FieldKind.ENCODED

    def __init__(
        self,
        pattern: Place | Sequence[Place],
        *,
        image_key: str = "image/encoded",
        label_key: str | None = "image/class/label",
        mask_key: str | None = None,
    ) -> None:
        for name, key in (("image_key", image_key), ("label_key", label_key), ("mask_key", mask_key)):
            if not isinstance(key, str) and (key is not None or name == "image_key"):
                raise DataError(f"`{name}` must be the key of a feature, as text, but got {shortened(key)}.")
        self._files, found = scanned(pattern)
        self.remote = self._files.remote
        self._features: list[_Feature] = [(image_key, "bytes")]
        if mask_key is not None:
            self._features.append((mask_key, "bytes"))
        elif label_key is not None:
            self._features.append((label_key, "int64"))
        self.y_kind = _KINDS[self._features[1][1]] if len(self._features) > 1 else None
        self._offsets, self._count = array("Q"), 0
        self._firsts = array("q")  # the number of each file's first record
        for offsets in found:
            self._firsts.append(self._count)
            self._offsets.frombytes(offsets.tobytes())
            self._count += len(offsets) - 1
        if self._count == 0:
            raise DataError(f"There are no records in the {count_text(len(self._files), 'file')} of {pattern!r}.")
        self._require_keys()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"TFRecords({self._files.text(0)!r}, ...: {self._count} records in {len(self._files)} files)"

    def read(self, index: int) -> object:
        file, start, end = self._find(index)
        record = read_record(self._files.path(file), start, end)
        try:
            return self._parts(records.features(record))
        except records.ExampleError as error:
            raise BadSampleError(f"The record at byte {start} of `{self._files.text(file)}` {error}.") from error

    def spans(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        files = np.searchsorted(self._firsts, indices, side="right") - 1
        offsets = np.frombuffer(self._offsets, np.uint64)
        places = indices + files  # each file has one offset more than records
        found, names = native.files_at(list(map(self._files.path, files.tolist())))
        found["offset"] = offsets[places] + records.HEADER_BYTES
        found["size"] = offsets[places + 1] - offsets[places] - records.HEADER_BYTES
        keys, kinds = zip(*self._features, strict=True)
        columns = native.features_at(found, [key.encode() for key in keys], [kind == "int64" for kind in kinds])
        parts = [(each, names) if kind == "bytes" else each for each, kind in zip(columns, kinds, strict=True)]
        return parts[0], parts[1] if len(parts) > 1 else None

    def name(self, index: int) -> str:
        file, start, _ = self._find(index)
        return f"{self._files.text(file)}, record {index - self._firsts[file]} at byte {start}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        if indices is None:
            return self._files.files()
        return self._files.files(sorted({self._find(index)[0] for index in indices}))

    def mean_bytes(self) -> float:
        ends = [*self._firsts[1:], self._count]
        return sum(self._offsets[end + file] for file, end in enumerate(ends)) / self._count

    def digest(self) -> str:
        keys = ",".join(key for key, _ in self._features)
        return f"{self._files.digest()} records={self._count} keys={keys.replace(' ', '_')}"

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource:
        source.require_local(self)
        files = "FILES = [\n" + "".join(f"    {quoted(path)},\n" for path in self._files.files()) + "]"
        features = [(part, quoted(key), kind) for part, (key, kind) in zip("xy", self._features, strict=False)]
        if library == "np":
            return PlainSource(
                constants=[files],
                functions=_PLAIN_PLACES,
                opened="self._places = places()",
                count="len(self._places)",
                taken="*self._places[index]",
                arguments=("path", "start", "length"),
                reading=[
                    'with open(path, "rb") as file:',
                    "    file.seek(start)",
                    "    features = tf.train.Example.FromString(file.read(length)).features.feature",
                    *(f"{part} = features[{key}].{kind}_list.value[0]" for part, key, kind in features),
                ],
            )
        types = {"bytes": "tf.string", "int64": "tf.int64"}
        listed = ", ".join(f"{key}: tf.io.FixedLenFeature((), {types[kind]})" for _, key, kind in features)
        return PlainSource(
            constants=[files],
            opened="tf.data.TFRecordDataset(FILES)",
            count=f"{_PLAIN_SHUFFLED:_}",
            arguments=("record",),
            reading=[
                f"features = tf.io.parse_single_example(record, {{{listed}}})",
                *(f"{part} = features[{key}]" for part, key, _ in features),
            ],
        )

    def _find(self, index: int) -> tuple[int, int, int]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        file = bisect_right(self._firsts, index) - 1
        position = index + file  # each file has one offset more than records
        return file, self._offsets[position], self._offsets[position + 1]

    def _parts(self, parsed: Any) -> object:
        found = tuple([records.single(parsed, *each) for each in self._features])
        return found if len(found) > 1 else found[0]

    def _require_keys(self) -> None:
        file, start, end = self._find(0)
        place = f"The first record of `{self._files.text(file)}`"
        try:
            parsed = records.features(read_record(self._files.path(file), start, end))
            for key, _ in self._features:
                if key not in parsed:
                    raise missing_column(key, sorted(parsed), place, "features", _NAME_KEYS)
            self._parts(parsed)
        except records.ExampleError as error:
            raise DataError(f"{place} {error}.", hint=f"{_NAME_KEYS} {_OTHERS}") from error
