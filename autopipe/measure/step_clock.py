"""The steps of a training on a clock: how long each waited, computed, and came after the one before. No framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

WARM_UP_STEPS = 2
"""Functions compile in the first, and what is in a queue by then is used up from the second on."""

_RISES = 0.1  # of the time: what waiting may grow by before the figures are called early


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
        """Forget the time since the last step: validation and the end of the epoch before are no step's.

        From here to the first step of the epoch its data are opened, and waited for.
        """
        self._last = self._clock()
        self._opening = True

    def step_began(self, *, fetched: bool = False) -> None:
        """The training's function was called; `fetched`, with batches that were waited for before that."""
        now = self._clock()
        before = fetched or self._opening
        self._waited = now - self._last if before else 0.0
        self._began = self._last if before else now
        self._opening = False

    def waiting(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, and add up how long each was waited for."""
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
            del batch  # whoever took it may be done with it before the next is asked for

    def step_ended(self, images: int) -> None:
        """The training's function returned."""
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
        """Forget the time since the last step, which was not the training's."""
        self._last = self._clock()


def steady(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps that count: after the warm-up the later half by time, when queues that were full are empty."""
    rest = steps[WARM_UP_STEPS:]
    total = sum(step.seconds for step in rest)
    passed, begin = 0.0, 0
    while begin < len(rest) - 1 and passed + rest[begin].seconds <= total / 2:
        passed += rest[begin].seconds
        begin += 1
    return rest[begin:]


def waits_more_and_more(steps: Sequence[Step]) -> bool:
    """Tell whether steps at the end wait for more of their time than those before: a queue is running empty."""
    half = len(steps) // 2
    if half < 2:
        return False
    before, after = (_waiting_share(part) for part in (steps[:half], steps[half:]))
    return after > before + _RISES


def _waiting_share(steps: Sequence[Step]) -> float:
    return sum(step.waiting_seconds for step in steps) / max(1e-9, sum(step.seconds for step in steps))
