"""Ctrl-C in each phase of a search: what is said is true, and what was measured is not lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from autopipe.measure.facts import Ceiling, Limits
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.measurer import Baseline, Effort
from autopipe.search.result import Reason
from autopipe.search.settings import Settings
from autopipe.search.trials import Event, SearchStopped
from tests.fakes.surface import Surface

Phase = Literal["baselines", "ceilings", "first trial", "second trial", "tenth trial", "proof"]
NOTHING = "Interrupted before anything to use was measured."
SO_FAR = "Interrupted: this is the best so far."


class Impatient(Surface):
    """Somebody presses Ctrl-C in one phase."""

    pressed: Phase

    def baselines(self) -> Sequence[Baseline]:
        self._press_if(self.pressed == "baselines")
        return super().baselines()

    def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
        self._press_if(self.pressed == "ceilings")
        return super().ceilings(setups)

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        trial = {0: "first trial", 1: "second trial", 9: "tenth trial"}.get(len(self.measured))
        self._press_if(self.pressed == ("proof" if effort is Effort.PROOF else trial))
        return super().measure(config, effort=effort, must_reach=must_reach)

    @staticmethod
    def _press_if(now: bool) -> None:
        if now:
            raise KeyboardInterrupt


def pressed(phase: Phase) -> Impatient:
    surface = Impatient(quirks=1, model_rate=60_000.0)
    surface.pressed = phase
    return surface


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("baselines", NOTHING),
        ("ceilings", NOTHING),
        ("first trial", NOTHING),
        ("second trial", SO_FAR),
        ("tenth trial", SO_FAR),
        ("proof", SO_FAR),
    ],
)
def test_what_is_said_is_true_in_each_phase(space: Space, phase: Phase, said: str) -> None:
    surface, told = pressed(phase), list[Event]()
    ended = study.run(space, surface, surface.facts(), Settings(clock=surface.clock), told.append)
    assert ended.result.stop.reason is Reason.INTERRUPTED
    assert (ended.result.interrupted, ended.result.proved) == (True, False)
    assert (ended.best_config is None) == (said == NOTHING)
    stops = [event.stop.message for event in told if isinstance(event, SearchStopped)]
    assert stops[-1] == ended.result.stop.message == said
    assert all(trial.state.is_finished() for trial in ended.study.trials)


def test_what_breaks_a_limit_is_not_called_the_best(space: Space) -> None:
    surface = pressed("second trial")
    settings = Settings(clock=surface.clock, limits=Limits(cpu_percent=1.0))
    ended = study.run(space, surface, surface.facts(), settings)
    assert ended.best_config is None
    assert ended.result.stop.message == NOTHING


@pytest.mark.parametrize("phase", ["baselines", "first trial"])
def test_what_an_earlier_session_measured_is_the_best_so_far(space: Space, tmp_path: Path, phase: Phase) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    before = pressed("tenth trial")
    first = study.run(space, before, before.facts(), Settings(clock=before.clock, storage=url))
    surface = pressed(phase)
    again = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, storage=url))
    assert again.best_config == first.best_config is not None
    assert again.result.stop.message == SO_FAR
