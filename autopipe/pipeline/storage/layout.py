"""A kept set: its records (`Header`, `ShardRecord`, `Manifest`), the checks of its folder, and a set as a source.

Records are JSON files with a seal that reveals edits. `convert` writes samples; the forms write and read shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import filelock
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, StorageError
from autopipe.hardware import disk
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage import form
from autopipe.pipeline.storage.form import Conversion, FileRecord, Place, RemotePath, Shard, Storage
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import scheme, spread
from autopipe.workload.ops.planner import normalise
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Sample, SampleSpec, Structure

# -------------------- records

SCHEMA_VERSION = 1
HEADER_NAME = "conversion.json"
MANIFEST_NAME = "manifest.json"
_MOST_SHARDS = 10_000


class Sealed(pydantic.BaseModel):
    """A record with a digest of its own content."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")
    what: ClassVar[str]
    remedy: ClassVar[str] = "Remove its folder and convert again."

    @property
    def seal(self) -> str:
        return _seal(self.model_dump(mode="json"))

    def save(self, path: Place) -> None:
        content = json.dumps({**self.model_dump(mode="json"), "seal": self.seal}, indent=1).encode() + b"\n"
        if isinstance(path, RemotePath):
            path.write_bytes(content)
        else:
            with disk.replacing(path) as stream:
                stream.write(content)

    @classmethod
    def load(cls, path: Place) -> Self:
        """Read a record; raise StorageError if it is missing, unreadable, edited or of another version."""
        try:
            body: dict[str, Any] = json.loads(path.read_bytes())
            seal = body.pop("seal", None)
            version = body.get("schema_version", SCHEMA_VERSION)
        except OSError as error:
            raise StorageError(f"{cls.what} `{path}` cannot be read: {error.strerror}.") from error
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise _unsound(cls, path, "is no JSON object") from error
        if version != SCHEMA_VERSION:
            raise _unsound(cls, path, f"has schema_version {version!r}, but this release reads {SCHEMA_VERSION}")
        if seal != _seal(body):
            raise _unsound(cls, path, "was edited: its seal does not match")
        try:
            return cls.model_validate(body)
        except pydantic.ValidationError as error:
            raise _unsound(cls, path, f"is not as it should be: {error.errors()[0]['msg']}") from error


class FieldRecord(pydantic.BaseModel):
    """A field of the kept samples."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    kind: FieldKind
    shape: tuple[int, ...] | None
    dtype: str | None

    @classmethod
    def of(cls, field: Field) -> Self:
        return cls(kind=field.kind, shape=field.shape, dtype=None if field.dtype is None else field.dtype.name)

    def field(self) -> Field:
        return Field(self.kind, self.shape, None if self.dtype is None else np.dtype(self.dtype))


class Header(Sealed):
    """The conversion of a set, and its number of shards."""

    what: ClassVar[str] = "The conversion's record"

    schema_version: int = SCHEMA_VERSION
    storage: str  # the form's name
    source_digest: str  # of the data that the samples come from
    ops: tuple[str, ...]  # the ops that are done, for people
    ops_digest: str  # of these ops
    looked_up: dict[str, str] = {}  # digests of the objects that their functions look up elsewhere, by name
    cut: int  # how many they are
    samples: int = pydantic.Field(ge=1)  # how many samples there are
    samples_per_shard: int = pydantic.Field(ge=1)  # of all shards but the last, which has the rest
    x: FieldRecord  # x, or its first part, as kept
    y: FieldRecord | None  # y, or its first part, as kept
    others: tuple[FieldRecord, ...] = ()  # further parts as kept
    # the place of each part, as in `Structure.paths`; empty for a plain (x, y)
    paths: tuple[tuple[str, str | int | None], ...] = ()

    @pydantic.model_validator(mode="after")
    def _few_shards(self) -> Self:
        if self.shard_count > _MOST_SHARDS:
            raise ValueError(f"{self.shard_count} shards are more than {_MOST_SHARDS}")
        return self

    @property
    def spec(self) -> SampleSpec:
        columns = (self.x, self.y, *self.others)
        structure = Structure(self.paths) if self.paths else None
        return SampleSpec.of([None if each is None else each.field() for each in columns], structure)

    @property
    def shard_count(self) -> int:
        return -(-self.samples // self.samples_per_shard)

    def positions(self, shard: int) -> range:
        return range(shard * self.samples_per_shard, min((shard + 1) * self.samples_per_shard, self.samples))


class ShardRecord(Sealed):
    """A finished shard."""

    what: ClassVar[str] = "The shard's record"

    number: int
    header: str  # the seal of the header it was written for
    files: tuple[FileRecord, ...]  # its files, with sizes and checksums
    bad: dict[int, str] = {}  # samples that could not be read, by position, with the message


class Manifest(Sealed):
    """A whole set: its header and its shards."""

    what: ClassVar[str] = "The manifest"
    remedy: ClassVar[str] = "Remove it and run the same conversion again; it keeps the shards that are sound."

    schema_version: int = SCHEMA_VERSION
    header: Header
    shards: tuple[ShardRecord, ...]

    @pydantic.model_validator(mode="after")
    def _all_shards(self) -> Self:
        if [shard.number for shard in self.shards] != list(range(self.header.shard_count)):
            raise ValueError(f"the shards must be those from 0 to {self.header.shard_count - 1}")
        return self

    @property
    def bytes(self) -> int:
        return sum(file.bytes for shard in self.shards for file in shard.files)

    @property
    def bad(self) -> dict[int, str]:
        """The samples that could not be read, by position, with the message."""
        return {position: message for shard in self.shards for position, message in shard.bad.items()}


def shard_record(folder: Place, number: int) -> Place:
    """Return the place of a shard's record."""
    return folder / form.file_name("shard", number, "json")


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


def _unsound(cls: type[Sealed], path: Place, why: str) -> StorageError:
    return StorageError(f"{cls.what} `{path}` {why}.", hint=cls.remedy)


# -------------------- the folder

_SHARD_BYTES = 64 << 20
_FEWEST_SHARDS, _ENOUGH_SHARDS = 8, 32  # so that several workers end at about the same time
_FEWEST_SAMPLES = 64  # of a shard, if there are enough: with fewer, its files cost more than its samples
_LAYOUT_MOST_SHARDS = 128  # so that all of them can be mapped, and few files are open
_SHARD_FILE = re.compile(r"[a-z]+-(\d{5})\.[a-z.]+")
_OURS = re.compile(rf"{_SHARD_FILE.pattern}|{re.escape(MANIFEST_NAME)}")


def make_folder(folder: Place) -> None:
    """Make a missing folder; a URL needs none. Raise StorageError if it cannot be made, or is no folder."""
    if isinstance(folder, RemotePath):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"The folder `{folder}` cannot be made: {error.strerror}.") from error


@contextlib.contextmanager
def only_one(folder: Place, part: tuple[int, int]) -> Iterator[None]:
    """Hold the lock of a part of a folder. The operating system releases it however the process ends. Raise
    StorageError if another run holds it, or the folder may not be written to.
    """
    lock = filelock.FileLock(form.lock_file(folder, f".lock-{part[0]}-of-{part[1]}"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise StorageError(
            f"Another conversion is at work on `{folder}`.", hint="Wait for its end, or choose another folder."
        ) from error
    except OSError as error:
        raise StorageError(
            f"`{folder}` cannot be written to: {error.strerror or error}.", hint="Choose another folder."
        ) from error
    try:
        yield
    finally:
        lock.release()


def open_folder(folder: Place, conversion: Conversion, storage: Storage, whole_bytes: Callable[[], float]) -> Header:
    """Return the header of a folder, or the new one of an empty folder. Raise StorageError if the folder holds files of
    another kind, or the set of another conversion.
    """
    names = sorted(path.name for path in folder.iterdir())
    begun = (folder / HEADER_NAME).exists()  # after the list: other parts that begin now write it before their shards
    foreign = [name for name in names if not name.startswith((".", HEADER_NAME)) and not (begun and _OURS.match(name))]
    if foreign:
        raise StorageError(
            f"The folder of a conversion must hold nothing else, but `{folder}` has {len(foreign)} other files: "
            f"{', '.join(f'`{name}`' for name in foreign[:3])}.",
            hint="Choose a new or empty folder.",
        )
    if not begun:
        return new_header(conversion, storage, whole_bytes())
    header = Header.load(folder / HEADER_NAME)
    require_same(header, conversion, storage.name, folder)
    return header


def new_header(conversion: Conversion, storage: Storage, whole_bytes: float) -> Header:
    """Return the header of a new conversion; it is the same wherever the conversion begins."""
    count = len(conversion)
    enough = min(count, max(_FEWEST_SHARDS, min(_ENOUGH_SHARDS, count // _FEWEST_SAMPLES)))
    shards = max(enough, min(_LAYOUT_MOST_SHARDS, -(-int(whole_bytes) // _SHARD_BYTES)))
    spec = conversion.spec
    return Header(
        storage=storage.name,
        source_digest=conversion.source_digest,
        ops=tuple(step.op.name for step in conversion.steps),
        ops_digest=conversion.ops_digest,
        looked_up=dict(conversion.looked_up),
        cut=conversion.cut,
        samples=count,
        samples_per_shard=-(-count // shards),
        x=FieldRecord.of(spec.x),
        y=None if spec.y is None else FieldRecord.of(spec.y),
        others=tuple(map(FieldRecord.of, spec.others)),
        paths=() if spec.structure is None else spec.structure.paths,
    )


def require_same(header: Header, conversion: Conversion, storage: str, folder: Place) -> None:
    """Raise StorageError for a set of another conversion; the message names the differences, with both sides."""
    if header.storage != storage:
        raise _stale(folder, f"is kept as {header.storage}, not as {storage}")
    if header.cut != conversion.cut or header.ops_digest != conversion.ops_digest:
        now = ", ".join(step.op.name for step in conversion.steps)
        raise _stale(
            folder,
            f"was made by other ops: [{', '.join(header.ops)}] (digest {header.ops_digest}), "
            f"but the workload now has [{now}] (digest {conversion.ops_digest})",
        )
    others = {name for name, _ in header.looked_up.items() ^ conversion.looked_up.items()}
    if others:
        raise _stale(folder, f"was made with another value of {', '.join(f'`{name}`' for name in sorted(others))}")
    require_unchanged(header, conversion.source_digest, folder)
    if header.samples != len(conversion):
        raise _stale(folder, f"holds {header.samples} samples, not {len(conversion)}")


def is_of_another(folder: Place, conversion: Conversion, storage: Storage) -> bool:
    """Return True if a folder holds another set or a part of one, so that `conversion` cannot be written there."""
    try:
        if (folder / HEADER_NAME).exists():
            require_same(Header.load(folder / HEADER_NAME), conversion, storage.name, folder)
    except StorageError:
        return True
    return False


def require_unchanged(header: Header, source_digest: str, folder: Place) -> None:
    """Raise StorageError for a set whose data have changed since; the message names the changes."""
    if header.source_digest != source_digest:
        changed = data_source.difference(header.source_digest, source_digest)
        raise _stale(
            folder,
            f"was made from other data ({changed} differ): {header.source_digest!r}, "
            f"but the data are now {source_digest!r}",
        )


def finished_shards(folder: Place, header: Header) -> dict[int, ShardRecord]:
    """Return the records of finished shards of this header whose files have the right sizes, by number."""
    seal = header.seal
    sizes = form.sizes(folder)
    found = {}
    for number in range(header.shard_count):
        path = shard_record(folder, number)
        if path.name not in sizes:
            continue
        try:
            record = ShardRecord.load(path)
        except StorageError:  # not written yet, or spoilt: it is written again
            continue
        if record.number == number and record.header == seal and all(file.is_whole(sizes) for file in record.files):
            found[number] = record
    return found


def whole_manifest(folder: Place) -> Manifest:
    """Return a complete set's manifest; raise StorageError if it is missing or edited, or a file's size differs."""
    path, sizes = folder / MANIFEST_NAME, form.sizes(folder)
    if path.name not in sizes:
        begun = HEADER_NAME in sizes
        raise StorageError(
            f"There is no whole set in `{folder}`{': its conversion was begun and did not end' if begun else ''}.",
            hint="Run the same conversion again; it goes on where it stopped." if begun else "Convert the data first.",
        )
    manifest = Manifest.load(path)
    broken = [file.name for shard in manifest.shards for file in shard.files if not file.is_whole(sizes)]
    if broken:
        raise StorageError(
            f"{len(broken)} files of the set in `{folder}` are not whole, the first is `{broken[0]}`.",
            hint="Run the same conversion again; it keeps the files that are sound.",
        )
    return manifest


def remove_parts(folder: Place, numbers: list[int]) -> None:
    """Remove a killed run's unfinished files of some shards; a URL has none."""
    if isinstance(folder, RemotePath):
        return
    chosen = set(numbers)
    for path in folder.glob(f"*{disk.PART_SUFFIX}"):
        match = _SHARD_FILE.match(path.name.removeprefix("."))
        if match is not None and int(match[1]) in chosen:
            path.unlink(missing_ok=True)


def _stale(folder: Place, why: str) -> StorageError:
    return StorageError(f"The set in `{folder}` {why}.", hint="Convert again into another folder, or remove this one.")


# -------------------- a set as a source


class StoredSource:
    """A kept set as a source: its samples are stored after the first ops.

    A shard is opened when it is first read. A pickled set holds no open files.
    """

    def __init__(self, folder: Place, manifest: Manifest) -> None:
        header = manifest.header
        self._storage: Storage = STORAGES[header.storage]
        self.folder = folder if isinstance(folder, RemotePath) else folder.absolute()
        self.remote = scheme(folder.url) if isinstance(folder, RemotePath) else None  # such as "s3"; None on a disk
        self.manifest = manifest
        self._spec = header.spec
        kinds = self._spec.packed([None if field is None else field.kind for field in self._spec.columns])
        self.x_kind, self.y_kind = kinds[0], kinds[1] if len(kinds) > 1 else None
        self._count, self._per_shard = header.samples, header.samples_per_shard
        self._bad = manifest.bad
        self._shards: list[Shard | None] = [None] * header.shard_count

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": [None] * len(self._shards)}

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"StoredSource({str(self.folder)!r}: {self._count} samples as {self.manifest.header.storage})"

    def read(self, index: int) -> tuple[Any, ...]:
        """Return a sample as it was kept, in the structure of the data's own samples. Raise BadSampleError if it could
        not be read when the set was made.
        """
        if index in self._bad:
            raise BadSampleError(self._bad[index])
        number, row = divmod(index, self._per_shard)
        return self._spec.packed(self._shard(number).read(row))

    @property
    def read_many(self) -> Callable[[NDArray[np.integer], Batch], None] | None:
        return self._read_many if self._storage.mapped else None

    def _read_many(self, indices: NDArray[np.integer], out: Batch) -> None:
        if self._bad and not self._bad.keys().isdisjoint(indices.tolist()):
            raise BadSampleError("A sample of the batch could not be read when the set was made.")
        by_shard = np.argsort(indices)
        wanted = indices[by_shard]
        firsts = np.arange(len(self._shards)) * self._per_shard
        ends = [*np.searchsorted(wanted, firsts[1:]).tolist(), len(wanted)]
        found = [None if part is None else np.empty_like(part) for part in out]
        start = 0
        for number, end in enumerate(ends):
            if end > start:
                there = tuple(None if part is None else part[start:end] for part in found)
                self._shard(number).read_many(wanted[start:end] - firsts[number], there)  # type: ignore[attr-defined]  # it is mapped
            start = end
        for part, sorted_part in zip(out, found, strict=True):
            if part is not None:
                part[by_shard] = sorted_part

    @property
    def spans(self) -> data_source.Spans | None:
        is_plain = self.remote is None and self._spec.structure is None
        return self._spans if is_plain and self._storage.has_places else None

    def _spans(self, indices: Sequence[int]) -> tuple[Any, ...]:
        shards = [divmod(index, self._per_shard) for index in indices]
        places = np.array([self._shard(number).place(row) for number, row in shards])  # type: ignore[attr-defined]  # it has places
        columns: list[Any] = []
        for number, field in enumerate(self._spec.columns):
            if field is None or field.kind is FieldKind.LABEL:
                columns.append(None if field is None else places[:, 1 + 2 * number])
                continue
            spans = np.zeros(len(indices), native.SPAN)  # of a sample that could not be read, the size is 0
            spans["file"], spans["offset"], spans["size"] = places[:, [0, 1 + 2 * number, 2 + 2 * number]].T
            columns.append((spans, None))
        return tuple(columns)

    def _shard(self, number: int) -> Shard:
        shard = self._shards[number]
        if shard is None:
            count = len(self.manifest.header.positions(number))
            shard = self._shards[number] = self._storage.open(self.folder, self._spec, number, count)
        return shard

    def name(self, index: int) -> str:
        return f"sample {index} of {self.folder}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the files that hold some samples, or all files; empty behind a URL."""
        if isinstance(self.folder, RemotePath):
            return []
        shards = self.manifest.shards
        chosen = range(len(shards)) if indices is None else sorted({index // self._per_shard for index in indices})
        return [os.fspath(self.folder / file.name) for number in chosen for file in shards[number].files]

    def mean_bytes(self) -> float:
        return self.manifest.bytes / self._count

    def digest(self) -> str:
        return f"set={self.manifest.seal}"


def open_set(where: Path | str | RemotePath, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set in a folder, or behind a URL, as a source. Raise StorageError if there is no complete set, it was
    edited, or it is not the result of `conversion`; and ConfigError for a URL if the form's files must lie on a disk.
    """
    folder = storage.at(where)
    manifest = whole_manifest(folder)
    require_same(manifest.header, conversion, storage.name, folder)
    return StoredSource(folder, manifest)


def find(where: Path | str | RemotePath, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set of `conversion`, from a folder or URL or a folder in it. Raise StorageError if there is none; the
    message names similar ones and their differences. Raise ConfigError as `open_set`.
    """
    root = storage.at(where)
    reasons = []
    for folder in form.subfolders(root):
        if (folder / MANIFEST_NAME).exists() or (folder / HEADER_NAME).exists():
            try:
                return open_set(folder, conversion, storage)
            except StorageError as error:
                reasons.append(error.message)
    what = f"the {len(conversion)} samples after {conversion.cut} ops in the form {storage.name}"
    raise StorageError(f"`{root}` has no set of {what}.{' '.join(['', *reasons])}", hint="Convert the data first.")


def verify(source: StoredSource, conversion: Conversion, *, at_most: int = 32) -> int:
    """Check all checksums, compare samples spread over the set with new ones of the source, and return their number.
    Raise StorageError if one differs; the message names the file or the sample.
    """
    require_same(source.manifest.header, conversion, source.manifest.header.storage, source.folder)
    for file in (file for shard in source.manifest.shards for file in shard.files):
        if not file.is_intact(source.folder):
            raise StorageError(
                f"`{source.folder / file.name}` does not match its checksum {file.crc32c}.",
                hint="Run the same conversion again; it keeps the files that are sound.",
            )

    def kept(position: int) -> Sample:
        return normalise(source.read(position), conversion.spec.structure)

    positions = spread(len(source), at_most)
    for position in positions:
        old, new = sample_or_none(kept, position), sample_or_none(conversion.sample, position)
        if (old is None) != (new is None) or (old and new and not all(map(_same, old, new))):
            raise StorageError(
                f"Sample {position} of the set in `{source.folder}` is not what the source gives now.",
                hint="Convert again into another folder. An op that depends on more than the sample cannot be kept.",
            )
    return len(positions)


def sample_or_none(read: Callable[[int], Sample], position: int) -> Sample | None:
    """Return a sample; None if it is bad."""
    try:
        return read(position)
    except BadSampleError:
        return None


def _same(kept: Part, made: Part) -> bool:
    if kept is None or made is None or isinstance(kept, bytes):
        return bool(kept == made)
    return np.shape(kept) == np.shape(made) and bool(np.array_equal(kept, made))
