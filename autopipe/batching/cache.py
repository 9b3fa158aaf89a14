"""The memory cache: samples as they are after the deterministic first ops, shared by all workers.

A sample is written by whichever worker reads it first; a flag says it is there. Two workers never write one sample at a
time, since each sample is read once an epoch; and if they did, both would write the same bytes.
"""

from __future__ import annotations

import numpy as np

from autopipe.batching.memory import RowLayout, SharedBlock
from autopipe.core.sample import Part, Sample, SampleSpec
from autopipe.errors import LoaderError


class MemoryCache:
    """Room for `count` samples of one shape. Memory is taken as samples arrive.

    Attributes:
        block: what worker processes map; its descriptor is passed to them.
    """

    def __init__(self, spec: SampleSpec, count: int, block: SharedBlock | None = None) -> None:
        self._layout = RowLayout(spec, count)
        self.block = SharedBlock(self._layout.size + count) if block is None else block
        self._x, self._y = self._layout.arrays(self.block)
        self._filled = self.block.array((count,), np.dtype(np.bool_), self._layout.size)
        self._label = spec.y is not None and spec.y.shape == ()

    @staticmethod
    def bytes_needed(spec: SampleSpec, count: int) -> int:
        """Return the bytes that `count` samples take."""
        if not spec.is_fixed:
            raise LoaderError(
                'cache="memory" needs samples of one shape after the deterministic first ops, but they differ.',
                hint='Put ap.Resize or ap.CenterCrop before the first random op, or use cache="none".',
            )
        return RowLayout(spec, count).size + count

    def get(self, index: int) -> Sample | None:
        """Return a sample as views of the cache, or None if it is not there yet."""
        if not self._filled[index]:
            return None
        return self._x[index], None if self._y is None else self._y[index]

    def put(self, index: int, x: Part, y: Part) -> None:
        """Keep a sample."""
        self._x[index] = x
        if self._y is not None:
            self._y[index] = y
        self._filled[index] = True

    @property
    def filled(self) -> int:
        """Samples held."""
        return int(np.count_nonzero(self._filled))
