"""`TFRecords`: images in TFRecord files of tf.train.Example messages, read in any order and without TensorFlow.

A record is: length (8 bytes, little endian), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4).
"""

from __future__ import annotations

import functools
import glob
import hashlib
import logging
import os
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, text_format
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, DataError, shortened, warn_of_data
from autopipe.hardware import disk
from autopipe.values import count_text
from autopipe.workload.data import paths, remote, source
from autopipe.workload.data.columns import missing_column
from autopipe.workload.data.paths import PathList, Place
from autopipe.workload.data.remote import ObjectList
from autopipe.workload.plain_code import Library, PlainSource, quoted
from autopipe.workload.sample import FieldKind, SampleSpec

HEADER_BYTES = 12
FRAMING_BYTES = 16

_log = logging.getLogger(__name__)
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")  # gzip, zlib
_SCAN_BYTES = 1 << 18  # read at once while short records are scanned
_FETCH_BYTES = 1 << 23  # the same over a network: a request costs as much as a megabyte


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of `data`, as TFRecord files store it."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """Return `data` as a record."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CRC.pack(masked_crc(length)), data, _CRC.pack(masked_crc(data))))


def read_record(path: bytes, start: int, end: int) -> bytes:
    """Return the data of the record from `start` to `end` of a file; raise BadSampleError if it is damaged."""
    length, behind = end - start - FRAMING_BYTES, start + HEADER_BYTES
    try:
        if paths.is_url(path):
            content = remote.reader(path).read(path, behind, end)
        else:
            with open(path, "rb", buffering=0) as file:
                content = paths.read_at(file.fileno(), end - behind, behind)
    except OSError as error:
        raise paths.unreadable(_place(path, start), error) from error
    data, checksum = content[:length], content[length:]
    if len(data) != length or len(checksum) != 4:
        raise BadSampleError(f"{_place(path, start)} is cut short: the file has shrunk since it was opened.")
    if _CRC.unpack(checksum)[0] != masked_crc(data):
        raise BadSampleError(f"{_place(path, start)} is corrupt: it does not match its checksum.")
    return data


def record_offsets(path: bytes, size: int | None = None, version: str = "") -> NDArray[np.uint64]:
    """Return where each record begins, and the file's size; the user's cache folder keeps what a scan found."""
    if size is None:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            raise DataError(f"`{os.fsdecode(path)}` cannot be read: {error.strerror}.") from error
        paths.require_regular(path, status)
        size, version = status.st_size, str(status.st_mtime_ns)
    key = f"1\0{os.fsdecode(path)}\0{size}\0{version}"
    kept = paths.cache_folder() / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"
    if (offsets := _load_offsets(kept, size)) is None:
        offsets = scan_records(path, size)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with disk.replacing(kept) as stream:
                np.save(stream, offsets, allow_pickle=False)
        except OSError as error:  # the index only saves time
            _log.debug("The offset index %s was not kept: %s", kept, error)
    return offsets


def scan_records(path: bytes, size: int = -1) -> NDArray[np.uint64]:
    """Read the offsets of a file's records from their headers, without a kept index; of a URL its `size` is needed."""
    if paths.is_url(path):
        if size < 0:
            raise DataError(f"The server of `{paths.shown(path)}` does not say how large the file is.")
        ask = remote.reader(path).read
        return _scan(path, lambda count, start: ask(path, start, min(start + count, size)), size, _FETCH_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            opened = file.fileno()
            return _scan(path, lambda count, start: paths.read_at(opened, count, start), os.fstat(opened).st_size)
    except OSError as error:
        raise DataError(f"`{os.fsdecode(path)}` cannot be read: {error.strerror}.") from error


def _scan(path: bytes, read: Callable[[int, int], bytes], size: int, at_once: int = _SCAN_BYTES) -> NDArray[np.uint64]:
    offsets = [0]
    start = 0
    window, window_start = b"", 0
    while start < size:
        at = start - window_start
        if at + HEADER_BYTES > len(window):
            # Long records are skipped by reading their headers alone; short ones come many to a read.
            long = len(offsets) > 1 and start - offsets[-2] > at_once // 8
            window, window_start, at = read(HEADER_BYTES if long else at_once, start), start, 0
        header = window[at : at + HEADER_BYTES]
        if len(header) < HEADER_BYTES:
            raise DataError(f"{_place(path, start)} is cut short: the file ends within its header, at {size} bytes.")
        if _CRC.unpack_from(header, 8)[0] != masked_crc(header[:8]):
            if start > 0:
                raise DataError(f"{_place(path, start)} is corrupt: its header does not match its checksum.")
            if header[:2] not in _COMPRESSED:
                what = f"`{paths.shown(path)}` is no TFRecord file"
                raise DataError(f"{what}: its first header does not match its checksum.")
            raise DataError(
                f"`{paths.shown(path)}` is compressed as a whole, so that single records cannot be read.",
                hint="Write it again without compression; JPEG and PNG are compressed already.",
            )
        if (end := start + FRAMING_BYTES + _LENGTH.unpack_from(header)[0]) > size:
            raise DataError(f"{_place(path, start)} is cut short: it should end at {end}, but the file ends at {size}.")
        offsets.append(end)
        start = end
    return np.array(offsets, np.uint64)


def _load_offsets(file: Path, size: int) -> NDArray[np.uint64] | None:
    try:
        offsets: Any = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    if not isinstance(offsets, np.ndarray) or offsets.dtype != np.uint64 or offsets.ndim != 1 or len(offsets) == 0:
        return None
    is_whole = offsets[0] == 0 and offsets[-1] == size and np.all(np.diff(offsets.astype(np.int64)) >= FRAMING_BYTES)
    return offsets if is_whole else None


def _place(path: bytes, start: int) -> str:
    return f"The record at byte {start} of `{paths.shown(path)}`"


# -------------------- record files

_MOST_FILES = 1_000_000
_NUMBERED = re.compile(r"(.*)-(\d+)-of-(\d+)(\.\w+)?")


def _scanned(pattern: Place | Sequence[Place]) -> tuple[PathList, Iterable[NDArray[np.uint64]]]:
    """Return the files, and where the records of each begin; raise DataError if none matches or one is damaged."""
    if not isinstance(pattern, Iterable):
        paths.require_text(pattern)
    named = [pattern] if isinstance(pattern, str | os.PathLike) else pattern
    places, several = [paths.located(place) for place in named], named is pattern
    if any(map(paths.is_url, places)):
        if not (infos := remote.asked(places) if several else remote.matching(places[0])):
            raise DataError(f"No object matches `{paths.shown(places[0])}`.", hint="Check the address.")
        if not several:
            _warn_of_missing_files(sorted(infos))
        top, objects = remote.named(infos)
        files: PathList = ObjectList(top, objects)
        found = [(files.path(number), each) for number, each in enumerate(objects)]
        return files, remote.at_once(lambda one: record_offsets(one[0], one[1].size, one[1].tag.hex()), found)
    if not places:
        raise DataError("`pattern` must name at least one file, but is an empty sequence.")
    local = [os.path.abspath(path) for path in (places if several else _matching(named[0]))]  # noqa: PTH100  no resolving
    root = os.path.commonpath([os.path.dirname(path) for path in local])  # noqa: PTH120
    relative = (os.fsencode(os.path.relpath(path, root)) for path in local)
    files = PathList(root, (path.rpartition(b"/")[::2] for path in relative))
    return files, (record_offsets(files.path(number)) for number in range(len(files)))


def _matching(pattern: Place) -> list[str]:
    absolute = paths.located(pattern) if paths.is_url(pattern) else paths.located_pattern(pattern)
    found = sorted(glob.glob(absolute, recursive=True))  # noqa: PTH207
    if not found:
        raise DataError(f"No file matches {absolute!r}.", hint=paths.RULE)
    _warn_of_missing_files(found)
    return found


def _warn_of_missing_files(names: list[str]) -> None:
    sets: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            sets.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (name, total), found in sets.items():
        if missing := sorted(set(range(min(total, _MOST_FILES))) - found):
            warn_of_data(
                f"`{name}-*` should be {total} files by their names, but {len(missing)} are missing, "
                f"the first is number {missing[0]}.",
                level=4,
            )


# -------------------- example: tf.train.Example without TensorFlow
# The definition is TensorFlow's own (tensorflow/core/example/example.proto), in a separate descriptor pool, because the
# default pool refuses a second definition of the same name once TensorFlow is imported.


class ExampleError(ValueError):
    """A record is no tf.train.Example, or lacks a feature; the caller adds the file and offset."""


def features(record: bytes) -> Mapping[str, Any]:
    """Return the features of a serialised tf.train.Example by key; raise ExampleError if it is none."""
    try:
        parsed: Mapping[str, Any] = _example_class().FromString(record).features.feature
    except message.DecodeError as error:
        raise ExampleError("is no tf.train.Example") from error
    return parsed


def serialise(values: Mapping[str, bytes | int]) -> bytes:
    """Return a serialised tf.train.Example; equal values give equal bytes."""
    example = _example_class()()
    for key, value in values.items():
        feature = example.features.feature[key]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.int64_list.value.append(value)
    serialised: bytes = example.SerializeToString(deterministic=True)
    return serialised


def single(parsed: Mapping[str, Any], key: str, kind: Literal["bytes", "int64"]) -> Any:
    """Return the only value of a feature; raise ExampleError if it has none of that kind, or several."""
    if key not in parsed:  # asked first, because looking a key up would add it
        raise ExampleError(f"has no feature `{key}`; it has {', '.join(f'`{name}`' for name in sorted(parsed))}")
    values = getattr(parsed[key], f"{kind}_list").value
    if len(values) != 1:
        held = parsed[key].WhichOneof("kind")
        raise ExampleError(
            f"must have one value in the {kind}_list of `{key}`, but has {len(values)} (it holds {held})"
        )
    return values[0]


_PROTO = """
name: "autopipe/example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".tensorflow.Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.Feature" }
  }
  field {
    name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensorflow.Features.FeatureEntry"
  }
}
message_type {
  name: "Example" field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.Features" }
}
"""


@functools.cache
def _example_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


# -------------------- source

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
        self._files, found = _scanned(pattern)
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
            return self._parts(features(record))
        except ExampleError as error:
            raise BadSampleError(f"The record at byte {start} of `{self._files.text(file)}` {error}.") from error

    def spans(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        files = np.searchsorted(self._firsts, indices, side="right") - 1
        offsets = np.frombuffer(self._offsets, np.uint64)
        places = indices + files  # each file has one offset more than records
        found, names = native.files_at(list(map(self._files.path, files.tolist())))
        found["offset"] = offsets[places] + HEADER_BYTES
        found["size"] = offsets[places + 1] - offsets[places] - HEADER_BYTES
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
        found = tuple([single(parsed, *each) for each in self._features])
        return found if len(found) > 1 else found[0]

    def _require_keys(self) -> None:
        file, start, end = self._find(0)
        place = f"The first record of `{self._files.text(file)}`"
        try:
            parsed = features(read_record(self._files.path(file), start, end))
            for key, _ in self._features:
                if key not in parsed:
                    raise missing_column(key, sorted(parsed), place, "features", _NAME_KEYS)
            self._parts(parsed)
        except ExampleError as error:
            raise DataError(f"{place} {error}.", hint=f"{_NAME_KEYS} {_OTHERS}") from error
