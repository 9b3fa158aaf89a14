"""A kept set: its record, the checks of its folder, and a set as a source.

A folder holds the files of shards, and `set.json`, which says what they are of and has a checksum of each file. While a
conversion runs, each part of it has such a record of its own, of the shards that it has finished, so that it can be
resumed. `convert` writes them; the forms write and read shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import google_crc32c
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, StorageError
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Conversion, Folder, Shard, Storage, Where
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread, unreadable
from autopipe.workload.ops.planner import normalise
from autopipe.workload.sample import FieldKind, Part, Sample, SampleSpec

# -------------------- record

RECORD_NAME = "set.json"
SCHEMA_VERSION = 3
_MOST_SHARDS = 10_000
_REMEDY = "Remove its folder and convert again."
_SHARD_FILE = re.compile(r"[a-z]+-\d{5}\.[a-z.]+")
PART_RECORD = re.compile(r"part-\d+-of-\d+\.json")
_OURS = re.compile(rf"{re.escape(RECORD_NAME)}|{_SHARD_FILE.pattern}|{PART_RECORD.pattern}")


class SetRecord(pydantic.BaseModel):
    """What a set is made of, and its files with their sizes and CRC-32C; those of all shards if it is complete."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    storage: str  # the form's name
    source_digest: str  # of the data that the samples come from
    ops: tuple[str, ...]  # the ops that are done, for people
    ops_digest: str  # of these ops
    cut: int  # how many they are
    samples: int = pydantic.Field(ge=1)  # how many samples there are
    samples_per_shard: int = pydantic.Field(ge=1)  # of all shards but the last, which has the rest
    files: dict[str, tuple[int, str]] = {}  # the bytes and the checksum of each, by name
    bad: dict[int, str] = {}  # samples that could not be read, by position, with the message

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.shard_count > _MOST_SHARDS:
            raise ValueError(f"{self.shard_count} shards are more than {_MOST_SHARDS}")
        for name in self.files:  # which lead out of the folder nowhere
            if _SHARD_FILE.fullmatch(name) is None or shard_of(name) >= self.shard_count:
                raise ValueError(f"{name!r} is no file of {self.shard_count} shards")
        return self

    @property
    def shard_count(self) -> int:
        return -(-self.samples // self.samples_per_shard)

    def positions(self, shard: int) -> range:
        return range(shard * self.samples_per_shard, min((shard + 1) * self.samples_per_shard, self.samples))

    @property
    def missing(self) -> list[int]:
        """The shards that are not finished."""
        finished = set(map(shard_of, self.files))
        return [number for number in range(self.shard_count) if number not in finished]

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    def joined(self, files: Mapping[str, tuple[int, str]], bad: Mapping[int, str]) -> Self:
        """Return the record with the files and bad samples of further shards."""
        files, bad = {**self.files, **files}, {**self.bad, **bad}
        return self.model_copy(update={"files": dict(sorted(files.items())), "bad": dict(sorted(bad.items()))})

    def without(self, shards: Iterable[int]) -> Self:
        """Return the record without some shards, which are to be written again."""
        files = {name: file for name, file in self.files.items() if shard_of(name) not in shards}
        bad = {at: said for at, said in self.bad.items() if at // self.samples_per_shard not in shards}
        return self.model_copy(update={"files": files, "bad": bad})

    @property
    def seal(self) -> str:
        """A digest of the record, which reveals edits."""
        return _seal(self.model_dump(mode="json"))

    def save(self, folder: Folder, name: str = RECORD_NAME) -> None:
        content = json.dumps({**self.model_dump(mode="json"), "seal": self.seal}, indent=1)
        folder.write(name, content.encode() + b"\n")

    @classmethod
    def load(cls, folder: Folder, name: str = RECORD_NAME) -> Self:
        """Read a record. Raise FileNotFoundError if it is missing, StorageError if edited or of another version."""
        try:
            body: dict[str, Any] = json.loads(folder.read(name))
            seal, version = body.pop("seal", None), body.get("schema_version")
            if seal == _seal(body) and version == SCHEMA_VERSION:
                return cls.model_validate(body)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unsound(folder / name, f"cannot be read: {error.strerror}") from error
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise _unsound(folder / name, "was edited or damaged: it is not as it was written") from error
        if seal == _seal(body):
            raise _unsound(folder / name, f"has schema_version {version!r}, but this release reads {SCHEMA_VERSION}")
        raise _unsound(folder / name, "was edited or damaged: its seal does not match")


def shard_of(name: str) -> int:
    """Return the shard of a file by its name."""
    return int(name.partition(".")[0][-5:])


def checksum(folder: Folder, name: str) -> tuple[int, str]:
    """Return the bytes of a file and its CRC-32C; it is read as a whole. Raise OSError if it cannot be."""
    crc, size = 0, 0
    for chunk in folder.chunks(name):
        crc, size = google_crc32c.extend(crc, chunk), size + len(chunk)
    return size, f"{crc:08x}"


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


def _unsound(file: Folder, why: str) -> StorageError:
    return StorageError(f"The record `{file}` {why}.", hint=_REMEDY)


# -------------------- the folder

_SHARD_BYTES = 64 << 20
_FEWEST_SHARDS, _ENOUGH_SHARDS = 8, 32  # so that several workers end at about the same time
_FEWEST_SAMPLES = 64  # of a shard, if there are enough: with fewer, its files cost more than its samples
_MOST_FILES = 256  # of a set, as a process may have some 1,000 open


def known_shards(folder: Folder) -> SetRecord | None:
    """Return the record of all runs' shards of the right size, if one has begun. Raise StorageError if unsound."""
    records: list[SetRecord] = []
    for name in (RECORD_NAME, *filter(PART_RECORD.fullmatch, folder.sizes())):
        with contextlib.suppress(FileNotFoundError):  # also if another run has just joined the parts
            records.append(SetRecord.load(folder, name))
    if not records:
        return None
    whole, *_ = records
    every = range(whole.shard_count)
    if any(each.without(every) != whole.without(every) for each in records):
        raise StorageError(f"The folder `{folder}` has parts of different conversions.", hint=_REMEDY)
    for each in records:
        whole = whole.joined(each.files, each.bad)
    return _with_files(whole, folder.sizes())


def _with_files(record: SetRecord, sizes: Mapping[str, int | None]) -> SetRecord:
    return record.without({shard_of(name) for name, (size, _) in record.files.items() if sizes.get(name) != size})


def open_folder(
    folder: Folder, conversion: Conversion, storage: Storage, whole_bytes: Callable[[], float]
) -> SetRecord:
    """Return the record of what a folder holds, maybe no shards. Raise StorageError if it is of another set."""
    names = sorted(folder.sizes())
    known = known_shards(folder)  # after the list: parts that begin now write their records before their shards
    foreign = [name for name in names if name[0] != "." and (known is None or not _OURS.fullmatch(name))]
    if foreign:
        raise StorageError(
            f"The folder of a conversion must hold nothing else, but `{folder}` has {len(foreign)} other files: "
            f"{', '.join(f'`{name}`' for name in foreign[:3])}.",
            hint="Choose a new or empty folder.",
        )
    if known is None:  # the record of a new conversion is the same wherever that begins
        count = len(conversion)
        enough = min(count, max(_FEWEST_SHARDS, min(_ENOUGH_SHARDS, count // _FEWEST_SAMPLES)))
        most = _MOST_FILES // len(conversion.spec.fields)
        shards = max(enough, min(most, -(-int(whole_bytes()) // _SHARD_BYTES)))
        return SetRecord(
            storage=storage.name,
            source_digest=conversion.source_digest,
            ops=tuple(step.op.name for step in conversion.steps),
            ops_digest=conversion.ops_digest,
            cut=conversion.cut,
            samples=count,
            samples_per_shard=-(-count // shards),
        )
    require_same(known, conversion, storage.name, folder)
    return known


def require_same(record: SetRecord, conversion: Conversion, storage: str, folder: Folder) -> None:
    """Raise StorageError for a set of another conversion; the message names the differences, with both sides."""
    if record.storage != storage:
        raise _stale(folder, f"is kept as {record.storage}, not as {storage}")
    if record.cut != conversion.cut or record.ops_digest != conversion.ops_digest:
        now = ", ".join(step.op.name for step in conversion.steps)
        raise _stale(
            folder,
            f"was made by other ops: [{', '.join(record.ops)}] (digest {record.ops_digest}), "
            f"but the workload now has [{now}] (digest {conversion.ops_digest})",
        )
    if record.source_digest != conversion.source_digest:
        changed = data_source.difference(record.source_digest, conversion.source_digest)
        raise _stale(folder, f"was made from other data ({changed} differ)")
    if record.samples != len(conversion):
        raise _stale(folder, f"holds {record.samples} samples, not {len(conversion)}")


def is_of_another(folder: Folder, conversion: Conversion, storage: Storage) -> bool:
    """Return True if a folder holds another set, a part of one or other files, so that `convert` refuses it."""
    with contextlib.suppress(StorageError):
        open_folder(folder, conversion, storage, lambda: 0.0)
        return False
    return True


def whole_record(folder: Folder) -> SetRecord:
    """Return a complete set's record; raise StorageError if it is missing or edited, or a file's size differs."""
    sizes = folder.sizes()
    if RECORD_NAME not in sizes:
        begun = any(map(PART_RECORD.fullmatch, sizes))
        raise StorageError(
            f"There is no whole set in `{folder}`{': its conversion was begun and did not end' if begun else ''}.",
            hint="Run the same conversion again; it goes on where it stopped." if begun else "Convert the data first.",
        )
    record = SetRecord.load(folder)
    require_complete(_with_files(record, sizes), folder)
    return record


def require_complete(record: SetRecord, folder: Folder) -> None:
    """Raise StorageError if a shard is missing."""
    if record.missing:
        raise StorageError(
            f"The set in `{folder}` is not complete: {len(record.missing)} of {record.shard_count} shards are missing "
            f"or not whole, the first is number {record.missing[0]}.",
            hint="Run the same conversion again, or its parts that did not end; files that are sound are kept.",
        )


def _stale(folder: Folder, why: str) -> StorageError:
    return StorageError(f"The set in `{folder}` {why}.", hint="Convert again into another folder, or remove this one.")


# -------------------- a set as a source


class StoredSource:
    """A kept set as a source of samples after the first ops. It opens shards when they are read, and pickles."""

    def __init__(self, folder: Folder, record: SetRecord, spec: SampleSpec) -> None:
        self._storage: Storage = STORAGES[record.storage]
        self.folder = folder.absolute()
        self.remote = folder.remote
        self.record = record
        self._spec = spec
        kinds = spec.packed([None if field is None else field.kind for field in spec.columns])
        self.x_kind, self.y_kind = kinds[0], kinds[1] if len(kinds) > 1 else None
        self._shards: dict[int, Shard] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}

    def __len__(self) -> int:
        return self.record.samples

    def __repr__(self) -> str:
        return f"StoredSource({str(self.folder)!r}: {len(self)} samples as {self.record.storage})"

    def read(self, index: int) -> tuple[Any, ...]:
        """Return a sample as it was kept. Raise BadSampleError if it could not be read then, or cannot be now."""
        shard, row = self._place(index)
        return self._spec.packed([None if column is None else column[row] for column in shard])

    def box(self, index: int, part: str, rows: slice, columns: slice) -> NDArray[Any]:
        """Return some rows and columns of a part of a sample, by its label. Raise as `read`."""
        shard, row = self._place(index)
        found: NDArray[Any] = shard[self._spec.labels.index(part)].box(row, rows, columns)
        return found

    def _place(self, index: int) -> tuple[Any, int]:
        if index in self.record.bad:
            raise BadSampleError(self.record.bad[index])
        return self._found([index])[0]

    def spans(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        chosen = indices.tolist()
        found = self._found(chosen)
        bad = [at for at, index in enumerate(chosen) if index in self.record.bad]
        columns: list[Any] = []
        for number, field in enumerate(self._spec.columns):
            has_place = field is not None and field.kind is not FieldKind.LABEL and field.shape != ()
            if field is None or not has_place or (field.kind is FieldKind.ARRAY and field.shape is None):
                columns.append(None if field is None else [shard[number][row] for shard, row in found])
                continue
            spans = np.array([shard[number].place(row) for shard, row in found], native.SPAN)
            spans[bad] = 0
            columns.append((spans, None))
        return tuple(columns)

    def _found(self, indices: Sequence[int]) -> list[tuple[Any, int]]:
        places = [divmod(index, self.record.samples_per_shard) for index in indices]
        return [(self._shards.get(number) or self._shard(number), row) for number, row in places]

    def _shard(self, number: int) -> Shard:
        try:
            # Of two threads that open it, both take the first one's: the files of the other are closed.
            return self._shards.setdefault(number, self._storage.open(self.folder, self._spec, number))
        except (OSError, ValueError) as error:
            raise unreadable(f"Shard {number} of the set in `{self.folder}`", error) from error

    def name(self, index: int) -> str:
        return f"sample {index} of {self.folder}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the files that hold some samples, or all files; empty behind a URL."""
        if self.folder.path is None:
            return []
        each, chosen = self.record.samples_per_shard, range(self.record.shard_count)
        shards = chosen if indices is None else {index // each for index in indices}
        return [os.fspath(self.folder.path / name) for name in self.record.files if shard_of(name) in shards]

    def mean_bytes(self) -> float:
        return self.record.bytes / len(self)

    def digest(self) -> str:
        return f"set={self.record.seal}"


def open_set(where: Where, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set in a folder, or behind a URL, as a source. Raise StorageError if there is no complete set, it was
    edited, or it is not the result of `conversion`; and ConfigError for a URL if the form's files must lie on a disk.
    """
    folder = storage.at(where)
    record = whole_record(folder)
    require_same(record, conversion, storage.name, folder)
    return StoredSource(folder, record, conversion.spec)


def find(where: Where, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set in a folder, a URL or a folder in it. Raise StorageError, or ConfigError as `open_set`."""
    root = storage.at(where)
    reasons = []
    for folder in with_subfolders(root):
        if any(name == RECORD_NAME or PART_RECORD.fullmatch(name) for name in folder.sizes()):
            try:
                return open_set(folder, conversion, storage)
            except StorageError as error:
                reasons.append(error.message)
    what = f"the {len(conversion)} samples after {conversion.cut} ops in the form {storage.name}"
    raise StorageError(f"`{root}` has no set of {what}.{' '.join(['', *reasons])}", hint="Convert the data first.")


def with_subfolders(folder: Folder) -> list[Folder]:
    """Return a folder and its direct subfolders, sorted."""
    return [folder, *(folder / name for name, size in sorted(folder.sizes().items()) if size is None)]


def verify(source: StoredSource, conversion: Conversion, *, at_most: int = 32) -> int:
    """Check all checksums and some samples, and return the number of these. Raise StorageError if one differs."""
    require_same(source.record, conversion, source.record.storage, source.folder)
    for name, recorded in source.record.files.items():
        if not is_intact(source.folder, name, recorded):
            raise StorageError(
                f"`{source.folder / name}` does not match its checksum {recorded[1]}.",
                hint="Run the same conversion again; it keeps the files that are sound.",
            )

    structure, positions = conversion.spec.structure, spread(len(source), at_most)
    for position in positions:
        old = sample_or_none(lambda at: normalise(source.read(at), structure), position)
        new = sample_or_none(conversion.sample, position)
        if (old is None) != (new is None) or (old and new and not all(map(_same, old, new))):
            raise StorageError(
                f"Sample {position} of the set in `{source.folder}` is not what the source gives now.",
                hint="Convert again into another folder. An op that depends on more than the sample cannot be kept.",
            )
    return len(positions)


def is_intact(folder: Folder, name: str, recorded: tuple[int, str]) -> bool:
    """Return True if a file has its size and checksum."""
    with contextlib.suppress(OSError):
        return checksum(folder, name) == recorded
    return False


def sample_or_none(read: Callable[[int], Sample], position: int) -> Sample | None:
    """Return a sample; None if it is bad."""
    with contextlib.suppress(BadSampleError):
        return read(position)
    return None


def _same(kept: Part, made: Part) -> bool:
    if kept is None or made is None or isinstance(kept, bytes):
        return bool(kept == made)
    return bool(np.array_equal(kept, made))
