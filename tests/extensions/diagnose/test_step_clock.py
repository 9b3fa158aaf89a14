"""Steps on a clock that only moves when it is told to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autopipe.extensions.diagnose.run import WARM_UP_STEPS, Step, StepClock, steady, waits_more_and_more


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def slow(clock: Clock, seconds: float) -> Iterator[int]:
    while True:
        clock.now += seconds
        yield 0


def step(seconds: float = 1.0, waiting: float = 0.0) -> Step:
    return Step(images=8, seconds=seconds, waiting_seconds=waiting, between_seconds=0.0)


def test_waiting_computing_and_the_time_between_are_told_apart() -> None:
    clock = Clock()
    steps = StepClock(clock)
    clock.now += 60.0  # what comes before the epoch
    steps.epoch_began()
    for _ in range(2):
        clock.now += 0.25
        steps.step_began()
        next(steps.waiting(slow(clock, 2.0)))
        clock.now += 1.0
        steps.step_ended(8)
    assert steps.steps == [
        Step(images=8, seconds=3.25, waiting_seconds=2.25, between_seconds=0.0),  # its data had to be opened
        Step(images=8, seconds=3.25, waiting_seconds=2.0, between_seconds=0.25),
    ]


def test_validation_is_no_steps_time() -> None:
    clock = Clock()
    steps = StepClock(clock)
    for _ in range(2):
        steps.epoch_began()
        steps.step_began()
        clock.now += 1.0
        steps.step_ended(8)
        clock.now += 500.0
    assert [each.seconds for each in steps.steps] == [1.0, 1.0]


def test_the_end_of_the_data_is_waited_for_and_is_no_batch() -> None:
    clock = Clock()
    steps = StepClock(clock)
    steps.step_began()
    assert list(steps.waiting([1, 2])) == [1, 2]


def test_only_the_later_half_counts_and_never_the_warm_up() -> None:
    steps = [step(50.0), step(9.0), *(step(1.0) for _ in range(10))]
    assert len(steady(steps)) == 5
    assert len(steady(steps[: WARM_UP_STEPS + 1])) == 1
    assert not steady(steps[:WARM_UP_STEPS])


@pytest.mark.parametrize(("waits", "rises"), [([0, 0, 0.5, 0.6], True), ([0.5] * 4, False), ([0.5], False)])
def test_a_queue_that_runs_empty_is_told(waits: list[float], rises: bool) -> None:
    assert waits_more_and_more([step(waiting=each) for each in waits]) is rises


def test_batches_that_were_fetched_before_the_call_were_waited_for_until_then() -> None:
    clock = Clock()
    steps = StepClock(clock)
    steps.epoch_began()
    for _ in range(2):
        clock.now += 0.5
        steps.step_began(fetched=True)
        clock.now += 1.0
        steps.step_ended(8)
    assert steps.steps == [step(1.5, waiting=0.5)] * 2
