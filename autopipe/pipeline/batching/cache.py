"""The memory cache: samples as they are after the deterministic first ops, shared by all workers.

A sample is written by whichever worker reads it first; a flag says it is there. Two workers never write one sample at a
time, since each sample is read once an epoch; and if they did, both would write the same bytes.

A cache that keeps a part of the samples keeps always the same ones, which a hash of their indices chooses; the others
are read as if there were no cache.

What it hands out can only be read: an op that wrote into it would change the sample for all epochs to come.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Self

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import LoaderError
from autopipe.hardware import memory
from autopipe.hardware.memory import size_text
from autopipe.pipeline.batching.slots import RowLayout, SharedBlock
from autopipe.pipeline.config import CACHE_SHARE, PipelineConfig
from autopipe.pipeline.job import Recipe
from autopipe.workload import evaluation, randomness
from autopipe.workload.gather import gather
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.plan import Plan
from autopipe.workload.sample import Batch, Part, Sample, SampleSpec, Source, has_room
from autopipe.workload.workload import Workload

_STREAM = 0xFFFF_FFFE  # random numbers that no op has
_OPEN: weakref.WeakSet[MemoryCache] = weakref.WeakSet()  # those of this process


class MemoryCache:
    """Room for some of `count` samples of one shape. Memory is taken as samples arrive.

    Args:
        spec: what a sample looks like.
        count: how many samples there are.
        fraction: the part of them that is kept, above 0 to 1.
        block: another worker's block, to share it.
    """

    def __init__(self, spec: SampleSpec, count: int, fraction: float = 1.0, block: SharedBlock | None = None) -> None:
        rows = kept_count(count, fraction)
        self._layout = RowLayout(spec, rows)
        # What worker processes map; its descriptor is passed to them.
        self.block = SharedBlock(self._layout.size + rows) if block is None else block
        self._parts = self._layout.arrays(self.block)
        self._filled = self.block.array((rows,), np.dtype(np.bool_), self._layout.size)
        self._readable = read_only(self._parts)
        self._places = None if rows == count else _rows(count, rows)
        self._rows = None if self._places is None else self._places.data  # gives Python integers
        _OPEN.add(self)

    @classmethod
    def of(cls, recipe: Recipe, block: SharedBlock | None = None) -> Self | None:
        """Return the cache that a recipe asks for, or None."""
        if recipe.cached == 0:
            return None
        return cls(recipe.fixed_spec, len(recipe.source), recipe.cached, block)

    @staticmethod
    def bytes_needed(recipe: Recipe) -> int:
        """Return the bytes that the cache of a recipe takes once it is full; 0 if it has none.

        Raises:
            LoaderError: samples differ in shape.
        """
        if recipe.cached == 0:
            return 0
        if not recipe.fixed_spec.is_fixed:
            raise LoaderError(
                'cache="memory" needs samples of one shape after the deterministic first ops, but they differ.',
                hint='Put ap.Resize or ap.CenterCrop before the first random op, or use cache="none".',
            )
        return MemoryCache.bytes_of(recipe.fixed_spec, len(recipe.source), recipe.cached)

    @staticmethod
    def bytes_of(spec: SampleSpec, count: int, fraction: float) -> int:
        """Return the bytes that a cache of this part of so many samples takes once it is full."""
        rows = kept_count(count, fraction)
        return RowLayout(spec, rows).size + rows

    @staticmethod
    def unfilled_bytes() -> int:
        """Return what the caches of this process will take beside what they have taken, once they are full."""
        return sum(cache._layout.size * (cache._layout.rows - cache.filled) // cache._layout.rows for cache in [*_OPEN])

    def get(self, index: int) -> Sample | None:
        """Return a sample as read-only views of the cache, or None if it is not there, yet or at all."""
        row = index if self._rows is None else self._rows[index]
        if row < 0 or not self._filled[row]:
            return None
        return tuple([None if part is None else part[row] for part in self._readable])

    def holds(self, index: int) -> bool:
        """Whether a sample is there."""
        row = index if self._rows is None else self._rows[index]
        return bool(row >= 0 and self._filled[row])

    def holds_all(self, indices: NDArray[np.int64]) -> bool:
        """Whether all of some samples are there."""
        rows = indices if self._places is None else self._places[indices]
        return bool(self._filled.take(rows, mode="clip").all() and (self._places is None or rows.min() >= 0))

    def put(self, index: int, *sample: Part) -> None:
        """Keep a sample, if it is one of those that are kept, and like the others; one that is not is met again."""
        row = index if self._rows is None else self._rows[index]
        if row < 0:
            return
        rooms = [(rows[row, ...], part) for part, rows in zip(sample, self._parts, strict=True) if rows is not None]
        if not all(has_room(room, part) and np.asarray(part).dtype == room.dtype for room, part in rooms):
            return  # one of another dtype would come out of the cache as something else than it went in
        with contextlib.suppress(OverflowError):  # a whole number of Python's own; who makes the batch names the sample
            for room, part in rooms:
                room[...] = part
            self._filled[row] = True

    def get_many(self, indices: NDArray[np.int64], out: Batch) -> bool:
        """Write samples to the arrays of a batch, if all of them are there; return whether they are."""
        if not self.holds_all(indices):
            return False
        rows = indices if self._places is None else self._places[indices]
        for part, room in zip(self._parts, out, strict=True):
            if part is not None and room is not None:
                gather(part, rows, room)
        return True

    def put_many(self, indices: NDArray[np.int64], batch: Batch) -> None:
        """Keep those samples of a batch that are kept."""
        rows = indices if self._places is None else self._places[indices]
        kept = slice(None) if self._places is None else np.flatnonzero(rows >= 0)
        for part, made in zip(self._parts, batch, strict=True):
            if part is not None and made is not None:
                part[rows[kept]] = made[kept]
        self._filled[rows[kept]] = True

    @property
    def filled(self) -> int:
        """Samples held."""
        return int(np.count_nonzero(self._filled))


def read_only(sample: Sample) -> Sample:
    """Return a sample with its arrays as views that cannot be written to; the arrays themselves still can."""
    return tuple(map(_read_only, sample))


def _read_only(part: Part) -> Part:
    if not isinstance(part, np.ndarray):
        return part
    view = part.view()
    view.flags.writeable = False
    return view


def kept_count(count: int, fraction: float) -> int:
    """Return how many of `count` samples a cache of that part of them keeps; at least one."""
    return max(1, int(count * fraction))


def _rows(count: int, rows: int) -> NDArray[np.int32]:
    """Return each sample's row in the cache, -1 for those that are not kept: the same wherever it is computed."""
    hashes = randomness.uniforms(0, 0, np.arange(count), _STREAM, 1)[:, 0]
    places = np.full(count, -1, np.int32)
    places[np.sort(np.argpartition(hashes, rows - 1)[:rows])] = np.arange(rows, dtype=np.int32)
    return places


class CacheWarning(UserWarning):
    """Samples are read each time, because there is no room to keep them in memory."""


def for_evaluation(
    workload: Workload, config: PipelineConfig, data: Source, passes: int | None
) -> tuple[Workload, PipelineConfig, Plan | None]:
    """Return what reads other data for validation or prediction, without a cache where there is no room for one.

    What the caches of this process have yet to take counts as taken.

    Args:
        workload: of the training.
        config: of the training.
        data: the other samples.
        passes: how often they will be read, if that is known.

    Returns:
        The workload over these data, how it is fed, and its plan if that was made.

    Raises:
        WorkloadError: there are no samples, or not of one size.
        DataError: samples cannot be read.
    """
    over, config = evaluation.workload_over(workload, data), evaluation.config_over(config, passes)
    if config.cache == "none" or config.loader.works_elsewhere:  # there, the loader looks for room itself
        return over, config, None
    plan = make_plan(over)
    needed = MemoryCache.bytes_of(plan.cut(len(plan.prefix)), len(data), config.cache_fraction)
    free = max(0, memory.detect().available_bytes - MemoryCache.unfilled_bytes())
    if needed > CACHE_SHARE * free:
        config = config.model_copy(update={"cache": "none"})
        warnings.warn(
            f"The {len(data)} samples for validation or prediction are read anew each time: a cache of them takes "
            f"{size_text(needed)}, but {size_text(free)} are free beside what other caches will take, of which it may "
            f"have {CACHE_SHARE:.0%}. Smaller images, or a smaller cache_fraction, leave more room.",
            CacheWarning,
            stacklevel=4,
        )
    return over, config, plan
