"""Threads: workers in this process. OpenCV and file reads release the interpreter's lock, so they run side by side.

The cheapest loader to start and to feed from; a user's own Python code in `ap.Map` holds the lock and is better off in
`Processes`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import cv2
import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import BadSample, Kernel
from autopipe.batching.slots import Slot
from autopipe.batching.streaming import StreamingLoader, require_memory
from autopipe.core.config import LoaderConfig
from autopipe.core.job import LoadJob
from autopipe.core.loader import Loader


class Threads(LoaderConfig):
    """Workers are threads; each fills a whole batch at a time.

    Opening it sets OpenCV's own thread pool to one thread, process-wide: workers are the parallelism; and the process
    keeps the memory of freed images for the next ones.

    Attributes:
        workers: threads that fill batches.
        queue_size: finished batches that may wait for the model.
    """

    kind: Literal["threads"] = "threads"
    rank: ClassVar[int] = 0
    workers: int = pydantic.Field(ge=1, le=1024)
    queue_size: int = pydantic.Field(default=8, ge=1, le=1024)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return self.queue_size + self.workers

    def open(self, job: LoadJob) -> Loader:
        recipe = job.recipe
        require_memory(job, self.buffered_batches() + 2)
        cv2.setNumThreads(0)
        cache = MemoryCache.of(recipe)
        filler = _Filler(Kernel(recipe, cache))
        return StreamingLoader(job, [filler] * self.workers, self.queue_size)


class _Filler:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def fill(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        return self._kernel.fill(epoch, indices, slot.layout.arrays(slot.block, len(indices)))

    def stop(self) -> None:
        """A thread ends by itself after the batch it is at."""
