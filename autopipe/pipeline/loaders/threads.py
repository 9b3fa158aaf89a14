"""Threads: workers in this process. OpenCV and file reads release the interpreter's lock, so they run side by side.

The cheapest loader to start and to feed from; a user's own Python code in `ap.Map` holds the lock and is better off in
`Processes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import ClassVar, Literal

from autopipe.hardware import processes
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.indexed import kernel_of
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.batching.streaming import Filler, StreamingConfig
from autopipe.pipeline.loader import LoadJob
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.sample import Source


class Threads(StreamingConfig):
    """Workers are threads; each fills a whole batch at a time.

    Opening it sets OpenCV's and BLAS's own thread pools to one thread, process-wide, until a trainer is closed: workers
    are the parallelism; and the process keeps the memory of freed images for the next ones.

    Attributes:
        workers: threads that fill batches.
        queue_size: finished batches that may wait for the model; at least two calls' worth of `steps_per_execution`.
        read_ahead: samples that extra threads read at a time, ahead of the workers; 0: workers read for themselves. For
            slow storage: 64 reads do not need 64 decoders.
    """

    kind: Literal["threads"] = "threads"
    rank: ClassVar[int] = 0

    @classmethod
    def against(cls, data: Source) -> str | None:
        return super().against(data) or (data.like.against_threads if isinstance(data, WrappedData) else None)

    def _fillers(self, job: LoadJob, cache: MemoryCache | None, undo: ExitStack) -> tuple[Kernel, Sequence[Filler]]:
        kernel = kernel_of(job.recipe, cache, self.read_ahead)
        undo.callback(kernel.close)
        kernel.undo.enter_context(processes.library_threads())
        return kernel, [kernel] * self.workers
