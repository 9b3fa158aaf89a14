"""A loader of one batch that is already on the device: what the model does when it never waits. The ceiling of every
loader.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from autopipe.core.finish import Finish
from autopipe.core.loader import Loader
from autopipe.core.sample import Batch, SampleSpec


class ResidentLoader(Loader):
    """Hands over one batch again and again, in one epoch without an end."""

    buffered_batches = 0

    def __init__(self, batch: Batch, spec: SampleSpec, finish: Finish, batch_size: int, together: int = 1) -> None:
        """Repeat a batch.

        Args:
            batch: arrays of NumPy or of the backend.
            spec: what each of their rows looks like.
            finish: what is left to do to it.
            batch_size: how many rows there are.
            together: so many copies lie in one array, for calls that take as many: they need not be stacked first.
        """
        self._batches = [batch] if together == 1 else _copies(batch, together)
        self.spec = spec
        self.finish = finish
        self.batch_size = batch_size

    def __len__(self) -> int:
        return 1 << 40

    @property
    def identity(self) -> str:
        return "resident"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Any]:
        return itertools.cycle(self._batches)

    def close(self) -> None:
        """There is nothing to give back."""


def _copies(batch: Batch, count: int) -> list[Batch]:
    stacks = [None if part is None else np.stack([np.asarray(part)] * count) for part in batch]
    return [tuple(None if stack is None else stack[place] for stack in stacks) for place in range(count)]
