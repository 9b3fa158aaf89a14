"""A loader with the interface of torch's `DataLoader`, whose workers are copies in this process.

As in torch, each worker has a copy of the dataset, made when an epoch begins, and a state of NumPy's global generator
of its own; workers make batches in turn.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class _Batches:
    def __init__(self, samples: int, batch_size: int, *, shuffle: bool) -> None:
        self._samples, self._size, self._shuffle = samples, batch_size, shuffle

    def __len__(self) -> int:
        return -(-self._samples // self._size)

    def __iter__(self) -> Iterator[list[int]]:
        indices = list(range(self._samples))
        if self._shuffle:
            random.shuffle(indices)
        return (indices[at : at + self._size] for at in range(0, self._samples, self._size))


class DataLoader:
    def __init__(
        self,
        dataset: Any,
        batch_size: int = 8,
        *,
        num_workers: int = 0,
        shuffle: bool = False,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset, self.num_workers, self.worker_init_fn = dataset, num_workers, worker_init_fn
        self.batch_sampler: Any = _Batches(len(dataset), batch_size, shuffle=shuffle)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        make = [_worker(self, number) for number in range(self.num_workers)] or [_batch_of(self.dataset)]
        for number, indices in enumerate(self.batch_sampler):
            yield make[number % len(make)](indices)


def _batch_of(dataset: Any) -> Callable[[list[int]], Any]:
    return lambda indices: tuple(map(np.stack, zip(*(dataset[index] for index in indices), strict=True)))


def _worker(loader: DataLoader, number: int) -> Callable[[list[int]], Any]:
    batch = _batch_of(copy.deepcopy(loader.dataset))
    state = np.random.RandomState(random.getrandbits(32)).get_state()  # as torch seeds it

    def within(run: Callable[[], Any]) -> Any:
        nonlocal state
        outside = np.random.get_state()
        np.random.set_state(state)
        try:
            return run()
        finally:
            state = np.random.get_state()
            np.random.set_state(outside)

    if (begin := loader.worker_init_fn) is not None:
        within(lambda: begin(number))
    return lambda indices: within(lambda: batch(indices))
