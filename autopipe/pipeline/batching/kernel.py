"""The kernel: fills a whole batch, at once or row by row, into existing memory; and the ledger of bad samples.

Every loader makes its samples here, so all give the same batches. The kernel runs in many threads and processes at
once. Its state is the given cache, and the samples that it reads ahead. A visit to Python for each sample takes longer
than the ops on a small one, so `rows` makes as many rows at once as it can. That gives the same bits as row by row,
which is how the kernel makes all others, and names a bad sample.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import BadSampleError, ConfigError, DataError, DataWarning, WorkloadError
from autopipe.pipeline.batching.cache import MemoryCache, Slot, read_only
from autopipe.pipeline.batching.readahead import ReadAhead
from autopipe.pipeline.batching.rows import RowsAtOnce
from autopipe.pipeline.batching.trace import Trace
from autopipe.pipeline.loader import LoadJob, Recipe
from autopipe.values import listed
from autopipe.workload import order
from autopipe.workload.data import source as data_source
from autopipe.workload.op import NUMPY, Step
from autopipe.workload.ops.planner import read_sample, run, sample_place
from autopipe.workload.sample import Batch, Sample, has_room

_NO_NUMBERS = np.empty(0)
_ATTEMPTS = 100  # samples tried in place of a bad one


def _run_on_batch(step: Step, made: Batch, random: NDArray[np.float64]) -> Batch:
    return step.op.mix(made, random) if step.op.mixes else step.op.finish(made, step.before, NUMPY)


@dataclasses.dataclass(frozen=True, slots=True)
class BadSample:
    """A bad sample and its replacement."""

    index: int
    replaced_by: int
    message: str


class Kernel:
    """Makes samples by a recipe and writes them into batches."""

    lost = 0  # processes: a thread does not die alone

    def __init__(self, recipe: Recipe, cache: MemoryCache | None = None, readers: int = 0) -> None:
        """Have `readers` threads read what `begin` names, until `close`. Raise LoaderError if they cannot start."""
        if recipe.pieces is not None and cache is not None:
            recipe.pieces.cache, cache = cache, None
        noted: Any = (lambda function, name: function) if recipe.trace is None else Trace(recipe.trace).noted
        self.undo = contextlib.ExitStack()  # what is done at the end
        self._ahead: ReadAhead | None = None
        if readers:
            source: Any = data_source.Around(recipe.source)
            source.read = noted(recipe.source.read, "read")
            self._ahead = ReadAhead(source, readers, (lambda index: False) if cache is None else cache.holds)
            self.undo.callback(self._ahead.close)
            recipe = dataclasses.replace(recipe, source=self._ahead)
        self._recipe, self._cache = recipe, cache
        singles = next((number for number, step in enumerate(recipe.steps) if step.op.mixes), len(recipe.steps))
        self._tail = recipe.steps[singles:]  # the ops that mix samples of a batch, and later ones
        self._single = self._tail[0].before if self._tail else recipe.spec
        kept = recipe.fixed_steps if cache is not None else 0
        self._fixed, self._rest = recipe.steps[:kept], recipe.steps[kept:singles]
        ends = [0, *itertools.accumulate(step.op.draws for step in self._rest)]
        self._streams = _streams(self._rest)
        self._draws = list(itertools.starmap(slice, itertools.pairwise(ends)))  # of each step in a row of numbers
        singles_alone = recipe.steps[:singles]
        before = singles_alone[0].before if singles_alone else self._single
        rows = RowsAtOnce.of(recipe.source, cache, before, singles_alone, kept)
        self._run, self._run_on_batch = (noted(each, lambda step, *_: step.op.name) for each in (run, _run_on_batch))
        self._read_sample: Callable[..., Sample] = noted(read_sample, "read")
        self._make_rows = None if rows is None else noted(rows.make, "native batch")
        self.spec, self.source, self._count = recipe.spec, recipe.source, len(recipe.source)
        gathers = rows is not None and rows.gathers
        # Whether several batches are made as one, which cannot be if ops mix the samples of a batch.
        self.makes_several = gathers and not self._tail and (cache is None or recipe.cached == 1.0)

    def has_at_hand(self, indices: NDArray[np.int64]) -> bool:
        """Return True if these samples are made at once now, without single reads."""
        return self.makes_several and (self._cache is None or self._cache.rows_of(indices) is not None)

    def begin(self, indices: NDArray[np.int64]) -> None:
        if self._ahead is not None:
            self._ahead.begin(indices.tolist())

    def forget(self, indices: NDArray[np.int64]) -> None:
        if self._ahead is not None:
            self._ahead.forget(indices.tolist())

    def close(self) -> None:
        self.undo.close()

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        return self.fill(epoch, indices, slot.arrays(len(indices)))

    def fill(self, epoch: int, indices: NDArray[np.int64], batch: Batch) -> list[BadSample]:
        """Write the samples of one batch, in the order of `indices`, and return those that had to be replaced. The
        number of the epoch fixes the random numbers; `batch` holds arrays (x, y, *others) of the recipe's `spec`. Raise
        BadSampleError if a sample cannot be read or decoded, and the recipe does not skip; OpError if an op raised; and
        WorkloadError if a sample's shape is not that of the others.
        """
        # Ops that mix may write to the samples where they lie.
        alike = not self._tail or self._single.columns == self.spec.columns
        made = batch if alike else self._single.empty(len(indices))
        with contextlib.nullcontext() if self._ahead is None else self._ahead.reading(indices.tolist()):
            bad = self._fill_rows(epoch, indices, made)
        for step in self._tail:
            drawn = order.uniforms_of(self._recipe.seed, epoch, indices, _streams([step]))
            made = self._run_on_batch(step, made, drawn)
        for part, out in zip(made, batch, strict=True):
            if part is not None and out is not None and part is not out:
                out[...] = part
        return bad

    def _fill_rows(self, epoch: int, indices: NDArray[np.int64], batch: Batch) -> list[BadSample]:
        numbers = order.uniforms_of(self._recipe.seed, epoch, indices, self._streams)
        bad: list[BadSample] = []
        done = bytes(len(indices))
        if self._make_rows is not None:
            done = self._make_rows(indices, numbers, batch, self._fixed_part, self._as_read, self._run).tobytes()
        if 0 not in done:
            return bad
        for row, index in enumerate(indices.tolist()):
            if done[row]:
                continue
            drawn = [numbers[row, part] for part in self._draws]
            made = self._make(index, drawn)
            if isinstance(made, BadSampleError):
                index, made = self._replacement(index, drawn, made, bad)
            self._write(made, batch, row, index)
        return bad

    def _make(self, index: int, drawn: list[NDArray[np.float64]]) -> Sample | BadSampleError:
        sample = None if self._cache is None else self._cache.get(index)
        try:
            if sample is None:
                sample = self._fixed_part(index)
            for step, random in zip(self._rest, drawn, strict=True):
                sample = self._run(step, sample, random, self.source, index)
        except BadSampleError as error:
            if self._recipe.on_bad_sample == "error":
                raise
            return error
        return sample

    def _as_read(self, index: int) -> Sample:
        return self._read_sample(self.source, index, self.spec.structure)

    def _fixed_part(self, index: int) -> Sample:
        sample = self._as_read(index)
        for step in self._fixed:
            sample = self._run(step, sample, _NO_NUMBERS, self.source, index)
        if self._cache is None:
            return sample
        self._cache.put(index, *sample)
        return read_only(sample)  # as it is from the cache: an op that writes to it fails in the first epoch already

    def _replacement(
        self, index: int, drawn: list[NDArray[np.float64]], error: BadSampleError, bad: list[BadSample]
    ) -> tuple[int, Sample]:
        for offset in range(1, min(_ATTEMPTS, self._count)):
            other = (index + offset) % self._count
            made = self._make(other, drawn)
            if not isinstance(made, BadSampleError):
                bad.append(BadSample(index, other, error.message))
                return other, made
        raise error

    def _write(self, sample: Sample, batch: Batch, row: int, index: int) -> None:
        rooms = [None if part is None else part[row, ...] for part in batch]  # views, even if a sample is one number
        try:
            for made, room in zip(sample, rooms, strict=True):
                if room is not None:
                    _copy(made, room)
        except (ValueError, TypeError, OverflowError):
            place = sample_place(self.source, index)
            looks = self._listed([None if room is None else made for made, room in zip(sample, rooms, strict=True)])
            raise WorkloadError(
                f"{place} has {looks}, but a batch holds {self._listed(rooms)}.",
                hint="Put ap.Resize, ap.CenterCrop or ap.RandomCrop in `ops` so that all samples have one size, or "
                "ap.Cast so that they have one dtype.",
            ) from None

    def _listed(self, parts: Sequence[Any]) -> str:
        looks = [
            f"{label} {np.shape(part)} {np.asarray(part).dtype}"
            for label, part in zip(self.spec.labels, parts, strict=True)
            if part is not None
        ]
        return listed(looks)


def _streams(steps: Sequence[Step]) -> list[tuple[int, int]]:
    return [(step.stream, step.op.draws) for step in steps if step.op.draws]


def _copy(made: Any, out: NDArray[Any]) -> None:
    is_number = out.ndim == 0 and type(made) is int  # of which NumPy itself refuses one that is too large
    alike = isinstance(made, (np.ndarray, np.generic)) and made.dtype == out.dtype and made.shape == out.shape
    if not alike and not is_number and not has_room(out, made):
        raise ValueError
    out[...] = made


# -------------------- bad samples


_TOLERATED_SHARE = 0.01  # of an epoch's samples, which may be bad


class BadSampleLedger:
    """Counts the bad samples of each epoch, each sample once however often the epoch is read, as validation does."""

    def __init__(self, path: str, samples: int) -> None:
        """List bad samples in the file `path`; an epoch has `samples` samples."""
        self._path = path
        self._unwritten = path == os.devnull
        self._tolerated = max(1, int(samples * _TOLERATED_SHARE))
        self._listed: set[int] = set()
        self._bad: dict[int, set[int]] = {}

    @property
    def counts(self) -> dict[int, int]:
        return {epoch: len(indices) for epoch, indices in self._bad.items()}

    def record(self, epoch: int, bad: Sequence[BadSample]) -> None:
        """Note bad samples of a batch; raise DataError if more than 1 % of an epoch's (and more than one) are bad."""
        if not bad:
            return
        indices = self._bad.setdefault(epoch, set())
        indices.update(sample.index for sample in bad)
        fresh = [sample for sample in bad if sample.index not in self._listed]
        self._listed.update(sample.index for sample in fresh)
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(dataclasses.asdict(each))}\n" for each in fresh)
        except OSError as error:  # which ends no training
            if not self._unwritten:
                self._unwritten = True
                warnings.warn(
                    f"Skipped samples cannot be listed in `{self._path}`: {error.strerror}. `bad_sample_log` of the "
                    "workload names another file.",
                    DataWarning,
                    stacklevel=2,
                )
        if len(indices) > self._tolerated:
            raise DataError(
                f"{len(indices)} samples of epoch {epoch} are bad, "
                f"more than the {self._tolerated} (1 %) that are skipped; the last: {bad[-1].message}",
                hint="`ap.verify_files(workload).bad` lists all." if self._unwritten else f"They are in {self._path}.",
            )


def refuse_skipping(job: LoadJob, kind: str) -> None:
    """Raise ConfigError if the workload skips bad samples, for a loader that cannot count them."""
    if job.recipe.on_bad_sample == "skip":
        raise ConfigError(
            f'The `{kind}` loader cannot replace and count bad samples, but the workload has on_bad_sample="skip".',
            hint="Use the `threads` or `processes` loader, or remove the bad samples.",
        )
