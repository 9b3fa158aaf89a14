"""Wrapped: the user's own `tf.data.Dataset` or `keras.utils.PyDataset`, fed as it is; see `autopipe.pipeline.wrap`.

The dataset decides the order, randomness and length of an epoch; the promise of other loaders (the same batches for any
configuration) is not made for it. Its parameters are knobs like any other loader's, though only its function knows
their names.

A dataset that ends is begun anew for each epoch. One that does not is begun once, and each epoch goes on after the one
before, as in Keras's `fit(dataset, steps_per_epoch=...)`; so is a `tf.data.Dataset` of unknown length, or whose epochs
are a part of it, which is begun anew at its end. It cannot seek: for any epoch and batch, the next ones are handed
over, and a resumed training begins the dataset anew.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
import pydantic

from autopipe.errors import ConfigError, LoaderError, shortened
from autopipe.pipeline.batching.datasets import Feeder, flat
from autopipe.pipeline.batching.wrapped_data import WrappedData
from autopipe.pipeline.config import LoaderConfig, Value
from autopipe.pipeline.loader import Loader, LoadJob, closed
from autopipe.workload.sample import Batch

_BUFFERED = 16  # batches that such a dataset may hold ahead; it does not tell


class Wrapped(LoaderConfig):
    """A wrapped dataset, made with these parameters: `Wrapped(prefetch=2, workers=4)`."""

    model_config = pydantic.ConfigDict(extra="allow")

    kind: Literal["wrapped"] = "wrapped"

    @pydantic.model_validator(mode="after")
    def _plain_values(self) -> Self:
        for name, value in self.parameters.items():
            if not isinstance(value, bool | int | float | str):
                raise ConfigError(f"`{name}` of a wrapped dataset must be a number, text or truth value: {value!r}.")
        return self

    @property
    def parameters(self) -> dict[str, Value]:
        return dict(self.model_extra or {})

    @property
    def whose(self) -> str:
        return "yours, by ap.wrap"

    def normalised(self) -> Self:
        return type(self).model_validate(dict(sorted(self.parameters.items())))

    def worker_count(self) -> int | None:
        return None

    def buffered_batches(self) -> int | None:
        return None

    def open(self, job: LoadJob) -> Loader:
        data = job.recipe.source
        if not isinstance(data, WrappedData):
            raise ConfigError(
                f"The `wrapped` loader feeds wrapped datasets only, but the data are {shortened(data)}.",
                hint="Make the workload by ap.wrap(make_dataset, ...), or use another loader.",
            )
        return _WrappedLoader(job, data, self.parameters)


class _WrappedLoader(Loader):
    """Reads a dataset epoch by epoch. The dataset is made anew for each loader, and released when it is closed."""

    has_dataset = True

    def __init__(self, job: LoadJob, data: WrappedData, parameters: Mapping[str, Value]) -> None:
        self.spec = job.recipe.spec
        self.finish = job.finish
        self.batch_size = job.order.batch_size
        self.buffered_batches = _BUFFERED
        self._job = job
        self._data = data
        self._parameters = parameters
        self._feeder: Feeder | None = data.make(parameters)

    def __len__(self) -> int:
        return self._data.steps

    @property
    def identity(self) -> str:
        return self._job.identity()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        feeder = self._open()
        with contextlib.closing(
            feeder.arrays()
        ) as elements:  # here, and not later: the user's `on_epoch_end` may raise
            for element in self._rest(feeder, elements, start):
                batch = self._checked(flat(element, self.spec.structure))
                yield tuple(None if part is None else np.asarray(part) for part in batch)

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        return _Epochs(self, epochs, start)

    def elements(self, start: int) -> Iterator[Any]:
        """Yield the remaining batches of an epoch, as `fit` gets them."""
        feeder = self._open()
        with contextlib.closing(feeder.elements()) as elements:
            for element in self._rest(feeder, elements, start):
                batch = self._checked(flat(element, self.spec.structure))
                yield tuple(part for part in batch if part is not None)

    def close(self) -> None:
        self._feeder = None

    def _rest(self, feeder: Feeder, epoch: Iterator[Any], start: int) -> Iterator[Any]:
        """Return the batches of an epoch from batch `start` on; an endless dataset does not skip to there."""
        if feeder.goes_on:
            return itertools.islice(epoch, len(self) - start)
        return itertools.islice(epoch, start, len(self))

    def _open(self) -> Feeder:
        if self._feeder is None:
            raise closed()
        return self._feeder

    def _checked(self, batch: Batch) -> Batch:
        if (number := self._data.unlike(batch)) is not None:
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


class _Epochs:
    """Consecutive epochs, of which the first begins at batch `start`."""

    def __init__(self, loader: _WrappedLoader, epochs: int, start: int) -> None:
        self._loader = loader
        self._start, self._epochs = start, epochs

    def __iter__(self) -> Iterator[Any]:
        for number in range(self._epochs):
            yield from self._loader.elements(0 if number else self._start)
