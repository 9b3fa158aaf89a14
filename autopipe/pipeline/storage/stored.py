"""Opens a kept set as a source, finds the set of a workload, verifies one, and inspects samples one by one.

It writes no samples.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, BadSampleError, DataError, StorageError
from autopipe.hardware import opencv, processes
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Conversion, Storage
from autopipe.pipeline.storage.layout import HEADER_NAME, MANIFEST_NAME, Manifest, seal_of
from autopipe.pipeline.storage.shard import Place, RemotePath, subfolders
from autopipe.values import Value
from autopipe.workload.data.paths import spread
from autopipe.workload.data.records import cache_folder
from autopipe.workload.digests import digest
from autopipe.workload.ops.planner import normalise, sample_name
from autopipe.workload.sample import Batch, Part, Sample


class StoredSource:
    """A kept set as a source: its samples are stored after the first ops. It pickles; files are opened when read."""

    def __init__(self, folder: Place, manifest: Manifest) -> None:
        header = manifest.header
        storage: Storage = STORAGES[header.storage]
        self.folder = folder if isinstance(folder, RemotePath) else folder.absolute()
        # The kind of URL that it is behind, such as "s3"; None on a disk.
        self.remote = folder.scheme if isinstance(folder, RemotePath) else None
        self.manifest = manifest
        self._spec = header.spec
        kinds = self._spec.packed([None if field is None else field.kind for field in self._spec.columns])
        self.x_kind, self.y_kind = kinds[0], kinds[1] if len(kinds) > 1 else None
        self._count = header.samples
        self._bad = manifest.bad
        counts = [len(header.positions(number)) for number in range(header.shard_count)]
        self._reader = storage.open(self.folder, self._spec, counts)

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
        return self._spec.packed(self._reader.read(index))

    @property
    def read_many(self) -> Callable[[NDArray[np.integer], Batch], None] | None:
        return self._read_many if hasattr(self._reader, "read_many") else None

    def _read_many(self, indices: NDArray[np.integer], out: Batch) -> None:
        if self._bad and not self._bad.keys().isdisjoint(indices.tolist()):
            raise BadSampleError("A sample of the batch could not be read when the set was made.")
        self._reader.read_many(indices, out)  # type: ignore[attr-defined]  # it was asked for

    def name(self, index: int) -> str:
        return f"sample {index} of {self.folder}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the files that hold some samples, or all files; empty behind a URL."""
        if isinstance(self.folder, RemotePath):
            return []
        shards = self.manifest.shards
        per_shard = self.manifest.header.samples_per_shard
        chosen = range(len(shards)) if indices is None else sorted({index // per_shard for index in indices})
        return [os.fspath(self.folder / file.name) for number in chosen for file in shards[number].files]

    def mean_bytes(self) -> float:
        return self.manifest.bytes / self._count

    def digest(self) -> str:
        return f"set={seal_of(self.manifest)}"


def open_set(where: Path | str | RemotePath, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set in a folder, or behind a URL, as a source, if it is the result of `conversion`.

    Raises:
        ConfigError: it is behind a URL, and the form's files must lie on a disk.
        StorageError: there is no complete set, it was edited, or it is of other data or ops.
    """
    folder = storage.at(where)
    manifest = layout.whole_manifest(folder)
    layout.require_same(manifest.header, conversion, storage.name, folder)
    return StoredSource(folder, manifest)


def find(where: Path | str | RemotePath, conversion: Conversion, storage: Storage) -> StoredSource:
    """Return the set of `conversion`, from a folder or URL or a folder in it.

    Raises:
        ConfigError: it is behind a URL, and the form's files must lie on a disk.
        StorageError: there is none; the message names similar ones and their differences.
    """
    root = storage.at(where)
    reasons = []
    for folder in subfolders(root):
        if (folder / MANIFEST_NAME).exists() or (folder / HEADER_NAME).exists():
            try:
                return open_set(folder, conversion, storage)
            except StorageError as error:
                reasons.append(error.message)
    what = f'the {len(conversion)} samples after {conversion.cut} ops as storage="{storage.name}"'
    raise StorageError(f"`{root}` has no set of {what}.{' '.join(['', *reasons])}", hint="Convert the data first.")


def verify(source: StoredSource, conversion: Conversion, *, at_most: int = 32) -> int:
    """Check every file's checksum, and compare samples spread over the set with new ones of the conversion.

    Returns:
        How many samples were compared.

    Raises:
        StorageError: the message names the file or the sample that differs.
    """
    layout.require_same(source.manifest.header, conversion, source.manifest.header.storage, source.folder)
    for file in (file for shard in source.manifest.shards for file in shard.files):
        if not file.is_intact(source.folder):
            raise StorageError(
                f"`{source.folder / file.name}` does not match its checksum {file.crc32c}.",
                hint="Run the same conversion again; it keeps the files that are sound.",
            )

    def read(position: int) -> Sample:
        return normalise(source.read(position), conversion.spec.structure)

    positions = spread(len(source), at_most)
    for position in positions:
        kept, made = _sample(read, position), _sample(conversion.sample, position)
        if (kept is None) != (made is None) or (kept and made and not all(map(_same, kept, made))):
            raise StorageError(
                f"Sample {position} of the set in `{source.folder}` is not what the source gives now.",
                hint="Convert again into another folder. An op that depends on more than the sample cannot be kept.",
            )
    return len(positions)


def _sample(read: Callable[[int], Sample], position: int) -> Sample | None:
    try:
        return read(position)
    except BadSampleError:
        return None


def _same(kept: Part, made: Part) -> bool:
    if kept is None or made is None or isinstance(kept, bytes):
        return bool(kept == made)
    return np.shape(kept) == np.shape(made) and bool(np.array_equal(kept, made))


# -------------------- inspection: every sample is read, and taken through the deterministic ops, as by a loader
# A journal keeps the progress, so that a stopped inspection continues. Nothing else is written.


_CHUNK = 64  # samples that each worker of a killed inspection repeats
_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


class BadFile(Value):
    """A sample that would stop a training."""

    index: int = pydantic.Field(ge=0)
    name: str  # the path of its file, or another name for people
    reason: str  # its fault


class FileVerification(Value):
    """The result of an inspection of a workload's samples."""

    status: Literal["inspected"] = "inspected"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=0)  # how many there are
    resumed: int = pydantic.Field(default=0, ge=0)  # that an earlier look, which was stopped, had found good
    bad: tuple[BadFile, ...]  # those that cannot be used, in order


class _Good(Value):
    """A line of the journal: a group of samples, from `first` on, is good."""

    first: int


def inspect(
    conversion: Conversion, *, workers: int, on_progress: Progress | None = None, journal: Path | None = None
) -> FileVerification:
    """Inspect every sample.

    Args:
        conversion: the samples and their ops.
        workers: threads.
        on_progress: called with the samples done and to do.
        journal: the file of the progress; None for one in the user's cache folder.

    Returns:
        The bad samples, in order; bad ones of an earlier run are inspected again.

    Raises:
        DataError: samples cannot be read for another reason: too many open files, or a lost connection.
    """
    opencv.one_thread()
    processes.keep_freed_memory()
    journal = journal or _journal_of(conversion)
    count = len(conversion)
    done = set(_kept(journal))
    missing = [first for first in range(0, count, _CHUNK) if first not in done]
    looked = resumed = count - sum(_size(first, count) for first in missing)
    bad: list[BadFile] = []
    with _appended(journal) as file, _pool(workers) as pool:
        futures = {pool.submit(_look, conversion, first, _size(first, count)): first for first in missing}
        for future in concurrent.futures.as_completed(futures):
            first, found = futures[future], future.result()
            bad += found
            if not found:
                _append(file, _Good(first=first))
            looked += _size(first, count)
            if on_progress is not None:
                on_progress(looked, count)
    with contextlib.suppress(OSError):
        journal.unlink()
    return FileVerification(samples=count, resumed=resumed, bad=tuple(sorted(bad, key=lambda each: each.index)))


def _size(first: int, count: int) -> int:
    return min(_CHUNK, count - first)


def _look(conversion: Conversion, first: int, size: int) -> list[BadFile]:
    bad = []
    for index in range(first, first + size):
        try:
            conversion.sample(index)
        except AutopipeError as error:
            if isinstance(error, DataError) and not isinstance(error, BadSampleError):
                raise
            bad.append(_told(conversion, index, error))
    return bad


def _told(conversion: Conversion, index: int, error: AutopipeError) -> BadFile:
    """Return a bad sample with its message, without repeating the sample's name."""
    cause = error.__cause__
    reason = cause.message if isinstance(cause, AutopipeError) else error.message
    return BadFile(index=index, name=sample_name(conversion.source, index), reason=reason)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="autopipe-look")
    try:
        yield pool
    finally:  # after Ctrl-C: running reads end, waiting ones never begin
        pool.shutdown(cancel_futures=True)


def _journal_of(conversion: Conversion) -> Path:
    name = digest("1", len(conversion), conversion.source_digest, conversion.ops_digest)
    return cache_folder().parent / "files" / f"{name}.jsonl"


def _kept(journal: Path) -> Iterable[int]:
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError):
        return
    for line in lines:
        with contextlib.suppress(pydantic.ValidationError):  # of a look that was killed while it wrote
            yield _Good.model_validate_json(line).first


@contextlib.contextmanager
def _appended(journal: Path) -> Iterator[IO[str] | None]:
    """Open the journal; None if it cannot be written, so that this inspection cannot be resumed."""
    with contextlib.ExitStack() as opened:
        try:
            journal.parent.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(journal.open("a", encoding="utf-8", buffering=1))
            file.write("\n")  # after half a line of a look that was killed
        except OSError as error:
            _log.warning("What was looked at cannot be kept in %s: %s", journal, error.strerror)
            file = None
        yield file


def _append(file: IO[str] | None, good: _Good) -> None:
    if file is not None:
        with contextlib.suppress(OSError):  # the disk is full: the look itself goes on
            file.write(good.model_dump_json() + "\n")
