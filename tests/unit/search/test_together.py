"""Several searches in one study, as threads on a journal. As processes that die: tests/servers/test_join.py."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Facts
from autopipe.core.outcome import Measurement, TrialFailure
from autopipe.core.space import Space
from autopipe.search import study, together
from autopipe.search.events import ConcludedElsewhere, ConfirmationStarted, Event, StudyJoined
from autopipe.search.measurer import Effort
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.result import SearchResult
from autopipe.search.settings import Settings
from autopipe.search.storage import open_storage
from tests.fakes.surface import Surface

NAME = "joint"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "POLL_SECONDS", 0.01)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"journal:///{tmp_path}/study.log"


class Meeting(Surface):
    """Does something in its first trial."""

    meet: Callable[[], object]

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        if not self.measured:
            self.meet()
        return super().measure(config, effort=effort, must_reach=must_reach)


@dataclasses.dataclass
class Search:
    """One of the searches, what it told, and what came of it."""

    surface: Meeting
    told: list[Event] = dataclasses.field(default_factory=list)

    def run(self, space: Space, url: str, **chosen: object) -> SearchResult:
        settings = Settings(
            clock=self.surface.clock,
            storage=url,
            study_name=NAME,
            digests={"workload": "w"},
            join=True,
            trials=8,
            budget_seconds=None,
            finalists=2,
            blocks=(2, 2),
        )
        settings = dataclasses.replace(settings, **chosen)  # type: ignore[arg-type]
        return study.run(space, self.surface, self.surface.facts(), settings, self.told.append)

    def count(self, kind: type) -> int:
        return sum(isinstance(event, kind) for event in self.told)


def search(seed: int, meet: Callable[[], object] = lambda: None) -> Search:
    surface = Meeting(quirks=1, model_rate=60_000.0, seed=seed)
    surface.meet = meet
    return Search(surface)


def trials(url: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=NAME, storage=open_storage(url)).trials


def asker(trial: optuna.trial.FrozenTrial) -> Asker:
    return AskedBy.parse(trial.user_attrs["origin"]).asker


def both(space: Space, url: str, searches: tuple[Search, Search]) -> list[SearchResult]:
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(each.run, space, url) for each in searches]
        return [each.result() for each in running]


def test_two_searches_take_different_trials_and_end_with_one_result(space: Space, url: str) -> None:
    barrier = threading.Barrier(2, timeout=60)
    searches = search(0, barrier.wait), search(1, barrier.wait)
    first, second = both(space, url, searches)
    ran = [each for each in trials(url) if "outcome" in each.user_attrs]
    once = Counter(each.user_attrs["key"] for each in ran if asker(each) not in (Asker.AGAIN, Asker.PROOF))
    assert set(once.values()) == {1}
    assert 8 <= once.total() <= 10  # both may be in a trial when the last one is begun
    assert len({each.user_attrs["owner"]["participant"] for each in ran}) == 2
    blocks = [each for each in ran if asker(each) is Asker.PROOF]
    assert len({each.user_attrs["owner"]["participant"] for each in blocks}) == 1
    assert sorted(each.count(ConfirmationStarted) for each in searches) == [0, 1]
    assert sorted(each.count(ConcludedElsewhere) for each in searches) == [0, 1]
    assert first.proved
    assert first.ended_at is not None
    different = {field.name for field in dataclasses.fields(SearchResult)} - {"study", "dropped"}
    assert [name for name in different if getattr(first, name) != getattr(second, name)] == []


def test_who_comes_late_measures_nothing_and_has_the_result(space: Space, url: str) -> None:
    found = search(0).run(space, url)
    late = search(1)
    again = late.run(space, url)
    assert late.surface.measured == []
    assert (again.best_config, again.estimate, again.ended_at) == (found.best_config, found.estimate, found.ended_at)
    assert late.count(ConcludedElsewhere) == 1


def test_who_has_less_memory_free_at_its_start_has_the_same_winner(space: Space, url: str) -> None:
    class Little(Meeting):
        def facts(self) -> Facts:
            return dataclasses.replace(super().facts(), memory_bytes=1)

    found = search(0).run(space, url)
    assert found.best_config is not None
    assert found.best_config.cache == "memory"
    late = Search(Little(quirks=1, model_rate=60_000.0))
    late.surface.meet = lambda: None
    assert late.run(space, url).best_config == found.best_config
    assert late.surface.measured == []


def test_a_lone_participant_finds_what_a_search_of_its_own_finds(space: Space, url: str) -> None:
    shared, alone = search(0), search(0)
    ours = shared.run(space, url)
    own = alone.run(space, f"{url}-other", join=False)
    assert [(row.key, row.value) for row in ours.trials] == [(row.key, row.value) for row in own.trials]
    assert ours.best_config == own.best_config
    assert [event.others for event in shared.told if isinstance(event, StudyJoined)] == [()]


def test_where_the_first_is_interrupted_another_ends_the_study(space: Space, url: str) -> None:
    barrier = threading.Barrier(2, timeout=60)
    first, second = search(0, barrier.wait), search(1, barrier.wait)
    with ThreadPoolExecutor() as threads:
        begun = threading.Event()
        first.surface.meet = lambda: interrupt(begun, barrier)
        one = threads.submit(first.run, space, url)
        begun.wait(60)  # so that it is the first
        two = threads.submit(second.run, space, url)
        assert one.result().interrupted
        found = two.result()
    assert "The others who share the study go on" in one.result().stopped_because.message
    assert found.proved
    assert second.count(ConfirmationStarted) == 1
    assert {row.key for row in found.trials} == {each.user_attrs["key"] for each in trials(url)}


def interrupt(begun: threading.Event, barrier: threading.Barrier) -> None:
    """Press Ctrl-C when both are in a trial."""
    begun.set()
    barrier.wait()
    raise KeyboardInterrupt
