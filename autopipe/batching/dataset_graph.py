"""A `tf.data` pipeline as a graph: what it calls in Python, and how batches are put together from that.

The graph is traced once and takes the range of batches as its argument, so that nothing grows from epoch to epoch.
TensorFlow is imported inside functions. Which knobs there are, and who reads the datasets, is
`autopipe.loaders.tfdata`'s.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.batching.kernel import Kernel
from autopipe.batching.shared_memory import RowLayout
from autopipe.batching.slots import SlotPool
from autopipe.batching.vectorised import numbers_of
from autopipe.core.job import LoadJob
from autopipe.core.plan import Step
from autopipe.core.sample import Sample, SampleSpec, Source
from autopipe.data import source as data_source
from autopipe.errors import LoaderError
from autopipe.hardware import cpu
from autopipe.ops.tensorflow_half import TENSORFLOW, apply_step, checked, shaped, tensor_types

_AUTO_READS = 64  # threads among which tf.data's own tuning may choose where samples come over a network
POOL_OF_ITS_OWN = 2
"""Times the cores: from so many calls at a time on, tf.data gets threads for all of them."""
_UNUSED = 1  # columns of numbers that no op takes: TensorFlow 2.21 crashes where an empty tensor is unbatched


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """How much is done at a time; None leaves it to tf.data."""

    calls: int | None  # samples, or whole batches, made at a time
    prefetch: int | None  # finished batches that may wait
    read_ahead: int  # samples read at a time by a `map` of their own; 0: none


def own_threads(knobs: Knobs, source: Source) -> int:
    """Return how many threads of its own tf.data needs, because reads wait; 0 where the usual one a core will do."""
    automatic = _AUTO_READS if data_source.remote(source) is not None else 0
    at_once = max(knobs.read_ahead, automatic if knobs.calls is None else knobs.calls)
    return cpu.usable_cores() + at_once if at_once > POOL_OF_ITS_OWN * cpu.usable_cores() else 0


class Work:
    """What the graph calls in Python. TensorFlow keeps such functions for ever; `close` lets go of all they hold."""

    def __init__(self, job: LoadJob, kernel: Kernel, remember: int) -> None:
        pool = SlotPool(RowLayout(job.recipe.spec, job.order.batch_size), keep=remember)
        self._held: tuple[LoadJob, Kernel, SlotPool] | None = (job, kernel, pool)
        self._orders: dict[int, NDArray[np.int64]] = {}  # of the last two epochs: batches are made side by side
        # The (epoch, batch) asked for last.
        self.requested: collections.deque[tuple[int, int]] = collections.deque(maxlen=remember)

    def close(self) -> None:
        self._held = None

    def fill(self, number: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return a whole batch, made by the kernel, in memory that TensorFlow takes without a copy."""
        job, kernel, pool = self._open()
        epoch, indices = self._batch(job, int(number))
        batch = pool.lend(pool.acquire(), len(indices))
        kernel.fill(epoch, indices, batch)
        return _parts(batch)

    def request(self, number: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the random numbers of a batch's samples, and their indices."""
        job, *_ = self._open()
        epoch, indices = self._batch(job, int(number))
        drawn = [numbers_of(step, job.recipe, epoch, indices) for step in job.recipe.steps]
        return [np.concatenate([*drawn, np.zeros((len(indices), _UNUSED))], axis=1), indices]

    def read(self, index: NDArray[np.int64]) -> list[Any]:
        """Return one sample as the source reads it."""
        return _parts(self._open()[1].read(int(index)))

    def fixed(self, index: NDArray[np.int64], *read: Any) -> list[Any]:
        """Return one sample, read now unless it is given, after the ops that give the same in every epoch."""
        job, kernel, _ = self._open()
        return _parts(kernel.fixed(int(index), _source_spec(job).aligned(read) if read else kernel.read(int(index))))

    def _batch(self, job: LoadJob, number: int) -> tuple[int, NDArray[np.int64]]:
        epoch, batch = divmod(number, job.order.batches)
        self.requested.append((epoch, batch))
        orders = self._orders
        if epoch not in orders:
            before = {number: order for number, order in orders.items() if number == epoch - 1}
            orders = self._orders = {**before, epoch: job.order.epoch(epoch)}
        return epoch, orders[epoch][batch * job.order.batch_size :][: job.order.batch_size]

    def _open(self) -> tuple[LoadJob, Kernel, SlotPool]:
        if self._held is None:
            raise LoaderError("The loader was closed while an epoch was being read.")
        return self._held


class Graph:
    """The pipeline as one traced function of the range of batches (counted on from epoch to epoch)."""

    def __init__(self, job: LoadJob, knobs: Knobs, work: Work, *, whole_batches: bool) -> None:
        import tensorflow as tf

        self._job = job
        self._work = work
        self._whole_batches = whole_batches
        self._calls = tf.data.AUTOTUNE if knobs.calls is None else knobs.calls
        self._own_threads = own_threads(knobs, job.recipe.source)
        # Of whole batches an epoch may have too few to tune by: 1,600 images/s in some, and 2,700 in others.
        self._batches_at_once = cpu.usable_cores() if knobs.calls is None and not self._own_threads else None
        self._read_ahead = knobs.read_ahead
        self._prefetch = tf.data.AUTOTUNE if knobs.prefetch is None else knobs.prefetch
        self._element_spec: Any = None
        number = tf.TensorSpec((), tf.int64)
        self._variant = tf.function(self._traced, autograph=False).get_concrete_function(number, number)

    def dataset(self, first: int, stop: int) -> Any:
        import tensorflow as tf

        variant = self._variant(tf.constant(first, tf.int64), tf.constant(stop, tf.int64))
        return tf.data.experimental.from_variant(variant, self._element_spec)

    def _traced(self, first: Any, stop: Any) -> Any:
        import tensorflow as tf

        numbers = tf.data.Dataset.range(first, stop)
        if self._whole_batches:
            dataset = self._map(numbers, self._filled, self._batches_at_once)
        else:
            dataset = self._finished(self._sampled(numbers, first))
        if self._prefetch != 0:
            dataset = dataset.prefetch(self._prefetch)
        options = tf.data.Options()
        options.deterministic = True
        options.autotune.enabled = tf.data.AUTOTUNE in (self._calls, self._prefetch)
        with contextlib.suppress(AttributeError):  # TensorFlow 2.19 has no such option
            options.autotune.min_parallelism = cpu.usable_cores()  # each epoch starts anew, from 1, and may stay there
        if self._own_threads:
            options.threading.private_threadpool_size = self._own_threads
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options).apply(tf.data.experimental.assert_cardinality(stop - first))
        self._element_spec = dataset.element_spec
        return tf.data.experimental.to_variant(dataset)

    def _map(self, dataset: Any, function: Callable[..., Any], calls: int | None = None) -> Any:
        import tensorflow as tf

        return dataset.map(tf.autograph.experimental.do_not_convert(function), calls or self._calls, deterministic=True)

    def _filled(self, number: Any) -> Any:
        import tensorflow as tf

        spec, order = self._job.recipe.spec, self._job.order
        arrays = tf.numpy_function(self._work.fill, [number], tensor_types(spec))
        rows = None if order.has_short_batch else order.batch_size
        for array, field in zip(arrays, spec.fields, strict=True):
            array.set_shape((rows, *(field.shape or ())))
        return tuple(arrays)

    def _sampled(self, numbers: Any, first: Any) -> Any:
        import tensorflow as tf

        order = self._job.order
        wanted = numbers.map(tf.autograph.experimental.do_not_convert(self._requested)).unbatch()
        if self._read_ahead:
            samples = self._map(self._map(wanted, self._read_alone, self._read_ahead), self._made)
        else:
            samples = self._map(wanted, self._made)
        if not order.has_short_batch:
            return samples.batch(order.batch_size, drop_remainder=True)
        sizes = np.array([order.batch_samples(batch) for batch in range(order.batches)], np.int64)
        return samples.batch(1).rebatch(tf.roll(sizes, -(first % order.batches), axis=0))

    def _requested(self, number: Any) -> Any:
        import tensorflow as tf

        numbers, indices = tf.numpy_function(self._work.request, [number], [tf.float64, tf.int64])
        numbers.set_shape((None, sum(step.op.draws for step in self._job.recipe.steps) + _UNUSED))
        indices.set_shape((None,))
        return numbers, indices

    def _read_alone(self, numbers: Any, index: Any) -> Any:
        import tensorflow as tf

        spec = _source_spec(self._job)
        parts = tf.numpy_function(self._work.read, [index], tensor_types(spec))
        return (numbers, index, *_parts(shaped(spec.aligned(parts), spec)))

    def _made(self, numbers: Any, index: Any, *read: Any) -> Any:
        """Return a sample made from what was `read` ahead; without that, it is read now, in the same call of Python."""
        import tensorflow as tf

        spec = self._job.recipe.fixed_spec
        parts = tf.numpy_function(self._work.fixed, [index, *read], tensor_types(spec))
        sample = shaped(spec.aligned(parts), spec)
        used = 0
        for step in self._sample_steps():
            sample = apply_step(step, sample, numbers[used : used + step.op.draws])
            used += step.op.draws
            spec = step.after
        return tuple(_parts(checked(sample, spec)))

    def _finished(self, batches: Any) -> Any:
        steps = self._fresh_steps()[len(self._sample_steps()) :]
        if not steps:
            return batches

        def finish(*parts: Any) -> Any:
            batch = steps[0].before.aligned(parts)
            for step in steps:
                batch = step.op.finish(batch, step.before, TENSORFLOW)
            return tuple(_parts(batch))

        return self._map(batches, finish)

    def _sample_steps(self) -> tuple[Step, ...]:
        """Return the steps after the fixed ones, up to the last that cannot run on a batch."""
        steps = self._fresh_steps()
        end = max((number for number, step in enumerate(steps, start=1) if not step.op.batchable), default=0)
        return steps[:end]

    def _fresh_steps(self) -> tuple[Step, ...]:
        return self._job.recipe.steps[self._job.recipe.fixed_steps :]


def _parts(sample: Sample) -> list[Any]:
    return [part for part in sample if part is not None]


def _source_spec(job: LoadJob) -> SampleSpec:
    steps = job.recipe.steps
    return steps[0].before if steps else job.recipe.spec
