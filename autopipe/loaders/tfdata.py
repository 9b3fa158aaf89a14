"""TfData: a `tf.data` pipeline, which `fit` takes as it is: the kernel's samples, then the ops' TensorFlow halves.

Samples are read, decoded and taken through the ops that give the same in every epoch by the kernel, as everywhere, so
all loaders agree on every file; the C++ code that does so lets go of Python's lock. Order and random numbers enter as
data, once a batch, from the same functions as everywhere. So it gives the batches of the other loaders, within the
rounding of TensorFlow's own kernels after a random op.

The kernel makes whole batches, to the bit those of the other loaders, where TensorFlow would have nothing to do that is
worth a call of it for each sample: with `cache="memory"`, where small samples are batched at once, and where the random
ops are flips, crops, resizes and changes of colours. The graph is `autopipe.batching.dataset_graph`.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from numpy.typing import NDArray

from autopipe.batching.cache import MemoryCache
from autopipe.batching.dataset_graph import POOL_OF_ITS_OWN, Graph, Knobs, Work, own_threads
from autopipe.batching.diagnosis import failure_of, refuse_skipping
from autopipe.batching.kernel import Kernel
from autopipe.batching.owner import Owner
from autopipe.batching.streaming import require_memory
from autopipe.core.config import LoaderConfig
from autopipe.core.job import LoadJob, Recipe
from autopipe.core.loader import Loader, WorkloadLoader, closed
from autopipe.core.sample import Batch
from autopipe.errors import AutopipeError, LoaderError
from autopipe.hardware import cpu, opencv

_AUTO_BUFFER = 16  # batches that tf.data's own tuning may come to hold; it was seen to stop below that


class TfData(LoaderConfig):
    """A tf.data pipeline.

    Attributes:
        num_parallel_calls: samples made at a time, or "auto" to have tf.data find out, which takes it 10 to 60 s. Where
            the kernel makes whole batches it is those, by default one a core.
        prefetch: finished batches that may wait for the model, or "auto".
        read_ahead: samples that are being read at a time, by a `map` of their own before the one that makes them; 0:
            one `map` does both. For storage that waits.
    """

    kind: Literal["tfdata"] = "tfdata"
    # By turns with plain tf.data, Threads came to 1.24 times its rate, and TfData to 1.13 (`benchmarks/loaders.py`: 2
    # cores, 500x375 JPEG to 224x224).
    work_factor: ClassVar[float] = 1.1
    rank: ClassVar[int] = 2
    skips_bad_samples: ClassVar[bool] = False
    num_parallel_calls: Annotated[int, pydantic.Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    prefetch: Annotated[int, pydantic.Field(ge=0, le=1024)] | Literal["auto"] = "auto"
    read_ahead: int = pydantic.Field(default=0, ge=0, le=1024)

    def worker_count(self) -> int | None:
        return None if self.num_parallel_calls == "auto" else self.num_parallel_calls

    def threads(self, cores: int) -> int:
        at_once = max(self.read_ahead, self.worker_count() or cores)
        return at_once if at_once > POOL_OF_ITS_OWN * cores else min(at_once, cores)

    def buffered_batches(self) -> int | None:
        return None if self.prefetch == "auto" else self.prefetch + 1

    def held_batches(self, batch_size: int, *, cached: bool) -> int:
        fewer_samples = self.read_ahead > 0 or self.threads(cpu.usable_cores()) > POOL_OF_ITS_OWN * cpu.usable_cores()
        return self._waiting() + self._made(batch_size, whole=cached or not fewer_samples)

    def of_graph(self) -> Knobs:
        """Return what the graph is made with."""
        prefetch = None if self.prefetch == "auto" else self.prefetch
        return Knobs(calls=self.worker_count(), prefetch=prefetch, read_ahead=self.read_ahead)

    def open(self, job: LoadJob) -> Loader:
        refuse_skipping(job, self.kind)
        recipe = job.recipe
        kernel = Kernel(recipe) if recipe.cached == 0 else None  # a cache is made only once it is known to have room
        whole = kernel is None or self._makes_whole_batches(recipe, kernel)
        buffered, at_once = self._waiting(), self._made(job.order.batch_size, whole=whole)
        require_memory(job, buffered + at_once + 1)
        opencv.one_thread()
        work = Work(job, kernel or Kernel(recipe, MemoryCache.of(recipe)), remember=buffered + at_once + 8)
        loader = _TfDataLoader(job, buffered, work, Graph(job, self.of_graph(), work, whole_batches=whole))
        loader.batches_at_once = at_once
        return loader

    def _waiting(self) -> int:
        return self.buffered_batches() or _AUTO_BUFFER

    def _made(self, batch_size: int, *, whole: bool) -> int:
        """Return how many batches are being made at a time: by so many calls, for each of which `whole` makes one."""
        calls = self.worker_count() or cpu.usable_cores()
        return calls if whole else -(-calls // batch_size)

    def _makes_whole_batches(self, recipe: Recipe, kernel: Kernel) -> bool:
        if kernel.mixes or (kernel.fills_at_once and not self.read_ahead):
            return True
        if own_threads(self.of_graph(), recipe.source):
            return False  # more samples are read at a time than batches can be held
        fresh = recipe.steps[recipe.fixed_steps :]
        return self.read_ahead == 0 and all(step.op.by_opencv or step.op.batchable for step in fresh)


class _TfDataLoader(WorkloadLoader):
    """Owns the traced graph; each epoch is a dataset of its own made by it."""

    has_dataset = True

    def __init__(self, job: LoadJob, buffered: int, work: Work, graph: Graph) -> None:
        super().__init__(job, buffered)
        self._owner = Owner()
        self._inherited: _Epoch | None = None
        self._work = work
        self._graph: Graph | None = graph
        self._epochs: weakref.WeakSet[_Epoch] = weakref.WeakSet()
        # At exit, too: a thread of tf.data that calls Python after the interpreter has gone aborts the process.
        self._shut_down = weakref.finalize(self, _shut_down, self._owner, self._epochs, self._work)

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        elements = _Epoch(iter(self.native_dataset(epoch, 1, start).as_numpy_iterator()))
        self._epochs.add(elements)
        for batch in range(start, len(self)):
            if not self._owner.is_here:
                self._inherited = elements  # their end would wait for threads of tf.data that no fork copies
            yield self._next(elements, epoch, batch)

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        first = epoch * len(self)
        return self._open_graph().dataset(first + start, first + epochs * len(self))

    def diagnose(self, error: Exception) -> AutopipeError | None:
        for epoch, batch in list(self._work.requested):
            failure = failure_of(self._job, epoch, batch)
            if failure is not None:
                return failure
        return None

    def close(self) -> None:
        self._close_twin()
        if self._owner.is_here:
            self._graph = None
        self._shut_down()

    def _next(self, elements: _Epoch, epoch: int, batch: int) -> Batch:
        import tensorflow as tf

        self._open_graph()
        try:
            return self.spec.aligned(elements.next())
        except tf.errors.OpError as error:
            elements.close()
            traceback.clear_frames(error.__traceback__)  # TensorFlow keeps them, and they the iterator's threads
            message = error.message
        # Out here, so that the failure does not hold TensorFlow's error, which is part of a cycle.
        raise failure_of(self._job, epoch, batch) or LoaderError(
            f"tf.data could not make batch {batch} of epoch {epoch}: {message}"
        )

    def _open_graph(self) -> Graph:
        self._owner.require()
        if self._graph is None:
            raise closed()
        return self._graph


class _Epoch:
    """An epoch that is being read. To close it stops the threads of tf.data that work for it."""

    def __init__(self, elements: Iterator[tuple[NDArray[Any], ...]]) -> None:
        self._elements = elements

    def next(self) -> tuple[NDArray[Any], ...]:
        return next(self._elements)

    def close(self) -> None:
        self._elements = iter(())  # the threads end with the last reference to their iterator


def _shut_down(owner: Owner, epochs: weakref.WeakSet[_Epoch], work: Work) -> None:
    if not owner.is_here:  # a forked child that ends: tf.data's threads are not its own
        return
    work.close()
    for epoch in list(epochs):
        epoch.close()
