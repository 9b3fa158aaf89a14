"""The clock of a training: its steps one by one, and each whole epoch by parts.

No framework is imported here: a loop without Keras has steps, too. What follows from the times is in `watched`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from autopipe.hardware.machine import size_text
from autopipe.hardware.processes import Usage
from autopipe.measure import randomness
from autopipe.measure.stats import median
from autopipe.reports import wording
from autopipe.values import Value, count_text

_FEWEST_STEPS = 4
_FEW_SECONDS = 2.0
LINES_SHARE = 0.4  # of the look, in which lines are watched: before the steps that count
WARM_UP_STEPS = 2  # the first step compiles, and from the second on the queues' initial content is used up

_FEW_SHAPES = 3
_RISES = 0.1  # of the time: if waiting grows by more, the figures are called early


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """One step of a training."""

    images: int  # trained on
    seconds: float  # from the end of the step before, or the beginning of the epoch, to the end of this one
    waiting_seconds: float  # the part of it that was waited for data
    between_seconds: float  # the part of it before the call
    is_first: bool = False  # of its epoch, whose data it opens
    is_new: bool = False  # of another shape than every batch before, for which the model may be compiled


class Epochs(Value):
    """The time of whole epochs by parts, from the beginning of each to that of the next; sums over all of them."""

    count: int
    first_batch_seconds: float = 0.0  # in which an epoch's first batch was waited for
    steps_seconds: float = 0.0  # the rest of the steps
    validation_seconds: float = 0.0
    callbacks_seconds: float = 0.0  # between the end of an epoch and the beginning of the next
    between_seconds: float = 0.0  # between the last step of an epoch and its end, without the validation
    queue_seconds: float = 0.0  # in which Keras waited for batches that it keeps for the next epoch
    validation_waiting_seconds: float = 0.0  # the part of the validation that was waited for its data
    images: int = 0  # that were trained on

    @property
    def seconds(self) -> float:
        return float(sum(getattr(self, name) for name in _PARTS))


_PARTS = [f"{part}_seconds" for part in ("first_batch", "steps", "validation", "callbacks", "between", "queue")]


class StepClock:
    """Times steps one by one, and what lies between them by parts of the epoch."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.steps: list[TimedStep] = []  # that have ended, in all epochs
        self.waits = 0.0  # what `waiting` has waited in all
        self._clock = clock
        self._last = clock()
        self._began = self._last
        self._waited = 0.0
        self._opening = False
        self._epochs: list[dict[str, float]] = []  # whole ones
        self._epoch: dict[str, float] | None = None  # that is going on

    @property
    def seconds(self) -> float:
        """Everything since the first step, which compiles."""
        spent = [*self._epochs, *([] if self._epoch is None else [self._epoch])]
        total = sum(each.get(part, 0.0) for each in spent for part in _PARTS)
        return total - (self.steps[0].seconds if self.steps else 0.0)

    @property
    def epochs(self) -> Epochs | None:
        """Whole epochs but the first one, or without another, but its first step, which compiles; None: none yet."""
        whole = [each for each in self._epochs if each.get("images")]  # in others the data had come to their end
        if not (whole := whole[1:] or whole):
            return None
        names = (name for name in Epochs.model_fields if name != "count")
        sums: dict[str, Any] = {name: sum(each.get(name, 0) for each in whole) for name in names}
        if self.is_first_epoch:
            sums["steps_seconds"] -= self.steps[0].seconds - self.steps[0].waiting_seconds
        return Epochs(count=len(whole), **sums)

    @property
    def is_first_epoch(self) -> bool:
        """Whether `epochs` are the first one, which fills caches."""
        return sum("images" in each for each in self._epochs) == 1

    @property
    def empty_epochs(self) -> int:
        return len(self._epochs) - sum("images" in each for each in self._epochs)

    def figures(self, seen: Sequence[TimedStep]) -> dict[str, Any]:
        """Return the sums of the steps that count, and the epochs, as `Watched` has them."""
        names = ("images", "seconds", "waiting_seconds", "between_seconds")
        sums = {name: sum(getattr(step, name) for step in seen) for name in names}
        first = self.steps[0].seconds
        return {**sums, "steps": len(seen), "first_step_seconds": first, "epochs": self.epochs}

    def epoch_began(self) -> None:
        """Note the beginning of an epoch. Until its first step its data are opened and waited for."""
        self.spent_on("callbacks")
        if self._epoch is not None:
            self._epochs.append(self._epoch)
        self._epoch, self._last, self._opening = {}, self._clock(), True

    def epochs_ended(self) -> None:
        self.epoch_began()
        self._epoch, self._opening = None, False

    def spent_on(self, part: str) -> None:
        """Note that the time since the last step, or the last such note, went to a part of the epoch."""
        now = self._clock()
        self._add(part, now - self._last)
        self._last = now

    def validated(self, waited: float) -> None:
        """Note the end of a validation, and how much of it was waited."""
        self.spent_on("validation")
        if self._epoch is not None:
            self._epoch["validation_waiting_seconds"] = waited

    def step_began(self, *, fetched: bool = False) -> None:
        """Note a step's beginning; `fetched`: after batches that were waited for."""
        now = self._clock()
        before = fetched or self._opening
        self._waited = now - self._last if before else 0.0
        self._began = self._last if before else now

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Count what the block takes as waiting for data, in a step that has begun."""
        asked = self._clock()
        try:
            yield
        finally:
            waited = self._clock() - asked
            self._waited, self.waits = self._waited + waited, self.waits + waited

    def waiting(self, batches: Iterable[Any]) -> Iterator[Any]:
        source = iter(batches)
        while True:
            try:
                with self.wait():
                    batch = next(source)
            except StopIteration:
                return
            yield batch
            del batch  # its consumer may be done with it before it takes the next

    def step_ended(self, images: int, *, is_new: bool = False) -> None:
        now = self._clock()
        step = TimedStep(
            images=images,
            seconds=now - self._last,
            waiting_seconds=self._waited,
            between_seconds=self._began - self._last,
            is_first=self._opening,
            is_new=is_new,
        )
        self.steps.append(step)
        first = step.waiting_seconds if step.is_first else 0.0
        self._add("first_batch", first)
        self._add("steps", step.seconds - first)
        if self._epoch is not None:
            self._epoch["images"] = self._epoch.get("images", 0) + images
        self._last, self._opening = now, False

    def step_lasted(self) -> None:
        now = self._clock()
        last, more = self.steps[-1], now - self._last
        self.steps[-1] = dataclasses.replace(last, seconds=last.seconds + more)
        self._add("steps", more)
        self._last = now

    def pause_ended(self) -> None:
        self._last = self._clock()

    def _add(self, part: str, seconds: float) -> None:
        if self._epoch is not None:
            self._epoch[f"{part}_seconds"] = self._epoch.get(f"{part}_seconds", 0.0) + seconds


def shape_of(batch: Any) -> tuple[Any, ...]:
    """Return the shapes of all arrays of a batch."""
    return tuple(str(getattr(leaf, "shape", None)) for leaf in randomness.leaves(batch))


def rows_of(batch: Any) -> int:
    """Return the number of samples of a batch: the length of its first array; 1 if it has none."""
    while isinstance(batch, dict | list | tuple) and batch:
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    shapes: list[Any] = [getattr(part, "shape", ()) for part in replicas(batch)]
    return sum(int(shape[0]) if len(shape) else 1 for shape in shapes)


def replicas(array: Any) -> tuple[Any, ...]:
    """Return the parts of TensorFlow's PerReplica, one for each device; of any other array itself."""
    parts = getattr(array, "values", None)
    return parts if isinstance(parts, tuple) else (array,)


def steady(steps: Sequence[TimedStep]) -> Sequence[TimedStep]:
    """Return the steps that count: the later half by time after the warm-up, without those that open an epoch's data,
    or whose few new shapes are compiled for once.
    """
    rest = steps[WARM_UP_STEPS:]
    few = sum(step.is_new for step in rest) <= _FEW_SHAPES
    rest = [step for step in rest if not step.is_first and not (few and step.is_new)] or rest
    total = sum(step.seconds for step in rest)
    passed, begin = 0.0, 0
    while begin < len(rest) - 1 and passed + rest[begin].seconds <= total / 2:
        passed += rest[begin].seconds
        begin += 1
    return rest[begin:]


def compiling(seen: Sequence[TimedStep], framework: str | None) -> float:
    """Return the seconds that steps on new shapes took beyond others; without these, JAX compiled each."""
    new, old = ([step.seconds - step.waiting_seconds for step in seen if step.is_new is new] for new in (True, False))
    usual = median(old) if old else 0.0 if framework == "jax" else math.inf
    return sum(max(0.0, seconds - usual) for seconds in new)


def doubts(seen: Sequence[TimedStep], *, has_queue: bool = True) -> Iterator[str]:
    """Yield what makes the figures of the steps that count doubtful. `has_queue`: of batches that are made ahead."""
    took = sum(step.seconds for step in seen)
    if took < _FEW_SECONDS or len(seen) < _FEWEST_STEPS:
        timed = f"{count_text(len(seen), 'step')}, {wording.seconds(took)} in all, "
        yield f"Only {timed}{'was' if len(seen) == 1 else 'were'} timed: train for longer to be surer."
    half = len(seen) // 2
    before, after = (
        sum(step.waiting_seconds for step in part) / max(1e-9, sum(step.seconds for step in part))
        for part in (seen[:half], seen[half:])
    )
    if has_queue and half >= 2 and after > before + _RISES:
        yield "Steps waited more and more: a queue was running empty. Look for longer."


def empty(steps: Sequence[TimedStep]) -> Iterator[str]:
    """Tell of batches without a sample."""
    if count := sum(step.images == 0 for step in steps):
        yield f"{count:,} of {len(steps):,} batches had no sample: the length of the data counts too many."


def asked_of(data: Any) -> int | None:
    """Return the samples that a torch DataLoader, or its iterator, reads for a batch; None for other data, or fewer."""
    if not (hasattr(data, "collate_fn") or hasattr(data, "_collate_fn")):
        return None
    asked = getattr(getattr(data, "_index_sampler", data), "batch_size", None)
    whole: Any = getattr(data, "dataset", getattr(data, "_dataset", None))
    known = isinstance(asked, int) and hasattr(whole, "__len__") and len(whole) >= asked
    return asked if known else None


_FULL, _FEW_FULL = 0.9, 0.1  # of a batch's samples, and of the batches: with fewer that are full, samples are dropped


def dropped(asked: int | None, steps: Sequence[TimedStep]) -> Iterator[str]:
    """Say that hardly a batch has the samples that are `asked` of the data for it; nothing if they have."""
    if asked is not None and sum(step.images > _FULL * asked for step in steps) <= _FEW_FULL * len(steps):
        lost = 1 - sum(step.images for step in steps) / len(steps) / asked
        yield (
            f"{lost:.0%} of the samples that the DataLoader reads are thrown away before the training, as by a "
            "`collate_fn` that drops None. Leave them out of the dataset's own list, so that they are not read."
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How long to watch."""

    seconds: float = 10.0  # of training, the compiling of its first step left out
    steps: int | None = None  # how many steps instead, after the first two; None: by `seconds`
    alone_seconds: float = 1.6  # how long the model runs alone, twice if it augments

    def is_enough(self, steps: int, seconds: float, share: float = 1.0) -> bool:
        """Return True after enough steps, which took `seconds` with what lies between them."""
        rest = steps - WARM_UP_STEPS
        if self.steps is not None:
            return rest >= share * self.steps
        return rest >= share * _FEWEST_STEPS and seconds >= share * self.seconds


_GROWS_EPOCHS, _GROWS_SHARE, _MANY_EPOCHS = 3, 0.02, 100


def grows(usage: Usage, epochs_from: Sequence[float]) -> Iterator[str]:
    """Say how much more memory each epoch takes than the one before; nothing if it does not, or few were seen."""
    peaks = [
        max((each.memory_bytes for each in usage.samples if begin <= each.seconds < end), default=0)
        for begin, end in itertools.pairwise(epochs_from[1:])  # the first one allocates what stays
    ]
    steps = [after - before for before, after in itertools.pairwise(peaks)]
    if len(peaks) >= _GROWS_EPOCHS and min(peaks) > 0 and min(steps) >= _GROWS_SHARE * peaks[0]:
        each = sum(steps) / len(steps)
        yield (
            f"Memory grows by {size_text(int(each))} an epoch, to {size_text(int(peaks[-1] + _MANY_EPOCHS * each))} "
            f"after {_MANY_EPOCHS} more: something that makes the data keeps what it makes."
        )
