"""Processes: workers in processes of their own, which write batches into memory that this process maps.

Only a task's sample indices and its answer are pickled. Workers are forked by a fresh process, and never by this one,
so a loader can be opened after a framework has run; they import NumPy and OpenCV only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import ClassVar, Literal

from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.indexed import kernel_of
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.batching.process import Nursery, WorkerProcess
from autopipe.pipeline.batching.streaming import Filler, StreamingConfig
from autopipe.pipeline.loader import LoadJob
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.sample import Source


class Processes(StreamingConfig):
    """Workers are processes; each fills a whole batch at a time, in shared memory.

    Attributes:
        workers: processes that fill batches.
        queue_size: finished batches that may wait for the model; at least two calls' worth of `steps_per_execution`.
        read_ahead: samples that all processes together read at a time, ahead of their batches, by extra threads; 0:
            each reads for itself. For slow storage.
    """

    kind: Literal["processes"] = "processes"
    rank: ClassVar[int] = 1

    @classmethod
    def against(cls, data: Source) -> str | None:
        return super().against(data) or (data.why_unpicklable() if isinstance(data, WrappedData) else None)

    def shares_lock(self) -> bool:
        return self.workers == 1

    def reads_at_once(self) -> int:
        return max(self.read_ahead, self.workers)  # a worker without threads that read ahead reads for itself

    def _fillers(self, job: LoadJob, cache: MemoryCache | None, undo: ExitStack) -> tuple[Kernel, Sequence[Filler]]:
        kernel, nursery = kernel_of(job.recipe, cache), Nursery(job.recipe, cache, self.workers)
        undo.callback(nursery.close)
        fillers = list[Filler]()
        each, more = divmod(self.read_ahead, self.workers)  # threads that read ahead; one without any reads for itself
        for number in range(self.workers):
            fillers.append(WorkerProcess(nursery, each + (number < more)))
            undo.callback(fillers[-1].close)
        return kernel, fillers
