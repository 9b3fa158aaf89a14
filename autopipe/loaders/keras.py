"""Keras: batches through `keras.utils.PyDataset`, Keras's own queue and its own workers, as `fit` runs them.

The batches themselves are made by the same kernel as everywhere. What a PyDataset does beyond that (its queue, its
forked processes) is Keras's business.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import pydantic

from autopipe import frameworks
from autopipe.batching import forking
from autopipe.batching.cache import MemoryCache
from autopipe.batching.diagnosis import failure_of, refuse_skipping
from autopipe.batching.kernel import Kernel
from autopipe.batching.owner import Owner
from autopipe.batching.stream import overtaken
from autopipe.batching.streaming import require_memory
from autopipe.batching.traced import traced
from autopipe.core.config import LoaderConfig
from autopipe.core.job import LoadJob
from autopipe.core.loader import Loader, WorkloadLoader, closed
from autopipe.core.sample import Batch
from autopipe.errors import AutopipeError, LoaderError, worker_failure
from autopipe.hardware import opencv

_DEFAULT_QUEUE_SIZE = 10
_INSTEAD = "Use the `processes` loader, or use_multiprocessing=False."


class Keras(LoaderConfig):
    """A `keras.utils.PyDataset` with Keras's own workers.

    Attributes:
        workers: threads, or processes, of Keras's queue. One thread is none: each batch is made when it is asked for.
        use_multiprocessing: forked processes instead of threads. Refused once TensorFlow or JAX has run in this
            process, because forked children then hang; `Processes` has no such limit.
        max_queue_size: batches that may wait.
    """

    kind: Literal["keras"] = "keras"
    # 1,070 images/s with two threads on 2 cores, where the bare kernels made 2 x 1,273 (500x375 JPEG to 224x224).
    work_factor: ClassVar[float] = 1.9
    skips_bad_samples: ClassVar[bool] = False
    workers: int = pydantic.Field(default=1, ge=0, le=1024)
    use_multiprocessing: bool = False
    max_queue_size: int = pydantic.Field(default=_DEFAULT_QUEUE_SIZE, ge=1, le=1024)

    @property
    def _is_inline(self) -> bool:
        return self.workers == 0 or (self.workers == 1 and not self.use_multiprocessing)

    def normalised(self) -> Self:
        if self._is_inline:
            update = {"workers": 1, "use_multiprocessing": False, "max_queue_size": _DEFAULT_QUEUE_SIZE}
        else:  # no more batches are ever under way than the queue holds, the one being put there and the one awaited
            update = {"workers": min(self.workers, self.max_queue_size + 2)}
        return self.model_copy(update=update)

    def worker_count(self) -> int:
        return self.workers

    def buffered_batches(self) -> int:
        return 1 if self._is_inline else self.max_queue_size + 2

    def works_ahead(self) -> bool:
        return not self._is_inline

    def shares_lock(self) -> bool:
        return not self.use_multiprocessing

    def pipes_batches(self) -> bool:
        return self.use_multiprocessing

    def forks(self) -> bool:
        return self.use_multiprocessing

    def open(self, job: LoadJob) -> Loader:
        refuse_skipping(job, self.kind)
        if self.use_multiprocessing:
            forking.require_safe_fork(_INSTEAD)
        recipe = traced(job.recipe)
        require_memory(job, self.buffered_batches() + 2)
        opencv.one_thread()
        cache = MemoryCache.of(recipe)
        return _KerasLoader(job, self, Kernel(recipe, cache))


class _KerasLoader(WorkloadLoader):
    """Owns one PyDataset and, while an epoch is read, the Keras adapter that reads it."""

    has_dataset = True

    def __init__(self, job: LoadJob, knobs: Keras, kernel: Kernel) -> None:
        super().__init__(job, knobs.buffered_batches())
        self._forks = knobs.use_multiprocessing
        self._dataset = _dataset_class()(job, kernel, knobs)
        self._reader: _Reader | None = None
        self._closed = False
        self._turn = 0
        self._owner = Owner()
        self._inherited: Iterator[Any] | None = None

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for element in self._read(epoch, start, arrays=True):
            yield self.spec.aligned(element)

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        return _Epochs(self, epoch, epochs, start) if _has_tensorflow_path(self._forks) else None

    def elements(self, epoch: int, start: int) -> Iterator[Any]:
        """Yield the batches of an epoch as tensors."""
        return self._read(epoch, start, arrays=False)

    def close(self) -> None:
        self._close_twin()
        self._closed = True
        self._reader = None

    def _read(self, epoch: int, start: int, *, arrays: bool) -> Iterator[Any]:
        self._require_open()
        if self._forks:
            forking.require_safe_fork(_INSTEAD)
        self._turn += 1
        turn = self._turn
        self._dataset.turn_to(epoch, start)
        reader, self._reader = self._reader or _Reader(self._dataset, forks=self._forks), None
        taken = 0
        try:
            elements = reader.epoch(arrays=arrays)
            for element in elements:
                if turn != self._turn:
                    raise overtaken(epoch)
                yield self._flat(element)
                taken += 1
                if not self._owner.is_here:
                    self._inherited = elements  # their end would wait for threads that no fork copies
                self._require_open()
        except Exception as error:
            if isinstance(error, AutopipeError) and not self._forks:
                raise
            failure = failure_of(self._job, epoch, start + taken)
            raise failure or LoaderError(f"Keras could not make batch {start + taken} of epoch {epoch}: {error}") from (
                failure.__cause__ if failure else error
            )
        finally:
            if self._owner.is_here:
                reader.end()
        self._reader = reader  # one that was left in mid-epoch holds batches that nobody wants any more

    def _flat(self, element: Any) -> tuple[Any, ...]:
        """Return what is there, in the order of the fields."""
        structure = self.spec.structure
        return tuple(element) if structure is None else tuple(p for p in structure.flat(element) if p is not None)

    def _require_open(self) -> None:
        self._owner.require()
        if self._closed:
            raise closed()


class _Epochs:
    """The batches of consecutive epochs, as tensors."""

    def __init__(self, loader: _KerasLoader, epoch: int, epochs: int, start: int) -> None:
        self._loader = loader
        self._range = range(epoch, epoch + epochs)
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        for epoch in self._range:
            yield from self._loader.elements(epoch, self._start if epoch == self._range.start else 0)


class _Reader:
    """Keras's adapter of a PyDataset, and the `tf.data.Dataset` that it makes where TensorFlow is the backend."""

    def __init__(self, dataset: Any, *, forks: bool) -> None:
        self._adapter = frameworks.py_dataset_adapter(dataset)
        self._tensors = self._adapter.get_tf_dataset() if _has_tensorflow_path(forks) else None

    def epoch(self, *, arrays: bool) -> Iterator[Any]:
        self._adapter.on_epoch_begin()
        if self._tensors is None:
            return iter(self._adapter.get_numpy_iterator())
        return iter(self._tensors.as_numpy_iterator() if arrays else self._tensors)

    def end(self) -> None:
        self._adapter.on_epoch_end()


@functools.cache
def _dataset_class() -> type[Any]:
    import keras

    class Batches(keras.utils.PyDataset):
        """Makes each batch anew, when Keras asks for it."""

        def __init__(self, job: LoadJob, kernel: Kernel, knobs: Keras) -> None:
            super().__init__(knobs.workers, knobs.use_multiprocessing, knobs.max_queue_size)
            self._order = job.order
            self._spec = job.recipe.spec
            self._kernel = kernel
            self._forks = knobs.use_multiprocessing

        def turn_to(self, epoch: int, start: int) -> None:
            """Begin with batch `start` of an epoch; Keras counts from 0."""
            self._epoch, self._start = epoch, start
            self._indices = self._order.epoch(epoch)

        def __len__(self) -> int:
            return self._order.batches - self._start

        def __getitem__(self, number: int) -> tuple[Any, ...]:
            size = self._order.batch_size
            indices = self._indices[(self._start + number) * size :][:size]
            batch = self._spec.empty(len(indices))
            try:
                self._kernel.fill(self._epoch, indices, batch)
            except KeyboardInterrupt as error:
                if not self._forks:
                    raise
                raise worker_failure(error) from error  # Keras waits for ever for a process of its pool that ends
            packed = self._spec.packed(batch)
            return packed if packed[-1] is not None else packed[:1]

    return Batches


def _has_tensorflow_path(forks: bool) -> bool:
    """Tell whether `fit` would read through tf.data. Reading through forked processes must not start TensorFlow."""
    import keras

    return not forks and keras.config.backend() == "tensorflow"
