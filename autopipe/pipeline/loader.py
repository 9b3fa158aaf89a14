"""What a loader is: something that hands over the batches of an epoch, in order, as fast as its configuration allows.

Concrete loaders live in `autopipe.pipeline.loaders`. Whoever opens a loader closes it; its batches stay
valid as long as they are referenced, also after closing.
"""

from __future__ import annotations

import abc
import contextlib
import operator
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Self

import pydantic

from autopipe.errors import AutopipeError, ConfigError, LoaderError
from autopipe.values import Value
from autopipe.workload.finish import Finish, Finishing
from autopipe.workload.sample import Batch, SampleSpec

if TYPE_CHECKING:
    from autopipe.pipeline.job import LoadJob


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
