"""Rows of a batch at once: by one call of the native library for each part of all samples, from arrays, caches, files
and sources, and by NumPy behind it.

An op that can only be done sample by sample, such as `Map`, is done so here, between two such calls. A row that the
library leaves, of a file that is missing or damaged, say, and one on which such an op fails, is made again by the
kernel in Python, which raises the error or replaces the sample.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import AutopipeError
from autopipe.pipeline.batching.cache import Heap, MemoryCache, Placed, write_rows
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Step
from autopipe.workload.program import Programs, links, programs
from autopipe.workload.sample import Batch, Field, FieldKind, Part, Rows, Sample, SampleSpec, Source

_log = logging.getLogger(__name__)
_Read: TypeAlias = Callable[[int], Sample]
_Run: TypeAlias = Callable[..., Sample]  # `workload.ops.planner.run`
_Chain: TypeAlias = tuple[Programs, ...]
_Columns: TypeAlias = Sequence[Any]  # a part of all samples each
_Left: TypeAlias = dict[int, list[Part]]  # by the number of a part: that of each row, as it was read


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    """A batch that is asked for: see `RowsAtOnce.make`."""

    indices: NDArray[np.int64]
    drawn: NDArray[np.float64]
    out: Batch
    run: _Run


class RowsAtOnce:
    """Makes rows of batches."""

    def __init__(
        self,
        source: Source,
        cache: MemoryCache | None,
        rest: _Chain,
        whole: _Chain,
        filler: Self | Programs | None = None,
    ) -> None:
        """Do `rest` behind the cache, and the `whole` on what it does not keep; `filler`, or Python, fills it."""
        self._rest, self._whole, self._cache, self._filler = rest, whole, cache, filler
        self._source, self._spans = source, data_source.spans_half(source)
        self._is_native = _is_native(rest) or _is_native(whole)
        is_one = len(rest) == 1 and not rest[0].alone and rest[0].before.is_fixed
        # Whether all samples lie in memory, in a cache once it is full, or in arrays, and no step is Python's.
        self.gathers = is_one and (cache is not None or self._spans is not None)
        self._copies = is_one and not rest[0].is_native and not rest[0].finish

    @classmethod
    def of(
        cls, source: Source, cache: MemoryCache | None, before: SampleSpec, steps: Sequence[Step], kept: int
    ) -> Self | None:
        """Return the rows of `steps`, the first `kept` of them before the cache; None if Python makes all."""
        if native.why_not() is not None:
            return None
        whole = links(before, steps)
        if not kept:
            made = cls(source, cache, whole, whole)
        else:
            first = links(before, steps[:kept])
            filler: Self | Programs | None = cls(source, None, first, first) if _is_native(first) else None
            if not steps[kept - 1].after.is_fixed:
                found = programs(before, steps[:kept], any_shape=True)
                filler = found if found.is_native and found.count == kept and not found.finish else None
            made = cls(source, cache, links(steps[kept - 1].after, steps[kept:]), whole, filler)
        return made if made.gathers or made._is_native or made._filler is not None else None

    def make(
        self, indices: NDArray[np.int64], drawn: NDArray[np.float64], out: Batch, fixed: _Read, read: _Read, run: _Run
    ) -> NDArray[np.bool_]:
        """Write rows to `out`, and return which are made. `drawn` has the random numbers of all steps behind the cache,
        side by side; `fixed` returns a sample as the cache holds it, after putting it there, and `read` as the source
        has it; `run` does a step to one sample.
        """
        done = np.zeros(len(indices), np.bool_)
        try:
            if self._filler is not None and self._cache is not None:
                self._fill_cache(self._filler, self._cache, indices, read, run)
            at_hand = self._at_hand(indices)
            if (
                self._copies
                and at_hand is not None
                and all(  # rows of arrays, which no step changes
                    part is to is None or (isinstance(part, Rows) and part.gathered(to) is to)
                    for part, to in zip(at_hand, out, strict=True)
                )
            ):
                return np.ones(len(indices), np.bool_)
            for chain, rows, columns in self._starts(indices, at_hand, fixed, read):
                done[self._run_chain(chain, rows, columns, _Wanted(indices, drawn, out, run))] = True
        except Exception as error:  # noqa: BLE001  # in Python it is raised again, with op and sample
            _log.debug("A batch is made in Python, because at once it failed: %r", error)
            done[:] = False
        return done

    def _fill_cache(
        self, filler: Self | Programs, cache: MemoryCache, indices: NDArray[np.int64], read: _Read, run: _Run
    ) -> None:
        full = cache.rows_of(indices) is not None
        missing = [] if full else [each for each in indices.tolist() if cache.keeps(each) and not cache.holds(each)]
        if not missing:
            return
        if isinstance(filler, Programs):
            self._fill_heap(filler, cache, np.array(missing), read)
            return
        out = filler._rest[-1].after.empty(len(missing))
        made = filler.make(np.array(missing), np.empty((len(missing), 0)), out, read, read, run)
        for row in np.flatnonzero(made).tolist():
            cache.put(missing[row], *(None if part is None else part[row] for part in out))

    def _fill_heap(self, found: Programs, cache: MemoryCache, indices: NDArray[np.int64], read: _Read) -> None:
        heap, (rows, columns) = cache.room, self._as_read(range(len(indices)), indices, read)
        assert isinstance(heap, Heap)
        done, made, alive = np.ones(len(rows), np.bool_), list[Any](), list[Any]()
        for number, (before, field) in enumerate(zip(found.before.columns, found.made.columns, strict=True)):
            program, column = found.parts[number], columns[number]
            if before is None or field is None:
                made.append([None] * len(rows))
            elif not found.has_code[number] and type(column) is not tuple:  # no spans
                made.append(column.gathered() if isinstance(column, Rows) else column)
            elif program is None:  # of a size that only the file tells, as it is
                return
            else:
                places, verdicts = program.keep(_spans_of(column, before, alive), heap.room, heap.first_free)
                done &= verdicts == 0
                made.append([Placed(at, _shape(field, *sizes)) for at, *sizes in places.tolist()])
        for row, is_done, sample in zip(rows, done.tolist(), zip(*made, strict=True), strict=True):
            if is_done:
                cache.put(int(indices[row]), *sample)

    # ------------------------------------------------------------ where rows begin

    def _at_hand(self, indices: NDArray[np.int64]) -> _Columns | None:
        """Return the parts of samples from a cache that holds all of them, or as the source names them; or None."""
        if self._rest[0].alone:
            return None
        if self._cache is None:
            return None if self._spans is None else self._spans(indices)
        places = self._cache.rows_of(indices) if self._rest[0].before.is_fixed else None
        return None if places is None else [None if each is None else Rows(each, places) for each in self._cache.rows]

    def _starts(
        self, indices: NDArray[np.int64], at_hand: _Columns | None, fixed: _Read, read: _Read
    ) -> Iterator[tuple[_Chain, Sequence[int], _Columns]]:
        """Yield each chain with the rows that it makes, and with the parts of their samples from which it starts."""
        cache, count = self._cache, len(indices)
        if at_hand is not None:
            yield self._rest, range(count), at_hand
            return
        if cache is None:
            yield self._whole, *self._as_read(range(count), indices, read)
            return
        if not self._is_native:
            return
        cached: dict[int, Sample] = {}
        direct: list[int] = []
        for row, index in enumerate(indices.tolist()):
            sample = cache.get(index, copies=bool(self._rest[0].alone))
            if sample is None and not cache.keeps(index):
                direct.append(row)
            elif sample is not None or (sample := _read_or_none(fixed, index)) is not None:
                cached[row] = sample
        yield self._rest, [*cached], _transposed([*cached.values()])
        if direct and _is_native(self._whole):
            yield self._whole, *self._as_read(direct, indices, read)

    def _as_read(self, rows: Sequence[int], indices: NDArray[np.int64], read: _Read) -> tuple[Sequence[int], _Columns]:
        """Return the rows that the source gives, and their parts; those of single reads that fail are left out."""
        chosen = indices if len(rows) == len(indices) else indices[rows]
        if self._spans is not None and not self._whole[0].alone:
            return rows, self._spans(chosen)
        found = {row: _read_or_none(read, index) for row, index in zip(rows, chosen.tolist(), strict=True)}
        samples = {row: sample for row, sample in found.items() if sample is not None}
        return [*samples], _transposed([*samples.values()])

    # ------------------------------------------------------------ from link to link

    def _run_chain(self, chain: _Chain, rows: Sequence[int], columns: _Columns, batch: _Wanted) -> Sequence[int]:
        for link in chain:
            is_last = link is chain[-1]
            if link.alone and len(rows):
                to = batch.out if is_last and not link.count else None
                rows, columns = self._run_one_by_one(link, rows, zip(*columns, strict=True), batch, to)
            if not len(rows) or (link.alone and not link.count):
                break
            left = None if is_last else _Left()
            to = batch.out if is_last else link.after.empty(len(batch.indices))
            rows = _run_programs(link, columns, rows, batch.drawn, to, left)
            if left is not None:  # what no program and no step changed comes as it was read, for the steps that follow
                finished = link.finished
                parts = [part if finished[number] else left.get(number, part) for number, part in enumerate(to)]
                columns = [[None if part is None else part[row] for row in rows] for part in parts]
        return rows

    def _run_one_by_one(
        self, link: Programs, rows: Sequence[int], samples: Iterable[Sample], batch: _Wanted, out: Batch | None
    ) -> tuple[list[int], _Columns]:
        """Do Python's steps to each sample; write it, if there is an `out`, or return it. Failing rows are left out."""
        made: dict[int, Sample] = {}
        for row, begun in zip(rows, samples, strict=True):
            sample, index = begun, int(batch.indices[row])
            try:
                for step, places in link.alone:
                    sample = batch.run(step, sample, batch.drawn[row, places], self._source, index)
                if out is None:
                    made[row] = sample
                elif write_rows(out, row, sample):
                    made[row] = ()
            except (AutopipeError, ValueError, TypeError, OverflowError) as error:  # it is made again, and then raised
                _log.debug("Sample %d is left to Python: %r", index, error)
        return [*made], _transposed([*made.values()])


def _is_native(chain: _Chain) -> bool:
    return any(link.is_native for link in chain)


def _transposed(samples: Sequence[Sample]) -> _Columns:
    return [list(parts) for parts in zip(*samples, strict=True)]


def _read_or_none(read: _Read, index: int) -> Sample | None:
    try:
        return read(index)
    except Exception as error:  # noqa: BLE001  # the kernel reads it again, and raises it or replaces it
        _log.debug("Sample %d is left to Python: %r", index, error)
        return None


def _run_programs(
    found: Programs, columns: _Columns, rows: Sequence[int], drawn: NDArray[np.float64], out: Batch, left: _Left | None
) -> Sequence[int]:
    """Make rows of all parts, given as spans and what they point into, rows or lists, and return which are made."""
    count, made = len(drawn), found.room(out)
    is_all = len(rows) == count
    spans: list[NDArray[Any] | None] = [None] * len(made)
    alive: list[Any] = [columns]
    for number, (field, column, to) in enumerate(zip(found.before.columns, columns, made, strict=True)):
        if field is None or column is None:
            continue
        if not found.has_code[number] and type(column) is not tuple:  # no spans
            as_read = None if left is None else left.setdefault(number, [None] * count)
            _write_parts(column, None if is_all else rows, to, as_read)
            continue
        of_rows = _spans_of(column, field, alive)
        if not is_all:
            of_all = np.zeros(count, native.SPAN)
            of_all[rows] = of_rows
            of_rows = of_all
        spans[number] = of_rows
    if any(of_part is not None for of_part in spans):  # else gathered above; programs without code copy spans as well
        verdicts = found.fill(spans, drawn, made)
        if any(verdicts.tobytes()):
            _log.debug("Rows are left to Python, by verdicts of the library: %s", verdicts.tolist())
            rows = [row for row in rows if verdicts[row] == 0]
    del alive  # only now: the spans point into it
    found.put_finished(made, out, None if len(rows) == count else np.array(rows, np.intp))
    return rows


def _write_parts(column: Any, rows: Sequence[int] | None, out: NDArray[Any], left: list[Part] | None) -> None:
    """Write parts that no program makes to `rows`, or all; raise ValueError if they would not come out as they are."""
    parts = column.gathered(out if rows is None else None) if isinstance(column, Rows) else column
    array = np.asarray(parts)
    if array.dtype != out.dtype or array.shape[1:] != out.shape[1:]:
        raise ValueError(f"{array.dtype} {array.shape} is not {out.dtype} {out.shape}")
    if array is not out:
        out[slice(None) if rows is None else rows] = array
    if left is not None:
        for row, part in zip(range(len(out)) if rows is None else rows, parts, strict=True):
            left[row] = part


_NOTHING = np.empty((0, 0), np.uint8)


def _shape(field: Field, height: int, width: int, pixel_bytes: int) -> tuple[int, ...]:
    if field.shape is not None or field.dtype is None:
        return field.shape or ()
    return (height, width, pixel_bytes // field.dtype.itemsize)[: field.rank]


def _spans_of(column: Any, field: Field, alive: list[Any]) -> NDArray[Any]:
    if isinstance(column, Rows):
        return native.rows_at(column.addresses, column.array.shape[1:], column.array.itemsize)
    if isinstance(column, tuple):
        spans: NDArray[Any] = column[0]
        return spans
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
