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


class _Lent(weakref.ref[NDArray[Any]]):
    """An array over a slot, and the number of the loan that it belongs to."""

    loan: int


class SlotPool:
    """Hands out slots and takes them back by itself.

    An array that goes runs no Python: a Ctrl-C that arrived just then would be raised there, where Python ignores it.
    """

    def __init__(self, layout: RowLayout, keep: int) -> None:
        """Keep at most `keep` unused slots."""
        self._layout = layout
        self._keep = keep
        self._free: collections.deque[Slot] = collections.deque()
        self._numbers = itertools.count(1)
        self._loans = itertools.count(1)
        # Of each loan its slot, its arrays, and how often the process had been forked by then.
        self._lent: dict[int, tuple[Slot, list[_Lent], int]] = {}
        self._gone: collections.deque[_Lent] = collections.deque()

    def acquire(self) -> Slot:
        """Return a slot that nobody uses."""
        self._take_back()
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
        batch, loan = slot.layout.arrays(slot.block, rows), next(self._loans)
        arrays = [_Lent(array, self._gone.append) for array in batch if array is not None]
        for array in arrays:
            array.loan = loan
        self._lent[loan] = (slot, arrays, _Forks.count)
        return batch

    def _take_back(self) -> None:
        while True:
            try:
                loan = self._gone.popleft().loan
            except IndexError:
                return
            slot, arrays, forks = self._lent.get(loan, (None, [], 0))
            if slot is None or any(array() is not None for array in arrays) or self._lent.pop(loan, None) is None:
                continue
            if forks == _Forks.count:  # else a child may still read what lies there
                self.release(slot)
