"""Grain: batches through Google's `grain.MapDataset`, its threads and, on request, its worker processes.

The common kernel makes the batches; an element of the dataset is a batch, and its number goes on from epoch to epoch,
so that Grain reads on into the next one. Threads, processes and queues are Grain's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, LoaderError, extra_module, worker_failure
from autopipe.hardware import machine, processes
from autopipe.pipeline.batching import kernel, pickling, stream, streaming
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock
from autopipe.pipeline.batching.traced import traced
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.loader import Loader, LoadJob, Owner, Recipe, WorkloadLoader, closed
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Batch

_ENDLESS = 2**48  # batches
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # Grain's workers put batches there


class Grain(LoaderConfig):
    """A `grain.MapDataset` of batches; it needs the extra `grain`.

    Attributes:
        num_threads: threads that fill batches, in each process that does.
        workers: processes of Grain's own that fill batches; 0: the threads are this process's. Grain starts them anew
            when an epoch does not follow the one before, and has each run the main script again, which therefore needs
            `if __name__ == "__main__":`; `Processes` does neither.
        buffer_size: batches that may wait, or be made, ahead of the one in use.
    """

    kind: Literal["grain"] = "grain"
    needs: ClassVar[tuple[str, str] | None] = ("grain", "grain")
    rank: ClassVar[int] = 50
    spaces: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"num_threads": ["cores", "min(1024, 2*cores)"], "buffer_size": [8]},
        "exhaustive": {
            "num_threads": [1, "cores", "min(1024, 2*cores)", "min(1024, 4*cores)"],
            "buffer_size": [2, 8, 16],
        },
    }
    num_threads: int = pydantic.Field(ge=1, le=1024)
    workers: int = pydantic.Field(default=0, ge=0, le=1024)
    buffer_size: int = pydantic.Field(default=8, ge=1, le=1024)

    def normalised(self) -> Self:
        if self.workers == 0:  # no more batches are under way than wait
            return self.model_copy(update={"buffer_size": max(self.num_threads, self.buffer_size)})
        return self.model_copy(update={"buffer_size": self.of_each(self.buffer_size) * self.workers})

    def of_each(self, batches: int) -> int:
        """Return how many of so many batches wait at each process."""
        return -(-batches // self.workers)

    def worker_count(self) -> int:
        return max(1, self.workers) * self.num_threads

    def buffered_batches(self) -> int:
        if self.workers == 0:
            return self.buffer_size + 1
        return self.buffer_size + self.workers * (self.num_threads + 1)

    def shares_lock(self) -> bool:
        return self.workers <= 1

    def open(self, job: LoadJob) -> Loader:
        extra_module("grain", "grain")
        knobs = self.model_copy(update={"buffer_size": job.setup.queue_size(self.buffer_size)}).normalised()
        streaming.require_memory(job, knobs.buffered_batches() + 2)
        if self.workers:
            _require_shared_memory(job, knobs.buffered_batches() + 2)
        processes.set_library_threads()
        return _GrainLoader(job, knobs, MemoryCache.of(job.recipe))


def _require_shared_memory(job: LoadJob, batches: int) -> None:
    needed = RowLayout(job.recipe.spec, job.order.batch_size).size * batches
    with contextlib.suppress(OSError):
        room = os.statvfs(_SHARED_MEMORY)
        free = room.f_bavail * room.f_frsize
        if needed > free:
            raise LoaderError(
                f"Grain's worker processes need {machine.size_text(needed)} in {_SHARED_MEMORY} ({batches} batches), "
                f"but {machine.size_text(free)} are free.",
                hint="Use workers=0, a smaller buffer_size or the `processes` loader; in Docker, a larger --shm-size.",
            )


class _GrainLoader(WorkloadLoader):
    """Owns one iterator of Grain at a time. A jump to another batch than the next begins a new one."""

    def __init__(self, job: LoadJob, knobs: Grain, cache: MemoryCache | None) -> None:
        super().__init__(job, knobs.buffered_batches())
        self._knobs = knobs
        packed = pickling.pickled(job.recipe, "Grain") if knobs.workers else None
        self._batches = _Batches(job.recipe, job.order, cache, packed)
        self._ledger = kernel.BadSampleLedger(job.bad_sample_log, job.order.samples)
        self._owner = Owner()
        self._turn = 0
        self._closed = False
        self._iterators: list[Any] = []  # the one in use, if there is one
        self._next = -1  # the number of the batch that it gives next
        self._shut_down = weakref.finalize(self, _end_all, self._owner, self._iterators)

    @property
    def bad_samples(self) -> dict[int, int]:
        twin = self._finishing.twin
        of_twin = twin.bad_samples if isinstance(twin, _GrainLoader) else {}
        return {**self._ledger.counts, **of_twin}

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        self._require_open()
        self._turn += 1
        turn = self._turn
        for number in range(epoch * len(self) + start, (epoch + 1) * len(self)):
            self._require_open()
            if turn != self._turn:
                raise stream.overtaken(epoch)
            batch, bad = self._take(number)
            self._ledger.record(epoch, bad)
            yield batch
            del batch  # the consumer may be done with it: do not hold it while waiting for the next

    def close(self) -> None:
        self._finishing.close()
        self._closed = True
        self._shut_down()

    def _take(self, number: int) -> tuple[Any, ...]:
        if number != self._next:
            self._begin(number)
        self._next = -1
        try:
            element: tuple[Any, ...] = next(self._iterators[0])
        except AutopipeError:
            self._require_open()
            raise
        except Exception as error:
            self._require_open()
            raise self._failure(number, error) from error
        self._next = number + 1
        return element

    def _begin(self, number: int) -> None:
        import grain
        from grain.multiprocessing import MultiprocessingOptions

        _end_all(self._owner, self._iterators)
        threads, waiting = self._knobs.num_threads, self._knobs.buffer_size
        if self._knobs.workers:
            threads = waiting = threads if threads > 1 else 0
        batches: Any = grain.MapDataset.source(self._batches.starting(number))
        batches = batches.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=waiting))
        if self._knobs.workers:
            from absl import flags

            if not flags.FLAGS.is_parsed():
                flags.FLAGS.mark_as_parsed()  # as a program of absl's would have; Grain reads some when workers start
            each = self._knobs.of_each(self._knobs.buffer_size)
            options = MultiprocessingOptions(num_workers=self._knobs.workers, per_worker_buffer_size=each)
            batches = batches.mp_prefetch(options, worker_init_fn=_begin_worker)
        self._iterators.append(iter(batches))

    def _failure(self, number: int, error: Exception) -> LoaderError:
        epoch, batch = divmod(number, len(self))
        hint = None
        if self._knobs.workers:
            hint = 'Does the main script lack `if __name__ == "__main__":`? Grain\'s workers run it. Or use workers=0.'
        return LoaderError(f"Grain could not make batch {batch} of epoch {epoch}: {error}", hint=hint)

    def _require_open(self) -> None:
        self._owner.require()
        if self._closed:
            raise closed()


def _end_all(owner: Owner, iterators: list[Any]) -> None:
    if owner.is_here:  # in a forked child, threads and processes are not its own
        while iterators:
            iterators.pop().close()


class _Batches:
    """A data source of Grain's: the batches of all epochs, from the `first` on.

    It is pickled for another process, if `recipe` is, and has access to the cache there.
    """

    first = 0

    def __init__(self, recipe: Recipe, order: BatchOrder, cache: MemoryCache | None, packed: bytes | None) -> None:
        self._order = order
        self._cache = cache  # its memory lives as long as it does
        self._packed = packed
        self._kernel = kernel.Kernel(traced(recipe), cache)
        self._indices: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        epoch, number = divmod(self.first + int(number), self._order.batches)
        of, indices = self._indices
        if of != epoch:
            indices = self._order.epoch(epoch)
            self._indices = epoch, indices
        indices = indices[number * self._order.batch_size :][: self._order.batch_size]
        batch = self._kernel.spec.empty(len(indices))
        try:
            bad = self._kernel.fill(epoch, indices, batch)
        except BaseException as error:  # noqa: BLE001  # Grain's pools must not see an error that ends a thread
            failure = worker_failure(error)
            raise failure from failure.__cause__
        return batch, tuple(bad)

    def starting(self, first: int) -> _Batches:
        """Return the same batches from another one on."""
        found = object.__new__(_Batches)  # not a copy, which would be made as for another process
        found.__dict__.update(self.__dict__, first=first)
        return found

    def __getstate__(self) -> tuple[Any, ...]:
        block = None if self._cache is None else self._cache.block
        where = None if block is None else (f"/proc/{os.getpid()}/fd/{block.descriptor}", block.size)
        return self._packed, self._order, where, self.first

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        packed, order, where, first = state
        recipe: Recipe = pickling.unpickled(packed)
        block = None if where is None else SharedBlock(where[1], os.open(where[0], os.O_RDWR))
        made = _Batches(recipe, order, MemoryCache.of(recipe, block), None)
        self.__dict__.update(made.__dict__, first=first)


def _begin_worker(number: int, count: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    processes.set_library_threads()
    processes.keep_freed_memory()
