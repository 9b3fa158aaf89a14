"""Writes a kept set: shard by shard, in threads, so that finished shards survive a kill at any moment.

A folder first gets a header (`conversion.json`), then shards, each with a record once it is in place, and last the
manifest that makes it a set. Nothing waits for the disk: files lost to a power cut are found by size when the set is
opened. Opening and comparing sets is in `layout`; the form of the samples is a plugin's.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import functools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from autopipe.errors import BadSampleError, ConfigError, StorageError
from autopipe.hardware import processes
from autopipe.hardware.machine import size_text
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Conversion, Place, RemotePath, ShardFiles, Storage, place
from autopipe.pipeline.storage.layout import HEADER_NAME, MANIFEST_NAME, Header, Manifest
from autopipe.workload.data import remote
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread
from autopipe.workload.sample import Sample

_PROBES = 16
_PROBES_UNDECODED = 256  # if a sample costs no more than reading its file
_SPARE_BYTES = 1 << 20  # records, indexes and folders

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of `convert`."""

    folder: Place  # of the set
    manifest: Manifest | None  # of the whole set, or None while parts of it are missing
    samples: int  # how many samples this run wrote
    kept: int  # how many samples were there already
    seconds: float  # how long it took
    workers: int  # how many threads wrote
    shard_samples: tuple[int, ...]  # how many samples each shard that was written has
    shard_seconds: tuple[float, ...]  # how long each of them took in its thread, without its record


def estimate_bytes(conversion: Conversion, storage: Storage) -> float:
    """Return the bytes of the whole set: exact if samples have one shape, else estimated from a few."""
    sample = functools.partial(layout.sample_or_none, conversion.sample)
    probes: list[Sample] = []
    if not conversion.spec.is_fixed:
        positions = spread(len(conversion), _PROBES if conversion.steps else _PROBES_UNDECODED)
        probes = [each for each in remote.at_once(sample, positions) if each is not None]  # reads may wait
    return storage.sample_bytes(conversion.spec, probes) * len(conversion)


@processes.library_threads()
def convert(
    conversion: Conversion,
    storage: Storage,
    folder: Path | str | RemotePath,
    *,
    workers: int = 1,
    part: tuple[int, int] = (0, 1),
    on_progress: Progress | None = None,
) -> Converted:
    """Write a set into a new or empty folder, also behind a URL, or the missing part of an unfinished run's.

    `part` is `(i, n)` to write only the i-th of n parts, and no manifest; `finish` joins them. `on_progress` is called
    with the samples done and to do, after each shard.

    Raises:
        StorageError: the folder holds other files, another run is at work on it, the disk is or becomes full, or the
            source changed meanwhile. Finished shards stay.
        BadSampleError: a sample cannot be read, and bad ones are not skipped.
    """
    _require_possible(conversion, storage, part)
    folder = storage.at(folder)
    processes.keep_freed_memory()
    start = time.monotonic()
    layout.make_folder(folder)
    with layout.only_one(folder, part):
        header = layout.open_folder(folder, conversion, storage, lambda: estimate_bytes(conversion, storage))
        run = _Run(conversion, storage, folder, header)
        run.write([number for number in range(header.shard_count) if number % part[1] == part[0]], workers, on_progress)
        layout.require_unchanged(header, data_source.digest(conversion.source), folder)
        manifest = finish(folder) if part == (0, 1) else None
    return Converted(
        folder=folder,
        manifest=manifest,
        samples=run.written,
        kept=run.kept,
        seconds=time.monotonic() - start,
        workers=workers,
        shard_samples=tuple(samples for samples, _ in run.shards),
        shard_seconds=tuple(seconds for _, seconds in run.shards),
    )


def finish(folder: Path | str | RemotePath) -> Manifest:
    """Join the shards of a folder, of any number of runs, to a complete set, and write its manifest. Raise StorageError
    if a shard is missing, or its files have changed since.
    """
    folder = place(folder)
    header = Header.load(folder / HEADER_NAME)
    shards = layout.finished_shards(folder, header)
    missing = [number for number in range(header.shard_count) if number not in shards]
    if missing:
        raise StorageError(
            f"`{folder}` is not complete: {len(missing)} of {header.shard_count} shards are missing or not whole, "
            f"the first is number {missing[0]}.",
            hint="Run the conversion again, or the parts of it that did not end.",
        )
    manifest = Manifest(header=header, shards=tuple(shards[number] for number in range(header.shard_count)))
    manifest.save(folder / MANIFEST_NAME)
    return manifest


class _Run:
    def __init__(self, conversion: Conversion, storage: Storage, folder: Place, header: Header) -> None:
        self._conversion, self._storage = conversion, storage
        self._folder, self._header = folder, header
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.kept = 0
        self.shards: list[tuple[int, float]] = []  # samples and seconds of those written

    @property
    def written(self) -> int:
        return sum(samples for samples, _ in self.shards)

    def write(self, numbers: list[int], workers: int, on_progress: Progress | None) -> None:
        layout.remove_parts(self._folder, numbers)
        missing = self._missing(numbers, workers)
        total = sum(len(self._header.positions(number)) for number in numbers)
        to_write = sum(len(self._header.positions(number)) for number in missing)
        self.kept = total - to_write
        self._begin(to_write)
        if on_progress is not None:
            on_progress(self.kept, total)
        with concurrent.futures.ThreadPoolExecutor(workers, "autopipe-convert") as pool:
            futures = [pool.submit(self._write_shard, number) for number in missing]
            try:
                for done, future in enumerate(concurrent.futures.as_completed(futures), start=1):
                    future.result()
                    if on_progress is not None:
                        on_progress(self.kept + sum(samples for samples, _ in self.shards[:done]), total)
            except BaseException as error:  # also Ctrl-C: the threads end at the next sample
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                if isinstance(error, Exception) and self._failure is not None:
                    raise self._failure from self._failure.__cause__
                raise

    def _missing(self, numbers: list[int], workers: int) -> list[int]:
        """Return the shards without a record, or whose files do not match it; by size alone behind a URL."""
        recorded = layout.finished_shards(self._folder, self._header)

        def is_sound(number: int) -> bool:
            files = recorded[number].files if number in recorded else None
            is_remote = isinstance(self._folder, RemotePath)
            return files is not None and (is_remote or all(file.is_intact(self._folder) for file in files))

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            sound = pool.map(is_sound, numbers)
            return [number for number, is_kept in zip(numbers, sound, strict=True) if not is_kept]

    def _begin(self, samples: int) -> None:
        """Check that `samples` have room; from here on the folder holds an unfinished set."""
        if samples == 0:
            return
        if isinstance(self._folder, Path):
            share = samples / self._header.samples
            needed = estimate_bytes(self._conversion, self._storage) * share
            _require_room(self._folder, needed)
        with self._disk_errors():
            (self._folder / MANIFEST_NAME).unlink(missing_ok=True)
            if not (self._folder / HEADER_NAME).exists():
                self._header.save(self._folder / HEADER_NAME)

    def _write_shard(self, number: int) -> None:
        start = time.monotonic()
        bad: dict[int, str] = {}
        try:
            with self._disk_errors(), ShardFiles(self._folder, number) as files:
                self._storage.write_shard(self._samples(number, bad), self._header.spec, files)
            seconds = time.monotonic() - start
            record = layout.ShardRecord(number=number, header=self._header.seal, files=files.records, bad=bad)
            with self._disk_errors():
                record.save(layout.shard_record(self._folder, number))
        except BaseException as error:
            if not self._stop.is_set():  # the first failure ends the other threads, which then fail, too
                self._failure = error
                self._stop.set()
            raise
        self.shards.append((len(self._header.positions(number)), seconds))

    def _samples(self, number: int, bad: dict[int, str]) -> Iterator[Sample | None]:
        for position in self._header.positions(number):
            if self._stop.is_set():
                raise StorageError("The conversion was stopped.")
            try:
                yield self._conversion.sample(position)
            except BadSampleError as error:
                if not self._conversion.skip_bad:
                    raise
                bad[position] = error.message
                yield None

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Raise StorageError for an OSError of the folder that is written to."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(f"`{self._folder}` cannot be written to: {error.strerror}.") from error
            done = f"{self.kept + self.written} of {self._header.samples} samples. These are kept"
            raise StorageError(
                f"The disk is full: {self._folder} takes no more after {done}.",
                hint="Free some space and run the same command again; it goes on from there.",
            ) from error


def _require_room(folder: Path, needed: float) -> None:
    """Raise StorageError if the disk of a folder has no room for so many bytes, and some for records and indexes."""
    free = shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise StorageError(
            f"The disk must have room for the set: {size_text(int(needed) + _SPARE_BYTES)} are needed in `{folder}`, "
            f"but {size_text(free)} are free.",
            hint="Free some, choose another folder, or keep the samples in a smaller form.",
        )


def _require_possible(conversion: Conversion, storage: Storage, part: tuple[int, int]) -> None:
    if not storage.can_hold(conversion.spec):
        kept = ", ".join(field.kind.value for field in conversion.spec.fields)
        raise ConfigError(
            f"The form {storage.name} cannot keep these samples: after {conversion.cut} ops they are {kept}.",
            hint="Choose a cut that `storage.cuts(plan)` names, or another form.",
        )
    if not 0 <= part[0] < part[1]:
        raise ConfigError(f"`part` must be (i, n) with 0 <= i < n, but got {part}.")
