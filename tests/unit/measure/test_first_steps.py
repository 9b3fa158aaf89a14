from __future__ import annotations

import pytest

from autopipe.core.outcome import Phase
from autopipe.measure.first_steps import FirstSteps


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


@pytest.mark.parametrize(("step_seconds", "said"), [(0.1, 0), (10.0, 1)])
def test_a_step_that_takes_long_is_told_after_the_second_one_and_once(step_seconds: float, said: int) -> None:
    told, now = Told(), [0.0]
    steps = FirstSteps(told, clock=lambda: now[0])
    for number in range(5):
        now[0] += 30.0 if number == 0 else step_seconds  # the first compiles
        steps.progress(0, 0.0)
        assert len(told.logs) == (said if number > 0 else 0)
    assert told.signs == 5
    assert all("takes 10 s without any loader, so each trial takes 40 s or more" in line for line in told.logs)


def test_the_phase_stays_that_of_whoever_measures() -> None:
    told = Told()
    FirstSteps(told).phase(Phase.FILL)
    assert told.phases == []
