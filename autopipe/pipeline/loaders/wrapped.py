"""Wrapped: the user's own `tf.data.Dataset` or `keras.utils.PyDataset`, fed as it is; see `autopipe.pipeline.wrap`.

The dataset decides the order, randomness and length of an epoch: its batches may depend on the configuration. One that
ends is begun anew for each epoch. For any other, and for a `tf.data.Dataset` of unknown length or of which an epoch is
a part, each epoch goes on after the one before, as in Keras's `fit(dataset, steps_per_epoch=...)`. It cannot seek: for
any epoch and batch the next ones are handed over, and a resumed training begins it anew. Keras forks processes for a
`PyDataset` (`use_multiprocessing=True`) in a process of its own: children forked after a framework has run hang.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import pydantic

from autopipe.errors import ConfigError, LoaderError, shortened
from autopipe.hardware import processes
from autopipe.pipeline.batching import stream
from autopipe.pipeline.batching.datasets import BatchForm, Feeder, flat, forks
from autopipe.pipeline.batching.indexed import Indexed
from autopipe.pipeline.batching.process import Nursery, WorkerProcess
from autopipe.pipeline.batching.streaming import StreamingLoader
from autopipe.pipeline.config import LoaderConfig, SettingValue
from autopipe.pipeline.loader import Loader, LoadJob, WorkloadLoader, closed
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.sample import Batch

_BUFFERED = 16  # batches that such a dataset may hold ahead; it does not tell
_FROM_KERAS = 2  # batches that wait here if Keras's own processes make them, which have a queue of their own
_BEHIND_CACHE = 2  # batches ahead, so that the end is reached, and the cache complete, with the last batch taken


class Wrapped(LoaderConfig):
    """A wrapped dataset, made with these parameters, and what is set around it: `Wrapped(calls=4, tf_prefetch=2)`.

    None of the settings around it changes a sample.

    Attributes:
        freed_memory: "kept" by the C library for the next arrays, here and in processes that start from then on.
        library_threads: threads of OpenCV's and BLAS's own pools; 0 leaves their number as it is.
        tf_cache: "memory" keeps the batches of the first epoch for all others.
        tf_threads: threads of a `tf.data.Dataset` of its own; 0: it shares those of the model's ops.
        tf_autotune: whether tf.data may change numbers of threads and buffers while it runs.
        tf_prefetch: batches made ahead, behind all that the function does.
    """

    model_config = pydantic.ConfigDict(extra="allow")

    kind: Literal["wrapped"] = "wrapped"
    takes_any: ClassVar[bool] = True
    freed_memory: Literal["returned", "kept"] = "returned"
    library_threads: int = pydantic.Field(default=0, ge=0, le=1024)
    tf_cache: Literal["none", "memory"] = "none"
    tf_threads: int = pydantic.Field(default=0, ge=0, le=1024)
    tf_autotune: bool = True
    tf_prefetch: int = pydantic.Field(default=0, ge=0, le=1024)

    @pydantic.model_validator(mode="after")
    def _plain_values(self) -> Self:
        for name, value in self.parameters.items():
            if not isinstance(value, bool | int | float | str):
                raise ConfigError(f"`{name}` of a wrapped dataset must be a number, text or truth value: {value!r}.")
        return self

    @property
    def parameters(self) -> dict[str, SettingValue]:
        return dict(self.model_extra or {})

    @property
    def whose(self) -> str:
        return "yours, by ap.wrap"

    @property
    def keeps_freed_memory(self) -> bool:
        return self.freed_memory == "kept"

    @property
    def fills_cache(self) -> bool:
        return self.tf_cache == "memory"

    def around(self) -> dict[str, SettingValue]:
        fields = {name: field.default for name, field in type(self).model_fields.items() if name != "kind"}
        return {name: getattr(self, name) for name, usual in fields.items() if getattr(self, name) != usual}

    def normalised(self) -> Self:
        return type(self).model_validate({**self.around(), **dict(sorted(self.parameters.items()))})

    def open(self, job: LoadJob) -> Loader:
        data = job.recipe.source
        if not isinstance(data, WrappedData):
            raise ConfigError(
                f"The `wrapped` loader feeds wrapped datasets only, but the data are {shortened(data)}.",
                hint="Make the workload by ap.wrap(make_dataset, ...), or use another loader.",
            )
        feeder = data.make(self.parameters)
        if data.by_index and forks(feeder.dataset):
            self.begin(feeder)  # whose part in the environment passes to the processes
            source = data.indexed(feeder.dataset, whole=job.order.drop_remainder, by_keras=True)
            return _forked(job, source, processes.library_variables(self.library_threads))
        stream.require_safe_workers(feeder.dataset)
        if data.like.against_threads is not None and getattr(feeder.dataset, "workers", 0) > 1:
            raise LoaderError(
                f"`workers` above 1 are threads of Keras, and {data.like.against_threads}.",
                hint="Open files and make arrays in `__getitem__`, or use workers=1.",
            )
        return _WrappedLoader(job, data, self, feeder)

    def begin(self, feeder: Feeder) -> None:
        """Set what is around a dataset before it begins. Raise ConfigError for settings of another kind of dataset."""
        if self.keeps_freed_memory:
            os.environ.update(processes.KEEPING)  # for worker processes of the dataset that are not forked
        if changed := [f"{name}={value!r}" for name, value in self.around().items() if name.startswith("tf_")]:
            if not hasattr(made := feeder.dataset, "element_spec"):
                raise ConfigError(f"{', '.join(changed)} needs a tf.data.Dataset, but it is {shortened(made)}.")
            if self.fills_cache and feeder.is_endless:
                raise ConfigError('A dataset without an end cannot be kept in memory, but got tf_cache="memory".')
            feeder.dataset = self._with_options(made)

    def _with_options(self, dataset: Any) -> Any:
        import tensorflow as tf

        options = tf.data.Options()  # what is not set here stays as the function set it
        if self.tf_threads:
            options.threading.private_threadpool_size = self.tf_threads
        if not self.tf_autotune:
            options.autotune.enabled = False
        if self.fills_cache:
            dataset = dataset.cache()
        if ahead := max(self.tf_prefetch, _BEHIND_CACHE if self.fills_cache else 0):
            dataset = dataset.prefetch(ahead)
        return dataset.with_options(options)


def _forked(job: LoadJob, source: Indexed, environment: Mapping[str, str]) -> Loader:
    job = dataclasses.replace(job, recipe=dataclasses.replace(job.recipe, source=source))
    with contextlib.ExitStack() as undo:
        nursery = Nursery(job.recipe, None, environment=environment)
        undo.callback(nursery.close)
        worker = WorkerProcess(nursery)
        undo.callback(worker.close)
        loader = _ForkedLoader(job, [worker], _FROM_KERAS)
        # Its workers and its queue give as many without a pause.
        loader.batches_at_once = min(len(loader), source.dataset.workers + source.dataset.max_queue_size)
        undo.pop_all()
    return loader


class _ForkedLoader(StreamingLoader):
    def occupancy(self) -> None:
        """Return None: Keras's own queue is not seen."""


class _WrappedLoader(WorkloadLoader):
    """Reads a dataset epoch by epoch. The dataset is made anew for each loader, and released when it is closed."""

    has_dataset = True

    def __init__(self, job: LoadJob, data: WrappedData, made_by: Wrapped, feeder: Feeder) -> None:
        super().__init__(job, _BUFFERED)
        self.last_batch_samples = None
        self._data = data
        self._parameters: Mapping[str, SettingValue] = made_by.parameters
        self._feeder: Feeder | None = feeder
        self.batches_at_once = getattr(feeder.dataset, "workers", None)  # a PyDataset's deliver together
        made_by.begin(feeder)
        self._undo = contextlib.ExitStack()
        if made_by.library_threads:
            self._undo.enter_context(processes.library_threads(made_by.library_threads))

    def __len__(self) -> int:
        return self._data.steps

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        self._open().numbers = itertools.count(epoch)
        yield from self._rest("arrays", start)

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        self._open().numbers = itertools.count(epoch)
        for number in range(epochs):
            yield from self._rest("elements", 0 if number else start)

    def close(self) -> None:
        self._feeder = None
        self._undo.close()

    def _rest(self, form: BatchForm, start: int) -> Iterator[Batch]:
        """Yield the batches of an epoch from batch `start` on; a dataset that goes on does not skip to there."""
        goes_on, elements = self._open().goes_on, self._open().epoch(form)
        skipped, stop = (0, len(self) - start) if goes_on else (start, len(self))
        with contextlib.closing(elements):  # here, and not later: the user's `on_epoch_end` may raise
            number = skipped
            try:
                for number, element in enumerate(itertools.islice(elements, skipped, stop), skipped + 1):  # noqa: B007
                    batch = self._checked(flat(element, self.spec.structure))
                    if form == "arrays":
                        yield tuple(None if part is None else np.asarray(part) for part in batch)
                    else:
                        yield tuple(part for part in batch if part is not None)
            finally:
                if number == stop and not goes_on:
                    next(elements, None)  # as Keras does: before its end is seen, TensorFlow keeps no cache

    def _open(self) -> Feeder:
        if self._feeder is None:
            raise closed()
        return self._feeder

    def _checked(self, batch: Batch) -> Batch:
        if (number := self._data.like.unlike(batch)) is not None:
            field = self.spec.columns[number]
            first = (self.batch_size, *((field and field.shape) or ()))
            other = tuple(batch[number].shape)
            if self._parameters == self._data.defaults:
                raise LoaderError(
                    f"A wrapped dataset's first batch must show what all are like: it has the shape {first}, "
                    f"but another one has {other}.",
                    hint="Pad or crop in its function. A tf.data.Dataset whose element_spec has None in an axis, or a "
                    "PyDataset whose first two batches differ in it, may have it of any length.",
                )
            raise LoaderError(
                f"A wrapped dataset must give batches of shape {first}, "
                f"whatever its parameters, but with {dict(self._parameters)} one has {other}.",
                hint="Its parameters may say how samples are made, not what is trained.",
            )
        return batch


# -------------------- foreign: a pipeline that runs unchanged in a process of its own, for comparison
# A configuration like others, so that a study records it and a confirmation runs it in turn. It is no loader: its
# batches have an order of their own, so it cannot win. `autopipe.measure.foreign` runs it.


class Foreign(LoaderConfig):
    """Plain code, or a function of the user's.

    Attributes:
        code: "tf.data", "keras", "fit" ..., a form of `autopipe eject --to`; or the user's own "FILE.py:function".
    """

    kind: Literal["foreign"] = "foreign"
    is_foreign: ClassVar[bool] = True
    code: str

    @property
    def is_own(self) -> bool:
        return ":" in self.code

    @property
    def whose(self) -> str:
        return f"yours: {self.code}" if self.is_own else f"plain code: autopipe eject --to {self.code}"

    def open(self, job: LoadJob) -> NoReturn:
        raise ConfigError(
            f"`{self.code}` is foreign code, which a tune compares with; it does not give the workload's batches.",
            hint="Use threads, processes or tfdata.",
        )
