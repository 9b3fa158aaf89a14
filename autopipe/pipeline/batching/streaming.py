"""Loaders whose workers fill whole batches: the common base of threads and processes.

Each worker is a thread that takes a task, gets a slot, has it filled and delivers it. The filler is the only
difference: the thread itself, or a process of its own that the thread waits for.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import LoaderError, told, worker_failure
from autopipe.hardware import machine
from autopipe.hardware.machine import size_text
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, Slot, SlotPool
from autopipe.pipeline.batching.indexed import Indexed
from autopipe.pipeline.batching.kernel import BadSample, BadSampleLedger, Kernel
from autopipe.pipeline.batching.stream import DRAWING, BatchStream, Task, starting
from autopipe.pipeline.loader import LoadJob, Owner, WorkloadLoader
from autopipe.workload.sample import Batch

_PATIENCE_SECONDS = 10.0  # for threads to end; one that a user's function holds for ever ends with the process
# The bad samples; or the batch itself, if it does not fit the slot. The last: the error that ended a group early.
Filled = tuple[Slot, int, list[BadSample] | Batch, BaseException | None]


class Filler(Protocol):
    """Fills slots, one at a time, for one worker: the kernel in the worker's own thread, or what asks a process."""

    lost: int
    """How many processes have died in doing so, and were replaced."""

    def begin(self, indices: NDArray[np.int64]) -> None:
        """Prepare a batch that will be filled later; called only if batches are known ahead."""

    def forget(self, indices: NDArray[np.int64]) -> None:
        """Drop the preparation of a batch that is no longer wanted."""

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample] | Batch:
        """Write samples into the slot, and return those that were replaced; or return a batch of another shape."""

    def close(self) -> None:
        """Give up at once, also in the middle of `fill_slot`, which may then raise anything."""


class StreamingLoader(WorkloadLoader):
    """Hands over the fillers' batches, in order, at most `queue_size` ahead of those in the making."""

    def __init__(
        self,
        job: LoadJob,
        fillers: Sequence[Filler],
        queue_size: int,
        ahead: int = 0,
        at_a_time: int = 1,
        kernel: Kernel | None = None,
    ) -> None:
        """Start a thread for each filler; the other arguments are as in `Worker`."""
        self._left, self._owner, self._fillers = 0, Owner(), frozenset(fillers)
        self._lost = 0  # of fillers that were let go of
        workers, waiting = len(fillers), groups(queue_size, at_a_time)
        queue_size = waiting * at_a_time
        super().__init__(job, queue_size + workers * at_a_time)
        layout = RowLayout(job.recipe.spec, job.order.batch_size * at_a_time)
        self._pool = SlotPool(layout, keep=waiting + workers + 2)
        self._stream: BatchStream[Filled] = BatchStream(job.order, queue_size, workers, ahead * workers)
        self._ledger = job.shared.get("ledger", lambda: BadSampleLedger(job.bad_sample_log, job.order.samples))
        works = [Worker(self._stream, self._pool, each, ahead, at_a_time, kernel).work for each in fillers]
        named = [(f"autopipe-{number}", work) for number, work in enumerate(works)]
        threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in named]
        self._shut_down = weakref.finalize(self, _shut_down, self._owner, self._stream, fillers, threads)
        with starting(f"{workers} workers need a thread each", "fewer workers", self._shut_down):
            for thread in threads:
                thread.start()

    @property
    def bad_samples(self) -> dict[int, int]:
        return self._ledger.counts

    def lost_workers(self) -> int:
        return self._lost + sum(filler.lost for filler in self._fillers)

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        self._left, source = 0, self._job.recipe.source
        if start >= len(self):
            return
        with ExitStack() as stack:
            if isinstance(source, Indexed):
                last = last or source.begins_anew
                if stack.enter_context(source.epoch(epoch)):
                    self._stream.forget()
            for slot, rows, bad, failure in self._stream.take_epoch(epoch, start, last=last):
                if isinstance(bad, tuple):
                    self._pool.release(slot)
                    yield bad
                    continue
                made = self._pool.lend(slot, rows)
                self._ledger.record(epoch, bad)
                if rows <= self.batch_size:
                    yield made
                else:
                    yield from self._cut(made)
                del made  # the consumer may be done with it: do not hold it while waiting for the next
                if failure is not None:
                    raise failure

    def _cut(self, made: Batch) -> Iterator[Batch]:
        for start in range(0, len(made[0]), self.batch_size):
            self._owner.require()
            rows = slice(start, start + self.batch_size)
            self._left = -(-(len(made[0]) - rows.stop) // self.batch_size)
            yield tuple(None if part is None else part[rows] for part in made)

    def occupancy(self) -> tuple[int, int] | None:
        return self._stream.waiting() + self._left, self.buffered_batches

    def stop_ahead(self) -> tuple[int, int]:
        return self._stream.stop_ahead()

    def go_on(self) -> None:
        self._stream.go_on()

    def close(self) -> None:
        self._shut_down()
        self._lost += sum(filler.lost for filler in self._fillers)
        self._fillers = frozenset()  # a filler may hold threads and memory that end with it


def groups(batches: int, at_a_time: int) -> int:
    """Return in how many goes so many batches are made, of which each makes several."""
    return max(1, batches // at_a_time)


def require_memory(job: LoadJob, batches: int, samples_ahead: int = 0) -> None:
    """Raise LoaderError if the batches in flight, the samples read ahead and the cache would not fit."""
    layout = RowLayout(job.recipe.spec, job.order.batch_size)
    cache_bytes = MemoryCache.bytes_to_come(job)
    mean_bytes = getattr(job.recipe.source, "mean_bytes", None)  # of a source that knows it without reading
    ahead_bytes = int(samples_ahead * mean_bytes()) if samples_ahead and mean_bytes is not None else 0
    needed, free = layout.size * batches + cache_bytes + ahead_bytes, machine.detect_memory().available_bytes
    if needed > free:
        raise LoaderError(
            f"The loader needs {size_text(needed)} of memory ({batches} batches of {size_text(layout.size)}"
            f"{f', {size_text(ahead_bytes)} of samples read ahead' if ahead_bytes else ''}"
            f"{f', {size_text(cache_bytes)} of cache' if cache_bytes else ''}), but {size_text(free)} are free.",
            hint="Use a smaller queue_size or read_ahead, fewer workers or keep='none'.",
        )


@dataclasses.dataclass
class Worker:
    """One thread's work: it takes tasks, has slots filled and hands them over, until the stream is closed."""

    stream: BatchStream[Filled]
    pool: SlotPool
    filler: Filler
    ahead: int = 0  # batches that the filler knows before it fills them
    at_a_time: int = 1  # consecutive batches that are filled as one, if a few calls make them
    kernel: Kernel | None = None  # tells if they do

    def work(self) -> None:
        try:
            for task in self._tasks():
                self._make(task)
        except BaseException as error:  # noqa: BLE001  # without this thread the consumer might wait for ever
            self.stream.close(worker_failure(error))

    def _tasks(self) -> Iterator[Task]:
        """Yield tasks; the filler is told of `ahead` more before each."""
        told: collections.deque[Task] = collections.deque()
        most = self._together(np.zeros(1, np.int64))
        while True:
            while len(told) <= self.ahead and (task := self.stream.next_task(wait=not told, most=most)) is not None:
                if self.ahead:
                    self.filler.begin(task.indices)
                told.append(task)
            if not told:
                return
            task = told.popleft()
            # Where these samples are at hand, the next ones are: in a first epoch none are in the cache, later all.
            most = self._together(task.indices)
            if self.stream.room_for(task):
                yield task
            elif self.ahead:
                self.filler.forget(task.indices)

    def _together(self, indices: NDArray[np.int64]) -> int:
        several = self.at_a_time > 1 and self.kernel is not None and self.kernel.has_at_hand(indices)
        return self.at_a_time if several else 1

    def _make(self, task: Task) -> None:
        try:
            slot = self.pool.acquire()
        except (OSError, MemoryError) as error:
            if self.ahead:
                self.filler.forget(task.indices)
            full = LoaderError(  # each takes two file descriptors: its file's and its map's
                f"There is no room for another batch: {told(error)}.",
                hint="Keep fewer batches or use a smaller queue_size; or raise `ulimit -n`.",
            )
            self.stream.deliver(task, full)
            return
        rows = len(task.indices)
        failure: BaseException | None = None
        while rows > 0:  # if one of several batches fails, those before it are made all the same
            try:
                bad = self.filler.fill_slot(slot, task.epoch, task.indices[:rows])
            except BaseException as error:  # noqa: BLE001  # a thread must not die in silence: the consumer gets it
                failure = failure or worker_failure(error)
                size = slot.layout.rows // self.at_a_time
                rows = (rows - 1) // size * size
            else:
                self.stream.deliver(task, (slot, rows, bad, failure))
                return
        assert failure is not None
        self.pool.release(slot)
        self.stream.deliver(task, failure)


def _shut_down(
    owner: Owner, stream: BatchStream[Filled], fillers: Sequence[Filler], threads: Sequence[threading.Thread]
) -> None:
    if not owner.is_here:  # a forked child that ends: threads, workers and locks are not its own
        return
    here = threading.current_thread()
    if here in threads or here.name == DRAWING:  # the garbage collector runs here, perhaps under a lock that is needed
        threading.Thread(target=_shut_down, args=(owner, stream, fillers, threads)).start()
        return
    stream.close()
    with ExitStack() as stack:  # all of them, also if Ctrl-C comes in one
        for filler in fillers:
            stack.callback(filler.close)
    patience = time.monotonic() + _PATIENCE_SECONDS
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, patience - time.monotonic()))
