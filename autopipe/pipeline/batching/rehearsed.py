"""Samples that are played: on a rehearsed machine (`autopipe.hardware.rehearsal`) reading and ops only take their time.

Their costs are those that were measured here on this workload. The batches hold a few real samples again and again, and
queues, processes, caches and shared memory are the real ones. A memory cache knows which samples it holds, without
their bytes, so that it may be larger than this machine's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe.hardware import rehearsal
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.loader import Cost, Played, Recipe
from autopipe.workload.data.source import Around
from autopipe.workload.sample import Batch, Source

READ, BATCHING = -1, -2
"""The places of reading, and of writing samples to a batch, among the costs; ops have their place in the user's list.
"""

SHOWN = 8
"""The real samples in a batch, which come again and again."""

_COPY_SECONDS = 1 / 4e9  # of a byte that is moved in memory once


class Costs(NamedTuple):
    """What was measured here of a workload."""

    each: Mapping[int, Cost]  # by place
    storage: float  # seconds of the storage for each read, if more at a time bring no more; else 0


_known: Costs | None = None


def know(costs: Costs) -> None:
    """Play the samples of all loaders that this process opens from now on, if it takes part in a rehearsal."""
    global _known
    _known = costs


def played(recipe: Recipe, made: Batch) -> Played:
    """Return the samples of a recipe as they are played; `made` are a few real ones."""
    assert _known is not None
    each = [_known.each.get(step.stream, Cost()) for step in recipe.steps]
    return Played(
        read=_known.each.get(READ, Cost()),
        fixed=_sum(each[: recipe.fixed_steps]),
        rest=_sum([*each[recipe.fixed_steps :], _known.each.get(BATCHING, Cost())]),
        storage=_known.storage,
        copies=recipe.fixed_spec.bytes * _COPY_SECONDS if recipe.cached else 0.0,
        made=made,
    )


def is_on() -> bool:
    """Return True if loaders that are opened now play their samples."""
    return _known is not None and rehearsal.current() is not None


def _sum(costs: list[Cost]) -> Cost:
    total = Cost()
    for cost in costs:
        total = total.plus(cost)
    return total


class PlayedSource(Around):
    """A source whose reads take their time and give nothing."""

    def __init__(self, source: Source, played: Played) -> None:
        super().__init__(source)
        self._played, self._player = played, rehearsal.player()

    def read(self, index: int) -> Any:
        self._player.wait(self._played.read.waits)
        self._player.read(self._played.storage)
        self._player.work(self._played.read.busy, locked=self._played.read.locked)


class Playing:
    """Fills batches by a recipe that is played. Takes the place of a kernel's own work."""

    def __init__(self, played: Played, cache: MemoryCache | None, ahead: Source | None) -> None:
        """`ahead` reads samples before they are asked for; None: each is read by who makes it."""
        self._played, self._cache, self._ahead = played, cache, ahead
        self._player = rehearsal.player()
        self._shown: set[int] = set()  # the places in memory where the real samples are

    def fill(self, indices: NDArray[np.int64], batch: Batch) -> None:
        played, player, cache = self._played, self._player, self._cache
        missed = [index for index in indices.tolist() if cache is None or not cache.holds(index)]
        make = played.fixed
        if self._ahead is None:
            make = make.plus(played.read)
        else:
            for index in missed:
                self._ahead.read(index)
        at_once = max(1, int(player.slice_seconds / 2 / max(make.busy, 1e-9)))  # so many are read, and then made
        for begin in range(0, len(missed), at_once):
            number = len(missed[begin : begin + at_once])
            player.wait(number * make.waits)
            player.read(0.0 if self._ahead is not None else number * played.storage)
            player.work(number * make.busy, locked=number * make.locked)
        if cache is not None:
            for index in missed:
                cache.note(index)
        player.wait(len(indices) * played.rest.waits)
        taken = (len(indices) - len(missed)) * played.copies
        player.work(len(indices) * played.rest.busy + taken, locked=len(indices) * played.rest.locked)
        self._show(batch)

    def _show(self, batch: Batch) -> None:
        place = batch[0].ctypes.data
        if place in self._shown:
            return
        for out, made in zip(batch, self._played.made, strict=True):
            if out is not None and made is not None:
                for begin in range(0, len(out), len(made)):
                    out[begin : begin + len(made)] = made[: len(out) - begin]
        self._shown.add(place)
