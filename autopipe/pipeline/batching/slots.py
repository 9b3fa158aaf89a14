"""Memory for batches that workers share, and that nobody has to clean up or give back.

A block is an anonymous file in memory: it has no name, so it is gone when the last process that maps it is gone,
however that process ended. It is not taken from /dev/shm, whose size is often limited (64 MiB in a default container).

A slot is a block for one batch. It is used again when the last reference to its arrays is gone. Whoever aliases the
memory of a batch (TensorFlow, JAX and torch all can, without a copy) holds a reference to its NumPy array, so a slot is
never overwritten while in use. Nobody waits for one: if the consumer keeps many batches, further slots are made.
"""

from __future__ import annotations

import collections
import itertools
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.workload.sample import Batch, SampleSpec

_ALIGNMENT = 64  # TensorFlow and JAX take NumPy memory without a copy only if it is aligned to 64 bytes


class SharedBlock:
    """A block of zeroed memory behind a file descriptor; pages take room only once they are written to."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        """Make a block of `size` bytes, or map the one behind `descriptor`, which then belongs to this object."""
        if descriptor is None:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, max(1, size))
        self.descriptor = descriptor
        self.size = size
        self._map = mmap.mmap(descriptor, max(1, size))

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> NDArray[Any]:
        """Return a new array over the block. The memory stays mapped as long as any such array lives."""
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone before this is
        if hasattr(self, "descriptor"):
            close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("autopipe", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class RowLayout:
    """Where the fields of `rows` samples lie in a block: first all x, then all y and others, each aligned."""

    def __init__(self, spec: SampleSpec, rows: int) -> None:
        self.spec = spec
        self.rows = rows
        self._offsets = []
        end = 0
        for field in spec.fields:
            self._offsets.append(end)
            end += -(-field.bytes * rows // _ALIGNMENT) * _ALIGNMENT
        self.size = end

    def arrays(self, block: SharedBlock, rows: int | None = None) -> Batch:
        """Return new arrays (x, y, *others) over the first `rows` samples of a block."""
        count = self.rows if rows is None else rows
        arrays = [
            block.array((count, *(field.shape or ())), field.dtype or np.dtype(np.uint8), offset)
            for field, offset in zip(self.spec.fields, self._offsets, strict=True)
        ]
        return self.spec.aligned(arrays)


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
