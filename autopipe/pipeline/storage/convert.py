"""Writes a kept set: shard by shard, in threads, so that finished shards survive a kill at any moment.

A run writes the record of its part anew after each shard, once the shard's files are in place. At the end the records
of all parts are joined to that of the set. Nothing waits for the disk: files lost to a power cut are found by size when
the set is opened. Opening and comparing sets is in `layout`; the form of the samples is a plugin's.

Shards are files of their own, and not ranges of a file that all share: several machines would then write to the same
page of a network's file system, a disk that is full would end a process that writes to mapped memory, and neither
TFRecords, nor samples that differ in shape, nor objects behind a URL have a place that is known before.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import errno
import functools
import hashlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import numpy as np

from autopipe.errors import BadSampleError, StorageError
from autopipe.hardware import processes
from autopipe.hardware.machine import size_text
from autopipe.pipeline.batching.rows import RowsAtOnce
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Conversion, Folder, Storage, Where, shard_file
from autopipe.pipeline.storage.layout import RECORD_NAME, SetRecord
from autopipe.workload.data import remote
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import cache_folder, spread
from autopipe.workload.ops import planner
from autopipe.workload.order import check_part
from autopipe.workload.sample import Sample

_PROBES = 16
_PROBES_UNDECODED = 256  # if a sample costs no more than reading its file
_SPARE_BYTES = 1 << 20  # records, indexes and folders
_UNFINISHED = ".shard-"  # how the name of the folder begins in which a shard is written
_AT_ONCE, _AT_ONCE_BYTES = 64, 1 << 24  # samples that are made at once, at the most, and what they may take

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of `convert`."""

    folder: Folder  # of the set
    record: SetRecord | None  # of the whole set, or None while parts of it are missing
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
    folder: Where,
    *,
    workers: int = 1,
    part: tuple[int, int] = (0, 1),
    on_progress: Progress | None = None,
) -> Converted:
    """Write a set into a new or empty folder, also behind a URL, or the missing part of an unfinished run's. `part` is
    `(i, n)` to write only the i-th of n parts; `finish` joins them. `on_progress` is called with the samples done and
    to do, after each shard. Raise StorageError if the folder holds other files, another run is at work on it, the disk
    is or becomes full, or the source changed meanwhile: finished shards stay. Raise BadSampleError if a sample cannot
    be read, and bad ones are not skipped.
    """
    check_part("part", part)
    folder = storage.at(folder)
    processes.keep_freed_memory()
    start = time.monotonic()
    with _only_one(folder, part):
        record = layout.open_folder(folder, conversion, storage, lambda: estimate_bytes(conversion, storage))
        run = _Run(conversion, storage, folder, record, part)
        run.write(workers, on_progress)
        now = dataclasses.replace(conversion, source_digest=data_source.digest(conversion.source))
        layout.require_same(record, now, storage.name, folder)  # as when the run began
        whole = finish(folder) if part == (0, 1) else None
    return Converted(
        folder=folder,
        record=whole,
        samples=run.written,
        kept=run.kept,
        seconds=time.monotonic() - start,
        workers=workers,
        shard_samples=tuple(samples for samples, _ in run.shards),
        shard_seconds=tuple(seconds for _, seconds in run.shards),
    )


def finish(folder: Where) -> SetRecord:
    """Join all parts in a folder to a complete set. Raise StorageError if a shard is missing, or files have changed."""
    folder = Folder.of(folder)
    record = layout.known_shards(folder)
    if record is None:
        return layout.whole_record(folder)  # raises what is wrong
    layout.require_complete(record, folder)
    record.save(folder)
    for name in filter(layout.PART_RECORD.fullmatch, folder.sizes()):
        folder.remove(name)
    return record


@contextlib.contextmanager
def _only_one(folder: Folder, part: tuple[int, int]) -> Iterator[None]:
    """Make a missing folder, and hold the lock of a part of it, which the operating system releases however the process
    ends. Raise StorageError if another run holds it, or the folder may not be written to. The lock of a URL is on this
    machine, for this user's processes alone.
    """
    name, beside = f".lock-{part[0]}-of-{part[1]}", folder.path
    if beside is None:
        beside = cache_folder().with_name("locks")
        name = f"{hashlib.sha256(folder.place.encode()).hexdigest()[:16]}{name}"
    lock = filelock.FileLock(beside / name)
    try:
        beside.mkdir(parents=True, exist_ok=True)
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


class _Run:
    def __init__(
        self, conversion: Conversion, storage: Storage, folder: Folder, record: SetRecord, part: tuple[int, int]
    ) -> None:
        self._conversion, self._storage, self._folder, self._record = conversion, storage, folder, record
        self._numbers = [number for number in range(record.shard_count) if number % part[1] == part[0]]
        self._name = f"part-{part[0]}-of-{part[1]}.json"
        self._saving, self._stop = threading.Lock(), threading.Event()
        self._failure: BaseException | None = None
        self.kept = 0
        self.shards: list[tuple[int, float]] = []  # samples and seconds of those written
        self._rows: RowsAtOnce | None = None  # makes many samples at once
        if (steps := conversion.steps) and conversion.spec.is_fixed:
            self._rows = RowsAtOnce.of(conversion.source, None, steps[0].before, steps, 0)

    @property
    def written(self) -> int:
        return sum(samples for samples, _ in self.shards)

    def write(self, workers: int, on_progress: Progress | None) -> None:
        for left in [] if self._folder.path is None else self._folder.path.glob(f"{_UNFINISHED}[0-9]*-*"):
            if int(left.name.split("-")[1]) in self._numbers:  # of a run of this part that was killed
                shutil.rmtree(left, ignore_errors=True)
        missing = self._missing(workers)
        total = sum(len(self._record.positions(number)) for number in self._numbers)
        to_write = sum(len(self._record.positions(number)) for number in missing)
        self.kept = total - to_write
        self._begin(missing, to_write)
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

    def _missing(self, workers: int) -> list[int]:
        mine = set(self._numbers)
        missing = mine.intersection(self._record.missing)
        files = {name: file for name, file in self._record.files.items() if layout.shard_of(name) in mine}
        if self._folder.remote is None:
            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                intact = pool.map(lambda each: layout.is_intact(self._folder, *each), files.items())
                missing |= {layout.shard_of(name) for name, is_sound in zip(files, intact, strict=True) if not is_sound}
        return sorted(missing)

    def _begin(self, missing: list[int], samples: int) -> None:
        """Check that `samples` have room; from here on the folder holds an unfinished set."""
        if samples == 0:
            return
        if (folder := self._folder.path) is not None:
            whole = estimate_bytes(self._conversion, self._storage)
            needed, free = int(whole * samples / self._record.samples) + _SPARE_BYTES, shutil.disk_usage(folder).free
            if needed > free:
                raise StorageError(
                    f"The disk must have room for the set: {size_text(needed)} are needed in `{folder}`, but "
                    f"{size_text(free)} are free.",
                    hint="Free some, choose another folder, or keep the samples in a smaller form.",
                )
        self._record = self._record.without(missing)
        with self._disk_errors():
            self._record.save(self._folder, self._name)
            self._folder.remove(RECORD_NAME)

    def _write_shard(self, number: int) -> None:
        start = time.monotonic()
        bad, files = dict[int, str](), dict[str, tuple[int, str]]()
        try:
            with (
                self._disk_errors(),
                tempfile.TemporaryDirectory(prefix=f"{_UNFINISHED}{number}-", dir=self._folder.path) as written,
            ):
                self._storage.write_shard(self._samples(number, bad), self._conversion.spec, Path(written))
                for name in (there := Folder.of(written)).sizes():
                    files[shard_file(name, number)] = layout.checksum(there, name)
                    self._folder.take(Path(written, name), shard_file(name, number))
            seconds = time.monotonic() - start
            with self._disk_errors(), self._saving:
                self._record = self._record.joined(files, bad)
                self._record.save(self._folder, self._name)
        except BaseException as error:
            if not self._stop.is_set():  # the first failure ends the other threads, which then fail, too
                self._failure = error
                self._stop.set()
            raise
        self.shards.append((len(self._record.positions(number)), seconds))

    def _samples(self, number: int, bad: dict[int, str]) -> Iterator[Sample | None]:
        positions, each = self._record.positions(number), self._conversion.spec.bytes
        count = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(1, each)))
        for start in range(0, len(positions), count):
            some = positions[start : start + count]
            for position, sample in zip(some, self._made_at_once(some), strict=True):
                if self._stop.is_set():
                    raise StorageError("The conversion was stopped.")
                if sample is None:
                    try:
                        sample = self._conversion.sample(position)
                    except BadSampleError as error:
                        if not self._conversion.skip_bad:
                            raise
                        bad[position] = error.message
                yield sample

    def _made_at_once(self, positions: range) -> list[Sample | None]:
        """Return some samples; None for each that has to be made alone."""
        none: list[Sample | None] = [None] * len(positions)
        if self._rows is None or self._stop.is_set():
            return none
        spec, numbers = self._conversion.spec, np.empty((len(positions), 0))  # these ops draw none
        batch = spec.empty(len(positions))
        read = functools.partial(planner.read_sample, self._conversion.source, structure=spec.structure)
        done = self._rows.make(np.array(positions), numbers, batch, read, read, planner.run)
        rows = (tuple(None if part is None else part[row] for part in batch) for row in range(len(positions)))
        return [sample if is_done else None for sample, is_done in zip(rows, done.tolist(), strict=True)]

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(f"`{self._folder}` cannot be written to: {error.strerror}.") from error
            done = f"{self.kept + self.written} of {self._record.samples} samples. These are kept"
            raise StorageError(
                f"The disk is full: {self._folder} takes no more after {done}.",
                hint="Free some space and run the same command again; it goes on from there.",
            ) from error
