"""Rows of a batch at once: by one call of the native library for each part of all samples, from arrays, caches, files
and sources, and by NumPy behind it.

A row that the library leaves, of a file that is missing or damaged, say, is made again by the kernel in Python, which
raises the error or replaces the sample. Ops that can only be done sample by sample, and all after them, are the
kernel's, too.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.form import AtOnce, Conversion
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Step
from autopipe.workload.ops.planner import read_sample
from autopipe.workload.program import Programs, programs
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Rows, Sample, SampleSpec

_log = logging.getLogger(__name__)
_Read: TypeAlias = Callable[[int], Sample]
_Left: TypeAlias = dict[int, list[Part]]  # by the number of a part: that of each row, as it was read


class RowsAtOnce:
    """Makes rows of batches by some steps, from the first one to the first that is done sample by sample.

    Attributes:
        count: how many steps behind the cache it does.
        gathers: whether it does all, on samples that lie in memory: in a cache, once it is full, or in arrays.
    """

    def __init__(
        self,
        rest: Programs,
        whole: Programs | None,
        recipe: Recipe,
        cache: MemoryCache | None,
        filler: Self | None = None,
        *,
        does_all: bool,
    ) -> None:
        """Do `rest` behind the cache, and the `whole` on samples that it does not keep; None: these are left. The
        `filler` makes those that it keeps; None: Python does.
        """
        self.count, self._does_all, self._filler = rest.count, does_all, filler
        self._rest, self._whole, self._cache = rest, whole, cache
        self._spans = data_source.spans_half(recipe.source)
        self._is_native = rest.is_native or (whole is not None and whole.is_native)
        self.gathers = does_all and rest.before.is_fixed and (cache is not None or self._spans is not None)

    @classmethod
    def of(
        cls, recipe: Recipe, cache: MemoryCache | None, before: SampleSpec, steps: Sequence[Step], kept: int
    ) -> Self | None:
        """Return the rows of `steps` on samples of `before`, of which the cache holds the first `kept`; None if Python
        makes them.
        """
        if native.why_not() is not None:
            return None
        rest = whole = programs(steps[kept - 1].after if kept else before, steps[kept:])
        filler = None
        if kept:
            whole, first = programs(before, steps), programs(before, steps[:kept])
            if first.is_native and first.count == kept:
                filler = cls(first, first, recipe, None, does_all=True)
        is_alike = whole.count == kept + rest.count and (whole.made, whole.finish) == (rest.made, rest.finish)
        made = cls(rest, whole if is_alike else None, recipe, cache, filler, does_all=rest.count == len(steps) - kept)
        return made if made.gathers or made._is_native or filler is not None else None

    def make(
        self, indices: NDArray[np.int64], drawn: NDArray[np.float64], out: Batch, fixed: _Read, read: _Read
    ) -> tuple[NDArray[np.bool_], Batch] | None:
        """Return which rows are made, and the rows, which are `out` if no step is left; None: none is made.

        Args:
            indices: of the samples.
            drawn: the random numbers of all steps behind the cache, side by side, a row for each sample.
            out: arrays with a row for each sample.
            fixed: returns a sample as the cache holds it, after putting it there.
            read: returns a sample as the source has it.
        """
        rest, left = self._rest, None if self._does_all else _Left()
        to = out if self._does_all else rest.after.empty(len(indices))
        try:
            if self._filler is not None:
                self._fill_cache(self._filler, indices, read)
            made, columns = rest.room(to), self._in_memory(indices)
            if not (self.gathers or self._is_native):
                return None
            if columns is not None:
                done = _made(rest, columns, None, drawn, made, left)
            elif self._is_native:
                done = self._one_by_one(indices.tolist(), drawn, made, left, fixed, read)
            else:
                return None
            if rest.finish and 0 in done.tobytes():
                for part in made:
                    if part is not None:
                        part[~done] = 0  # which held anything
            rest.put_finished(made, to)
        except Exception as error:  # noqa: BLE001  # in Python it is raised again, with op and sample
            _log.debug("A batch is made in Python, because at once it failed: %r", error)
            return None
        if left is not None:  # what no program and no step changed comes as it was read, for the steps that follow
            to = tuple(part if rest.finished[number] else left.get(number, part) for number, part in enumerate(to))
        return done, to

    def _fill_cache(self, filler: Self, indices: NDArray[np.int64], read: _Read) -> None:
        """Put samples that the cache is to keep into it, as far as they are made at once."""
        cache = self._cache
        if cache is None or cache.rows_of(indices) is not None:
            return
        missing = [index for index in indices.tolist() if cache.keeps(index) and not cache.holds(index)]
        out = filler._rest.after.empty(len(missing))
        found = filler.make(np.array(missing), np.empty((len(missing), 0)), out, read, read) if missing else None
        if found is not None:
            for row in np.flatnonzero(found[0]).tolist():
                cache.put(missing[row], *(None if part is None else part[row] for part in found[1]))

    def _in_memory(self, indices: NDArray[np.int64]) -> Sequence[Any] | None:
        """Return the parts of samples from a cache that holds all of them, or as the source names them; or None."""
        if self._cache is None:
            return None if self._spans is None else self._spans(indices)
        rows = self._cache.rows_of(indices) if self._rest.before.is_fixed else None
        return None if rows is None else [None if each is None else Rows(each, rows) for each in self._cache.rows]

    def _one_by_one(
        self,
        indices: Sequence[int],
        drawn: NDArray[np.float64],
        made: Batch,
        left: _Left | None,
        fixed: _Read,
        read: _Read,
    ) -> NDArray[np.bool_]:
        """Make the rows of samples that the cache holds, or comes to hold, and of those that the source has."""
        cached, direct = self._begun(indices, fixed)
        done = np.zeros(len(indices), np.bool_)
        for found, rows, columns in (
            (self._rest, [*cached], _columns([*cached.values()], len(made))),
            (self._whole, *self._direct(direct, indices, read, len(made))),
        ):
            if rows and found is not None:
                done |= _made(found, columns, rows if len(rows) < len(indices) else None, drawn, made, left)
        return done

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
        return cached, direct if self._whole is not None else []

    def _direct(
        self, rows: Sequence[int], indices: Sequence[int], read: _Read, parts: int
    ) -> tuple[list[int], Sequence[Any]]:
        """Return rows that are read from the source, and their parts."""
        if self._spans is not None and rows:
            return [*rows], self._spans(np.array([indices[row] for row in rows]))
        found = {row: sample for row in rows if (sample := _tried(read, indices[row])) is not None}
        return [*found], _columns([*found.values()], parts)


def made_at_once(conversion: Conversion) -> AtOnce | None:
    """Return a function that makes a conversion's samples natively; None if an op of theirs is not native."""
    steps, spec = conversion.steps, conversion.spec
    recipe = Recipe(source=conversion.source, steps=steps, fixed_spec=spec, spec=spec)
    rows = RowsAtOnce.of(recipe, None, steps[0].before, steps, 0) if steps else None
    if rows is None or rows.count < len(steps):
        return None
    read = functools.partial(read_sample, conversion.source, structure=spec.structure)

    def make(indices: NDArray[np.int64], out: Batch) -> NDArray[np.bool_] | None:
        made = rows.make(indices, np.empty((len(indices), 0)), out, read, read)
        return None if made is None else made[0]

    return make


def _tried(read: _Read, index: int) -> Sample | None:
    try:
        return read(index)
    except Exception as error:  # noqa: BLE001  # the kernel reads it again, and raises it or replaces it
        _log.debug("Sample %d is left to Python: %r", index, error)
        return None


def _columns(samples: Sequence[Sample], parts: int) -> list[list[Part]]:
    return [[sample[number] for sample in samples] for number in range(parts)]


def _made(
    found: Programs,
    columns: Sequence[Any],
    rows: Sequence[int] | None,
    drawn: NDArray[np.float64],
    made: Batch,
    left: _Left | None,
) -> NDArray[np.bool_]:
    """Make rows of all parts, those of `rows` or all, and return which are made. `columns` has each part of them: spans
    and what they point into, rows of an array, or a list of parts.
    """
    spans: list[NDArray[Any] | None] = [None] * len(made)
    alive: list[Any] = [columns]
    chosen = slice(None) if rows is None else rows
    for number, (field, column, to) in enumerate(zip(found.before.columns, columns, made, strict=True)):
        if field is None or column is None:
            continue
        is_array = isinstance(column, Rows)
        if not is_array and isinstance(column, tuple):
            of_rows = column[0]
        elif not found.has_code[number]:
            _put(column, chosen, to, None if left is None else left.setdefault(number, [None] * len(to)))
            continue
        elif is_array:
            of_rows = native.rows_at(column.addresses, column.array.shape[1:], column.array.itemsize)
        else:
            of_rows = _memory(column, field, alive)
        if rows is not None:
            of_all = np.zeros(len(to), native.SPAN)
            of_all[rows] = of_rows
            of_rows = of_all
        spans[number] = of_rows
    is_all = all(of_part is None for of_part in spans)  # gathered above; programs without code copy spans as well
    done = np.ones(len(drawn), np.bool_) if is_all else found.fill(spans, drawn, made) == 0
    del alive  # only now: the spans point into it
    if rows is not None:  # of other rows, there is nothing to fail
        others = np.ones(len(done), np.bool_)
        others[rows] = False
        done[others] = False
    return done


def _put(column: Any, rows: Any, out: NDArray[Any], left: list[Part] | None) -> None:
    """Write parts that no program makes; raise ValueError if an array of them would not hold them as they are."""
    parts = column
    if isinstance(column, Rows):
        parts = column.gathered(out if isinstance(rows, slice) else None)
    array = np.asarray(parts)
    if array.dtype != out.dtype or array.shape[1:] != out.shape[1:]:
        raise ValueError(f"{array.dtype} {array.shape} is not {out.dtype} {out.shape}")
    if array is not out:
        out[rows] = array
    if left is not None:
        for row, part in zip(range(len(out))[rows] if isinstance(rows, slice) else rows, parts, strict=True):
            left[row] = part


_NOTHING = np.empty((0, 0), np.uint8)


def _memory(column: Sequence[Part], field: Field, alive: list[Any]) -> NDArray[Any]:
    """Return the spans of encoded images or of pixels; what is neither is empty, and so left to Python."""
    if field.kind is FieldKind.ENCODED:
        return native.bytes_at([part if isinstance(part, bytes | memoryview) else b"" for part in column])
    arrays = [
        np.ascontiguousarray(part)
        if isinstance(part, np.ndarray) and part.dtype == field.dtype and part.ndim == field.rank
        else _NOTHING
        for part in column
    ]
    alive.append(arrays)
    return native.pixels_at(arrays)
