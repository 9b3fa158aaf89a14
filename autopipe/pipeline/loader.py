"""The base of loaders: each hands over the batches of an epoch, in order, as fast as its configuration allows.

The finish of a batch and a loader's job are here, too; concrete loaders live in `autopipe.pipeline.loaders`. The caller
that opens a loader closes it; its batches stay valid as long as they are referenced, also after closing.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import operator
import os
import threading
import weakref
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

import pydantic

from autopipe.errors import AutopipeError, ConfigError, LoaderError, shortened
from autopipe.pipeline.config import ModelSetup
from autopipe.values import Value
from autopipe.workload.op import NUMPY, ArrayNamespace, Op, Step
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Batch, SampleSpec, Source, Structure, part_at, triple

if TYPE_CHECKING:
    from autopipe.workload.op import Plan
    from autopipe.workload.workload import Workload


# -------------------- finish: the ops that are left after a batch's samples are made, on the host or on the device


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The cheap last ops of a workload, as one pure function of a batch; `specs[i]` is the sample before `ops[i]`.
    `structure` maps the parts of a batch to a model's inputs and targets, if there are more than x and y. `gathered`
    makes an array of a part that a loader `on_device` hands over, and returns an array as it is.
    """

    ops: tuple[Op, ...] = ()
    specs: tuple[SampleSpec, ...] = ()
    channels_first: bool = False
    structure: Structure | None = None
    gathered: Callable[[Any], Any] | None = None

    @classmethod
    def left(cls, plan: Plan, setup: ModelSetup) -> Self:
        """Return the ops that are left for a model in this setup."""
        steps = () if setup.finish == "host" else plan.suffix
        ops, specs = tuple(step.op for step in steps), tuple(step.before for step in steps)
        return cls(ops, specs, channels_first=setup.channels == "first", structure=plan.source.structure)

    @property
    def is_identity(self) -> bool:
        return not self.ops and not self.channels_first and self.gathered is None

    def batch(self, batch: Batch, xp: ArrayNamespace = NUMPY) -> Batch:
        if self.gathered is not None:
            batch = tuple(None if part is None else self.gathered(part) for part in batch)
        for op, spec in zip(self.ops, self.specs, strict=True):
            batch = op.finish(batch, spec, xp)
        if not self.channels_first:
            return batch
        return tuple(
            array if array is None or len(array.shape) != 4 else xp.transpose(array, (0, 3, 1, 2)) for array in batch
        )

    def step_data(self, x: Any, y: Any, sample_weight: Any, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        """Return the finished arguments of a Keras step; x, y and the weights may have several parts each."""
        if self.structure is None:
            return (*self.batch((x, y), xp), sample_weight)
        parts = (part_at((x, y, sample_weight), path) for path in self.structure.paths)
        x, y, weight = triple(self.structure.packed(self.batch(tuple(parts), xp)))
        return x, y, sample_weight if weight is None else weight


# -------------------- loader
# A fork copies a loader's memory, not its threads, so only the process that opened it can use it.


class Owner:
    """Remembers the process that made it."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def require(self) -> None:
        """Raise LoaderError in any other process: a child that was forked after the loader was opened."""
        if not self.is_here:
            raise LoaderError(
                f"A loader can be read only by the process that opened it, {self._pid}, but process {os.getpid()}, "
                "which was forked from it, tried to read it.",
                hint="Build the loader in the process that reads it.",
            )


class Device(NamedTuple):
    """The device of the Keras backend, for loaders, which import no framework."""

    place: Callable[[Any], Any]  # returns an array there; one that is there already as it is
    compiled: Callable[[Callable[..., Any]], Callable[..., Any]]  # compiles a function of arrays there


class LoaderState(Value):
    """The state of a loader: its next batch. `identity` is the digest of workload and shard."""

    schema_version: int = 1
    epoch: int = pydantic.Field(ge=0)
    batch: int = pydantic.Field(ge=0)
    identity: str


class Loader(abc.ABC):
    """Hands over the batches of epochs. The same workload gives the same batches from every loader.

    Attributes:
        spec: one sample of the compact batch that is handed to the device.
        finish: the ops left for a compact batch; identity if workers do them.
        batch_size: samples a batch.
        buffered_batches: how many batches may wait ahead of the consumer.
        last_batch_samples: samples in the last batch of an epoch; None if unknown.
        has_dataset: whether `native_dataset` may return one.
        on_device: whether samples are kept on the device, on any backend. Then parts of the batches of `native_dataset`
            may be tuples, of which `finish.gathered` makes arrays inside the compiled step; the first of a tuple has a
            row for each sample of the batch.
        fill_seconds: the time that making those samples took, as the loader opened.
        hand_over_seconds: the time that a batch takes from another machine; None if batches are made here.
        batches_at_once: batches that are made side by side, and so come together; None: one by each worker.
    """

    spec: SampleSpec
    finish: Finish
    batch_size: int
    buffered_batches: int
    last_batch_samples: int | None = None
    has_dataset: bool = False
    on_device: bool = False
    fill_seconds: float = 0.0
    hand_over_seconds: float | None = None
    batches_at_once: int | None = None

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the batches of an epoch."""

    @abc.abstractmethod
    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        """Yield the compact batches (x, y, *others) of an epoch from batch number `start` on, as NumPy arrays. `last`:
        no other epoch follows, so nothing is read ahead into the next one.
        """

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """A digest of everything that fixes the sequence of batches."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop all work and release everything. May be called more than once."""

    shaped: Callable[[Sequence[Any]], Any] = staticmethod(tuple)
    """Makes of a finished batch what an `epoch` yields."""

    def epoch(self, number: int) -> Iterator[Any]:
        """Yield the finished batches (x, y) of an epoch, as NumPy arrays; from a loaded state on, if it lies in this
        epoch. Batches for a `step` of `ap.wrap` are as the dataset gave them, with tensors of torch, say.

        The thread that takes them does what the configuration leaves to the device: with `finish="host"`, the workers
        do it. Samples of several parts give batches of the same structure, with the weights of samples third if there
        are any.
        """
        number = operator.index(number)  # of NumPy's whole numbers, too, which overflow
        state = self.loaded_state()
        done = state.batch if state is not None and state.epoch == number else 0
        for batch in self.batches(number, done):
            done += 1  # `enumerate` would hold a batch until it has the next
            self._position = (number, done)
            yield self.shaped(self.spec.packed(self.finish.batch(batch)))
            del batch  # the consumer may be done with them: do not hold them while waiting for the next

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("Loop over an epoch of a loader: `for x, y in loader.epoch(number):`, with 0 for the first.")

    _resume: LoaderState | None = None
    _position: tuple[int, int] = (0, 0)
    _training: Callable[[], tuple[int, int]] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader as data.

        The next batch is the one after the last that `epoch` handed over, or that a trainer trained: batches that are
        placed ahead do not count.
        """
        epoch, batch = self._position if self._training is None else self._training()
        if batch >= len(self):
            epoch, batch = epoch + 1, 0
        return LoaderState(epoch=epoch, batch=batch, identity=self.identity).model_dump()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at `state`: `epoch(state["epoch"])` starts at its next batch.

        Raises:
            ConfigError: the state is malformed, or of another workload or shard.
        """
        try:
            loaded = LoaderState.model_validate(state)
        except pydantic.ValidationError:
            raise ConfigError(f"A state must be what `state_dict()` returned, but got {shortened(state)}.") from None
        if loaded.identity != self.identity:
            raise ConfigError(
                "The loader state belongs to another workload or shard: "
                f"{loaded.identity}, this one is {self.identity}.",
                hint="Load the state into a loader of the same data, ops, batch size, seed and shard.",
            )
        if loaded.batch >= max(1, len(self)):
            raise ConfigError(f"The loader state is at batch {loaded.batch}, but an epoch has {len(self)} batches.")
        self._resume, self._position = loaded, (loaded.epoch, loaded.batch)

    def loaded_state(self) -> LoaderState | None:
        """Return the loaded state, once, to continue there; None if there is none."""
        state, self._resume = self._resume, None
        return state

    @contextlib.contextmanager
    def trained(self, stands: Callable[[], tuple[int, int]]) -> Iterator[None]:
        """Take the state, (epoch, next batch), from a training without `epoch`, and keep its last one."""
        self._training = stands
        try:
            yield
        finally:
            self._position, self._training = stands(), None

    def occupancy(self) -> tuple[int, int] | None:
        """Return (batches waiting, most that can wait), or None if unknown."""
        return None

    def lost_workers(self) -> int:
        """Return the number of workers that died and were replaced; the batch was made again each time."""
        return 0

    def stop_ahead(self) -> tuple[int, int] | None:
        """Begin no further batch, and return the epoch and number of the first one that was not begun: another loader
        makes it. None: this loader cannot tell, and goes on. `go_on` undoes it.
        """
        return None

    def go_on(self) -> None:  # noqa: B027  a loader that cannot stop ahead goes on anyway
        """Begin batches again after `stop_ahead`."""

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        """Return the compact batches of `epochs` epochs as a `tf.data.Dataset`, or None if there is none; if the loader
        is `on_device`, as an iterator over what the step gathers them from. Elements are tuples of the existing parts,
        in the order of `spec.fields`.
        """
        return None

    def diagnose(self, error: Exception) -> AutopipeError | None:
        """Return the cause of an error that a framework raised while it read `native_dataset`, or None."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class WorkloadLoader(Loader):
    """A loader of a workload's samples: its job describes the batches, a subclass makes them."""

    def __init__(self, job: LoadJob, buffered_batches: int) -> None:
        self.spec = job.recipe.spec
        self.finish = job.finish
        self.batch_size = job.order.batch_size
        self.last_batch_samples = job.order.batch_samples(job.order.batches - 1)
        self.buffered_batches = buffered_batches
        self._job = job

    def __len__(self) -> int:
        return self._job.order.batches

    @property
    def identity(self) -> str:
        return self._job.identity()


def closed() -> LoaderError:
    """Return the error of a closed loader."""
    return LoaderError("The loader is closed.", hint="Make a new one with ap.make_loader(workload, config).")


def end(batches: Iterator[Any]) -> None:
    """End an iterator over batches now: errors of user code are lost if the garbage collector ends it."""
    if isinstance(batches, Generator):
        batches.close()


# -------------------- job: sources, ops and order of a loader


Made = TypeVar("Made")


class Shared:
    """Objects that loaders of one workload in this process share; each lives as long as a loader holds it."""

    def __init__(self) -> None:
        self.made: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()  # loaders may be opened at once

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the object of this key, made by `make` if no loader has one."""
        with self._lock:
            found: Made | None = self.made.get(key)
            if found is None:
                self.made[key] = found = make()
            return found


_AT_A_TIME = 8  # batches: one hand-over in eight costs little enough
_MOST_BYTES_AT_A_TIME = 1 << 22  # more than a processor's cache holds from one op to the next


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that a worker, thread or process, needs to make a sample. It pickles."""

    source: Source  # of samples; in another storage form, they are stored after the first ops
    steps: tuple[Step, ...] = ()  # the ops of each sample, in order
    fixed_steps: int = 0  # how many of the first steps are deterministic; a cache may hold their results
    fixed_spec: SampleSpec  # the sample after these
    spec: SampleSpec  # the sample after all steps: a row of the batch
    seed: int = 0  # the workload's seed
    on_bad_sample: Literal["error", "skip"] = "error"  # see `Workload`
    cached: float = 0.0  # the part of the samples, 0 to 1, that is kept in memory after the fixed steps
    kept_bytes: float = 0.0  # of a sample that is kept so, on average, if they differ
    trace: str | None = None  # the file of a trace; None: nothing is noted
    # `batching.cache.PiecesInMemory`, of which samples are cut, if pieces are kept in memory in place of samples
    pieces: Any = None

    @property
    def kept_source(self) -> Source:
        """The source of what is kept in memory."""
        kept: Source = self.source if self.pieces is None else self.pieces.source
        return kept

    @classmethod
    def of(
        cls, workload: Workload, plan: Plan, *, source: Source | None = None, done: int = 0, finish: str = "device"
    ) -> Self:
        """Return the recipe of a workload; `source`, if given, has its samples after `done` of the first ops."""
        return cls(
            source=workload.data if source is None else source,
            steps=plan.prefix[done:] + plan.body + (plan.suffix if finish == "host" else ()),
            fixed_steps=len(plan.prefix) - done,
            fixed_spec=plan.cut(len(plan.prefix)),
            spec=plan.sent(finish),
            seed=workload.seed,
            on_bad_sample=workload.on_bad_sample,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Everything a loader needs besides its own knobs."""

    recipe: Recipe  # how samples are made
    order: BatchOrder  # which samples make up each batch
    finish: Finish  # the ops left for the device
    bad_sample_log: str  # the file that lists skipped samples
    identity: Callable[[], str]  # returns a digest of all that fixes the sequence of batches
    device: Callable[[], Device]  # returns the device on which the model trains
    setup: ModelSetup  # the settings on which the model's speed depends
    shared: Shared = dataclasses.field(default_factory=Shared)  # with other loaders of the workload


def at_a_time(batch_bytes: int, queue_size: int, setup: ModelSetup) -> int:
    """Return how many batches a worker makes in one go, so that Python's lock, passed on with each go, costs little."""
    together, fits = setup.steps_per_execution, _MOST_BYTES_AT_A_TIME // max(1, batch_bytes)
    return max(1, min(together if together > 1 else _AT_A_TIME, queue_size, fits))
