"""The base of storage forms: where a set lies, the files of a shard, how a form writes and reads one, and conversions.

A form is one module of this package with an object of a `Storage` subclass, registered in
`autopipe.pipeline.config.STORAGES`. Sharding, checksums, locks and resuming are the same for all of them and live in
`layout` and `convert`.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast

import google_crc32c
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, ConfigError, WorkloadError
from autopipe.hardware.disk import PART_SUFFIX
from autopipe.workload import digests
from autopipe.workload.data import remote
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import is_url, located, require_text, shown
from autopipe.workload.data.records import cache_folder
from autopipe.workload.op import Plan, Step
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind, Sample, SampleSpec, Source, cuts
from autopipe.workload.workload import Workload

# -------------------- place: a folder on a disk, or a URL with the methods of a path that sets use
# An object behind a URL is complete or does not exist, so it needs no temporary name. Failures to reach it are
# `DataError`s of `workload.data.remote`; a missing one is a `FileNotFoundError`, as on a disk.

_CHECK_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True, repr=False)
class RemotePath:
    """A URL of a kept set, or of one of its files. It pickles, and holds no connection."""

    url: str  # as it was given, without a slash at its end

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __str__(self) -> str:
        return shown(self.url)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def exists(self) -> bool:
        return bool(self._attempt(lambda system: remote.fresh(system).exists(self.url)))

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the entries directly below; none before the first write."""
        return (self / name for name in self.listed())

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return the metadata of each entry directly below, by name, from one listing."""
        try:
            found = self._attempt(lambda system: remote.fresh(system).ls(self.url, detail=True))
        except BadSampleError:  # nothing is there
            return {}
        named = {str(info["name"]).rstrip("/").rpartition("/")[2]: info for info in found}
        return {name: info for name, info in named.items() if name and name != self.name}

    def read_bytes(self) -> bytes:
        """Return the content; raise FileNotFoundError if it does not exist."""
        try:
            return remote.reader(self.url).read(self.url)
        except BadSampleError as error:
            raise FileNotFoundError(2, "it does not exist or is empty", str(self)) from error

    def write_bytes(self, content: bytes) -> None:
        self._attempt(lambda system: system.pipe_file(self.url, content), "written")

    def upload(self, file: Path) -> None:
        self._attempt(lambda system: system.put_file(str(file), self.url), "written")

    def unlink(self, missing_ok: Literal[True]) -> None:
        if self.exists():
            self._attempt(lambda system: system.rm_file(self.url), "removed")

    def _attempt(self, call: Callable[[Any], Any], done: str = "read") -> Any:
        return remote.reader(self.url).attempt(self.url, call, done)


Place: TypeAlias = Path | RemotePath


def place(where: str | Path | RemotePath) -> Place:
    """Return the folder of a path or URL; raise DataError if it is a URL that cannot be used."""
    if isinstance(where, RemotePath):
        return where
    if is_url(where):
        text = located(where)
        return RemotePath(text) if is_url(text) else Path(text)
    require_text(where)
    return Path(where)


def sizes(folder: Place) -> dict[str, int]:
    """Return the sizes in bytes of the files directly in a folder, by name; empty if the folder does not exist."""
    if isinstance(folder, RemotePath):
        return {
            name: remote.size_and_tag(info)[0]
            for name, info in folder.listed().items()
            if info.get("type") != "directory"
        }
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except OSError:
        return {}


def subfolders(folder: Place) -> list[Place]:
    """Return a folder and its direct subfolders, sorted; empty if it does not exist."""
    if isinstance(folder, RemotePath):
        below = [name for name, info in sorted(folder.listed().items()) if info.get("type") == "directory"]
        return [folder, *(folder / name for name in below)]
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []


def chunks(file: Place) -> Iterator[bytes]:
    """Yield a file's content, some megabytes at a time."""
    if isinstance(file, RemotePath):
        yield file.read_bytes()  # a shard's file is of some 64 MB
        return
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHECK_BYTES):
            yield chunk


def lock_file(folder: Place, name: str) -> Path:
    """Return a lock for a folder. The lock of a URL is on this machine, for this user's processes alone."""
    if isinstance(folder, Path):
        return folder / name
    locks = cache_folder().with_name("locks")
    locks.mkdir(parents=True, exist_ok=True)
    return locks / f"{hashlib.sha256(folder.url.encode()).hexdigest()[:16]}{name}"


# -------------------- shard

_BUFFER_BYTES = 1 << 16  # a larger sample goes to the file without another copy


def file_name(stem: str, shard: int, ending: str) -> str:
    """Return the name of a file of a shard, which `FileRecord.name` allows."""
    return f"{stem}-{shard:05d}.{ending}"


class FileRecord(pydantic.BaseModel):
    """A file of a shard: its name, size, and CRC-32C as 8 hexadecimal digits."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = pydantic.Field(pattern=r"^[a-z]+-[0-9]{5}\.[a-z.]+$")  # no way out of the folder
    bytes: int = pydantic.Field(ge=0)
    crc32c: str = pydantic.Field(pattern=r"^[0-9a-f]{8}$")

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Return True if the file has its size in `sizes`."""
        return sizes.get(self.name) == self.bytes

    def is_intact(self, folder: Place) -> bool:
        """Return True if the file has its size and checksum. Reads all of it."""
        crc, size = 0, 0
        try:
            for chunk in chunks(folder / self.name):
                crc, size = google_crc32c.extend(crc, chunk), size + len(chunk)
        except FileNotFoundError:
            return False
        return size == self.bytes and f"{crc:08x}" == self.crc32c


class OutputFile:
    """A file that is being written, with its size and checksum so far."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        self.path = path
        self.size = 0
        self.crc = 0
        self.close = self._file.close

    def write(self, data: bytes | NDArray[Any]) -> int:
        """Append bytes, or the content of a C-contiguous array."""
        # The checksum's library takes no memoryview, but any array.
        flat = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1).view(np.uint8)
        self._file.write(flat.data)
        self.crc = google_crc32c.extend(self.crc, flat)
        self.size += flat.nbytes
        return flat.nbytes


class ShardFiles(contextlib.AbstractContextManager["ShardFiles"]):
    """The files of shard `number` in `folder`. Use as a context manager: all are put in place at its end, or none.

    Files for a URL are written to a temporary folder, and uploaded at the end.
    """

    def __init__(self, folder: Place, number: int) -> None:
        self.records: tuple[FileRecord, ...] = ()
        self._folder = folder
        self._temporary = tempfile.TemporaryDirectory(prefix="autopipe-") if isinstance(folder, RemotePath) else None
        self._beside = folder if isinstance(folder, Path) else Path(cast(Any, self._temporary).name)
        self._number = number
        self._open: list[OutputFile] = []

    def create(self, stem: str, ending: str) -> OutputFile:
        file = OutputFile(self._beside / f"{file_name(stem, self._number, ending)}{PART_SUFFIX}")
        self._open.append(file)
        return file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.nullcontext() if self._temporary is None else self._temporary, contextlib.ExitStack() as undo:
            for file in self._open:
                undo.callback(file.path.unlink, missing_ok=True)
            with contextlib.ExitStack() as closing:  # a full disk may be an error here only
                for file in self._open:
                    closing.callback(file.close)
            if kind is None:
                undo.pop_all()
                self.records = tuple(map(self._put, self._open))

    def _put(self, file: OutputFile) -> FileRecord:
        name = file.path.name.removesuffix(PART_SUFFIX)
        if isinstance(self._folder, RemotePath):
            (self._folder / name).upload(file.path)
        else:
            file.path.replace(self._folder / name)
        return FileRecord(name=name, bytes=file.size, crc32c=f"{file.crc:08x}")


# -------------------- forms


class Shard(Protocol):
    """An open shard, read by many threads at once. One of mapped files has `read_many(rows, out)`, too; one of records,
    `place(row)`.
    """

    def read(self, row: int) -> Sample:
        """Return a sample; arrays may be read-only views of mapped memory."""
        ...


class Storage(abc.ABC):
    """One form in which samples can be kept.

    Class attributes:
        name: in a configuration.
        mapped: whether files are mapped into memory, so that they have to lie on a disk and can fill whole batches.
        has_places: whether a shard knows in which bytes of an open file the parts of a sample lie.
        holds_arrays: whether it can hold the result of any op, so that all of the prefix can be done before.
    """

    name: ClassVar[str]
    mapped: ClassVar[bool] = False
    has_places: ClassVar[bool] = False
    holds_arrays: ClassVar[bool] = False

    def at(self, where: Path | str | RemotePath) -> Place:
        """Return the folder of a path or URL, to keep a set of this form in. Raise ConfigError for a URL if the form's
        files must lie on a disk, and DataError for an invalid URL.
        """
        found = place(where)
        if self.mapped and isinstance(found, RemotePath):
            raise ConfigError(
                f"The form {self.name} maps its files into memory, so a set of it must lie on a disk, "
                f"but got `{found}`.",
                hint='Keep it in a folder on a disk, or use keep="tfrecord", which is read from URLs.',
            )
        return found

    def cuts(self, plan: Plan) -> tuple[int, ...]:
        """Return the numbers of prefix ops after which samples can be kept, ascending; the last is the default."""
        return tuple(depth for depth in range(len(plan.prefix) + 1) if self.can_hold(plan.cut(depth)))

    @abc.abstractmethod
    def can_hold(self, spec: SampleSpec) -> bool:
        """Return True if samples of this kind can be kept."""

    @abc.abstractmethod
    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        """Return the bytes of a sample, exactly if `spec` fixes them, else estimated from `probes`."""

    @abc.abstractmethod
    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        """Write the samples of one shard; None stands for one that could not be read, and keeps its place.

        The result must be a function of the samples alone: a shard that is written again is the same.
        """

    @abc.abstractmethod
    def open(self, folder: Place, spec: SampleSpec, number: int, samples: int) -> Shard:
        """Return shard `number` of the set in `folder`, which holds so many samples."""


# -------------------- conversion

_NO_NUMBERS = np.empty(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Samples of a source after the first ops. It pickles if the source does."""

    source: Source  # of samples
    steps: tuple[Step, ...]  # the ops that are done before a sample is kept
    spec: SampleSpec  # the sample after them
    # whether an unreadable sample is noted, and raised again when the kept set is read, instead of ending the
    # conversion
    skip_bad: bool = False
    source_digest: str  # tells whether the source is still the same
    ops_digest: str  # tells whether the ops are still the same
    # the same for objects that their functions look up elsewhere, by name
    looked_up: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, plan: Plan, cut: int) -> Conversion:
        """Return the conversion of a workload after the first `cut` ops of its deterministic prefix. Raise ConfigError
        if the prefix is shorter than that.
        """
        if not 0 <= cut <= len(plan.prefix):
            raise ConfigError(
                f"`cut` must be between 0 and {len(plan.prefix)}, the number of ops that are the same in every epoch, "
                f"but got {cut=}."
            )
        steps = plan.prefix[:cut]
        return cls(
            source=workload.data,
            steps=steps,
            spec=plan.cut(cut),
            skip_bad=workload.on_bad_sample == "skip",
            source_digest=data_source.digest(workload.data),
            ops_digest=digests.ops_digest(tuple(step.op for step in steps)),
            looked_up=digests.looked_up(step.op for step in steps),
        )

    def __len__(self) -> int:
        return len(self.source)

    @property
    def cut(self) -> int:
        """The number of ops before a sample is kept."""
        return len(self.steps)

    def sample(self, index: int, lost: Counter[str] | None = None) -> Sample:
        """Return a sample to keep, and count in `lost` what its ops lose of it. Raise BadSampleError if it cannot be
        read or decoded, OpError if an op fails.
        """
        sample = planner.read_sample(self.source, index, self.spec.structure)
        for step in self.steps:
            if lost is not None:
                lost.update(step.op.lost(sample, step.before))
            sample = planner.run(step, sample, _NO_NUMBERS, self.source, index)
        self._require_dtypes(sample, index)
        return sample

    def _require_dtypes(self, sample: Sample, index: int) -> None:
        for part, field in zip(sample, self.spec.columns, strict=True):
            if field is None or field.dtype is None or field.kind is FieldKind.ENCODED:
                continue
            differs = np.asarray(part).dtype != field.dtype
            if differs and (field.kind is not FieldKind.LABEL or cuts(field.dtype, part)):
                place = planner.sample_place(self.source, index)
                raise WorkloadError(
                    f"Samples must be of one dtype to be kept, but {place} is {np.asarray(part).dtype} "
                    f"and others are {field.dtype}.",
                    hint="Put ap.Cast in `ops`, or convert the data.",
                )
