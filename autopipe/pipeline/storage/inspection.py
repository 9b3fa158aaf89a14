"""A look at every sample: read, and taken through the ops that give the same in every epoch, as a loader would do it.

What was looked at stands in a journal until the look is complete, so one that was stopped goes on where it was. Nothing
is written but that journal.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

import pydantic

from autopipe.errors import AutopipeError, BadSampleError, DataError
from autopipe.hardware import allocator, opencv
from autopipe.pipeline.storage.conversion import Conversion
from autopipe.values import Value
from autopipe.workload.data.records import cache_folder
from autopipe.workload.digests import digest
from autopipe.workload.ops.planner import sample_name

_CHUNK = 64  # samples; what a look that is killed has to do again, for each worker
_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


class BadFile(Value):
    """A sample that a training would stop at."""

    index: int = pydantic.Field(ge=0)
    name: str  # the path of its file, or what else a person calls it
    reason: str  # what is wrong with it


class FileVerification(Value):
    """A look at every sample of a workload."""

    status: Literal["inspected"] = "inspected"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=0)  # how many there are
    resumed: int = pydantic.Field(default=0, ge=0)  # that an earlier look, which was stopped, had found good
    bad: tuple[BadFile, ...]  # those that cannot be used, in order


class _Good(Value):
    """A line of the journal: the samples from `first` on, as many as are looked at together, are good."""

    first: int


def inspect(
    conversion: Conversion, *, workers: int, on_progress: Progress | None = None, journal: Path | None = None
) -> FileVerification:
    """Look at every sample.

    Args:
        conversion: the samples, and the ops that are done to them.
        workers: threads.
        on_progress: told the samples done and to do.
        journal: where what was looked at is kept meanwhile; None for a file in the user's cache folder.

    Returns:
        The bad samples, in order; those that were found before are looked at again.

    Raises:
        DataError: samples cannot be read through no fault of theirs: too many open files, a connection that is gone.
    """
    opencv.one_thread()
    allocator.keep_freed_memory()
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
    """Name a sample and say what is wrong, without what the name of the sample says already."""
    cause = error.__cause__
    reason = cause.message if isinstance(cause, AutopipeError) else error.message
    return BadFile(index=index, name=sample_name(conversion.source, index), reason=reason)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="autopipe-look")
    try:
        yield pool
    finally:  # after Ctrl-C: what has begun ends, what has not does not begin
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
    """Open the journal; None where it cannot be written, so that this look cannot be resumed."""
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
