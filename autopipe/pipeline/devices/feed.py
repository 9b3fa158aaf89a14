"""The way of batches from a loader to Keras: the trainer's stream, a loader that is timed, and the dataset of a user's
own `fit`.

Keras takes a Python iterable of device arrays as it is on every backend, so that no copy and no thread lies between a
loader's batch and the step. `Stream` walks over a loader's epochs and places batches; Keras's adapter of it is
`frameworks.data_adapter`. Nothing here knows models or callbacks; the maker of a stream closes it, not the loader.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import AutopipeError, ModelError
from autopipe.hardware import processes
from autopipe.pipeline.config import Channels
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices.strategy import DeviceStrategy
from autopipe.pipeline.loader import Loader, end
from autopipe.pipeline.switching import SwitchingLoader
from autopipe.workload.sample import Batch, SampleSpec, leaves, mapped, triple

DeviceBatch = tuple[Any, ...]  # (x,), (x, y) or (x, y, sample_weight)
_Passes = Callable[[], Iterator[tuple[Any, ...]]]  # begins one


class Fault:
    """Remembers the error of a loader. Keras and TensorFlow cut the cause off, or wrap it, on the way to the caller."""

    _seen: tuple[Exception, BaseException | None] | None = None

    @contextlib.contextmanager
    def remembered(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._seen = (error, error.__cause__)
            raise

    @contextlib.contextmanager
    def raised_as_itself(self) -> Iterator[None]:
        """If an error was noted, raise just that instead of an error of the block."""
        try:
            yield
        except Exception:
            if self._seen is None:
                raise
            error, cause = self._seen
            raise error from cause


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Turns a compact batch into the arguments of a step."""

    strategy: DeviceStrategy  # the target of its arrays
    prefetch: int = 0  # how many batches are placed ahead, if that starts a transfer
    even: bool = True  # whether a batch that devices cannot share equally is refused: training would weigh it wrongly
    class_weight: Mapping[int, float] | None = None  # the weight of each class, as Keras means it
    on_host: bool = False  # whether batches stay NumPy arrays, because the caller places them

    def __call__(self, batch: Batch, spec: SampleSpec) -> DeviceBatch:
        """Return a flat batch of samples of `spec` on the model's device: (x,), (x, y) or (x, y, sample_weight)."""
        if self.even and hasattr(batch[0], "shape"):  # one that is shared out already has none, and was checked then
            self.strategy.check_rows(batch[0].shape[0])
        place = np.asarray if self.on_host else self.strategy.place
        placed = spec.packed([None if part is None else mapped(place, part) for part in batch])
        if self.class_weight is not None:
            _, y, weight = triple(spec.packed(batch))
            if weight is not None:
                raise ModelError(
                    "`class_weight` and `sample_weight` cannot be used together, but the data have weights of samples.",
                    hint="Multiply the weights of samples by those of their classes.",
                )
            placed = (*placed, place(class_weights(y, self.class_weight)))
        return tuple(slot for slot in placed if slot is not None)

    def for_several(self, loader: Loader) -> Placement:
        """Return it for the loop inside TensorFlow, which runs if batches come from Python and stay on the host."""
        on_host = self.strategy.devices == 1 and not self.strategy.looks_ahead and not loader.has_dataset
        return dataclasses.replace(self, on_host=on_host and keras.backend.backend() == "tensorflow")


class Stream:
    """The placed batches of consecutive epochs; each is made only when it is asked for."""

    def __init__(
        self, loader: Loader, placement: Placement, fault: Fault, *, first: tuple[int, int], steps: int
    ) -> None:
        self._loader, self._placement = loader, placement
        self._compact = _compact(loader, fault, first, steps)
        placed = map(functools.partial(placement, spec=loader.spec), self._compact)
        depth = placement.prefetch if placement.strategy.looks_ahead else 0
        self._batches = ahead(placed, depth, lambda: (loader.occupancy() or (1, 1))[0] > 0) if depth else placed

    def take(self, steps: int) -> Iterator[DeviceBatch]:
        """Return an iterator over the next `steps` batches, which takes them only when it is advanced."""
        return itertools.islice(self._batches, steps)

    def data(self, steps: int, count: int | None) -> Any:
        """Return Keras's data for an epoch of so many steps, `count` by one call."""
        if count is None or not self._placement.on_host:
            return frameworks.data_adapter(lambda: self.take(steps), steps)
        weighted = self._placement.class_weight is not None
        make = functools.partial(_dataset, loader=self._loader, weighted=weighted)
        return frameworks.data_adapter(lambda: stacked(self.take(steps), count), steps, make)

    def close(self) -> None:
        self._compact.close()


def _compact(loader: Loader, fault: Fault, first: tuple[int, int], steps: int) -> Generator[Any, None, None]:
    with fault.remembered():
        dataset: Any = None
        epoch, start = first
        if loader.on_device or keras.backend.backend() == "tensorflow":
            dataset = loader.native_dataset(epoch, -(-(start + steps) // len(loader)), start)
        if dataset is not None:
            yield from _native(loader, dataset, steps)
            return
        while steps > 0:
            left = len(loader) - start
            batches = loader.batches(epoch, start, last=steps <= left)
            try:
                yield from itertools.islice(batches, steps)
            finally:
                end(batches)
            steps, epoch, start = steps - left, epoch + 1, 0


def _native(loader: Loader, dataset: Iterable[Any], steps: int) -> Iterator[Any]:
    with processes.uninterrupted(processes.CTRL_C):
        elements = iter(dataset)
    try:
        for _ in range(steps):
            with processes.uninterrupted(processes.CTRL_C):
                batch = next(elements, None)
            if batch is None:
                return
            yield loader.spec.aligned(batch)
            del batch  # the consumer may be done with it: do not hold it while waiting for the next
    except AutopipeError:
        raise
    except Exception as error:  # a framework's own, which says neither op nor sample
        found = loader.diagnose(error)
        if found is None:
            raise
        raise found from found.__cause__
    finally:
        end(elements)


def ahead(items: Iterator[Any], depth: int, has_waiting: Callable[[], bool]) -> Iterator[Any]:
    """Yield `items`, having taken up to `depth` more than were asked for, without waiting for any of those.
    `has_waiting` returns True if the next item could be taken at once.
    """
    held: collections.deque[Any] = collections.deque()
    end = object()
    while True:
        while len(held) <= depth and (not held or has_waiting()):
            if (item := next(items, end)) is end:
                yield from held
                return
            held.append(item)
        yield held.popleft()


def class_weights(y: Any, weights: Mapping[int, float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the weight of each sample by its class, a number or one-hot; raise ModelError for other targets."""
    labels = None if y is None or isinstance(y, tuple | dict) else np.asarray(y)
    if labels is not None and labels.ndim == 2:
        labels = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0]
    if labels is None or labels.ndim != 1:
        shape = getattr(y, "shape", None) and tuple(y.shape)
        raise ModelError(
            "`class_weight` needs one class a sample as the target, "
            f"but got {'no target' if y is None else f'a target of shape {shape}' if shape else f'{len(y)} targets'}.",
            hint="Leave class_weight out, or weight the loss in the model.",
        )
    return np.array([weights.get(int(label), 1.0) for label in labels], np.float32)


@contextlib.contextmanager
def replayed(loader: Loader, placement: Placement, fault: Fault, steps: int, passes: int = 1) -> Iterator[Any]:
    """Yield Keras's data of the first batches of a loader's epoch 0, from the start whenever Keras opens an epoch: for
    evaluation, in which devices may share out a batch unevenly. If all epochs of the loader are equal, `passes` may be
    the number of times that they are read: workers then begin the next pass early, until the loader is told to stop
    ahead, and go on as that pass is opened.
    """
    placement = dataclasses.replace(placement, even=False)
    stream: Stream | None = None
    taken = 0  # batches of the stream
    with contextlib.ExitStack() as opened:

        def count(batch: DeviceBatch) -> DeviceBatch:
            nonlocal taken
            taken += 1
            return batch

        def restart() -> Iterator[DeviceBatch]:
            nonlocal stream, taken
            loader.go_on()
            if stream is None or taken % steps or taken >= passes * steps:  # a pass that was left is begun again
                opened.close()
                stream, taken = Stream(loader, placement, fault, first=(0, 0), steps=passes * steps), 0
                opened.callback(stream.close)
            return map(count, stream.take(steps))

        yield frameworks.data_adapter(restart, steps)


# -------------------- several steps by one call of a compiled function
# Keras's function for several steps loops over a `tf.data` iterator inside the graph. A dataset made here takes batches
# from Python in stacks, one call for several of them, and cuts them apart again; it holds nothing back, so that all
# batches taken from the loader have been trained when the call returns.


def stacked(batches: Iterator[tuple[Any, ...]], count: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches of NumPy arrays in stacks of up to `count` of one shape, which have a new first axis."""
    while group := list(itertools.islice(batches, count)):
        for _, alike in itertools.groupby(group, key=lambda batch: leaves(batch[0])[0].shape):
            yield keras.tree.map_structure(lambda *parts: stack(parts), *alike)


def stack(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays of one shape as one with a new first axis; without a copy if they are adjacent in memory."""
    first = parts[0]
    if first.base is None or not all(part.base is first.base and part.flags.c_contiguous for part in parts):
        return np.stack(parts)
    starts = [part.__array_interface__["data"][0] for part in parts]
    if starts != [starts[0] + number * first.nbytes for number in range(len(parts))]:
        return np.stack(parts)
    shape, strides = (len(parts), *first.shape), (first.nbytes, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def _dataset(open_epoch: Callable[[], Iterator[tuple[Any, ...]]], loader: Loader, *, weighted: bool) -> Any:
    """Return the stacks of an epoch as a `tf.data.Dataset` of batches, with the weights of samples if there are any."""
    import tensorflow as tf

    rows = loader.batch_size if loader.last_batch_samples == loader.batch_size else None
    parts = loader.spec.packed([
        None if field is None else tf.TensorSpec((None, rows, *(field.shape or ())), field.dtype)
        for field in loader.spec.columns
    ])  # fmt: skip
    weights = (tf.TensorSpec((None, rows), tf.float32),) if weighted else ()
    signature = (*(part for part in parts if part is not None), *weights)

    def begun() -> Iterator[tuple[Any, ...]]:
        processes.keep_again()  # which a dataset of a generator changes
        return open_epoch()

    made = tf.data.Dataset.from_generator(begun, output_signature=signature).unbatch()
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False  # a batch is taken when it is trained, not before
    return made.with_options(options)


# -------------------- timed: notes how long the training waited for each batch, with any loader
# The training thread takes batches itself, so the time in here is exactly that in which the model had nothing to do.


_ITS_OWN = ("diagnose", "state_dict", "load_state_dict", "loaded_state", "trained", "occupancy", "lost_workers")
"""What the other loader is asked, and tells, of itself."""


class TimedLoader(Loader):
    """Hands on the batches of another loader."""

    def __init__(self, loader: Loader, clock: Callable[[], float] = time.monotonic) -> None:
        self.loader = loader  # the other one, which owns everything
        self._clock = clock
        for name in (*Loader.__annotations__, *_ITS_OWN):
            if not name.startswith("_"):
                setattr(self, name, getattr(loader, name))
        self.waited_seconds = 0.0  # time spent in waiting for batches so far
        self.taken = 0  # batches so far
        self.first_taken: float | None = None  # when the first batch was handed over, on `clock`; None before
        self.restarts: list[float] = []  # how long the first batch of each later epoch was waited for, in seconds

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def identity(self) -> str:
        return self.loader.identity

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        return self._timed(self.loader.batches(epoch, start, last=last))

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        dataset = self.loader.native_dataset(epoch, epochs, start)
        return self._timed(dataset) if isinstance(dataset, Iterable) else dataset

    def changes(self) -> int:
        """Return how often another loader has taken over; 0 if the training does not tune itself."""
        return self.loader.changes if isinstance(self.loader, SwitchingLoader) else 0

    def close(self) -> None:
        self.loader.close()

    def _timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        source, none = iter(batches), object()
        try:
            while True:
                began = self._clock()
                if (batch := next(source, none)) is none:
                    return
                now = self._clock()
                self.waited_seconds += now - began
                self.taken += 1
                if self.first_taken is None:
                    self.first_taken = now
                elif (self.taken - 1) % len(self) == 0:
                    self.restarts.append(now - began)
                yield batch
                del batch  # its memory goes back to the loader before the next one is asked for
        finally:
            end(source)


# -------------------- fit dataset
# For scripts that call Keras themselves, by public interfaces of Keras and TensorFlow only. Each pass is the loader's
# next epoch. Keras begins passes that it does not train (to learn shapes, to build a model), and leaves others before
# their end: an epoch counts once its last batch has been taken, and is begun again until then.


def dataset(loader: Loader, first_epoch: int = 0) -> Any:
    """Return the epochs of `loader`, one a pass, from `first_epoch` on: a `tf.data.Dataset` on TensorFlow.

    The loader is closed when nothing refers to the dataset any more, or when the process ends. Ops that the loader
    leaves to the device run on the host.
    """
    begin = functools.partial(_passed, loader, [first_epoch])
    made = (_tensorflow if keras.backend.backend() == "tensorflow" else _Batches)(loader, begin)
    weakref.finalize(made, loader.close)
    return made


def channels() -> Channels:
    """Return the order of image axes that models built now expect."""
    return "first" if keras.config.image_data_format() == "channels_first" else "last"


def _passed(loader: Loader, following: list[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the batches of the one epoch in `following`, and put the next one there; not if the pass is abandoned."""
    processes.keep_again()  # which a dataset of a generator changes
    epoch, batches = following[0], loader.batches(following[0])
    try:
        for taken, batch in enumerate(batches, start=1):
            if taken == len(loader):
                following[0] = epoch + 1
            finished = loader.spec.packed(loader.finish.batch(batch))
            yield tuple(part for part in finished if part is not None)
            del batch  # the consumer may be done with it: do not hold it while waiting for the next
    finally:
        end(batches)


def _tensorflow(loader: Loader, begin: _Passes) -> Any:
    import tensorflow as tf

    parts = [slot for slot in models.finished_batch(loader) if slot is not None]
    signature = tuple(mapped(lambda part: tf.TensorSpec((None, *part.shape[1:]), part.dtype), slot) for slot in parts)
    made = tf.data.Dataset.from_generator(begin, output_signature=signature)
    made = made.apply(tf.data.experimental.assert_cardinality(len(loader))).prefetch(1)
    options = tf.data.Options()
    options.autotune.enabled = False  # a short queue: the loader has its own
    # A thread of its own waits for the loader: with one core, TensorFlow has one thread for all others, and a loader
    # that reads by tf.data needs it.
    options.threading.private_threadpool_size = 1
    return made.with_options(options)


class _Batches(keras.utils.PyDataset):
    """Hands out the next batch for any number: `fit` shuffles the numbers."""

    def __init__(self, loader: Loader, begin: _Passes) -> None:
        super().__init__(workers=1, use_multiprocessing=False)  # one is none: batches are made by the loader's workers
        self._loader, self._begin = loader, begin
        self._pass: Iterator[tuple[Any, ...]] = iter(())
        self._taken = 0  # since Keras began an epoch; several of its epochs may be parts of one pass
        self._begins = False

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def num_batches(self) -> int:
        """Batches of a pass. Keras asks before each, and before no other batch."""
        self._begins = not self._taken
        return len(self._loader)

    def on_epoch_begin(self) -> None:
        """Note that a pass may begin with the next batch."""
        self._taken = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from self._begin()  # the loader stays open as long as this refers to `self`

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        if self._begins:
            self._pass, self._begins = self._begin(), False
        batch = next(self._pass, None)
        if batch is None:
            self._pass = self._begin()
            batch = next(self._pass)
        self._taken += 1
        return batch
