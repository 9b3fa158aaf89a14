"""The base of storage forms: the folder of a set, how a form writes and reads a shard, and conversions.

A form is one module of this package with an object of a `Storage` subclass, registered in
`autopipe.pipeline.config.STORAGES`. Sharding, checksums, locks and resuming are the same for all of them and live in
`layout` and `convert`.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, ConfigError, WorkloadError
from autopipe.hardware import disk
from autopipe.workload import digests
from autopipe.workload.data import remote
from autopipe.workload.data import source as data_source
from autopipe.workload.data.arrays import boxed
from autopipe.workload.data.paths import OpenFile, Ranges, is_url, located, require_text, scheme, shown
from autopipe.workload.op import Plan, Step
from autopipe.workload.ops import planner
from autopipe.workload.sample import Field, FieldKind, Part, Sample, SampleSpec, Source, cuts
from autopipe.workload.workload import Workload

# -------------------- folder

_CHUNK_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True)
class Folder:
    """The folder of a set, on a disk or behind a URL. It pickles, and holds no connection. An object behind a URL is
    complete or does not exist. Failures to reach one are `DataError`s of `workload.data.remote`; a missing one is a
    `FileNotFoundError`, as on a disk.
    """

    place: str  # a path, or a URL as it was given, without a slash at its end

    @classmethod
    def of(cls, where: Where) -> Folder:
        """Return the folder of a path or URL; raise DataError if it is a URL that cannot be used."""
        if isinstance(where, Folder):
            return where
        require_text(where)
        return cls(located(where) if is_url(where) else str(where))

    def __str__(self) -> str:
        return shown(self.place)

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.place}/{name}")

    @property
    def path(self) -> Path | None:
        """The path on a disk; None behind a URL."""
        return None if is_url(self.place) else Path(self.place)

    @property
    def remote(self) -> str | None:
        """The kind of URL, such as "s3"; None on a disk."""
        return scheme(self.place) if is_url(self.place) else None

    def absolute(self) -> Folder:
        return self if self.path is None else Folder(str(self.path.absolute()))

    def sizes(self) -> dict[str, int | None]:
        """Return the bytes of each file directly in the folder, by name, and None for a folder; {} if it is missing."""
        if self.path is None:
            try:
                found = self._attempt("", lambda system, url: remote.fresh(system).ls(url, detail=True))
            except BadSampleError:  # nothing is there
                return {}
            named = {str(info["name"]).rstrip("/").rpartition("/")[2]: info for info in found}
            return {
                name: None if info.get("type") == "directory" else remote.size_and_tag(info)[0]
                for name, info in named.items()
                if name and name != self.place.rpartition("/")[2]
            }
        sizes: dict[str, int | None] = {}
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # it was given its final name meanwhile
                    sizes[each.name] = None if each.is_dir() else each.stat().st_size
        return sizes

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's content, some megabytes at a time; raise FileNotFoundError if it does not exist."""
        if self.path is None:  # a shard's file is of some 64 MB
            yield self.read(name)
            return
        with (self.path / name).open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk

    def read(self, name: str) -> bytes:
        """Return a file's content; raise FileNotFoundError if it does not exist."""
        if self.path is not None:
            return (self.path / name).read_bytes()
        url = f"{self.place}/{name}"
        try:
            return remote.reader(url).read(url)
        except BadSampleError as error:
            raise FileNotFoundError(2, "it does not exist or is empty", shown(url)) from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file; until it is complete the old one stays."""
        if self.path is None:
            self._attempt(name, lambda system, url: system.pipe_file(url, content), "written")
            return
        with disk.replacing(self.path / name) as stream:
            stream.write(content)

    def take(self, file: Path, name: str) -> None:
        """Put a file of this machine into the folder; on a disk it is moved, and must lie on the same one."""
        if self.path is None:
            self._attempt(name, lambda system, url: system.put_file(str(file), url), "written")
        else:
            file.replace(self.path / name)

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        if self.path is not None:
            (self.path / name).unlink(missing_ok=True)
        elif name in self.sizes():
            self._attempt(name, lambda system, url: system.rm_file(url), "removed")

    def _attempt(self, name: str, call: Callable[[Any, str], Any], done: str = "read") -> Any:
        url = f"{self.place}/{name}".rstrip("/")
        return remote.reader(url).attempt(url, lambda system: call(system, url), done)


Where: TypeAlias = str | Path | Folder


# -------------------- forms


def shard_file(name: str, shard: int) -> str:
    """Return the name in the folder of a set of a file that a form writes for a shard: "x.npy" is "x-00003.npy"."""
    stem, _, ending = name.partition(".")
    return f"{stem}-{shard:05d}.{ending}"


@dataclasses.dataclass
class Column:
    """A part of the samples of an open shard, in a file, read by many threads at once."""

    field: Field
    file: Ranges
    starts: Sequence[int]  # of the part of each sample in the file
    sizes: Sequence[int] | None = None  # of their bytes; None: they end where those of the next one start
    shapes: Sequence[tuple[int, ...]] | None = None  # of each; None: that of the field

    def __getitem__(self, row: int) -> Part:
        """Return the part of a sample; an array may be read-only. Raise BadSampleError if its bytes cannot be read."""
        content, field = self.file.read(*self._range(row)), self.field
        if field.kind is FieldKind.ENCODED:
            return content
        shape = field.shape if self.shapes is None else self.shapes[row]
        array: NDArray[Any] = np.frombuffer(content, field.dtype).reshape(shape or ())
        return array.item() if field.kind is FieldKind.LABEL and array.ndim == 0 else array[()]

    def box(self, row: int, rows: slice, columns: slice) -> NDArray[Any]:
        """Read some rows and columns of a sample's array alone. Raise BadSampleError if they cannot be read."""
        shape, dtype = self.field.shape, self.field.dtype
        assert shape is not None  # of a piece out of which samples are cut
        assert dtype is not None
        return boxed(self.file, self.starts[row], shape, dtype, (rows, columns))

    def place(self, row: int) -> tuple[int, ...]:
        """Return where the part of a sample lies on a disk, as the members of a `native.SPAN`."""
        assert isinstance(self.file, OpenFile)
        pixels, dtype = self._pixels, self.field.dtype
        if self.shapes is not None and dtype is not None:
            pixels = native.sizes(self.shapes[row], dtype.itemsize)
        return (0, 0, self.file.descriptor, *self._range(row), *pixels)

    @functools.cached_property
    def _pixels(self) -> tuple[int, int, int]:
        field = self.field
        return (0, 0, 0) if field.dtype is None else native.sizes(field.shape or (), field.dtype.itemsize)

    def _range(self, row: int) -> tuple[int, int]:
        start = self.starts[row]
        return start, self.starts[row + 1] - start if self.sizes is None else self.sizes[row]


Shard: TypeAlias = Sequence[Column | Sequence[Part] | NDArray[Any] | None]
"""Each part of the samples by their rows: numbers lie in memory. None: there is no such part."""


class Storage(abc.ABC):
    """One form in which samples can be kept.

    Class attributes:
        name: in a configuration.
        on_disk: whether a set must lie on a disk, and not behind a URL.
        holds_arrays: whether it can hold the result of any op, so that all of the prefix can be done before.
    """

    name: ClassVar[str]
    on_disk: ClassVar[bool] = False
    holds_arrays: ClassVar[bool] = False

    def at(self, where: Where) -> Folder:
        """Return a folder for a set. Raise ConfigError for a URL if files must lie on a disk, else DataError."""
        folder = Folder.of(where)
        if self.on_disk and folder.remote is not None:
            raise ConfigError(
                f"A set in the form {self.name} must lie on a disk, but got `{folder}`.",
                hint='Keep it in a folder on a disk, or use keep="tfrecord", which is read from URLs.',
            )
        return folder

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
    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, to: Path) -> None:
        """Write the samples of one shard to files in the empty folder `to`, such as "x.npy"; None stands for a sample
        that could not be read, and keeps its place. The result must be a function of the samples alone: a shard that is
        written again is the same.
        """

    @abc.abstractmethod
    def open(self, folder: Folder, spec: SampleSpec, number: int) -> Shard:
        """Return shard `number` of the set in `folder`, whose files are named by `shard_file`."""


# -------------------- conversion


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

    @classmethod
    def of(cls, workload: Workload, plan: Plan, cut: int) -> Conversion:
        """Return the conversion of a workload after the first `cut` ops of its deterministic prefix."""
        steps = plan.prefix[:cut]
        return cls(
            source=workload.data,
            steps=steps,
            spec=plan.cut(cut),
            skip_bad=workload.on_bad_sample == "skip",
            source_digest=data_source.digest(workload.data),
            ops_digest=digests.ops_digest(tuple(step.op for step in steps)),
        )

    def __len__(self) -> int:
        return len(self.source)

    @property
    def cut(self) -> int:
        """The number of ops before a sample is kept."""
        return len(self.steps)

    def sample(self, index: int, lost: Counter[str] | None = None) -> Sample:
        """Return a sample to keep, and count in `lost` what ops lose. Raise BadSampleError or OpError if it fails."""
        sample = planner.read_sample(self.source, index, self.spec.structure)
        for step in self.steps:
            if lost is not None:
                lost.update(step.op.lost(sample, step.before))
            sample = planner.run(step, sample, np.empty(0), self.source, index)
        for part, field in zip(sample, self.spec.columns, strict=True):
            if field is None or field.dtype is None or field.kind is FieldKind.ENCODED:
                continue
            dtype = np.asarray(part).dtype
            if dtype != field.dtype and (field.kind is not FieldKind.LABEL or cuts(field.dtype, part)):
                place = planner.sample_place(self.source, index)
                raise WorkloadError(
                    f"Samples must be of one dtype to be kept, but {place} is {dtype} and others are {field.dtype}.",
                    hint="Put ap.Cast in `ops`, or convert the data.",
                )
        return sample
