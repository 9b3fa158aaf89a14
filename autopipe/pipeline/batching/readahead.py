"""Reading ahead: extra threads read samples of batches to come, so that workers never wait for a read.

A worker names its next batches, and its later reads are then begun or done. The choice and order of batches are not
decided here. Reads belong to their batch: the last batches of an epoch and the first of the next may hold the same
sample, and each gets its own.

A read that takes much longer than others (a slow server of an object store, a lost packet) is made again beside it, and
the first answer counts: J. Dean and L. A. Barroso, "The Tail at Scale", 2013.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from autopipe.errors import LoaderError
from autopipe.pipeline.batching.stream import starting
from autopipe.workload.data.source import Around
from autopipe.workload.sample import Source

_LEAST_LATE_SECONDS = 0.05  # shorter reads are waited for: the machine itself may pause a thread for so long
_LATE = 2.0  # times the median of the last reads, and more than 19 of 20 of them take
_LAST_READS = 200  # by which it is known how long reads take
_FEWEST_READS = 40  # before any of them counts as late
_MOST_AGAIN = 0.05  # of all reads may be made again
_CLOSED = "The loader was closed while a sample was being read."
_MOST_AT_WORK = 3  # threads that read one sample: of 2,500 reads, both of one are late if one in 50 is


@dataclasses.dataclass(slots=True, eq=False)
class _Read:
    index: int
    answer: Future[Any]
    began: float = math.inf  # when the last attempt did; not yet
    at_work: int = 0  # threads that read it


_Batch = dict[int, collections.deque[_Read]]  # the reads that were begun for a batch, by sample


def batches_ahead(read_ahead: int, workers: int, batch_size: int) -> int:
    """Return the number of batches that each worker announces ahead, so that `read_ahead` reads are under way."""
    return math.ceil(read_ahead / workers / batch_size)


def samples_ahead(read_ahead: int, workers: int, batch_size: int) -> int:
    """Return the largest number of samples begun and not made: of the batches ahead, and of those in the making."""
    return 0 if read_ahead == 0 else workers * (1 + batches_ahead(read_ahead, workers, batch_size)) * batch_size


class ReadAhead(Around):
    """A source whose samples may be read before they are asked for. The samples begun and not taken are at most those
    of the batches that workers have named. If a worker waits, reads that take longer than twice the median of the last
    reads, and longer than 19 of 20 of them, are made again, unless the source says `idempotent = False`. That is done
    to one read in 20 at most, on average.
    """

    def __init__(self, source: Source, readers: int, there: Callable[[int], bool] = lambda index: False) -> None:
        """Start threads that read what is not `there`. Raise LoaderError if the system allows fewer."""
        super().__init__(source)
        self._there = there
        self._lock = threading.Lock()
        self._begun: dict[tuple[int, ...], collections.deque[_Batch]] = {}
        self._here = threading.local()  # its `batch` is the one that the thread reads
        self._unfinished: set[_Read] = set()
        self._tasks: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._tail = _Tail() if getattr(source, "idempotent", True) else None
        self._closed = False
        self._end = weakref.finalize(self, self._tasks.put, None)
        with starting(f"Reading ahead takes {readers} threads in this process", "a smaller read_ahead", self.close):
            for number in range(readers):
                # Daemons: one that a read holds for ever ends with the process. Nor do they hold what Ctrl-C left open.
                work, name = (weakref.ref(self), self._tasks), f"autopipe-reader-{number}"
                threading.Thread(target=_work, args=work, name=name, daemon=True).start()

    def begin(self, indices: Sequence[int]) -> None:
        tasks = [_Read(index, Future()) for index in indices if not self._there(index)]
        batch: _Batch = {}
        for task in tasks:
            batch.setdefault(task.index, collections.deque()).append(task)
        with self._lock:
            if self._closed:
                return
            self._begun.setdefault(tuple(indices), collections.deque()).append(batch)
            self._unfinished.update(tasks)
        for task in tasks:
            self._tasks.put(task)

    @contextlib.contextmanager
    def reading(self, indices: Sequence[int]) -> Iterator[None]:
        """Have this thread take the reads of a batch; those left at the end were cached, or a sample failed."""
        key = tuple(indices)
        with self._lock:
            if self._closed:
                raise LoaderError(_CLOSED)
            batches = self._begun.get(key)
            batch = batches.popleft() if batches else {}
            if not batches:
                self._begun.pop(key, None)
        self._here.batch = batch
        try:
            yield
        finally:
            self._here.batch = {}
            for read in itertools.chain.from_iterable(batch.values()):
                read.answer.cancel()

    def read(self, index: int) -> Any:
        if self._closed:
            raise LoaderError(_CLOSED)
        batch: _Batch = getattr(self._here, "batch", {})
        reads = batch.get(index)
        if not reads:
            return self.source.read(index)
        wanted = reads.popleft()
        while self._tail is not None and not _came(wanted, self._tail):
            self._ask_again(self._tail)
        return wanted.answer.result()

    def forget(self, indices: Sequence[int]) -> None:
        with contextlib.suppress(LoaderError), self.reading(indices):  # closed: then nothing is held any more
            pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
            unfinished = list(self._unfinished)
            self._begun.clear()
        for read in unfinished:
            with contextlib.suppress(InvalidStateError):
                read.answer.set_exception(LoaderError(_CLOSED))
        self._end()

    def _take(self, task: _Read) -> None:
        with self._lock:  # `close` cancels waiting reads, and then it cannot
            if self._closed:
                return
            if not task.answer.set_running_or_notify_cancel():
                self._unfinished.discard(task)
                return
            task.began, task.at_work = time.monotonic(), 1
        self._read(task)

    def _read(self, task: _Read) -> None:
        began = time.monotonic()
        try:
            found = self.source.read(task.index)
        except BaseException as error:  # noqa: BLE001  # the maker of the sample gets it
            self._failed(task, error)
            return
        with self._lock:
            task.at_work -= 1
            self._unfinished.discard(task)
            if self._tail is not None:
                self._tail.add(time.monotonic() - began)
        with contextlib.suppress(InvalidStateError):  # it was closed, or answered, meanwhile
            task.answer.set_result(found)

    def _failed(self, task: _Read, error: BaseException) -> None:
        with self._lock:
            task.at_work -= 1
            if task.at_work:  # another attempt may still succeed
                return
            self._unfinished.discard(task)
        with contextlib.suppress(InvalidStateError):
            task.answer.set_exception(error)

    def _ask_again(self, tail: _Tail) -> None:
        """Repeat late reads, the longest first, as far as that is allowed."""
        with self._lock:
            now = time.monotonic()
            begun = sorted(self._unfinished, key=lambda task: task.began)
            late = [each for each in begun if now - each.began > tail.late_seconds and each.at_work < _MOST_AT_WORK]
            late = late[: 0 if self._closed else tail.left()]
            tail.again += len(late)
            for task in late:
                task.began, task.at_work = now, task.at_work + 1
        for task in late:
            try:
                threading.Thread(target=self._read, args=(task,), name="autopipe-reader-again", daemon=True).start()
            except RuntimeError as error:  # the system allows no more threads
                self._failed(task, error)


def _work(ahead: weakref.ref[ReadAhead], tasks: queue.SimpleQueue[_Read | None]) -> None:
    while (task := tasks.get()) is not None:
        if (reader := ahead()) is not None:
            reader._take(task)
        del reader, task  # and what was read
    tasks.put(None)  # for the other threads


def _came(wanted: _Read, tail: _Tail) -> bool:
    """Wait until a sample has been read, or is late; return True if it was read."""
    late = wanted.began + tail.late_seconds - time.monotonic()
    known = math.isfinite(late)  # it was begun, and how long reads take is known
    seconds = max(late, _LEAST_LATE_SECONDS) if known else _LEAST_LATE_SECONDS
    return bool(concurrent.futures.wait((wanted.answer,), seconds).done)


class _Tail:
    def __init__(self) -> None:
        self._seconds: collections.deque[float] = collections.deque(maxlen=_LAST_READS)
        self._count = 0
        self.again = 0  # reads that were made again so far
        self.late_seconds = math.inf

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._count += 1
        if self._count % _FEWEST_READS == 0:
            known = sorted(self._seconds)
            median, longest = known[len(known) // 2], known[len(known) * 19 // 20]
            self.late_seconds = max(_LEAST_LATE_SECONDS, _LATE * median, longest)

    def left(self) -> int:
        return max(0, int(_MOST_AGAIN * self._count) - self.again)
