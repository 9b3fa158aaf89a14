"""The meter: decides after which steps of a training the clock is read, and makes edges of windows from the readings.

It holds no clock and imports no framework, so that tests can drive it. The rate from the edges, and the stop rule, are
in `windows`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from autopipe.measure import windows
from autopipe.measure.windows import Edge, Reading, StopRule, overall
from autopipe.values import Estimate

AUTOTUNE_SECONDS = 1.0
"""Time for tf.data's own tuning: it looks after 10, 20, 40, ... ms, so most has happened by then."""
MOST_BEFORE_SECONDS = 2.0
"""The most seconds of reading files outside of windows in a trial."""
_SLOW_STEP_SECONDS = 0.25  # slow steps are not spent on waiting for workers to spread out
_SHORT_EPOCH_SECONDS = 1.0  # a first epoch this short is left out, with its one-time work


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The settling before the first window."""

    fill_steps: int = 1  # steps in which caches fill; at least one, which waits for the loader to start
    # time for the loader after that, besides the time in which workers that began together spread out
    settle_seconds: float = 0.0


class Meter:
    """Follows one training from step to step."""

    def __init__(self, batch_size: int, workers: int, rule: StopRule, start: Start | None = None) -> None:
        """Measure a loader with `workers` workers, each of which makes whole batches."""
        self.batch_size = batch_size
        self._workers = max(1, workers)
        self._rule = rule
        self._start = start or Start()
        self._next_look = max(1, self._start.fill_steps)
        # Steps of an epoch, after which Keras pauses: the probe sets it. A window ends with each epoch, so that
        # whole epochs can be counted. None: no end, or not known.
        self.epoch_steps: int | None = None
        self.filled_at: float | None = None  # when the last of the fill steps had ended; None before
        self.began_at: float | None = None  # when the first window began; None before
        self.reading: Reading | None = None  # of the windows; None while there are too few
        self._filled_steps = 0
        self._began_steps = 0
        self._edges: list[Edge] = []
        self._steps = 0
        self._levels: list[int] = []

    @property
    def images(self) -> int:
        return self._edges[-1].images if self._edges else 0

    @property
    def rate(self) -> float:
        spent = self._edges[-1].seconds - self._edges[0].seconds if len(self._edges) > 1 else 0.0
        return self.images / spent if spent > 0 else 0.0

    @property
    def overall(self) -> Estimate:
        """Images per second over all windows that count, or over whole epochs; requires a reading."""
        assert self.reading is not None
        epoch_images = None if self.reading.emptied else self.epoch_images
        return overall(self.reading.windows, epoch_images, self.discarded_batches * self.batch_size)

    @property
    def epoch_images(self) -> int | None:
        return None if self.epoch_steps is None else self.epoch_steps * self.batch_size

    @property
    def discarded_batches(self) -> int:
        return self._began_steps + (0 if self.reading is None else self.reading.left_out // self.batch_size)

    def step(self, steps: int, queued_batches: int | None) -> bool:
        """Note that `steps` steps so far have been issued; True if it is time to `look`.

        `queued_batches` is the level of the loader's queue, or None if unknown. Its mean counts: at the edges of
        windows alone, the bursts in which workers deliver would look like a trend.
        """
        self._steps = steps
        if queued_batches is not None:
            self._levels.append(queued_batches)
        return steps >= self._next_look

    def look(self, seconds: float, waited_seconds: float) -> bool:
        """Take a reading after all work of these steps was done; True if the training goes on."""
        if self.filled_at is None:
            self.filled_at, self._filled_steps = seconds, self._steps
            self._next_look = self._steps + 1
        elif self.began_at is not None or self._has_settled(seconds):
            self._add_edge(seconds, waited_seconds)
        return self.reading is None or not self.reading.done

    def end(self, seconds: float, waited_seconds: float) -> None:
        """Take the last reading at the end of the training; fewer windows than usual are enough."""
        if len(self._edges) == 1 and self._steps > self._began_steps:
            self._add_edge(seconds, waited_seconds)
        if self.reading is None or not self.reading.done:
            self._read(final=True)

    @property
    def _burst(self) -> int:
        return self._workers * self.batch_size

    def _has_settled(self, seconds: float) -> bool:
        """Return True once workers have spread out, the loader has had its time and a short first epoch is over.

        If not, set the next look.
        """
        assert self.filled_at is not None
        spent, done = seconds - self.filled_at, self._steps - self._filled_steps
        step_seconds = max(spent / done, 1e-6)
        wanted = 1 if step_seconds > _SLOW_STEP_SECONDS else self._workers + 2
        missing = math.ceil((self._start.settle_seconds - spent) / step_seconds)
        # The first steps come in a burst and say little of the later ones, so no more are waited for than there were.
        self._next_look = max(self._filled_steps + wanted, self._steps + min(missing, done))
        left = (self.epoch_steps or 0) - self._steps  # of the first epoch
        if self._next_look <= self._steps and 0 < left * step_seconds <= _SHORT_EPOCH_SECONDS:
            self._next_look = self._steps + min(left, done)
        return self._next_look <= self._steps

    def _window_steps(self, seconds: float, steps: int) -> int:
        """Choose the steps of a window, by the time of the last `steps` or more."""
        assert self.filled_at is not None  # no edge is added before
        marks = [(self.filled_at, self._filled_steps)]
        marks += [(edge.seconds, self._began_steps + edge.images // self.batch_size) for edge in self._edges]
        before, steps_before = next((each for each in reversed(marks) if self._steps - each[1] >= steps), marks[0])
        return windows.window_steps((seconds - before) / (self._steps - steps_before), self._workers, self._rule)

    def _add_edge(self, seconds: float, waited_seconds: float) -> None:
        # The batches of one burst came together, so their steps do not show the wait for the next burst.
        by_bursts = max(self._workers, self._window_steps(seconds, self._workers))
        self._next_look = self._steps + self._to_epochs_end(min(self._window_steps(seconds, 1), by_bursts))
        if not self._edges:
            self.began_at, self._began_steps = seconds, self._steps
        mean = sum(self._levels) / len(self._levels) if self._levels else None
        self._levels.clear()
        self._edges.append(
            Edge(
                seconds=seconds,
                images=(self._steps - self._began_steps) * self.batch_size,
                waited_seconds=waited_seconds,
                queued=None if mean is None else mean * self.batch_size,
            )
        )
        self._read(final=False)

    def _to_epochs_end(self, steps: int) -> int:
        """Return `steps`, or the steps to an epoch's end: the last within them, or one up to half as far again."""
        if self.epoch_steps is None:
            return steps
        left = self.epoch_steps - self._steps % self.epoch_steps
        whole = max(0, steps - left) // self.epoch_steps * self.epoch_steps
        return left + whole if left <= 1.5 * steps else steps

    def _read(self, *, final: bool) -> None:
        self.reading = windows.read(
            self._edges, self._rule, burst=self._burst, epoch_images=self.epoch_images, final=final
        )


# -------------------- step clock: for each step, its wait, its computation and its interval. No framework.

WARM_UP_STEPS = 2
"""The first step compiles, and from the second on the queues' initial content is used up."""

_RISES = 0.1  # of the time: if waiting grows by more, the figures are called early


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of the model's training function."""

    images: int  # trained on
    seconds: float  # from the end of the step before, or the beginning of the epoch, to the end of this one
    waiting_seconds: float  # the part of it that was waited for data
    between_seconds: float  # the part of it before the call


class StepClock:
    """Times steps one by one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.steps: list[Step] = []  # that have ended, in all epochs
        self._clock = clock
        self._last = clock()
        self._began = self._last
        self._waited = 0.0
        self._opening = False

    def epoch_began(self) -> None:
        """Forget the time since the last step: validation and the end of an epoch belong to no step.

        Until the first step of the epoch, its data are opened and waited for.
        """
        self._last = self._clock()
        self._opening = True

    def step_began(self, *, fetched: bool = False) -> None:
        """Note a call of the training function; `fetched`: after batches that were waited for."""
        now = self._clock()
        before = fetched or self._opening
        self._waited = now - self._last if before else 0.0
        self._began = self._last if before else now
        self._opening = False

    def waiting(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, and add up the waiting for each."""
        source = iter(batches)
        while True:
            asked = self._clock()
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self._waited += self._clock() - asked
            yield batch
            del batch  # its consumer may be done with it before it takes the next

    def step_ended(self, images: int) -> None:
        now = self._clock()
        self.steps.append(
            Step(
                images=images,
                seconds=now - self._last,
                waiting_seconds=self._waited,
                between_seconds=self._began - self._last,
            )
        )
        self._last = now

    def pause_ended(self) -> None:
        self._last = self._clock()


def steady(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps that count: the later half by time after the warm-up, when initially full queues are empty."""
    rest = steps[WARM_UP_STEPS:]
    total = sum(step.seconds for step in rest)
    passed, begin = 0.0, 0
    while begin < len(rest) - 1 and passed + rest[begin].seconds <= total / 2:
        passed += rest[begin].seconds
        begin += 1
    return rest[begin:]


def waits_more_and_more(steps: Sequence[Step]) -> bool:
    """Return True if later steps wait for a larger share of their time: a queue is running empty."""
    half = len(steps) // 2
    if half < 2:
        return False
    before, after = (_waiting_share(part) for part in (steps[:half], steps[half:]))
    return after > before + _RISES


def _waiting_share(steps: Sequence[Step]) -> float:
    return sum(step.waiting_seconds for step in steps) / max(1e-9, sum(step.seconds for step in steps))
