"""Rows of a batch by the native library: one call for each part of all samples, from files, caches and sources.

A row that the library leaves, of a file that is missing or damaged, say, is made again by the kernel in Python, which
raises the error or replaces the sample. Ops that have no instructions, and all after them, are the kernel's, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.loader import Recipe
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Step
from autopipe.workload.program import Programs, programs
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Sample

_log = logging.getLogger(__name__)
_Read: TypeAlias = Callable[[int], Sample]
_Columns: TypeAlias = Sequence[Sequence[Part] | None]  # of x, y and others: a part of each of some rows


class NativeRows:
    """Makes rows of batches by some steps, from the first one to the first that has no instructions.

    Attributes:
        count: how many steps behind the cache it does.
    """

    def __init__(self, rest: Programs, whole: Programs, recipe: Recipe, cache: MemoryCache | None) -> None:
        """Do `rest` behind the cache, and the `whole` on samples that it does not keep."""
        self.count = rest.count
        self._rest, self._whole, self._cache = rest, whole, cache
        self._source = recipe.source
        self._spans = data_source.spans_half(recipe.source)
        # Which parts no program makes: labels, and what else a sample holds beside its images.
        fields = zip(rest.parts, rest.before.columns, strict=True)
        self._others = [number for number, (program, field) in enumerate(fields) if program is None and field]

    @classmethod
    def of(cls, recipe: Recipe, cache: MemoryCache | None, steps: Sequence[Step], kept: int) -> Self | None:
        """Return the rows of `steps`, of which the cache holds the first `kept`; None if Python makes them."""
        rest = programs(steps[kept:])
        whole = programs(steps) if kept else rest
        if rest is None or whole is None or whole.count != kept + rest.count:
            return None
        return cls(rest, whole, recipe, cache)

    def make(
        self, indices: Sequence[int], numbers: Sequence[NDArray[np.float64]], out: Batch, fixed: _Read, read: _Read
    ) -> tuple[NDArray[np.bool_], Batch] | None:
        """Return which rows are made, and the rows, which are `out` if no step is left; None: none is made.

        Args:
            indices: of the samples.
            numbers: the random numbers of each step behind the cache, a row for each sample.
            out: arrays with a row for each sample.
            fixed: returns a sample as the cache holds it, after putting it there.
            read: returns a sample as the source has it.
        """
        made = out if len(numbers) == self.count else self._rest.after.empty(len(indices))
        others: dict[int, list[Part]] = {number: [None] * len(indices) for number in self._others}
        drawn = [np.empty((len(indices), 0)), *numbers[: self.count]]
        all_drawn = np.concatenate(drawn, axis=1)
        cached, direct = self._begun(indices, fixed)
        done = np.zeros(len(indices), np.bool_)
        try:
            for found, rows, columns, are_spans in (
                (self._rest, [*cached], _columns([*cached.values()], len(out)), False),
                (self._whole, *self._direct(direct, indices, read, len(out))),
            ):
                if rows:
                    spans, alive = _spans(found, rows, columns, len(indices), are_spans=are_spans)
                    done |= found.fill(spans, all_drawn, made) == 0
                    del alive  # only now: the spans point into it
                    _put(others, rows, columns)
            is_made = all(self._put_others(number, others[number], done, made) for number in self._others)
        except Exception as error:  # noqa: BLE001  # in Python it is raised again, with op and sample
            _log.debug("A batch is made in Python, because the library could not: %r", error)
            return None
        if made is not out and not self._rest.labels:  # as they were read, for the steps that follow
            made = tuple(others.get(number, part) for number, part in enumerate(made))
        return (done, made) if is_made else None

    def _begun(self, indices: Sequence[int], fixed: _Read) -> tuple[dict[int, Sample], list[int]]:
        """Return the samples that the cache holds, or comes to hold, by their rows; and the rows of all others."""
        if self._cache is None:
            return {}, list(range(len(indices)))
        cached: dict[int, Sample] = {}
        direct: list[int] = []
        for row, index in enumerate(indices):
            sample = self._cache.get(index, copies=False)
            if sample is None and not self._cache.keeps(index):
                direct.append(row)
            elif sample is not None or (sample := _tried(fixed, index)) is not None:
                cached[row] = sample
        return cached, direct

    def _direct(
        self, rows: Sequence[int], indices: Sequence[int], read: _Read, parts: int
    ) -> tuple[list[int], _Columns, bool]:
        """Return rows that are read from the source, their parts, and whether those of images are spans."""
        if self._spans is not None and rows:
            return [*rows], self._spans([indices[row] for row in rows]), True
        found = {row: sample for row in rows if (sample := _tried(read, indices[row])) is not None}
        return [*found], _columns([*found.values()], parts), False

    def _put_others(self, number: int, parts: Sequence[Part], done: NDArray[np.bool_], made: Batch) -> bool:
        """Write parts that no program makes, after the steps on labels; return False if a batch does not hold them as
        they are.
        """
        field, out = self._rest.before.columns[number], made[number]
        if field is None or out is None:
            return True
        first = next((part for part, is_done in zip(parts, done, strict=True) if is_done), None)
        column = np.asarray([part if is_done else first for part, is_done in zip(parts, done, strict=True)])
        if first is None or column.dtype != field.dtype or column.shape[1:] != field.shape:
            return not done.any()
        batch: Batch = (made[0], column)
        for step in self._rest.labels:
            batch = step.op.apply_many(batch, step.before, np.empty((len(column), 0)))
        if batch[1].shape != out.shape or batch[1].dtype != out.dtype:
            return False
        out[...] = batch[1]
        return True


def _tried(read: _Read, index: int) -> Sample | None:
    try:
        return read(index)
    except Exception as error:  # noqa: BLE001  # the kernel reads it again, and raises it or replaces it
        _log.debug("Sample %d is left to Python: %r", index, error)
        return None


def _columns(samples: Sequence[Sample], parts: int) -> _Columns:
    return [[sample[number] for sample in samples] for number in range(parts)]


def _put(others: dict[int, list[Part]], rows: Sequence[int], columns: _Columns) -> None:
    for number, parts in others.items():
        for row, part in zip(rows, columns[number], strict=True):  # type: ignore[arg-type]  # there is a field
            parts[row] = part


def _spans(
    found: Programs, rows: Sequence[int], columns: _Columns, count: int, *, are_spans: bool
) -> tuple[list[NDArray[Any] | None], list[Any]]:
    """Return a span for each of `count` rows, empty but for some; and what must live as long as they are used."""
    spans: list[NDArray[Any] | None] = []
    alive: list[Any] = [columns]
    for program, field, column in zip(found.parts, found.before.columns, columns, strict=True):
        if program is None or field is None or column is None:
            spans.append(None)
            continue
        if are_spans:
            of_rows, names = column
            alive.append(names)
        else:
            of_rows = _memory(column, field, alive)
        if len(rows) < count:
            of_all = np.zeros(count, native.SPAN)
            of_all[rows] = of_rows
            of_rows = of_all
        spans.append(of_rows)
    return spans, alive


_NOTHING = np.empty((0, 0), np.uint8)


def _memory(column: Sequence[Part], field: Field, alive: list[Any]) -> NDArray[Any]:
    """Return the spans of encoded images or of pixels; what is neither is empty, and so left to Python."""
    if field.kind is FieldKind.ENCODED:
        return native.bytes_at([part if isinstance(part, bytes | memoryview) else b"" for part in column])
    arrays = [
        np.ascontiguousarray(part)
        if isinstance(part, np.ndarray) and part.dtype == np.uint8 and part.ndim == field.rank
        else _NOTHING
        for part in column
    ]
    alive.append(arrays)
    return native.pixels_at(arrays)
