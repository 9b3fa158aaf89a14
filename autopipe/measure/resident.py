"""A loader of one batch that is already there: what the model does when it never waits. The ceiling of every loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autopipe.core.finish import Finish
from autopipe.core.loader import Loader
from autopipe.core.sample import Batch, SampleSpec


class ResidentLoader(Loader):
    """Hands over one batch again and again."""

    def __init__(self, batch: Batch, spec: SampleSpec, finish: Finish, batches: int) -> None:
        """Repeat `batch`, which looks like `spec` in each row, `batches` times an epoch."""
        self._batch = batch
        self._batches = batches
        self.spec = spec
        self.finish = finish
        self.batch_size = len(batch[0])
        self.buffered_batches = 0

    def __len__(self) -> int:
        return self._batches

    @property
    def identity(self) -> str:
        return "resident"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for _ in range(start, self._batches):
            yield self._batch

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        import keras

        if keras.backend.backend() != "tensorflow":
            return None
        import tensorflow as tf

        x, y = self._batch
        once = tf.data.Dataset.from_tensors(x if y is None else (x, y))
        return once.repeat((epochs) * self._batches - start)

    def close(self) -> None:
        """There is nothing to give back."""
