"""TFRecord files: which files a pattern means, the offsets of their records, and the `tf.train.Example` in a record.

A record is: length (8 bytes, little endian), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4).
Which features make up a sample is the business of `tfrecords`.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import logging
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, text_format
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, DataError, warn_of_data
from autopipe.hardware import disk
from autopipe.workload.data import paths, remote
from autopipe.workload.data.paths import PathList, Place
from autopipe.workload.data.remote import ObjectList

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
    kept = cache_folder() / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"
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


def cache_folder() -> Path:
    """Return the folder of the offset indexes."""
    base: str | Path | None = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # neither HOME nor a name, as a container's user has it: runtimes say that it is the root
            base = "/.cache"
    return Path(base) / "autopipe" / "tfrecord"


def not_unpacked(file: str, folder: Path, error: OSError) -> DataError:
    """Return the error of a user's cache folder that cannot hold the content of a file."""
    return DataError(
        f"`{file}` cannot be unpacked into the cache folder `{folder}`: {error.strerror or error}.",
        hint="Set XDG_CACHE_HOME to a folder that can be written to and has room for the file's content.",
    )


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


def scanned(pattern: Place | Sequence[Place]) -> tuple[PathList, Iterable[NDArray[np.uint64]]]:
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
    local = _matching(pattern)
    root = os.path.commonpath([os.path.dirname(path) for path in local])  # noqa: PTH120
    relative = (os.fsencode(os.path.relpath(path, root)) for path in local)
    files = PathList(root, (path.rpartition(b"/")[::2] for path in relative))
    return files, (record_offsets(files.path(number)) for number in range(len(files)))


def _matching(pattern: Place | Sequence[Place]) -> list[str]:
    if not isinstance(pattern, str | os.PathLike):
        if not pattern:
            raise DataError("`pattern` must name at least one file, but is an empty sequence.")
        return [os.path.abspath(paths.located(path)) for path in pattern]  # noqa: PTH100  links are not resolved
    absolute = paths.located(pattern) if paths.is_url(pattern) else paths.located_pattern(pattern)
    found = sorted(glob.glob(absolute, recursive=True))  # noqa: PTH207
    if not found:
        raise DataError(f"No file matches {absolute!r}.", hint=paths.RULE)
    _warn_of_missing_files(found)
    return [os.path.abspath(path) for path in found]  # noqa: PTH100


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
