"""A loader of one batch that is already on the device: what the model does when it never waits. The ceiling of every
loader.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from autopipe.core.finish import Finish
from autopipe.core.loader import Loader
from autopipe.core.sample import SampleSpec


class ResidentLoader(Loader):
    """Hands over one batch again and again, in one epoch without an end."""

    buffered_batches = 0

    def __init__(self, batch: tuple[Any, Any], spec: SampleSpec, finish: Finish, batch_size: int) -> None:
        """Repeat `batch`, arrays of NumPy or of the backend, which looks like `spec` in each of `batch_size` rows."""
        self._batch = batch
        self.spec = spec
        self.finish = finish
        self.batch_size = batch_size

    def __len__(self) -> int:
        return 1 << 40

    @property
    def identity(self) -> str:
        return "resident"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Any]:
        return itertools.repeat(self._batch)

    def close(self) -> None:
        """There is nothing to give back."""
