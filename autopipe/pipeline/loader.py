"""What a loader is: something that hands over the batches of an epoch, in order, as fast as its configuration allows.

Concrete loaders live in `autopipe.pipeline.loaders`. Whoever opens a loader closes it; its batches stay
valid as long as they are referenced, also after closing.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import operator
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import pydantic

from autopipe.errors import AutopipeError, ConfigError, LoaderError
from autopipe.pipeline.config import ModelSetup
from autopipe.values import Value
from autopipe.workload.op import NUMPY, ArrayNamespace, Op, Step
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Batch, SampleSpec, Source, Structure, triple

if TYPE_CHECKING:
    from autopipe.workload.op import Plan


# -------------------- finish
# The finish: what is left to do to a batch after its samples are made, on the host or on the device.


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The cheap last ops of a workload, as one pure function of a batch; `specs[i]` is the sample before `ops[i]`.

    `structure` tells how the parts of a batch make up what a model takes, if they are more than x and y.
    """

    ops: tuple[Op, ...] = ()
    specs: tuple[SampleSpec, ...] = ()
    channels_first: bool = False
    structure: Structure | None = None

    @classmethod
    def left(cls, plan: Plan, setup: ModelSetup) -> Self:
        """Return what a model in this setup is left to do."""
        steps = () if setup.finish == "host" else plan.suffix
        ops, specs = tuple(step.op for step in steps), tuple(step.before for step in steps)
        return cls(ops, specs, channels_first=setup.channels == "first", structure=plan.source.structure)

    @property
    def is_identity(self) -> bool:
        """Whether nothing is left to do."""
        return not self.ops and not self.channels_first

    def batch(self, batch: Batch, xp: ArrayNamespace = NUMPY) -> Batch:
        """Return the finished batch (x, y, *others), in the array library `xp`."""
        for op, spec in zip(self.ops, self.specs, strict=True):
            batch = op.finish(batch, spec, xp)
        return tuple(_channels_first(array, xp) for array in batch) if self.channels_first else batch

    def step_data(self, x: Any, y: Any, sample_weight: Any, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        """Return what a step of Keras's is given, finished; x, y and the weights may have several parts each."""
        if self.structure is None:
            return (*self.batch((x, y), xp), sample_weight)
        parts = (self.structure.part((x, y, sample_weight), number) for number in range(len(self.structure.paths)))
        x, y, weight = triple(self.structure.packed(self.batch(tuple(parts), xp)))
        return x, y, sample_weight if weight is None else weight


class Finishing(Protocol):
    """How batches are finished where no model of Keras does it in its compiled step."""

    def place(self) -> Callable[[Any], Any] | None:
        """Return what makes an array of the Keras backend of one in host memory, where its device is the host.

        None where it is another.
        """
        ...

    def on_device(self, batch: Batch) -> Batch:
        """Return a batch finished on a device that is not the host."""
        ...

    def on_host(self) -> Any:
        """Open a loader of the same batches whose workers finish them."""
        ...


def _channels_first(array: Any, xp: ArrayNamespace) -> Any:
    return array if array is None or len(array.shape) != 4 else xp.transpose(array, (0, 3, 1, 2))


# -------------------- loader


class LoaderState(Value):
    """Where a loader stands: the next batch it will hand over. `identity` says of which workload and shard."""

    schema_version: int = 1
    epoch: int = pydantic.Field(ge=0)
    batch: int = pydantic.Field(ge=0)
    identity: str


class Loader(abc.ABC):
    """Hands over the batches of epochs. The same workload gives the same batches from every loader.

    Attributes:
        spec: one sample of the compact batch that is handed to the device.
        finish: what is still to be done to a compact batch; identity where workers do it.
        batch_size: samples a batch.
        buffered_batches: how many batches may wait ahead of the consumer.
        last_batch_samples: samples in the last batch of an epoch; None where the loader cannot tell.
        has_dataset: whether `native_dataset` may return one.
        hand_over_seconds: what a batch takes from another machine to this one; None where none comes from there.
        batches_at_once: batches that are made side by side, and so come together; None: one by each worker.
    """

    spec: SampleSpec
    finish: Finish
    batch_size: int
    buffered_batches: int
    last_batch_samples: int | None = None
    has_dataset: bool = False
    hand_over_seconds: float | None = None
    batches_at_once: int | None = None

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the batches of an epoch."""

    @abc.abstractmethod
    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        """Yield the compact batches (x, y, *others) of an epoch from batch number `start` on, as NumPy arrays.

        Args:
            epoch: the epoch's number.
            start: the first batch wanted.
            last: whether no other epoch follows, so that nothing is read ahead into the next one.
        """

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """A digest of what fixes the sequence of batches."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop all work and give everything back. May be called more than once."""

    def epoch(self, number: int) -> Iterator[tuple[Any, ...]]:
        """Yield the finished batches (x, y) of an epoch; from a loaded state on, if it lies in this epoch.

        Where the configuration finishes on the device, batches are arrays of the Keras backend, else NumPy arrays. Of
        samples of several parts they are built as the samples are, with the weights of samples third if there are any.
        """
        number = operator.index(number)  # of NumPy's whole numbers, too, which overflow
        state = self.loaded_state()
        done = state.batch if state is not None and state.epoch == number else 0
        for batch in self._finished(number, done):
            done += 1  # `enumerate` would hold a batch until it has the next
            self._position = (number, done)
            yield self.spec.packed(batch)
            del batch  # the consumer may be done with them: do not hold them while waiting for the next

    _finishing: Finishing | None = None
    _twin: Loader | None = None

    def _finished(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield finished batches: where the device is the host, by the workers of a twin, so by all cores."""
        if self.finish.is_identity or self._finishing is None:
            yield from self.batches(epoch, start)
            return
        place = self._finishing.place()
        if place is not None and self.finish.ops and self._twin is None:
            self._twin = self._finishing.on_host()
        source = self if self._twin is None else self._twin
        for batch in source.batches(epoch, start):
            if place is None:
                yield self._finishing.on_device(batch)
            else:
                yield tuple(None if part is None else place(part) for part in source.finish.batch(batch))
            del batch

    def _close_twin(self) -> None:
        self._finishing = None  # none is opened any more
        if self._twin is not None:
            self._twin.close()

    _resume: LoaderState | None = None
    _position: tuple[int, int] = (0, 0)
    _training: Callable[[], tuple[int, int]] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands, as data.

        The next batch is the one after the last that `epoch` handed over, or that a trainer trained: batches that are
        placed ahead do not count.
        """
        epoch, batch = self._position if self._training is None else self._training()
        if batch >= len(self):
            epoch, batch = epoch + 1, 0
        return LoaderState(epoch=epoch, batch=batch, identity=self.identity).model_dump()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken: `epoch(state["epoch"])` starts at its next batch.

        Raises:
            ConfigError: the state is malformed, or of another workload or shard.
        """
        try:
            loaded = LoaderState.model_validate(state)
        except pydantic.ValidationError as error:
            raise ConfigError(
                f"The loader state cannot be read: {error.errors()[0]['msg']}, but got {state!r}."
            ) from None
        if loaded.identity != self.identity:
            raise ConfigError(
                "The loader state belongs to another workload or shard: "
                f"{loaded.identity}, this one is {self.identity}.",
                hint="Load the state into a loader of the same data, ops, batch size, seed and shard.",
            )
        if loaded.batch >= max(1, len(self)):
            raise ConfigError(f"The loader state is at batch {loaded.batch}, but an epoch has {len(self)} batches.")
        self._resume = loaded
        self._position = (loaded.epoch, loaded.batch)

    def loaded_state(self) -> LoaderState | None:
        """Return the state that was loaded since this was last asked for, to go on there; None: there is none."""
        state, self._resume = self._resume, None
        return state

    @contextlib.contextmanager
    def trained(self, stands: Callable[[], tuple[int, int]]) -> Iterator[None]:
        """Have the state be where a training stands, which takes its batches not by `epoch`; at last, where it ended.

        Args:
            stands: returns the epoch and the next batch of it.
        """
        self._training = stands
        try:
            yield
        finally:
            self._position, self._training = stands(), None

    def occupancy(self) -> tuple[int, int] | None:
        """Return (batches waiting, most that can wait), or None where the loader cannot tell."""
        return None

    def lost_workers(self) -> int:
        """Count the workers that died and were replaced; each time a batch was made again."""
        return 0

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        """Return the compact batches of `epochs` epochs as a `tf.data.Dataset`, or None where there is none.

        They are tuples of what is there, in the order of `spec.fields`.
        """
        return None

    def diagnose(self, error: Exception) -> AutopipeError | None:
        """Return what is behind an error that a framework raised while it read `native_dataset`, or None."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class WorkloadLoader(Loader):
    """A loader of a workload's samples; its job says what it is, and a subclass how batches are made."""

    def __init__(self, job: LoadJob, buffered_batches: int) -> None:
        self.spec = job.recipe.spec
        self.finish = job.finish
        self.batch_size = job.order.batch_size
        self.last_batch_samples = job.order.batch_samples(job.order.batches - 1)
        self.buffered_batches = buffered_batches
        self._finishing = job.finishing
        self._job = job

    def __len__(self) -> int:
        return self._job.order.batches

    @property
    def identity(self) -> str:
        return self._job.identity()


def closed() -> LoaderError:
    """Return the error for whoever asks a closed loader for batches."""
    return LoaderError("The loader is closed.", hint="Build a new one with ap.build_loader(workload, config).")


def end(batches: Iterator[Any]) -> None:
    """End an iterator over batches here and now.

    What a user's code raises at the end of an epoch is lost where the garbage collector ends it.
    """
    if isinstance(batches, Generator):
        batches.close()


# -------------------- job
# What a loader is given to do: where samples come from, what is done to them, and in which order they are wanted.


_AT_A_TIME = 8  # batches: one hand-over in eight costs little enough
_MOST_BYTES_AT_A_TIME = 1 << 22  # more than a processor's cache holds from one op to the next


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What any worker, thread or process, needs to make a sample. It pickles."""

    source: Source  # where samples are read; in another storage form, its samples have the first ops behind them
    steps: tuple[Step, ...]  # what is done to each sample, in order
    fixed_steps: int  # how many of the first steps give the same result in every epoch; a cache may hold what they give
    fixed_spec: SampleSpec  # the sample after these
    spec: SampleSpec  # the sample after all steps: a row of the batch
    seed: int  # the workload's seed
    on_bad_sample: Literal["error", "skip"]  # see `Workload`
    cached: float = 0.0  # the part of the samples, 0 to 1, that is kept in memory after the fixed steps
    trace: str | None = None  # the folder to which notes go of what is done when; None: nobody takes any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """Everything a loader needs besides its own knobs."""

    recipe: Recipe  # how samples are made
    order: BatchOrder  # which samples make up each batch
    finish: Finish  # what is left to do to a batch on the device
    bad_sample_log: str  # the file that lists skipped samples
    identity: Callable[[], str]  # returns a digest of what fixes the sequence of batches
    finishing: Finishing  # finishes batches for whoever trains without a model of Keras
    setup: ModelSetup  # what of the configuration the model's speed depends on

    def at_a_time(self, queue_size: int) -> int:
        """Return how many batches a worker may make in one go, where they are small: what one call takes, or a few.

        The interpreter's lock changes hands at each hand-over, which takes longer than to make a small batch.
        """
        spec = self.recipe.spec
        if not spec.is_fixed or self.recipe.trace is not None:
            return 1
        return at_a_time(spec.bytes * self.order.batch_size, queue_size, self.setup)


def at_a_time(batch_bytes: int, queue_size: int, setup: ModelSetup) -> int:
    """Return how many batches of so many bytes a worker may make in one go, of which so many may wait."""
    together, fits = setup.steps_per_execution, _MOST_BYTES_AT_A_TIME // max(1, batch_bytes)
    return max(1, min(together if together > 1 else _AT_A_TIME, queue_size, fits))
