"""Searches that Ctrl-C ends in any phase, and studies that are gone on with by another request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest

from autopipe.measure.facts import Ceiling, Limits
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import Candidate
from autopipe.search.measurer import Baseline, Effort
from autopipe.search.result import Reason
from autopipe.search.settings import Settings
from autopipe.search.surrogate import Sampler, SurrogateSampler
from autopipe.search.trials import BudgetPlanned, Event, SearchStopped
from tests.fakes.surface import Surface
from tests.unit.search.conftest import some
from tests.unit.search.test_study import fed_by_four, run, settings

TWO_CORES = Limits(cpu_percent=250.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"journal:///{tmp_path}/study.log"


def cpu_percent(ended: Searched) -> float:
    return fed_by_four().resources(some(ended.best_config)).cpu_percent or 0.0


def test_what_was_measured_before_there_was_a_limit_is_held_to_it(space: Space, url: str) -> None:
    first = run(space, fed_by_four(quirks=1), url, trials=7, budget_seconds=None, blocks=(0, 0))
    assert cpu_percent(first) > 250.0
    surface = fed_by_four(quirks=1)
    second = run(space, surface, url, trials=7, budget_seconds=None, limits=TWO_CORES, blocks=(0, 0))
    assert surface.measured == []
    assert cpu_percent(second) <= 250.0
    assert second.result.over_limits


def test_what_broke_a_limit_that_is_none_any_more_can_win(space: Space, url: str) -> None:
    first = run(space, fed_by_four(quirks=1), url, trials=7, budget_seconds=None, limits=TWO_CORES, blocks=(0, 0))
    assert cpu_percent(first) <= 250.0
    assert first.result.over_limits
    second = run(space, fed_by_four(quirks=1), url, trials=7, budget_seconds=None, blocks=(0, 0))
    assert cpu_percent(second) > 250.0
    assert not second.result.over_limits


def test_of_a_study_whose_time_is_used_up_no_time_for_two_configurations_is_told(space: Space, url: str) -> None:
    """It has compared more than two; that its time is up is told at the end."""
    first = run(space, fed_by_four(quirks=1), url, trials=4, budget_seconds=60.0, blocks=(0, 0))
    told, surface = list[Event](), fed_by_four(quirks=1)
    spent = sum(row.seconds for row in first.rows)
    chosen = settings(surface, storage=url, budget_seconds=spent, blocks=(0, 0))
    study.run(space, surface, surface.facts(), chosen, on_event=told.append)
    assert not [event for event in told if isinstance(event, BudgetPlanned)]
    (stopped,) = [event.stop for event in told if isinstance(event, SearchStopped)]
    assert stopped.reason is Reason.TIME
    assert surface.measured == []


def test_the_sampler_goes_by_what_trials_are_worth_over_todays_epochs(space: Space, url: str) -> None:
    seen: list[Mapping[str, float]] = []

    class Noting(SurrogateSampler):
        def choose(self, worth: Mapping[str, float | None], busy: Collection[str] = ()) -> Candidate | None:
            seen.append({key: value for key, value in worth.items() if value is not None})
            return super().choose(worth, busy)

    def surface() -> Surface:
        return Surface(decode_seconds=0.004, model_rate=60_000.0, sample_count=50_000, noise=0.002)

    first = run(space, surface(), url, trials=6, budget_seconds=None, blocks=(0, 0))
    steady = max(row.value for row in first.rows if row.value is not None)
    noting = Sampler("noting", Noting)
    run(space, surface(), url, trials=13, budget_seconds=None, blocks=(0, 0), epochs=1, patience=99, sampler=noting)
    assert len(seen[0]) >= 6
    assert max(seen[0].values()) < 0.7 * steady


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

    def before(self, config: PipelineConfig, effort: Effort) -> None:
        trial = {0: "first trial", 1: "second trial", 9: "tenth trial"}.get(len(self.measured))
        self._press_if(self.pressed == ("proof" if effort is Effort.PROOF else trial))

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
    url = f"journal:///{tmp_path}/study.log"
    before = pressed("tenth trial")
    first = study.run(space, before, before.facts(), Settings(clock=before.clock, storage=url))
    surface = pressed(phase)
    again = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, storage=url))
    assert again.best_config == first.best_config is not None
    assert again.result.stop.message == SO_FAR
