"""Threads: workers in this process. OpenCV and file reads release the interpreter's lock, so they run side by side.

The cheapest loader to start and to feed from; a user's own Python code in `ap.Map` holds the lock and is better off in
`Processes`.
"""

from __future__ import annotations

import contextlib
from typing import ClassVar, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import BadSample, Kernel
from autopipe.batching.readahead import ReadAhead, batches_ahead, samples_ahead
from autopipe.batching.slots import Slot
from autopipe.batching.streaming import StreamingLoader, batches_held, require_memory
from autopipe.batching.traced import traced
from autopipe.core.config import LoaderConfig
from autopipe.core.job import LoadJob, Recipe
from autopipe.core.loader import Loader
from autopipe.hardware import opencv


class Threads(LoaderConfig):
    """Workers are threads; each fills a whole batch at a time.

    Opening it sets OpenCV's own thread pool to one thread, process-wide: workers are the parallelism; and the process
    keeps the memory of freed images for the next ones.

    Attributes:
        workers: threads that fill batches.
        queue_size: finished batches that may wait for the model; at least two calls' worth of `steps_per_execution`.
        read_ahead: samples that are being read at a time, ahead of the workers, by threads of their own; 0: workers
            read for themselves. For storage that waits: 64 reads do not need 64 decoders.
    """

    kind: Literal["threads"] = "threads"
    rank: ClassVar[int] = 0
    workers: int = pydantic.Field(ge=1, le=1024)
    queue_size: int = pydantic.Field(default=8, ge=1, le=1024)
    read_ahead: int = pydantic.Field(default=0, ge=0, le=1024)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return self.queue_size + self.workers

    def samples_ahead(self, batch_size: int) -> int:
        return samples_ahead(self.read_ahead, self.workers, batch_size)

    def batches_at_a_time(self, most: int) -> int:
        return most if self.read_ahead == 0 else 1

    def open(self, job: LoadJob) -> Loader:
        recipe = traced(job.recipe)
        queue_size = job.setup.queue_size(self.queue_size)
        most = self.batches_at_a_time(job.at_a_time(queue_size))
        require_memory(job, batches_held(queue_size, self.workers, most), self.samples_ahead(job.order.batch_size))
        opencv.one_thread()
        cache = MemoryCache.of(recipe)
        filler = _Filler(recipe, cache, self.read_ahead)
        ahead = batches_ahead(self.read_ahead, self.workers, job.order.batch_size)
        at_a_time = most if filler.kernel.makes_several else 1
        return StreamingLoader(job, [filler] * self.workers, queue_size, ahead, at_a_time, filler.kernel)


class _Filler:
    lost = 0  # threads do not die alone

    def __init__(self, recipe: Recipe, cache: MemoryCache | None, read_ahead: int) -> None:
        self._ahead = ReadAhead.of(recipe, cache, read_ahead)
        self.kernel = Kernel(recipe if self._ahead is None else self._ahead.recipe(recipe), cache)

    def begin(self, indices: NDArray[np.int64]) -> None:
        if self._ahead is not None:
            self._ahead.begin(indices.tolist())

    def forget(self, indices: NDArray[np.int64]) -> None:
        if self._ahead is not None:
            self._ahead.forget(indices.tolist())

    def fill(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        with contextlib.nullcontext() if self._ahead is None else self._ahead.reading(indices.tolist()):
            return self.kernel.fill(epoch, indices, slot.layout.arrays(slot.block, len(indices)))

    def stop(self) -> None:
        """End the reading; a worker's thread ends by itself after the batch it is at."""
        if self._ahead is not None:
            self._ahead.close()
