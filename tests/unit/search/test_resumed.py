"""Studies that are gone on with by a search which is asked for something else than the one before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from autopipe.measure.facts import Limits
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import Candidate
from autopipe.search.result import Reason
from autopipe.search.surrogate import Sampler, SurrogateSampler
from autopipe.search.trials import BudgetPlanned, Event, SearchStopped
from tests.fakes.surface import Surface
from tests.unit.search.test_study import fed_by_four, run, settings

TWO_CORES = Limits(cpu_percent=250.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def cpu_percent(ended: Searched) -> float:
    assert ended.best_config is not None
    return fed_by_four().resources(ended.best_config).cpu_percent or 0.0


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
