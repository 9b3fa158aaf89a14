"""A loader over arrays in memory, for whoever tests what comes after loaders. No workers; only the order is random."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.pipeline.loader import Finish, Loader
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec


class ArrayLoader(Loader):
    """Hands over copies of rows of `x` and `y`."""

    def __init__(
        self, x: NDArray[Any], y: NDArray[Any] | None, batch_size: int, *, drop: bool = False, shuffle: bool = True
    ) -> None:
        self.x, self.y, self.batch_size, self.buffered_batches, self.finish = x, y, batch_size, 0, Finish()
        self.last_batch_samples = len(x) % batch_size or batch_size
        label = None if y is None else Field(FieldKind.LABEL if y.ndim == 1 else FieldKind.ARRAY, y.shape[1:], y.dtype)
        self.spec = SampleSpec(Field(FieldKind.IMAGE, x.shape[1:], x.dtype), label)
        self.order = BatchOrder(count=len(x), batch_size=batch_size, seed=0, shuffle=shuffle, drop_remainder=drop)
        self.asked: list[tuple[int, int, bool]] = []  # (epoch, start, last) of each call of `batches`
        self.handed: list[list[int]] = []  # sample indices of each batch
        self.closed = False
        self.fails_at: tuple[int, int] | None = None  # (epoch, batch) at which `error` is raised instead
        self.error: Exception = RuntimeError("no error was set")

    @property
    def identity(self) -> str:
        return "arrays"

    def __len__(self) -> int:
        return self.order.batches

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        self.asked.append((epoch, start, last))
        order = self.order.epoch(epoch)
        for number in range(start, len(self)):
            if self.fails_at == (epoch, number):
                raise self.error
            rows = order[number * self.batch_size :][: self.order.batch_samples(number)]
            self.handed.append([int(row) for row in rows])
            yield self.x[rows], None if self.y is None else self.y[rows]

    def close(self) -> None:
        self.closed = True


def blobs(samples: int = 24, *, side: int = 4) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return small uint8 images whose brightness tells their class of three, so that a few steps learn something."""
    y = np.arange(samples, dtype=np.int64) % 3
    x = np.random.default_rng(0).integers(0, 60, (samples, side, side, 3)) + 80 * y[:, None, None, None]
    return x.astype(np.uint8), y


class Clock:
    """What a test sets forward by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
