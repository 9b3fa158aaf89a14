"""Resident: all samples, prepared, on the accelerator, where the compiled step gathers its batch.

Opening it makes each sample once, after the deterministic first ops, in the host's memory, and puts all of them on the
device. A batch then costs the host its samples' numbers, and those of their rows and columns: a flip or a crop moves
whole rows and columns (`Op.places`), which a gather does to the bit as other loaders do. A workload with another random
op cannot use this loader. It was seen on a GPU with JAX; with TensorFlow on CPUs only.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.errors import ConfigError
from autopipe.hardware import gpu, processes
from autopipe.hardware.machine import size_text
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import BadSample, BadSampleLedger, Kernel
from autopipe.pipeline.batching.stream import starting
from autopipe.pipeline.batching.streaming import StreamingLoader, require_memory
from autopipe.pipeline.config import LOADERS, LoaderConfig
from autopipe.pipeline.loader import Loader, LoadJob, Owner, Recipe, WorkloadLoader, closed
from autopipe.workload.op import Places, Plan, Step
from autopipe.workload.order import uniforms
from autopipe.workload.sample import Batch, Field, SampleSpec, paths_of

_BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX"}
_SLICE = 64  # samples that a thread makes in one go
_QUEUE_SIZE = 8  # batches that wait for the model if they come from memory
_MOST_PIXELS = 2**31  # of a batch: their numbers are 32-bit integers


class Resident(LoaderConfig):
    """All samples lie on the device; flips and crops are done there. For TensorFlow and JAX, on one device.

    Samples must have one size after the deterministic first ops, all of them must fit into the device's memory beside
    the model and once into the host's, and random ops must be flips and crops. If the device has no room after all, a
    warning says so, and batches are sent from the host's memory.

    Attributes:
        workers: threads that make the samples as the loader opens. If reads wait, more of them than there are cores.
    """

    kind: Literal["resident"] = "resident"
    rank: ClassVar[int] = 3
    keeps_on_device: ClassVar[bool] = True
    spaces: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        space: {"workers": ["cores"]} for space in ("quick", "default", "exhaustive")
    }
    workers: int = pydantic.Field(ge=1, le=1024)

    @classmethod
    def impossible(cls, plan: Plan) -> dict[tuple[str, str], str]:
        why = _unfit(plan.cut(len(plan.prefix)), plan.body)
        return {} if why is None else {("loader", "resident"): why}

    def worker_count(self) -> int:
        return self.workers

    def in_evaluation(self, batches: int) -> Mapping[str, Any]:
        return {"loader": LOADERS["threads"](workers=self.workers), "keep": "memory"}

    def open(self, job: LoadJob) -> Loader:
        recipe = job.recipe
        why = _unfit(recipe.fixed_spec, recipe.steps[recipe.fixed_steps :]) or _unfit_process(job)
        if why is not None:
            raise ConfigError(
                f"The `{self.kind}` loader cannot feed this workload: {why}.",
                hint="Use the `threads` loader with keep='memory'.",
            )
        require_memory(job, self.workers)
        began, cache = time.monotonic(), MemoryCache.of(recipe)
        assert cache is not None  # of a recipe for this loader
        bad = _filled(recipe, cache.rows, self.workers)
        try:
            loader = _ResidentLoader(job, cache.rows, bad)
        except Exception as error:
            if not isinstance(error, MemoryError) and not any(words in str(error) for words in _FULL):
                raise
            warnings.warn(
                f"The device has no room for the samples, which take {size_text(MemoryCache.bytes_needed(recipe))}, so "
                f"batches are sent from the host's memory: {str(error).strip().splitlines()[0]:.200}",
                DeviceMemoryWarning,
                stacklevel=4,
            )
            replaced = {each.index for each in bad}  # which are read again, and counted
            cache.note([index for index in range(len(recipe.source)) if index not in replaced])
            kernel, queue_size = Kernel(recipe, cache), job.setup.queue_size(_QUEUE_SIZE)
            kernel.undo.enter_context(processes.library_threads())
            return StreamingLoader(job, [kernel] * self.workers, queue_size, kernel=kernel)
        loader.fill_seconds = time.monotonic() - began
        return loader


class DeviceMemoryWarning(UserWarning):
    """Batches are sent from the host's memory, because the device has no room for all samples."""


# -------------------- what it can feed


def _unfit(kept: SampleSpec, steps: Sequence[Step]) -> str | None:
    if not kept.is_fixed:
        return "samples are encoded or differ in size after the ops that are the same in every epoch"
    if not _is_for_device(kept.x):
        return f"it keeps numbers of up to 16 bits and float32 on the device, but x is {kept.x.dtype}"
    for step in steps:
        random = np.zeros((1, step.op.draws))
        for field in step.touched.values():
            if len(field.shape or ()) < 2 or step.op.places(_size(field), random) is None:
                return f"from the first random op on it can flip and crop, and cannot do `{step.op.name}`"
    return None


def _unfit_process(job: LoadJob) -> str | None:
    backend = str(gpu.keras_backend() or "tensorflow")
    pixels = max(int(np.prod(field.shape[:2])) for field in job.recipe.fixed_spec.fields if field.shape is not None)
    if backend not in _BACKENDS:
        return f"it works with {' or '.join(_BACKENDS.values())}, but Keras's backend is {backend}"
    if job.setup.devices > 1 or job.order.rank != (0, 1):
        count = max(job.setup.devices, job.order.rank[1])
        return f"it keeps samples on one device, but {count} devices are to train together"
    if job.order.batch_size * pixels >= _MOST_PIXELS:
        return f"a batch must have fewer than 2**31 pixels, but has {job.order.batch_size * pixels}"
    return None


def _is_for_device(field: Field) -> bool:
    """Return True for dtypes that TensorFlow and JAX both keep on a GPU as they are. JAX cuts numbers of 64 bits to 32,
    and TensorFlow keeps int32 in the host's memory.
    """
    return field.dtype is not None and (field.dtype.itemsize <= 2 or field.dtype == np.float32)


def _size(field: Field) -> tuple[int, int]:
    assert field.shape is not None
    return field.shape[0], field.shape[1]


_FULL = ("RESOURCE_EXHAUSTED", "OOM", "out of memory", "failed to allocate memory", "Dst tensor is not initialized")
"""What JAX and TensorFlow say of a full device; the last, if a copy to it fails (tensorflow issue 7025)."""


# -------------------- the samples in the host's memory


@processes.library_threads()
def _filled(recipe: Recipe, rows: Batch, workers: int) -> list[BadSample]:
    """Write all samples to `rows`, after the deterministic first ops; return those that had to be replaced."""
    steps = recipe.steps[: recipe.fixed_steps]
    kernel = Kernel(dataclasses.replace(recipe, steps=steps, spec=recipe.fixed_spec, cached=0.0))
    count = len(recipe.source)

    def fill(at: int) -> list[BadSample]:
        indices = np.arange(at, min(at + _SLICE, count))
        return kernel.fill(0, indices, tuple(None if part is None else part[at : at + _SLICE] for part in rows))

    with ThreadPoolExecutor(workers, "autopipe-fill") as pool:
        with starting(f"{workers} workers need a thread each", "fewer workers", pool.shutdown):
            found = pool.map(fill, range(0, count, _SLICE))
        return [bad for each in found for bad in each]


# -------------------- batches


class _ResidentLoader(WorkloadLoader):
    """Owns the arrays of all samples, a row each. Those of large numbers, and labels, stay in memory."""

    has_dataset = on_device = True
    batches_at_once = 1

    def __init__(self, job: LoadJob, rows: Batch, bad: Sequence[BadSample]) -> None:
        """Put samples on the device and make a batch of them. Raise the backend's error if there is no room."""
        super().__init__(job, buffered_batches=0)
        device, recipe = job.device(), job.recipe
        self._gathered = _gatherer(device.compiled)
        self.finish = dataclasses.replace(self.finish, gathered=self._gathered)
        self._steps, self._seed = recipe.steps[recipe.fixed_steps :], recipe.seed
        self._bad = {each.index: each for each in bad}
        self._ledger = BadSampleLedger(job.bad_sample_log, job.order.samples)
        self._owner = Owner()
        fields = zip(recipe.fixed_spec.columns, paths_of(recipe.fixed_spec.structure), strict=True)
        self._there = [
            field is not None and _is_for_device(field) and (slot == "x" or len(field.shape or ()) > 1)
            for field, (slot, _) in fields
        ]
        self._parts: list[Any] | None = [
            device.place(part) if there else None if part is None else part.copy()
            for part, there in zip(rows, self._there, strict=True)
        ]
        for part in self._made(0, job.order.epoch(0)[: self.batch_size]):  # it is compiled, and tells if there is room
            np.asarray(self._gathered(part))

    @property
    def bad_samples(self) -> dict[int, int]:
        return self._ledger.counts

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for batch in self._numbered(epoch, start):
            yield tuple(None if part is None else np.array(self._gathered(part)) for part in batch)

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Iterator[tuple[Any, ...]]:
        for number in range(epoch, epoch + epochs):
            for batch in self._numbered(number, start if number == epoch else 0):
                yield tuple(part for part in batch if part is not None)

    def close(self) -> None:
        self._parts = None

    def _numbered(self, epoch: int, start: int) -> Iterator[tuple[Any, ...]]:
        order = self._job.order
        indices = order.epoch(epoch)
        for batch in range(start, len(self)):
            self._owner.require()
            chosen = indices[batch * order.batch_size :][: order.batch_size]
            if self._bad:
                self._ledger.record(epoch, [self._bad[index] for index in chosen.tolist() if index in self._bad])
            yield self._made(epoch, chosen)

    def _made(self, epoch: int, chosen: NDArray[np.int64]) -> tuple[Any, ...]:
        """Return the parts of a batch: arrays of what lies in memory, and what `_gatherer` makes arrays of."""
        if self._parts is None:
            raise closed()
        moves, numbers, made = self._moves(epoch, chosen), chosen.astype(np.int32), list[Any]()
        for position, (part, there) in enumerate(zip(self._parts, self._there, strict=True)):
            given = numbers, part, *moves.get(position, ())
            made.append(None if part is None else given if there else _gathered(*given, library=np))
        return tuple(made)

    def _moves(self, epoch: int, chosen: NDArray[np.int64]) -> dict[int, _Moves]:
        """Return how the images of some samples are moved, by the position of the part."""
        found: dict[int, Places] = {}
        for step in self._steps:
            random = uniforms(self._seed, epoch, chosen, step.stream, step.op.draws)
            for number, field in step.touched.items():
                places = step.op.places(_size(field), random)
                assert places is not None  # as was looked at first
                if number in found:  # of rows and columns that were moved before
                    (rows, columns), (above, left) = places, found[number]
                    places = np.take_along_axis(above, rows, axis=1), np.take_along_axis(left, columns, axis=1)
                found[number] = places
        moves: dict[int, _Moves] = {}
        for number, (rows, columns) in found.items():
            kept = self._job.recipe.fixed_spec.columns[number]
            assert kept is not None
            moves[number] = rows.astype(np.int32), columns.astype(np.int32)
            if (rows.shape[1], columns.shape[1]) == _size(kept):  # a gather of single pixels takes many times as long
                moves[number] = rows[:, 0] > rows[:, -1], columns[:, 0] > columns[:, -1]
        return moves


_Moves: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""Numbers of rows and of columns, shapes (samples, height) and (samples, width); or, if images keep their size, True
for each sample whose rows, and whose columns, are reversed, shape (samples,).
"""


def _gathered(numbers: Any, samples: Any, *moves: Any, library: ModuleType) -> Any:
    found = library.take(samples, numbers, axis=0)
    if not moves:
        return found
    above, left = moves
    _, height, width, *rest = samples.shape
    if len(above.shape) == 1:
        upright = (-1, *[1] * (len(found.shape) - 1))
        found = library.where(library.reshape(above, upright), found[:, ::-1], found)
        return library.where(library.reshape(left, upright), found[:, :, ::-1], found)
    place = library.cumsum(library.ones_like(numbers)) - 1  # in the batch, whose size a compiled step may leave open
    first = (height * place[:, None] + above) * width
    pixels = library.reshape(found, (-1, *rest))
    return library.take(pixels, first[:, :, None] + left[:, None, :], axis=0)


@functools.cache
def _gatherer(compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[Any], Any]:
    """Return what makes an array of (numbers, samples, *moves): one for all loaders, so that it is compiled once."""
    import keras

    gathered = compiled(functools.partial(_gathered, library=keras.ops))
    return lambda part: gathered(*part) if isinstance(part, tuple) else part
