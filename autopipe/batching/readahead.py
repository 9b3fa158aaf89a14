"""Reading ahead: samples of batches to come are read by threads of their own, so that workers never wait for a read.

A worker says which batches it will make next, and what it then reads has been begun, or is there. Which batches those
are, and in which order batches are handed on, is no business of this module. What is begun belongs to its batch: the
last batches of an epoch and the first of the next may hold the same sample, and each gets its own.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Self

from autopipe.batching.cache import MemoryCache
from autopipe.batching.thread_limit import starting
from autopipe.core.job import Recipe
from autopipe.core.sample import Source
from autopipe.errors import LoaderError

_Batch = dict[int, collections.deque[Future[Any]]]  # the reads that were begun for a batch, by sample


def batches_ahead(read_ahead: int, workers: int, batch_size: int) -> int:
    """Return how many batches each worker says ahead, so that `read_ahead` samples are being read all the time."""
    return math.ceil(read_ahead / workers / batch_size)


def readers_of(read_ahead: int, workers: int) -> list[int]:
    """Return how many threads of each worker read ahead, `read_ahead` in all; one that has none reads for itself."""
    each, more = divmod(read_ahead, workers)
    return [each + (number < more) for number in range(workers)]


def samples_ahead(read_ahead: int, workers: int, batch_size: int) -> int:
    """Return how many samples are begun and not made, at most: of the batches said ahead, and of those being made."""
    return 0 if read_ahead == 0 else workers * (1 + batches_ahead(read_ahead, workers, batch_size)) * batch_size


class ReadAhead:
    """A source whose samples may be read before they are asked for. It looks like the source that it reads from.

    Samples that were begun and not taken are at most those of the batches that workers have said ahead.
    """

    read_many = None  # what is read ahead comes sample by sample

    def __init__(self, source: Source, readers: int, there: Callable[[int], bool] = lambda index: False) -> None:
        """Start `readers` threads that read from `source`, but not what is `there` (cached) already.

        Raises:
            LoaderError: the system does not allow so many.
        """
        self._source = source
        self._there = there
        self._lock = threading.Lock()
        self._begun: dict[tuple[int, ...], collections.deque[_Batch]] = {}
        self._here = threading.local()  # its `batch` is the one that the thread reads
        self._unfinished: set[Future[Any]] = set()
        self._tasks: queue.SimpleQueue[tuple[int, Future[Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._readers = readers
        with starting(f"To read ahead takes {readers} threads in this process", "a smaller read_ahead", self.close):
            for number in range(readers):
                # Daemons: one that a read holds for ever ends with the process.
                threading.Thread(target=self._work, name=f"autopipe-reader-{number}", daemon=True).start()

    @classmethod
    def of(cls, recipe: Recipe, cache: MemoryCache | None, readers: int) -> Self | None:
        """Return what reads ahead for a recipe, with as many threads as are given, or None for none."""
        if readers == 0:
            return None
        return cls(recipe.source, readers, there=(lambda index: False) if cache is None else cache.holds)

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the recipe with this in its source's place."""
        return dataclasses.replace(recipe, source=self)

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def begin(self, indices: Sequence[int]) -> None:
        """Begin to read the samples of a batch."""
        tasks: list[tuple[int, Future[Any]]] = [(index, Future()) for index in indices if not self._there(index)]
        batch: _Batch = {}
        for index, future in tasks:
            batch.setdefault(index, collections.deque()).append(future)
        with self._lock:
            if self._closed:
                return
            self._begun.setdefault(tuple(indices), collections.deque()).append(batch)
            self._unfinished.update(future for _, future in tasks)
        for task in tasks:
            self._tasks.put(task)

    @contextlib.contextmanager
    def reading(self, indices: Sequence[int]) -> Iterator[None]:
        """Have this thread read what was begun for a batch; what it has not read at the end is let go of.

        It was cached meanwhile, or something failed.
        """
        batch = self._batch(indices)
        self._here.batch = batch
        try:
            yield
        finally:
            self._here.batch = {}
            for future in itertools.chain.from_iterable(batch.values()):
                future.cancel()

    def read(self, index: int) -> Any:
        """Return the sample, as the source returns it, or raise what the source raised."""
        if self._closed:
            raise _closed()
        batch: _Batch = getattr(self._here, "batch", {})
        futures = batch.get(index)
        return futures.popleft().result() if futures else self._source.read(index)

    def forget(self, indices: Sequence[int]) -> None:
        """Let go of what was begun for a batch that nobody wants any more."""
        with contextlib.suppress(LoaderError), self.reading(indices):  # closed: then nothing is held any more
            pass

    def close(self) -> None:
        """End the threads, and everybody's waiting for them."""
        with self._lock:
            self._closed = True
            unfinished = list(self._unfinished)
            self._begun.clear()
        for future in unfinished:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(_closed())
        for _ in range(self._readers):
            self._tasks.put(None)

    def _batch(self, indices: Sequence[int]) -> _Batch:
        """Return what was begun for a batch, which nobody else gets; nothing, if nothing was."""
        key = tuple(indices)
        with self._lock:
            if self._closed:
                raise _closed()
            batches = self._begun.get(key)
            if batches is None:
                return {}
            batch = batches.popleft()
            if not batches:
                del self._begun[key]
            return batch

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            index, future = task
            with self._lock:  # `close` ends what has not begun to run, and then it cannot
                if self._closed:
                    return
                wanted = future.set_running_or_notify_cancel()
            with contextlib.suppress(InvalidStateError):  # it was closed meanwhile
                if wanted:
                    self._read(index, future)
            with self._lock:
                self._unfinished.discard(future)

    def _read(self, index: int, future: Future[Any]) -> None:
        try:
            found = self._source.read(index)
        except BaseException as error:  # noqa: BLE001  # whoever makes the sample gets it
            future.set_exception(error)
        else:
            future.set_result(found)


def _closed() -> LoaderError:
    return LoaderError("The loader was closed while a sample was being read.")
