"""Processes: workers in processes of their own, which write batches into memory that this process maps.

Nothing is pickled but a task's sample indices and its answer. Workers are started fresh (no fork), so a loader can be
opened after a framework has run; they import NumPy and OpenCV only.
"""

from __future__ import annotations

import contextlib
from typing import ClassVar, Literal

import pydantic

from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import Kernel
from autopipe.batching.process import WorkerProcess, packed_recipe
from autopipe.batching.readahead import batches_ahead, readers_of, samples_ahead
from autopipe.batching.streaming import StreamingLoader, batches_held, require_memory
from autopipe.core.config import LoaderConfig
from autopipe.core.job import LoadJob
from autopipe.core.loader import Loader


class Processes(LoaderConfig):
    """Workers are processes; each fills a whole batch at a time, in shared memory.

    Attributes:
        workers: processes that fill batches.
        queue_size: finished batches that may wait for the model; at least two calls' worth of `steps_per_execution`.
        read_ahead: samples that are being read at a time by all processes together, ahead of what they make, by threads
            of their own; 0: each reads for itself. For storage that waits.
    """

    kind: Literal["processes"] = "processes"
    rank: ClassVar[int] = 1
    workers: int = pydantic.Field(ge=1, le=1024)
    queue_size: int = pydantic.Field(default=8, ge=1, le=1024)
    read_ahead: int = pydantic.Field(default=0, ge=0, le=1024)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return self.queue_size + self.workers

    def shares_lock(self) -> bool:
        return self.workers == 1

    def works_alone(self) -> bool:
        return self.read_ahead == 0  # else the threads that read need the lock, too

    def reads_at_once(self) -> int:
        return max(self.read_ahead, self.workers)  # a worker that none reads ahead for reads for itself

    def samples_ahead(self, batch_size: int) -> int:
        return samples_ahead(self.read_ahead, self.workers, batch_size)

    def batches_at_a_time(self, most: int) -> int:
        return most if self.read_ahead == 0 else 1

    def open(self, job: LoadJob) -> Loader:
        recipe = job.recipe
        queue_size = job.setup.queue_size(self.queue_size)
        most = self.batches_at_a_time(job.at_a_time(queue_size))
        require_memory(job, batches_held(queue_size, self.workers, most), self.samples_ahead(job.order.batch_size))
        cache = MemoryCache.of(recipe)
        kernel = Kernel(recipe, cache)  # only to be asked
        packed = packed_recipe(recipe)
        ahead = batches_ahead(self.read_ahead, self.workers, job.order.batch_size)
        with contextlib.ExitStack() as undo:
            fillers = []
            for readers in readers_of(self.read_ahead, self.workers):
                fillers.append(WorkerProcess(packed, cache, readers))
                undo.callback(fillers[-1].stop)
            at_a_time = most if kernel.makes_several else 1
            loader = StreamingLoader(job, fillers, queue_size, ahead, at_a_time, kernel)
            undo.pop_all()
            return loader
