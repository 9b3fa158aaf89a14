"""Slots: preallocated memory for one batch each, used again when the last reference to its arrays is gone.

Whoever aliases the memory of a batch (TensorFlow, JAX and torch all can, without a copy) holds a reference to its NumPy
array, so a slot is never overwritten while in use. Nobody gives a slot back by hand, and nobody waits for one: if the
consumer keeps many batches, further slots are made.
"""

from __future__ import annotations

import collections
import itertools
import os
import weakref
from typing import Any

from numpy.typing import NDArray

from autopipe.batching.shared_memory import RowLayout, SharedBlock
from autopipe.core.sample import Batch


class _Forks:
    """Counts how often this process has been forked: a child goes on to read the batches that it was forked with."""

    count = 0

    @classmethod
    def note(cls) -> None:
        """One more."""
        cls.count += 1


os.register_at_fork(before=_Forks.note)


class Slot:
    """Memory for one batch. `number` names it to worker processes."""

    def __init__(self, number: int, layout: RowLayout) -> None:
        self.number = number
        self.layout = layout
        self.block = SharedBlock(layout.size)


class SlotPool:
    """Hands out slots and takes them back by itself."""

    def __init__(self, layout: RowLayout, keep: int) -> None:
        """Keep at most `keep` unused slots."""
        self._layout = layout
        self._keep = keep
        self._free: collections.deque[Slot] = collections.deque()
        self._numbers = itertools.count(1)
        self._lent: dict[int, tuple[Slot, list[weakref.ref[NDArray[Any]]]]] = {}

    def acquire(self) -> Slot:
        """Return a slot that nobody uses."""
        try:
            return self._free.pop()  # the one used last is warm in the processor's cache
        except IndexError:
            return Slot(next(self._numbers), self._layout)  # several threads may ask at once

    def release(self, slot: Slot) -> None:
        """Take back a slot that was acquired and not lent."""
        if len(self._free) < self._keep:
            self._free.append(slot)

    def lend(self, slot: Slot, rows: int) -> Batch:
        """Return new arrays over the slot; it comes back when all of them, and all views of them, are gone."""
        batch = slot.layout.arrays(slot.block, rows)
        arrays = [array for array in batch if array is not None]
        left, forks, forks_then = [len(arrays)], _Forks, _Forks.count  # as Python ends, globals go before arrays do

        def gone(_: object) -> None:
            left[0] -= 1  # callbacks run one at a time, under the interpreter's lock
            if left[0] == 0:
                del self._lent[slot.number]
                if forks.count == forks_then:  # else a child may still read what lies there
                    self.release(slot)

        self._lent[slot.number] = (slot, [weakref.ref(array, gone) for array in arrays])
        return batch
