from __future__ import annotations

import pytest

from autopipe.core.outcome import Phase
from autopipe.measure.bench import FirstSteps


class Told:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.logs: list[str] = []
        self.signs = 0

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    def progress(self, images: int, images_per_second: float) -> None:
        self.signs += 1

    def log(self, text: str) -> None:
        self.logs.append(text)


@pytest.mark.parametrize(("first", "step", "said"), [(1.0, 0.1, 0), (30.0, 0.1, 1), (3.0, 10.0, 1), (30.0, 10.0, 2)])
def test_steps_that_take_long_are_told_as_they_end_and_once(first: float, step: float, said: int) -> None:
    told, now = Told(), [0.0]
    steps = FirstSteps(told, clock=lambda: now[0])
    for number in range(5):
        now[0] += first if number == 0 else step
        steps.progress(0, 0.0)
        steps.progress(0, 0.0)  # a probe may tell of one step twice
        assert number > 0 or len(told.logs) == (first >= 10.0)
    assert told.signs == 10
    assert len(told.logs) == said
    if step > 2.0:
        assert told.logs[-1].startswith("A training step takes 10 s without any loader, so each trial takes 40 s")


def test_one_long_step_that_compiles_again_is_not_told_and_batches_that_run_together_are_told_apart() -> None:
    for together, took in ((1, [5.0, 9.0, 0.1, 0.1]), (8, [5.0, 9.0, 9.0, 9.0])):
        told, now = Told(), [0.0]
        steps = FirstSteps(told, together, clock=lambda now=now: now[0])  # type: ignore[misc]
        for each in took:
            now[0] += each
            steps.progress(0, 0.0)
        assert told.logs == []


def test_the_phase_stays_that_of_whoever_measures() -> None:
    told = Told()
    FirstSteps(told).phase(Phase.FILL)
    assert told.phases == []
