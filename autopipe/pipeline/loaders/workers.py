"""Threads and Processes: the two loaders whose workers fill whole batches.

Threads are workers in this process. OpenCV, the native library and file reads release the interpreter's lock, so they
run side by side. They are the cheapest to start and to feed from; a user's own Python code in `ap.Map` holds the lock
and is better off in processes. Those write batches into memory that this process maps: only a task's sample indices and
its answer are pickled. They are forked by a fresh process, and never by this one, so a loader can be opened after a
framework has run; they import NumPy and OpenCV only.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Literal

import pydantic

from autopipe.hardware import processes
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.indexed import kernel_of
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.batching.process import Nursery, WorkerProcess
from autopipe.pipeline.batching.readahead import batches_ahead, samples_ahead
from autopipe.pipeline.batching.streaming import Filler, StreamingLoader, groups, require_memory
from autopipe.pipeline.config import LoaderConfig, ModelSetup
from autopipe.pipeline.loader import Loader, LoadJob, at_a_time
from autopipe.pipeline.wrap import OF_DATASETS, WrappedData
from autopipe.workload.sample import Source


class _Workers(LoaderConfig):
    """The knobs of a loader whose workers each fill a whole batch at a time; `Threads` says what they are."""

    workers: int = pydantic.Field(ge=1, le=1024)
    queue_size: int = pydantic.Field(default=8, ge=1, le=1024)
    read_ahead: int = pydantic.Field(default=0, ge=0, le=1024)

    spaces: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        OF_DATASETS: {"workers": {"range": [1, 512, "cores*2"], "log": True}, "queue_size": [4, 16]}
    }

    @classmethod
    def against(cls, data: Source) -> str | None:
        if isinstance(data, WrappedData) and not data.by_index:
            return data.why_one_reader
        return None

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return self.queue_size + self.workers

    def samples_ahead(self, batch_size: int) -> int:
        return samples_ahead(self.read_ahead, self.workers, batch_size)

    def in_evaluation(self, batches: int) -> Mapping[str, Any]:
        fewer = {"workers": min(self.workers, batches), "queue_size": min(self.queue_size, batches)}
        return {"loader": self.model_copy(update=fewer)}

    def held_batches(self, batch_bytes: int, setup: ModelSetup) -> int:
        most = self._at_a_time(batch_bytes, setup)
        return (groups(setup.queue_size(self.queue_size), most) + self.workers + 1) * most

    def _at_a_time(self, batch_bytes: int, setup: ModelSetup) -> int:
        return 1 if self.read_ahead else at_a_time(batch_bytes, setup.queue_size(self.queue_size), setup)

    def open(self, job: LoadJob) -> Loader:
        batch_size, batch_bytes = job.order.batch_size, job.recipe.spec.bytes * job.order.batch_size
        most = self._at_a_time(batch_bytes, job.setup)
        require_memory(job, self.held_batches(batch_bytes, job.setup) + most, self.samples_ahead(batch_size))
        ahead = batches_ahead(self.read_ahead, self.workers, batch_size)
        with ExitStack() as undo:
            kernel, fillers = self._fillers(job, MemoryCache.shared(job), undo)
            queue_size = job.setup.queue_size(self.queue_size)
            loader = StreamingLoader(job, fillers, queue_size, ahead, most if kernel.makes_several else 1, kernel)
            undo.pop_all()
            return loader

    @abc.abstractmethod
    def _fillers(self, job: LoadJob, cache: MemoryCache | None, undo: ExitStack) -> tuple[Kernel, Sequence[Filler]]:
        """Return a filler for each worker, which `undo` stops, and a kernel that tells what they can do at once."""


class Threads(_Workers):
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


class Processes(_Workers):
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
