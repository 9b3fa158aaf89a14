"""`TFRecords`: images in TFRecord files of tf.train.Example messages, read in any order and without TensorFlow."""

from __future__ import annotations

import math
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autopipe.errors import BadSampleError, DataError
from autopipe.workload.data import records, source
from autopipe.workload.data.arrays import looks_like_image
from autopipe.workload.data.columns import missing_column
from autopipe.workload.data.paths import Place
from autopipe.workload.data.records import HEADER_BYTES, read_record, scanned
from autopipe.workload.plain_code import Library, Lines, PlainSource, quoted
from autopipe.workload.sample import Batch, FieldKind, SampleSpec

_NAME_KEYS = 'Name the features: ap.TFRecords(pattern, image_key="...", label_key="..." or None).'
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
    """Images, encoded or as raw pixels, and labels, or masks, from TFRecord files.

    The files are scanned once for where their records start (8 bytes a record, kept in the user's cache folder), so
    that any record can be read alone and an epoch has the same order as from files. Checksums are verified.

    Args:
        pattern: a glob such as "train-*.tfrecord" or "s3://bucket/train-*", or a sequence of paths or URLs.
        image_key: the bytes feature that holds the encoded image.
        label_key: the int64 feature that holds the label; None for images alone.
        mask_key: the bytes feature that holds an encoded mask; if given, y is the mask and no label is read.
        shape: where the image is not encoded but raw pixels, as `array.tobytes()` gives them: the array's shape. Their
            checksums are verified when a record is first read.
        dtype: of raw pixels.

    Attributes:
        remote: the kind of URL that the files are behind, such as "s3"; None for files on a disk.

    Raises:
        DataError: no file matches; one is compressed, cut short, or no TFRecord file; the first record lacks a key, or
            has as many bytes of pixels as no array of this shape.

    Example:
        >>> data = ap.TFRecords("imagenet/train-*")   # doctest: +SKIP
        >>> data = ap.TFRecords("cifar/train-*", image_key="image_raw", shape=(32, 32, 3))   # doctest: +SKIP
    """

    def __init__(
        self,
        pattern: Place | Sequence[Place],
        *,
        image_key: str = "image/encoded",
        label_key: str | None = "image/class/label",
        mask_key: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = "uint8",
    ) -> None:
        self._files, found = scanned(pattern)
        self.remote = self._files.remote
        self._image_key = image_key
        self._target: _Feature | None = None if label_key is None else (label_key, "int64")
        if mask_key is not None:
            self._target = mask_key, "bytes"
        self.y_kind = None if self._target is None else _KINDS[self._target[1]]
        self._offsets = array("Q")
        self._firsts: list[int] = []  # the number of each file's first record
        count = 0
        for offsets in found:
            self._firsts.append(count)
            self._offsets.frombytes(offsets.tobytes())
            count += len(offsets) - 1
        self._count = count
        if count == 0:
            raise DataError(f"There are no records in the {len(self._files)} files of {pattern!r}.")
        self._raw = None if shape is None else _RawPixels(tuple(shape), np.dtype(dtype), count)
        self.x_kind = FieldKind.ENCODED if self._raw is None else self._raw.kind
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

    @property
    def read_many(self) -> Callable[[NDArray[np.int64], Batch], None] | None:
        return None if self._raw is None or self.y_kind is FieldKind.ENCODED or self.remote else self._read_many

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
        pixels = "" if self._raw is None else f" pixels={self._raw!r}"
        return f"{self._files.digest()} records={self._count} keys={keys.replace(' ', '_')}{pixels}"

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource:
        source.require_local(self)
        files = "FILES = [\n" + "".join(f"    {quoted(path)},\n" for path in self._files.files()) + "]"
        features = [(part, quoted(key), kind) for part, (key, kind) in zip("xy", self._features, strict=False)]
        pixels = [] if self._raw is None else self._raw.plain(library)
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
                    *pixels,
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
                *pixels,
            ],
        )

    @property
    def _features(self) -> list[_Feature]:
        return [(self._image_key, "bytes"), *([] if self._target is None else [self._target])]

    def _find(self, index: int) -> tuple[int, int, int]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        file = bisect_right(self._firsts, index) - 1
        position = index + file  # each file has one offset more than records
        return file, self._offsets[position], self._offsets[position + 1]

    def _read_many(self, indices: NDArray[np.int64], out: Batch) -> None:
        assert self._raw is not None
        for index in self._raw.not_found(indices):
            file, start, end = self._find(index)
            record = read_record(self._files.path(file), start, end)
            parsed = records.features(record)
            image = records.single(parsed, self._image_key, "bytes")
            label = 0 if self._target is None else records.single(parsed, *self._target)
            self._raw.found(index, start + HEADER_BYTES + record.index(image), len(image), label)
        files = np.searchsorted(np.array(self._firsts[1:]), indices, side="right")
        self._raw.gather(indices, files, self._files.path, out)

    def _parts(self, parsed: Any) -> object:
        image = records.single(parsed, self._image_key, "bytes")
        if self._raw is not None:
            image = self._raw.array(image)
        return image if self._target is None else (image, records.single(parsed, *self._target))

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
            raise DataError(f"{place} {error}.", hint=_NAME_KEYS) from error


# -------------------- raw pixels
# The first reader of a record verifies its checksum and notes where its pixels start, and its label. Later batches are
# gathered from mapped files without looking at each record.


class _RawPixels:
    """Arrays of one shape and dtype in the records of some files; a pickle drops their places."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> None:
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
        self._mapped: dict[int, NDArray[np.uint8]] = {}

    @property
    def kind(self) -> FieldKind:
        return FieldKind.IMAGE if looks_like_image(self._shape, self._dtype) else FieldKind.ARRAY

    def array(self, content: bytes) -> NDArray[Any]:
        self._require(len(content))
        return np.frombuffer(content, self._dtype).reshape(self._shape)

    def not_found(self, indices: NDArray[np.int64]) -> list[int]:
        """Return the indices whose place is not known yet."""
        return indices[self._starts[indices] == 0].tolist()  # type: ignore[no-any-return]

    def found(self, index: int, start: int, length: int, label: int) -> None:
        """Note a record's label and the offset of its pixels; raise ExampleError if the number of bytes is wrong."""
        self._require(length)
        self._labels[index] = label  # before the start, which says that it is there
        self._starts[index] = start

    def gather(
        self, indices: NDArray[np.int64], files: NDArray[np.intp], path: Callable[[int], bytes], out: Batch
    ) -> None:
        """Write found records to the arrays (x, y) of a batch; `path` returns the path of file number i in `files`."""
        pixels = out[0].reshape(len(indices), -1).view(np.uint8)
        for file in np.unique(files).tolist():
            rows = np.flatnonzero(files == file)
            content = self._mapped.get(file)
            if content is None:
                content = np.memmap(os.fsdecode(path(file)), np.uint8, "r").view(np.ndarray)
                self._mapped[file] = content
            pixels[rows] = np.lib.stride_tricks.sliding_window_view(content, self._bytes)[self._starts[indices[rows]]]
        if out[1] is not None:
            out[1][...] = self._labels[indices]

    def plain(self, library: Library) -> Lines:
        if library == "np":
            return [f'x = np.frombuffer(x, "{self._dtype}").reshape{self._shape}']
        return [f"x = tf.reshape(tf.io.decode_raw(x, tf.{self._dtype}), {self._shape})"]

    def _require(self, length: int) -> None:
        if length != self._bytes:
            raise records.ExampleError(f"holds {length} bytes of pixels, but {self!r} takes {self._bytes}")
