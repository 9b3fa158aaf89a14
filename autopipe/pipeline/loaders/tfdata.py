"""TfData: a `tf.data` pipeline of the kernel's batches, which `fit` takes as it is.

An element of the pipeline is a batch, made by one call of the kernel, so that all loaders give the same bits; the
kernel's C++ code releases Python's lock. Threads, order and queue are tf.data's. The graph is traced once and takes the
range of batches as its argument, so that nothing grows from epoch to epoch. TensorFlow is imported inside functions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, LoaderError
from autopipe.hardware import machine, processes
from autopipe.pipeline.batching import readahead
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SlotPool
from autopipe.pipeline.batching.kernel import Kernel, refuse_skipping
from autopipe.pipeline.batching.streaming import require_memory
from autopipe.pipeline.config import LoaderConfig, ModelSetup
from autopipe.pipeline.loader import Loader, LoadJob, Owner, WorkloadLoader, closed
from autopipe.workload.data import source as data_source
from autopipe.workload.sample import Batch, Source

_AUTO_BUFFER = 16  # batches that tf.data's own tuning may come to hold; it was seen to stop below that
_AUTO_READS = 64  # samples read at a time if they come over a network and nothing was said
_SETTLING_SECONDS, _SETTLING_STEP = 5.0, 0.01
_POOL_OF_ITS_OWN = 2  # times the cores: from so many calls at a time on, tf.data gets threads for all of them


class TfData(LoaderConfig):
    """A tf.data pipeline.

    Attributes:
        num_parallel_calls: batches made at a time, or "auto" for one a core.
        prefetch: finished batches that may wait for the model, or "auto" to have tf.data find out.
        read_ahead: samples that extra threads read at a time, ahead of their batches; 0: each call reads its own batch.
            For slow storage. With "auto" calls, 64 samples are read ahead over a network also at 0.
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
        return self._calls if self._needs_threads(self.read_ahead) else min(self._calls, cores)

    def buffered_batches(self) -> int | None:
        return None if self.prefetch == "auto" else self.prefetch + 1

    def held_batches(self, batch_bytes: int, setup: ModelSetup) -> int:
        return self._waiting + self._calls + 1

    def samples_ahead(self, batch_size: int) -> int:
        return readahead.samples_ahead(self.read_ahead, self._calls, batch_size)

    def open(self, job: LoadJob) -> Loader:
        refuse_skipping(job, self.kind)
        readers, batch_size = self._readers(job.recipe.source), job.order.batch_size
        samples_ahead = readahead.samples_ahead(readers, self._calls, batch_size)
        held = self.held_batches(job.recipe.spec.bytes * batch_size, job.setup)
        require_memory(job, held, samples_ahead)
        ahead = self._calls * readahead.batches_ahead(readers, self._calls, batch_size)
        threads = machine.usable_cores() + self._calls if self._needs_threads(readers) else 0
        prefetch = None if self.prefetch == "auto" else self.prefetch
        kernel = Kernel(job.recipe, MemoryCache.shared(job), readers)
        with contextlib.ExitStack() as undo:
            undo.callback(kernel.close)
            kernel.undo.enter_context(processes.library_threads())
            work = _Work(job, kernel, slots=held + 7, begun=ahead + self._calls + 2)
            with processes.uninterrupted(processes.CTRL_C):
                graph = _traced(job, work, calls=self._calls, prefetch=prefetch, ahead=ahead, own_threads=threads)
            loader = _TfDataLoader(job, self._waiting, work, graph, batches_at_once=self._calls)
            undo.pop_all()
        return loader

    @property
    def _calls(self) -> int:
        return self.worker_count() or machine.usable_cores()

    @property
    def _waiting(self) -> int:
        return self.buffered_batches() or _AUTO_BUFFER

    def _readers(self, source: Source) -> int:
        if self.read_ahead or self.num_parallel_calls != "auto" or data_source.remote(source) is None:
            return self.read_ahead
        return _AUTO_READS

    def _needs_threads(self, readers: int) -> bool:
        """Return True if calls wait: tf.data's usual thread a core is too little."""
        return readers > 0 or self._calls > _POOL_OF_ITS_OWN * machine.usable_cores()


class _Work:
    """The Python functions of the graph. TensorFlow keeps them for ever; `close` releases all that they hold."""

    def __init__(self, job: LoadJob, kernel: Kernel, *, slots: int, begun: int) -> None:
        pool = SlotPool(RowLayout(job.recipe.spec, job.order.batch_size), keep=slots)
        self._held: tuple[LoadJob, Kernel, SlotPool] | None = (job, kernel, pool)
        self._orders: dict[int, NDArray[np.int64]] = {}  # of the last two epochs: batches are made side by side
        self._lock = threading.Lock()
        self._running = self._made = 0  # calls under way, and calls in all
        self._begun: dict[int, NDArray[np.int64]] = {}
        self._most_begun = begun
        self.failed: dict[int, AutopipeError] = {}  # by a batch's number; tf.data raises its own error

    def close(self) -> None:
        """Release all, and wait until tf.data calls no more: a call that outlives the interpreter keeps the process
        from ending. Its threads fill what room is left in the buffers by calls that fail at once.
        """
        if self._held is not None:
            self._held[1].close()
        self._held = None
        self.failed.clear()
        seen, deadline = -1, time.monotonic() + _SETTLING_SECONDS
        while (self._running or seen != self._made) and time.monotonic() < deadline:
            seen = self._made
            time.sleep(_SETTLING_STEP)

    @contextlib.contextmanager
    def _call(self) -> Iterator[tuple[LoadJob, Kernel, SlotPool]]:
        with self._lock:
            self._running, self._made = self._running + 1, self._made + 1
        try:
            if self._held is None:
                raise LoaderError("The loader was closed while an epoch was being read.")
            yield self._held
        finally:
            with self._lock:
                self._running -= 1

    def begin(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Begin to read a batch. A dataset that is left before its end never makes some: the oldest are dropped."""
        with self._call() as (job, kernel, _):
            _, indices = self._batch(job, int(number))
            with self._lock:
                self._begun[int(number)] = indices
                left = [self._begun.pop(next(iter(self._begun))) for _ in range(len(self._begun) - self._most_begun)]
            for each in left:
                kernel.forget(each)
            kernel.begin(indices)
            return number

    def fill(self, number: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return a batch in memory that TensorFlow takes without a copy."""
        with self._call() as (job, kernel, pool):
            epoch, indices = self._batch(job, int(number))
            with self._lock:
                self._begun.pop(int(number), None)
            batch = pool.lend(pool.acquire(), len(indices))
            try:
                kernel.fill(epoch, indices, batch)
            except AutopipeError as error:
                self.failed[int(number)] = error
                raise
            return [part for part in batch if part is not None]

    def _batch(self, job: LoadJob, number: int) -> tuple[int, NDArray[np.int64]]:
        epoch, batch = divmod(number, job.order.batches)
        orders = self._orders
        if epoch not in orders:
            before = {number: order for number, order in orders.items() if number == epoch - 1}
            orders = self._orders = {**before, epoch: job.order.epoch(epoch)}
        return epoch, orders[epoch][batch * job.order.batch_size :][: job.order.batch_size]


def _traced(
    job: LoadJob, work: _Work, *, calls: int, prefetch: int | None, ahead: int, own_threads: int
) -> tuple[Any, Any]:
    """Return the pipeline as one traced function of the range of batches, counted on from epoch to epoch, and the
    elements of the datasets that it gives. `calls` batches are made at a time, and `ahead` more are being read.
    `prefetch` None leaves that to tf.data, which gets `own_threads` for this pipeline alone; 0: none.
    """
    import tensorflow as tf

    fields = job.recipe.spec.fields
    rows = None if job.order.has_short_batch else job.order.batch_size
    as_it_is = tf.autograph.experimental.do_not_convert
    element_spec: Any = None

    def begun(number: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(work.begin, [number], tf.int64), ())

    def filled(number: Any) -> Any:
        arrays = tf.numpy_function(work.fill, [number], [tf.as_dtype(field.dtype) for field in fields])
        for array, field in zip(arrays, fields, strict=True):
            array.set_shape((rows, *(field.shape or ())))
        return tuple(arrays)

    def variant(first: Any, stop: Any) -> Any:
        nonlocal element_spec
        dataset = tf.data.Dataset.range(first, stop)
        if ahead:
            dataset = dataset.map(as_it_is(begun)).prefetch(ahead)
        dataset = dataset.map(as_it_is(filled), calls, deterministic=True)
        if prefetch != 0:
            dataset = dataset.prefetch(tf.data.AUTOTUNE if prefetch is None else prefetch)
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = prefetch is None
        if own_threads:
            options.threading.private_threadpool_size = own_threads
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options).apply(tf.data.experimental.assert_cardinality(stop - first))
        element_spec = dataset.element_spec
        return tf.data.experimental.to_variant(dataset)

    number = tf.TensorSpec((), tf.int64)
    graph = tf.function(variant, autograph=False).get_concrete_function(number, number)
    return graph, element_spec


class _TfDataLoader(WorkloadLoader):
    """Owns the traced graph, which makes a new dataset for each epoch."""

    has_dataset = True

    def __init__(
        self, job: LoadJob, buffered: int, work: _Work, graph: tuple[Any, Any], *, batches_at_once: int
    ) -> None:
        super().__init__(job, buffered)
        self.batches_at_once = batches_at_once
        self._owner = Owner()
        self._inherited: _Epoch | None = None
        self._work = work
        self._graph: tuple[Any, Any] | None = graph
        self._epochs: weakref.WeakSet[_Epoch] = weakref.WeakSet()
        # At exit, too: a thread of tf.data that calls Python after the interpreter has gone aborts the process.
        self._shut_down = weakref.finalize(self, _shut_down, self._owner, self._epochs, self._work)

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        with processes.uninterrupted(processes.CTRL_C):
            elements = _Epoch(iter(self.native_dataset(epoch, 1, start).as_numpy_iterator()))
            self._epochs.add(elements)
        for batch in range(start, len(self)):
            if not self._owner.is_here:
                self._inherited = elements  # their end would wait for threads of tf.data that no fork copies
            yield self._next(elements, epoch, batch)

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        import tensorflow as tf

        graph, element_spec = self._open_graph()
        self._work.failed.clear()
        places = (epoch * len(self) + start, (epoch + epochs) * len(self))
        return tf.data.experimental.from_variant(graph(*(tf.constant(at, tf.int64) for at in places)), element_spec)

    def diagnose(self, error: Exception) -> AutopipeError | None:
        failed = self._work.failed
        return failed[min(failed)] if failed else None

    def close(self) -> None:
        if self._owner.is_here:
            self._graph = None
        self._shut_down()

    def _next(self, opened: _Epoch, epoch: int, batch: int) -> Batch:
        import tensorflow as tf

        self._open_graph()
        try:
            with processes.uninterrupted(processes.CTRL_C):
                made = next(opened.elements)
            return self.spec.aligned(made)
        except tf.errors.OpError as error:
            opened.close()
            traceback.clear_frames(error.__traceback__)  # TensorFlow keeps them, and they the iterator's threads
            message = error.message
        self._open_graph()  # a loader that was closed meanwhile has no failure to look for
        # Out here, so that the failure does not hold TensorFlow's error, which is part of a cycle.
        raise self._work.failed.get(epoch * len(self) + batch) or LoaderError(
            f"tf.data could not make batch {batch} of epoch {epoch}: {message}"
        )

    def _open_graph(self) -> tuple[Any, Any]:
        self._owner.require()
        if self._graph is None:
            raise closed()
        return self._graph


@dataclasses.dataclass(eq=False)
class _Epoch:
    """An open epoch. Closing it stops the threads of tf.data that work for it."""

    elements: Iterator[tuple[NDArray[Any], ...]]

    def close(self) -> None:
        self.elements = iter(())  # the threads end with the last reference to their iterator


def _shut_down(owner: Owner, epochs: weakref.WeakSet[_Epoch], work: _Work) -> None:
    if not owner.is_here:  # a forked child that ends: tf.data's threads are not its own
        return
    work.close()
    for epoch in list(epochs):
        epoch.close()
