"""Whole batches at once: gathered from the source or the cache by one call, and taken through the ops' batch halves.

For samples so small that a visit to Python for each takes longer than what is done to it. It gives what the kernel
gives sample by sample, to the bit; who goes back to that, and names the sample that something is wrong with, is the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autopipe.batching.cache import MemoryCache
from autopipe.core import randomness
from autopipe.core.job import Recipe
from autopipe.core.plan import Step
from autopipe.core.sample import Batch, SampleSpec
from autopipe.data import source as data_source

_MOST_BYTES = 1 << 16  # of a sample: one that an op has to be taken through leaves the processor's cache in a batch
ReadMany = Callable[[NDArray[np.int64], Batch], None]


class WholeBatches:
    """Makes batches by a recipe."""

    def __init__(self, recipe: Recipe, cache: MemoryCache | None, read_many: ReadMany | None) -> None:
        """Gather batches from the cache, where it has all samples of one, or else by `read_many`."""
        self._recipe = recipe
        self._cache = cache
        self._read_many = read_many
        self._fixed = recipe.steps[: recipe.fixed_steps]
        self._rest = recipe.steps[recipe.fixed_steps :]

    @classmethod
    def of(cls, recipe: Recipe, cache: MemoryCache | None) -> Self | None:
        """Return what makes whole batches by a recipe, or None where nothing does."""
        fixed, rest = recipe.steps[: recipe.fixed_steps], recipe.steps[recipe.fixed_steps :]
        if not _all_take_batches(rest, recipe.fixed_spec):
            return None
        read_many = data_source.batch_half(recipe.source)
        if not _all_take_batches(fixed, recipe.fixed_spec):
            read_many = None
        return None if read_many is None and cache is None else cls(recipe, cache, read_many)

    @property
    def reads(self) -> bool:
        """Whether it can read from the source, and not from the cache alone."""
        return self._read_many is not None

    def fill(self, epoch: int, indices: NDArray[np.int64], batch: Batch) -> bool:
        """Write the samples of one batch, as `Kernel.fill` does; return whether that could be done at once.

        Raises:
            Exception: whatever a source or an op raises; `batch` then holds anything.
        """
        made = self._fixed_part(indices, batch)
        if made is None:
            return False
        for step in self._rest:
            made = self._run(step, made, numbers_of(step, self._recipe, epoch, indices), batch)
        return all(map(_written, made, batch))

    def _fixed_part(self, indices: NDArray[np.int64], batch: Batch) -> Batch | None:
        if self._cache is not None:
            made = self._room(self._recipe.fixed_spec, batch)
            if self._cache.get_many(indices, made):
                return made
        if self._read_many is None:
            return None
        made = self._room(self._fixed[0].before if self._fixed else self._recipe.fixed_spec, batch)
        self._read_many(indices, made)
        for step in self._fixed:
            made = self._run(step, made, np.empty((len(indices), 0)), batch)
        if self._cache is not None:
            self._cache.put_many(indices, made)
        return made

    def _run(self, step: Step, made: Batch, random: NDArray[np.float64], batch: Batch) -> Batch:
        out = batch[0] if step.after.x == self._recipe.spec.x else None
        return step.op.apply_many(made, step.before, random, out)

    def _room(self, spec: SampleSpec, batch: Batch) -> Batch:
        """Return arrays for samples like `spec`: those of the batch where they look like its."""
        return tuple(
            array
            if array is None or field is None or field == last
            else np.empty((len(batch[0]), *(field.shape or ())), field.dtype)
            for field, last, array in zip(spec.columns, self._recipe.spec.columns, batch, strict=True)
        )


def numbers_of(step: Step, recipe: Recipe, epoch: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the random numbers that an op takes for some samples of an epoch, shape (samples, draws)."""
    if step.op.draws == 0:
        return np.empty((len(indices), 0))
    return randomness.uniforms(recipe.seed, epoch, indices, step.stream, step.op.draws)


def _all_take_batches(steps: Sequence[Step], otherwise: SampleSpec) -> bool:
    """Return whether these steps, and samples before and after them, can be taken through whole batches."""
    specs = [otherwise, *(spec for step in steps for spec in (step.before, step.after))]
    if not all(spec.is_fixed for spec in specs):
        return False
    is_small = all(field.bytes <= _MOST_BYTES for spec in specs for field in spec.fields)
    return not steps or (is_small and all(step.op.takes_batches(step.before) for step in steps))


def _written(made: NDArray[Any] | None, out: NDArray[Any] | None) -> bool:
    if made is None or out is None or made is out:
        return made is out
    if made.shape != out.shape:
        return False
    out[...] = made
    return True
