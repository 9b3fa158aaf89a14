"""The order of batches: hands tasks to workers in order, takes results in any order, hands them on in order.

A stream runs on from epoch to epoch: after the last task of an epoch, workers go on with the next one, so that an epoch
starts without a gap. A worker may take several consecutive batches in one go. At most `queue_size` batches, and those
of one task a worker, are between being made and being taken; `ahead` more tasks are known early. All waiting is on one
lock, and nobody holds it while an epoch's order is drawn: the next one is drawn in the second half of the epoch before.
Nothing here knows what a batch holds. Rules of forking are here, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import AutopipeError, LoaderError
from autopipe.pipeline.loader import Owner, closed
from autopipe.workload.order import BatchOrder

# -------------------- threads and forks


@contextlib.contextmanager
def starting(takes: str, less: str, undo: Callable[[], object]) -> Iterator[None]:
    """Start threads in the block; if the system allows no more, `undo` ends those that were started. `takes` is the
    subject of the LoaderError that is raised then, `less` is an alternative that takes fewer.
    """
    try:
        yield
    except RuntimeError as error:
        undo()
        raise LoaderError(
            f"{takes}, but one could not be started: {error}.",
            hint=f"Use {less}, or raise the limit of threads (`ulimit -u`, or pids of a container).",
        ) from error


def require_safe_fork() -> None:
    """Raise LoaderError unless a PyDataset may fork its workers here: no framework has run in this process."""
    instead = "Make the PyDataset with use_multiprocessing=False: its workers are threads then."
    if (method := _start_method()) != "fork":
        raise LoaderError(
            f"`use_multiprocessing` of Keras is supported with the start method `fork` only, but it is `{method}`.",
            hint=instead,
        )
    _require_nothing_running("`use_multiprocessing` of Keras", instead)


def require_safe_workers(dataset: Any) -> None:
    """Raise LoaderError if a torch `DataLoader` would fork its workers after a framework has run here."""
    started = getattr(dataset, "_iterator", None) is not None  # with persistent_workers, once
    if forks_workers(dataset) and not started:
        _require_nothing_running(
            f"A torch DataLoader with num_workers={dataset.num_workers}",
            'Make it with multiprocessing_context="forkserver", whose workers begin anew (a script then trains under '
            '`if __name__ == "__main__":`), or with num_workers=0. A training of torch alone: set KERAS_BACKEND=torch.',
        )


def forks_workers(data: Any) -> bool:
    """Return True if a torch `DataLoader`, or its iterator, has its batches made by processes that it forks."""
    if not any(kind.__module__.partition(".")[0] == "torch" for kind in type(data).__mro__):
        return False
    processes, context = getattr(data, "_workers", ()), getattr(data, "multiprocessing_context", None)
    method = processes[0]._start_method if processes else context.get_start_method() if context else None
    return bool(processes or getattr(data, "num_workers", 0)) and (method or _start_method()) == "fork"


def _start_method() -> str:
    usual = multiprocessing.get_all_start_methods()[0]
    return multiprocessing.get_start_method(allow_none=True) or usual  # sets none: a script may still set one


def _require_nothing_running(what: str, instead: str) -> None:
    if (running := frameworks.running_framework()) is not None:
        raise LoaderError(
            f"{what} forks, and children forked after {running} has run, as it has here, hang.", hint=instead
        )


# -------------------- stream


T = TypeVar("T")
DRAWING = "autopipe-order"  # the name of a thread that draws the order of an epoch


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Batches to be made in one go. `run` separates tasks before and after a jump of the consumer."""

    run: int
    epoch: int
    batch: int  # the first
    count: int
    indices: NDArray[np.int64]  # of all their samples


class BatchStream(Generic[T]):
    """Connects workers, which call `next_task` and `deliver`, with one consumer, which calls `take_epoch`."""

    def __init__(self, order: BatchOrder, queue_size: int, workers: int = 1, ahead: int = 0) -> None:
        self._order, self._queue_size, self._workers, self._ahead = order, queue_size, workers, ahead
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # workers wait here for room or for a new run
        self._ready = threading.Condition(self._lock)  # the consumer waits here for its batch
        self._owner = Owner()
        self._run = 0
        self._reader = 0  # the epoch that is being read: an older one gets nothing any more
        self._given = (0, 0)  # the next batch to give out
        self._wanted = (0, 0)  # the next batch the consumer takes
        self._last_epoch: int | None = -1  # nothing is given out beyond this epoch; None: no end
        self._end: tuple[int, int] | None = None  # the first batch that is another loader's; None: no end
        self._orders = dict[int, Future[NDArray[np.int64]]]()  # of this epoch and the next: their samples
        self._drawing = threading.Lock()  # of these
        self._out = 0  # batches given out and not yet taken
        # By the first batch, with how many there are; in the place of a result, the error that ended its task.
        self._done: dict[tuple[int, int], tuple[int, T | BaseException]] = {}
        self._closed = False
        self._error: AutopipeError | None = None  # why it was closed

    def next_task(self, *, wait: bool = True, most: int = 1) -> Task | None:
        """Return a task of up to `most` batches; None once it is closed or, without `wait`, if there is no room."""
        with self._lock:
            while not self._closed and not self._has_task(most):
                if not wait:
                    return None
                self._work.wait()
            if self._closed:
                return None
            run, (epoch, batch), count = self._run, self._given, self._together(most)
            self._out += count
            self._given = self._behind(epoch, batch + count)
            goes_on = self._last_epoch is None
        indices, size = self._draw(epoch).result(), self._order.batch_size
        half_done = 2 * (batch + count) >= self._order.batches
        if goes_on and self._order.shuffle and half_done and epoch + 1 not in self._orders:
            with contextlib.suppress(RuntimeError):  # no thread can be started: it is drawn when it is needed
                threading.Thread(target=self._draw, args=(epoch + 1,), name=DRAWING, daemon=True).start()
        return Task(run, epoch, batch, count, indices[batch * size : (batch + count) * size])

    def room_for(self, task: Task) -> bool:
        """Wait until the batch may be made; return False if it is no longer wanted, after a jump."""
        if not self._ahead:  # there was room when it was given out, a moment ago
            return True
        with self._lock:
            while not self._closed and task.run == self._run:
                ahead = (task.epoch - self._wanted[0]) * self._order.batches + task.batch - self._wanted[1]
                if ahead < self._queue_size + self._workers:
                    return True
                self._work.wait()
            return False

    def deliver(self, task: Task, result: T | BaseException) -> None:
        """Hand over a result, or the error that ended the task: the consumer gets it in the place of its batches."""
        with self._lock:
            if task.run == self._run and not self._closed:
                self._done[task.epoch, task.batch] = (task.count, result)
                if (task.epoch, task.batch) == self._wanted:
                    self._ready.notify_all()  # one that was overtaken may be waiting, too

    def take_epoch(self, epoch: int, start: int, *, last: bool) -> Iterator[T]:
        """Yield the results of an epoch in order, from batch `start` on; `last`: no other epoch follows. Raise
        LoaderError if the stream was closed, another epoch (or this one once more) was started in the meantime, or this
        process is not the one that made the stream.
        """
        reader = self._seek(epoch, start, last=last)
        batch = start
        while batch < self._order.batches:
            count, made = self._take(reader, (epoch, batch))
            batch += count
            yield made
            del made  # the consumer may be done with it

    def stop_ahead(self) -> tuple[int, int]:
        """Give out no further task, and return the first batch that was not given out."""
        with self._lock:
            self._end = self._given
            return self._end

    def forget(self) -> None:
        """Have all batches that are made ahead made anew."""
        with self._lock:
            self._last_epoch = -1

    def go_on(self) -> None:
        with self._lock:
            self._end = None
            self._work.notify_all()

    def waiting(self) -> int:
        return sum(count for count, _ in list(self._done.values()))

    def close(self, error: AutopipeError | None = None) -> None:
        """Wake and release all waiting threads. Results are dropped; the consumer gets `error`, if there is one."""
        with self._lock:
            self._closed = True
            self._error = self._error or error
            self._done.clear()
            self._work.notify_all()
            self._ready.notify_all()

    def _seek(self, epoch: int, start: int, *, last: bool) -> int:
        self._owner.require()  # before the lock, which a thread that no fork copies may have held
        with self._lock:
            if self._closed:
                raise self._error or closed()
            self._reader += 1
            self._ready.notify_all()  # the reader before, if it waits for a batch, has to end
            there = self._wanted == (epoch, start)
            if self._last_epoch == -1 or not there or self._given < (epoch, start):
                self._run += 1
                self._given = self._wanted = (epoch, start)
                self._out = 0
                self._done.clear()
            self._last_epoch = epoch if last else None
            self._work.notify_all()
            return self._reader

    def _take(self, reader: int, wanted: tuple[int, int]) -> tuple[int, T]:
        self._owner.require()
        with self._lock:
            while reader == self._reader and not self._closed and wanted not in self._done:
                self._ready.wait()
            if self._closed:
                raise self._error or LoaderError("The loader was closed while an epoch was being read.")
            if reader != self._reader:
                raise overtaken(wanted[0])
            count, result = self._done[wanted]
            self._wanted = self._behind(wanted[0], wanted[1] + count)  # first, as Ctrl-C may come between two lines
            self._out -= count
            del self._done[wanted]
            self._work.notify_all() if self._ahead else self._work.notify(count)
            if isinstance(result, BaseException):
                self._last_epoch = -1  # a consumer that goes on after an error starts afresh
                raise result
            return count, result

    def _together(self, most: int) -> int:
        return min(most, self._order.batches - self._given[1])

    def _has_task(self, most: int) -> bool:
        has_room = self._out + self._together(most) <= self._queue_size + self._workers * most + self._ahead
        is_before = self._end is None or self._given < self._end
        return has_room and is_before and (self._last_epoch is None or self._given[0] <= self._last_epoch)

    def _behind(self, epoch: int, batch: int) -> tuple[int, int]:
        return (epoch, batch) if batch < self._order.batches else (epoch + 1, 0)

    def _draw(self, epoch: int) -> Future[NDArray[np.int64]]:
        """Draw the order of an epoch, unless another thread does or has done; the result is there once it is drawn."""
        with self._drawing:
            if (known := self._orders.get(epoch)) is not None:
                return known
            near = {number: each for number, each in self._orders.items() if abs(number - epoch) == 1}
            drawn: Future[NDArray[np.int64]] = Future()
            self._orders = {**near, epoch: drawn}
        try:
            drawn.set_result(self._order.epoch(epoch))
        except BaseException as error:  # noqa: BLE001  # whoever needs it raises it
            drawn.set_exception(error)
            with self._drawing:
                self._orders.pop(epoch, None)
        return drawn


def overtaken(epoch: int) -> LoaderError:
    """Return the error of a reader whose epoch was replaced by a later one."""
    return LoaderError(
        f"A loader serves one epoch at a time, but another was started while epoch {epoch} was read.",
        hint="Finish one epoch before the next, or build a second loader.",
    )
