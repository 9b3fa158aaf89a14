"""Several searches in one study, as threads. As processes that die, in PostgreSQL: tests/servers/test_join.py."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import optuna
import pytest

from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.conclusion import Searched
from autopipe.search.storage import open_storage
from autopipe.search.trials import AskedBy, Asker, ConfirmationStarted, Event, StudyJoined
from tests.fakes.surface import Surface
from tests.unit.search.conftest import run

NAME = "joint"
# Each search keeps Optuna from warning, but not in a way that is meant for threads.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture(autouse=True)
def _machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each thread be a machine of its own, and nobody be waited for longer than needed."""
    monkeypatch.setattr(socket, "gethostname", lambda: threading.current_thread().name)
    monkeypatch.setattr(study, "_POLL_SECONDS", 0.01)


@pytest.fixture
def url(url: str) -> str:
    open_storage(url)  # whose tables only one process of SQLite can make
    return url


@dataclass(kw_only=True)
class Machine(Surface):
    """Searches, does something in its first trial, and notes what is told."""

    model_rate: float = 60_000.0
    quirks: int = 1
    meet: Callable[[], object] = lambda: None
    told: list[Event] = field(default_factory=list)

    def before(self, config: PipelineConfig, proof: bool) -> None:
        if not self.measured:
            self.meet()

    def search(self, space: Space, url: str, *, join: bool = True) -> Searched:
        asked: dict[str, Any] = {"study_name": NAME, "digests": {"workload": "w"}, "finalists": 2, "blocks": (2, 2)}
        return run(space, self, url, told=self.told, join=join, trials=8, budget_seconds=None, **asked)

    def joined(self) -> list[tuple[str, ...]]:
        return [event.others for event in self.told if isinstance(event, StudyJoined)]


def measured(url: str) -> list[optuna.trial.FrozenTrial]:
    trials = optuna.load_study(study_name=NAME, storage=url).trials
    return [each for each in trials if "outcome" in each.user_attrs]


def asker(trial: optuna.trial.FrozenTrial) -> Asker:
    return AskedBy.parse(trial.user_attrs["origin"]).asker


def test_two_searches_take_different_trials_and_each_proves_the_winner(space: Space, url: str) -> None:
    barrier = threading.Barrier(2, timeout=60)
    machines = Machine(meet=barrier.wait), Machine(meet=barrier.wait, seed=1)
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(each.search, space, url) for each in machines]
        results = [each.result() for each in running]
    once = Counter(each.user_attrs["key"] for each in measured(url) if asker(each) not in (Asker.AGAIN, Asker.PROOF))
    assert set(once.values()) == {1}
    assert 8 <= once.total() <= 10  # both may be in a trial when the last one is begun
    for each, result in zip(machines, results, strict=True):
        assert result.result.proved
        assert result.result.unsaved is None
        assert sum(isinstance(event, ConfirmationStarted) for event in each.told) == 1
        assert len({row.key for row in result.rows if row.block is None}) == len(once)
        assert all(baseline.images_per_second is not None for baseline in result.result.baselines)
    hosts = {each.user_attrs["owner"]["host"] for each in measured(url)}
    assert len(hosts) == 2


def test_a_search_that_comes_late_measures_nothing_but_its_own_proof(space: Space, url: str) -> None:
    found = Machine().search(space, url)
    with ThreadPoolExecutor() as threads:
        late = Machine(seed=1)
        again = threads.submit(late.search, space, url).result()
    assert [row.key for row in again.rows if row.block is None] == [row.key for row in found.rows if row.block is None]
    assert all(proof for _, proof in late.measured)
    assert again.result.proved


def test_a_search_that_nobody_joins_finds_what_a_search_of_its_own_finds(space: Space, url: str) -> None:
    shared, alone = Machine(), Machine()
    ours = shared.search(space, url)
    own = alone.search(space, f"{url}-other", join=False)
    assert [(row.key, row.value) for row in ours.rows] == [(row.key, row.value) for row in own.rows]
    assert ours.best_config == own.best_config
    assert shared.joined() == [()]


def test_if_one_is_interrupted_another_runs_its_trial(space: Space, url: str) -> None:
    begun, both = threading.Event(), threading.Barrier(2, timeout=60)

    def interrupt() -> None:
        begun.set()
        both.wait()
        raise KeyboardInterrupt

    first, second = Machine(meet=interrupt), Machine(meet=both.wait, seed=1)
    with ThreadPoolExecutor() as threads:
        one = threads.submit(first.search, space, url)
        begun.wait(60)
        two = threads.submit(second.search, space, url)
        assert one.result().result.interrupted
        found = two.result()
    assert "the same command joins it again" in one.result().result.stop.message
    assert len(second.joined()[0]) == 1
    assert found.result.proved
    assert {row.key for row in found.rows if row.outcome is not None} == {
        each.user_attrs["key"] for each in optuna.load_study(study_name=NAME, storage=url).trials
    }
