"""Shared memory: slots for batches, and the memory cache of samples after the deterministic first ops, or as read.

All workers share the cache. The first worker to read a sample writes it, and a flag says that it is there. Two workers
never write one sample at a time, since each is read once an epoch; if they did, both would write the same bytes. A
cache of a part of the samples always keeps the same ones, chosen by a hash of their indices. Cached arrays are
read-only: an op that wrote into one would change the sample for all later epochs.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import itertools
import logging
import math
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError
from autopipe.pipeline.loader import LoadJob, Recipe
from autopipe.workload import order
from autopipe.workload.data import remote
from autopipe.workload.ops.planner import normalise
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Sample, SampleSpec

# -------------------- slots
# A block is an anonymous file in memory: it has no name, so it is gone when the last process that maps it is gone,
# however that process ended. It is not taken from /dev/shm, whose size is often limited (64 MiB in a default
# container).
#
# A slot is a block for one batch. It is used again when the last reference to its arrays is gone. An alias of a batch
# (TensorFlow, JAX and torch all can, without a copy) holds a reference to its NumPy array, so a slot in use is never
# overwritten. No consumer waits for one: if it keeps many batches, further slots are made.


_ALIGNMENT = 64  # TensorFlow and JAX take NumPy memory without a copy only if it is aligned to 64 bytes


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def places(sizes: Sequence[int]) -> list[int]:
    """Return where parts of these bytes begin in a block, each aligned, and where the last one ends."""
    return [*itertools.accumulate(map(_aligned, sizes), initial=0)]


class SharedBlock:
    """A block of zeroed memory behind a file descriptor; pages take room only once they are written to."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        """Make a block of `size` bytes, or map the one behind `descriptor`, which then belongs to this object."""
        if descriptor is None:
            descriptor = os.memfd_create("autopipe", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, max(1, size))
        self.descriptor, self.size = descriptor, size
        self._map = mmap.mmap(descriptor, max(1, size))

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> NDArray[Any]:
        """Return an array over the block, which stays mapped as long as any such array lives."""
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset)

    def view(self) -> memoryview:
        """Return the block to be read only. It keeps the memory mapped, too."""
        return memoryview(self._map).toreadonly()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone before this is
        if hasattr(self, "descriptor"):
            close(self.descriptor)


class RowLayout:
    """Offsets of the fields of `rows` samples in a block: first all x, then all y and others, each aligned."""

    def __init__(self, spec: SampleSpec, rows: int) -> None:
        self.spec, self.rows = spec, rows
        *self._offsets, self.size = places([field.bytes * rows for field in spec.fields])

    def arrays(self, block: SharedBlock, rows: int | None = None) -> Batch:
        count = self.rows if rows is None else rows
        arrays = [
            block.array((count, *(field.shape or ())), field.dtype or np.dtype(np.uint8), offset)
            for field, offset in zip(self.spec.fields, self._offsets, strict=True)
        ]
        return self.spec.aligned(arrays)


_FORKS = list[None]()  # one for each fork of this process: a child goes on to read the batches that it was forked with
os.register_at_fork(before=lambda: _FORKS.append(None))


class Slot:
    """Memory for one batch. `number` names it to worker processes."""

    def __init__(self, number: int, layout: RowLayout) -> None:
        self.number, self.layout, self.block = number, layout, SharedBlock(layout.size)

    def arrays(self, rows: int) -> Batch:
        return self.layout.arrays(self.block, rows)


class _Lent(weakref.ref[NDArray[Any]]):
    loan: int  # the number under which the slot of the array was lent


class SlotPool:
    """Hands out slots and takes them back. No Python code runs when an array dies: a Ctrl-C there would be lost."""

    def __init__(self, layout: RowLayout, keep: int) -> None:
        """Keep at most `keep` unused slots."""
        self._layout, self._keep = layout, keep
        self._free: collections.deque[Slot] = collections.deque()
        self._numbers, self._loans = itertools.count(1), itertools.count(1)
        # Of each loan its slot, its arrays, and how often the process had been forked by then.
        self._lent: dict[int, tuple[Slot, list[_Lent], int]] = {}
        self._gone: collections.deque[_Lent] = collections.deque()

    def acquire(self) -> Slot:
        self._take_back()
        try:
            return self._free.pop()  # the one used last is warm in the processor's cache
        except IndexError:
            return Slot(next(self._numbers), self._layout)  # several threads may ask at once

    def release(self, slot: Slot) -> None:
        if len(self._free) < self._keep:
            self._free.append(slot)

    def lend(self, slot: Slot, rows: int) -> Batch:
        """Return new arrays over the slot; it comes back when all of them, and all views of them, are gone."""
        batch, loan = slot.arrays(rows), next(self._loans)
        arrays = [_Lent(array, self._gone.append) for array in batch if array is not None]
        for array in arrays:
            array.loan = loan
        self._lent[loan] = (slot, arrays, len(_FORKS))
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
            if forks == len(_FORKS):  # else a child may still read that memory
                self.release(slot)


# -------------------- cache


_STREAM = 0xFFFF_FFFE  # random numbers that no op has
_OPEN: weakref.WeakSet[MemoryCache] = weakref.WeakSet()  # those of this process


class _Rows:
    """Room for samples of one shape: a row of each part's array."""

    def __init__(self, spec: SampleSpec, rows: int, sample_bytes: float) -> None:
        self._layout = RowLayout(spec, rows)
        self.size = self._layout.size

    def open(self, block: SharedBlock) -> None:
        self.parts = self._layout.arrays(block)
        self._readable = read_only(self.parts)

    def read(self, row: int, *, copies: bool) -> Sample:
        return tuple([None if part is None else part[row] for part in self._readable])

    def write(self, row: int, sample: Sample) -> bool:
        return write_rows(self.parts, row, sample)


def write_rows(batch: Batch, rows: int | slice, made: Sample | Batch) -> bool:
    """Write a sample or arrays, and return True; write nothing if a part has another shape or dtype."""
    rooms = [(to[rows, ...], np.asarray(part)) for part, to in zip(made, batch, strict=True) if to is not None]
    if any(part.shape != room.shape or part.dtype != room.dtype for room, part in rooms):
        return False
    for room, part in rooms:
        room[...] = part
    return True


class Heap:
    """Room for samples of any shapes, encoded ones among them: one behind the other, in the order of their coming. A
    table holds the place, the rank and the shape of each part. If the estimated room is used up, further samples are
    not kept.
    """

    def __init__(self, spec: SampleSpec, rows: int, sample_bytes: float) -> None:
        self._spec = spec
        self._table_at = _ALIGNMENT  # behind the place of the first free byte
        self._shape = (rows, len(spec.columns), 2 + _MOST_AXES)
        self._begin = _aligned(self._table_at + 8 * math.prod(self._shape))
        each = sample_bytes + _ALIGNMENT * len(spec.fields)
        self.size = self._begin + _aligned(int(rows * each * _SPARE) + _SPARE_BYTES)
        self._lock = threading.Lock()

    def open(self, block: SharedBlock) -> None:
        self._block = block
        self.room = block.array((self.size - self._begin,), np.dtype(np.uint8), self._begin)  # the samples' bytes
        self.first_free = block.array((1,), np.dtype(np.int64))  # where those begin that no sample has yet
        self._table = block.array(self._shape, np.dtype(np.int64), self._table_at)
        self._bytes = block.view()

    def read(self, row: int, *, copies: bool) -> Sample:
        entry = self._table[row].tolist()
        return tuple([
            None if field is None else self._part(field, *place, copies=copies)
            for field, place in zip(self._spec.columns, entry, strict=True)
        ])  # fmt: skip

    def _part(self, field: Field, at: int, rank: int, *axes: int, copies: bool) -> Part:
        if field.kind is FieldKind.ENCODED:
            content = self._bytes[at : at + axes[0]]
            return bytes(content) if copies else content
        made: NDArray[Any] = np.ndarray(axes[:rank], field.dtype, self._bytes, at)
        return made[()] if rank == 0 else made

    def write(self, row: int, sample: Sample) -> bool:
        arrays: list[NDArray[Any] | None] = []
        for field, part in zip(self._spec.columns, sample, strict=True):
            array: NDArray[Any] | None = None
            if field is not None and field.kind is FieldKind.ENCODED:
                if not isinstance(part, bytes | memoryview):
                    return False
                array = np.frombuffer(part, np.uint8)
            elif field is not None and not isinstance(part, Placed):
                array = np.asarray(part)
                if array.dtype != field.dtype or array.ndim > _MOST_AXES:
                    return False
            arrays.append(array)
        at = self._take(sum(0 if array is None else _aligned(array.nbytes) for array in arrays))
        if at is None:
            return False
        for column, (array, part) in enumerate(zip(arrays, sample, strict=True)):
            if array is not None:
                self._block.array(array.shape, array.dtype, self._begin + at)[...] = array
                part = Placed(at, array.shape)
                at += _aligned(array.nbytes)
            if isinstance(part, Placed):
                place = (self._begin + part.at, len(part.shape), *part.shape)
                self._table[row, column, : len(place)] = place
        return True

    def _take(self, size: int) -> int | None:
        """Take so many bytes for this process and thread; return where they begin, or None if they are not left."""
        if native.why_not() is None:
            at = native.take(self.first_free, size, len(self.room))
            return None if at < 0 else at
        with self._lock:
            fcntl.lockf(self._block.descriptor, fcntl.LOCK_EX)  # a process that dies gives it back
            try:
                at = int(self.first_free[0])
                if at + size > len(self.room):
                    return None
                self.first_free[0] = at + size
            finally:
                fcntl.lockf(self._block.descriptor, fcntl.LOCK_UN)
        return at


class Placed(NamedTuple):
    """An array that lies in the room of a heap already, and where it begins there."""

    at: int
    shape: tuple[int, ...]


_MOST_AXES = 4
_SPARE, _SPARE_BYTES = 1.05, 1 << 22  # for samples that are larger than those by which the room was estimated


class MemoryCache:
    """Room for the samples that a recipe keeps. Memory is taken as samples arrive."""

    def __init__(self, recipe: Recipe, block: SharedBlock | None = None) -> None:
        """Map the owner's `block` in a worker process."""
        count = len(recipe.kept_source)
        self.room, rows = _room(recipe)
        self._kept = rows
        # What worker processes map; its descriptor is passed to them.
        self.block = SharedBlock(self.room.size + rows) if block is None else block
        self.room.open(self.block)
        self._filled = self.block.array((rows,), np.dtype(np.bool_), self.room.size)
        # Each sample's row in the cache, -1 for those that are not kept: the same in every process.
        self._places = np.arange(count, dtype=np.int32)
        if rows < count:
            hashes = order.uniforms(0, 0, self._places, _STREAM, 1)[:, 0]
            kept = np.sort(np.argpartition(hashes, rows - 1)[:rows])
            self._places[:] = -1
            self._places[kept] = np.arange(rows)
        self._rows = self._places.data  # gives Python integers
        _OPEN.add(self)

    @classmethod
    def of(cls, recipe: Recipe, block: SharedBlock | None = None) -> Self | None:
        return None if recipe.cached == 0 else cls(recipe, block)

    @classmethod
    def shared(cls, job: LoadJob) -> MemoryCache | None:
        """Return the cache of a job, which may be that of another loader of the workload; None if it has none."""
        recipe = job.recipe
        return None if recipe.cached == 0 else job.shared.get(_key(recipe), lambda: MemoryCache(recipe))

    @staticmethod
    def bytes_to_come(job: LoadJob) -> int:
        """Return the bytes that the cache of a job has yet to take until it is full; 0 if it has none."""
        found: MemoryCache | None = job.shared.made.get(_key(job.recipe))
        return MemoryCache.bytes_needed(job.recipe) if found is None else found.bytes_to_fill

    @staticmethod
    def bytes_needed(recipe: Recipe) -> int:
        """Return the bytes that the cache of a recipe takes once it is full; 0 if it has none."""
        if recipe.cached == 0:
            return 0
        room, rows = _room(recipe)
        return room.size + rows

    @staticmethod
    def unfilled_bytes() -> int:
        """Return the bytes that the caches of this process have yet to take until they are full."""
        return sum(cache.bytes_to_fill for cache in [*_OPEN])

    @property
    def bytes_to_fill(self) -> int:
        return self.room.size * (self._kept - self.filled) // self._kept

    def get(self, index: int, *, copies: bool = True) -> Sample | None:
        """Return a sample as read-only views, or None. Without `copies`, encoded images are views, too."""
        return self.room.read(self._rows[index], copies=copies) if self.holds(index) else None

    def keeps(self, index: int) -> bool:
        return bool(self._rows[index] >= 0)

    def holds(self, index: int) -> bool:
        row = self._rows[index]
        return bool(row >= 0 and self._filled[row])

    def rows_of(self, indices: NDArray[np.int64]) -> NDArray[np.int32] | None:
        """Return where samples are in `rows`; None unless the cache holds all of them."""
        rows = self._places[indices]
        return rows if self._filled.take(rows, mode="clip").all() and (rows >= 0).all() else None

    def put(self, index: int, *sample: Part) -> None:
        """Keep a sample if it is one to keep and has the common form; another one is read again each time."""
        row = self._rows[index]
        with contextlib.suppress(OverflowError):  # a whole number of Python's own; the kernel names the sample
            if row >= 0 and self.room.write(row, sample):
                self._filled[row] = True

    def note(self, indices: Sequence[int]) -> None:
        """Say that samples are there, in a cache that keeps all: they were written to `rows`."""
        self._filled[indices] = True

    @property
    def filled(self) -> int:
        return int(np.count_nonzero(self._filled))

    @property
    def rows(self) -> Batch:
        """The room of all samples, of one shape: a row each. Whoever writes to it tells so by `note`."""
        assert isinstance(self.room, _Rows)
        return self.room.parts


_LOG = logging.getLogger(__name__)
_SAID_EVERY_SECONDS = 5.0  # how far the filling is, before which no batch comes


@dataclasses.dataclass(eq=False)
class PiecesInMemory:
    """The pieces of which samples are cut (see `workload.data.source`), from a cache, which keeps them as it can."""

    source: Any  # has the pieces
    spec: SampleSpec  # of them
    cache: MemoryCache | None = None  # of this process; None: all are read from the source

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"cache": None}

    def box(self, index: int, part: str, rows: slice, columns: slice) -> NDArray[Any]:
        if self.cache is None or not self.cache.keeps(index):
            return self.source.box(index, part, rows, columns)  # type: ignore[no-any-return]  # a user's own
        kept = self.cache.get(index) or self._put(self.cache, index)
        return kept[self.spec.labels.index(part)][rows, columns]  # type: ignore[no-any-return]  # an array of any kind

    def _put(self, cache: MemoryCache, index: int) -> Sample:
        sample = normalise(self.source.read(index), self.spec.structure)
        cache.put(index, *sample)
        return sample

    def fill(self, cache: MemoryCache, threads: int) -> None:
        """Keep all pieces; those that cannot be read are left to the samples that need them."""
        missing = [index for index in range(len(self.source)) if cache.keeps(index) and not cache.holds(index)]

        def put(index: int) -> None:
            with contextlib.suppress(BadSampleError):
                self._put(cache, index)

        began = said = time.monotonic()
        for done, _ in enumerate(remote.at_once(put, missing, threads), 1):
            if (now := time.monotonic()) - said >= _SAID_EVERY_SECONDS and done < len(missing):
                said, rest = now, (now - began) * (len(missing) - done) / done
                said_of = "Before the first batch scenes are unpacked into memory: %d of %d pieces, %.0f s to go."
                _LOG.warning(said_of, done, len(missing), rest)


def _key(recipe: Recipe) -> tuple[object, ...]:
    return "cache", id(recipe.kept_source), recipe.fixed_spec, recipe.fixed_steps, recipe.cached, recipe.kept_bytes


def _room(recipe: Recipe) -> tuple[_Rows | Heap, int]:
    rows = max(1, int(len(recipe.kept_source) * recipe.cached))
    return (_Rows if recipe.fixed_spec.is_fixed else Heap)(recipe.fixed_spec, rows, recipe.kept_bytes), rows


def read_only(sample: Sample) -> Sample:
    """Return a sample with its arrays as read-only views; the arrays themselves stay writable."""
    parts = tuple(part.view() if isinstance(part, np.ndarray) else part for part in sample)
    for part in parts:
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return parts
