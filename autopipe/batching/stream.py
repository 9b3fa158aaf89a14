"""The order of batches: hands tasks to workers in order, takes results in any order, hands them on in order.

A stream runs on from epoch to epoch: when the last batch of an epoch has been given out, workers go on with the next
one, so that an epoch starts without a gap. At most `capacity` batches are between being made and being taken, and
`ahead` more are given out, for whoever has to know early what it will make. All waiting is on one lock; nothing here
knows what a batch holds.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from autopipe.batching.owner import Owner
from autopipe.core.loader import closed
from autopipe.core.order import Order
from autopipe.errors import AutopipeError, LoaderError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One batch to be made. `run` tells apart tasks from before and after the consumer went elsewhere."""

    run: int
    epoch: int
    batch: int
    indices: NDArray[np.int64]


@dataclasses.dataclass(slots=True)
class _Failure:
    error: BaseException


class BatchStream(Generic[T]):
    """Connects workers, who call `next_task` and `deliver`, with one consumer, who calls `take_epoch`."""

    def __init__(self, order: Order, capacity: int, ahead: int = 0) -> None:
        self._order = order
        self._capacity = capacity
        self._ahead = ahead
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # workers wait here for room or for a new run
        self._ready = threading.Condition(self._lock)  # the consumer waits here for its batch
        self._owner = Owner()
        self._run = 0
        self._reader = 0  # the epoch that is being read: an older one gets nothing any more
        self._given = (0, 0)  # the next batch to give out
        self._wanted = (0, 0)  # the next batch the consumer takes
        self._skipped = 0  # samples of that batch that it does without
        self._last_epoch: int | None = -1  # nothing is given out beyond this epoch; None: no end
        self._indices: tuple[int, NDArray[np.int64]] | None = None
        self._out = 0  # batches given out and not yet taken
        self._done: dict[tuple[int, int], T | _Failure] = {}
        self._closed = False
        self._error: AutopipeError | None = None  # why it was closed

    def next_task(self, *, wait: bool = True) -> Task | None:
        """Return the next batch to make; None once the stream is closed or, without `wait`, where there is no room."""
        with self._lock:
            while not self._closed and (self._out >= self._capacity + self._ahead or self._at_end()):
                if not wait:
                    return None
                self._work.wait()
            if self._closed:
                return None
            epoch, batch = self._given
            skipped = self._skipped if self._given == self._wanted else 0
            epoch_indices = self._epoch_indices(epoch)
            self._out += 1
            self._given = (epoch, batch + 1) if batch + 1 < self._order.batches else (epoch + 1, 0)
            first = batch * self._order.batch_size
            return Task(self._run, epoch, batch, epoch_indices[first + skipped : first + self._order.batch_size])

    def room_for(self, task: Task) -> bool:
        """Wait until the batch may be made; return whether anybody wants it, which nobody does after a jump."""
        if not self._ahead:  # there was room when it was given out, a moment ago
            return True
        with self._lock:
            while not self._closed and task.run == self._run and self._distance(task) >= self._capacity:
                self._work.wait()
            return not self._closed and task.run == self._run

    def deliver(self, task: Task, result: T) -> None:
        """Hand over a finished batch; one that nobody waits for any more is dropped."""
        self._put(task, result)

    def fail(self, task: Task, error: BaseException) -> None:
        """Hand over the error that ended a batch; the consumer gets it in the batch's place."""
        self._put(task, _Failure(error))

    def take_epoch(self, epoch: int, start: int, *, last: bool, skipped: int = 0) -> Iterator[T]:
        """Yield the batches of an epoch in order, from batch `start` on, which is made without its first samples.

        Args:
            epoch: the epoch's number.
            start: the first batch wanted.
            last: whether no other epoch follows.
            skipped: how many samples of the first batch are left out.

        Raises:
            LoaderError: the stream was closed, another epoch (or this one once more) was started in the meantime, or
                this process is not the one that made the stream.
        """
        reader = self._seek(epoch, start, skipped, last=last)
        for batch in range(start, self._order.batches):
            yield self._take(reader, (epoch, batch))

    def waiting(self) -> int:
        """Return how many finished batches wait for the consumer."""
        return len(self._done)

    def close(self, error: AutopipeError | None = None) -> None:
        """Wake everybody up and let them go. Results are dropped; the consumer gets `error`, if there is one."""
        with self._lock:
            self._closed = True
            self._error = self._error or error
            self._done.clear()
            self._work.notify_all()
            self._ready.notify_all()

    def _seek(self, epoch: int, start: int, skipped: int, *, last: bool) -> int:
        """Go to a batch, and return the number by which its reader takes from there on."""
        self._owner.require()  # before the lock, which a thread that no fork copies may have held
        with self._lock:
            if self._closed:
                raise self._error or closed()
            self._reader += 1
            self._ready.notify_all()  # the reader before, if it waits for a batch, has to end
            there = self._wanted == (epoch, start) and self._skipped == skipped
            if self._last_epoch == -1 or not there or self._given < (epoch, start):
                self._run += 1
                self._given = self._wanted = (epoch, start)
                self._skipped = skipped
                self._out = 0
                self._done.clear()
            self._last_epoch = epoch if last else None
            self._work.notify_all()
            return self._reader

    def _take(self, reader: int, wanted: tuple[int, int]) -> T:
        self._owner.require()
        with self._lock:
            while reader == self._reader and not self._closed and wanted not in self._done:
                self._ready.wait()
            if self._closed:
                raise self._error or LoaderError("The loader was closed while an epoch was being read.")
            if reader != self._reader:
                raise overtaken(wanted[0])
            result = self._done.pop(wanted)
            epoch, batch = wanted
            self._wanted = (epoch, batch + 1) if batch + 1 < self._order.batches else (epoch + 1, 0)
            self._skipped = 0
            self._out -= 1
            self._work.notify_all() if self._ahead else self._work.notify()
            if isinstance(result, _Failure):
                self._last_epoch = -1  # whoever goes on after an error starts afresh
                raise result.error
            return result

    def _put(self, task: Task, result: T | _Failure) -> None:
        with self._lock:
            if task.run == self._run and not self._closed:
                self._done[task.epoch, task.batch] = result
                self._ready.notify_all()  # one that was overtaken may be waiting, too

    def _distance(self, task: Task) -> int:
        """Return how many batches the consumer takes before this one."""
        epoch, batch = self._wanted
        return (task.epoch - epoch) * self._order.batches + task.batch - batch

    def _at_end(self) -> bool:
        return self._last_epoch is not None and self._given[0] > self._last_epoch

    def _epoch_indices(self, epoch: int) -> NDArray[np.int64]:
        if self._indices is None or self._indices[0] != epoch:
            self._indices = (epoch, self._order.epoch(epoch))
        return self._indices[1]


def overtaken(epoch: int) -> LoaderError:
    """Return the error for whoever reads an epoch that another, or the same once more, was started after."""
    return LoaderError(
        f"A loader serves one epoch at a time, but another was started while epoch {epoch} was read.",
        hint="Finish one epoch before the next, or build a second loader.",
    )
