"""Studies in a PostgreSQL server, behind Optuna's gRPC proxy and in its journal: the same result, and none lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
import sqlalchemy

from autopipe.pipeline.config import PipelineConfig
from autopipe.search import library, storage, study
from autopipe.search.conclusion import Searched
from autopipe.search.measurer import Effort
from autopipe.search.record import best_elsewhere
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface
from tests.servers.grpc_proxy import served
from tests.servers.postgres import Postgres, started

SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {range: [1, 2*cores], when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  cache: [none, memory]
  finish: [device, host]
"""
RESTARTED_AT = 4  # the trial in which the server goes
pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("collected")]


class Restarting(Surface):
    """Restarts a server within one of its trials."""

    restart: Callable[[], None]

    def before(self, config: PipelineConfig, effort: Effort) -> None:
        if len(self.measured) == RESTARTED_AT:
            self.restart()


def searched(url: str | None, restart: Callable[[], None] = lambda: None, name: str = "autopipe") -> Searched:
    surface = Restarting(quirks=1, model_rate=60_000.0)
    surface.restart = restart
    settings = Settings(
        trials=9,
        budget_seconds=None,
        finalists=2,
        blocks=(3, 3),
        clock=surface.clock,
        storage=url,
        study_name=name,
        digests={"workload": "w"},
    )
    return study.run(library.parse(SPACE, {"cores": 4, "gpus": 0}), surface, surface.facts(), settings)


@pytest.fixture(scope="module")
def unharmed() -> Searched:
    return searched(None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started() as server:
        yield server


def same(found: Searched, unharmed: Searched) -> bool:
    return found.best_config == unharmed.best_config and [row.value for row in found.rows] == [
        row.value for row in unharmed.rows
    ]


def kept(url: str, name: str) -> list[float | None]:
    return [each.value for each in optuna.load_study(study_name=name, storage=storage.open_storage(url)).trials]


def test_a_search_in_postgresql_finds_the_same_and_keeps_it(postgres: Postgres, unharmed: Searched) -> None:
    found = searched(postgres.url, name="plain")
    assert same(found, unharmed)
    assert found.result.unsaved is None
    assert kept(postgres.url, "plain") == [each.value for each in unharmed.study.trials]


def test_a_server_that_is_killed_and_restarted_in_mid_study_loses_no_trial(
    postgres: Postgres, unharmed: Searched
) -> None:
    found = searched(postgres.url, postgres.restart, name="restarted")
    assert same(found, unharmed)
    assert found.result.unsaved is None
    assert kept(postgres.url, "restarted") == [each.value for each in unharmed.study.trials]


def test_a_connection_that_breaks_at_any_statement_loses_no_trial(postgres: Postgres, unharmed: Searched) -> None:
    seen: set[str] = set()

    def broken(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if statement not in seen:
            seen.add(statement)
            postgres.disconnect()

    def begin() -> None:
        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", broken)

    try:
        found = searched(postgres.url, begin, name="broken")
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", broken)
    assert found.result.unsaved is None
    assert len(seen) > 5
    assert same(found, unharmed)
    assert kept(postgres.url, "broken") == [each.value for each in unharmed.study.trials]


def test_machines_that_share_a_server_learn_from_each_other(postgres: Postgres, unharmed: Searched) -> None:
    searched(postgres.url, name="one")
    fastest = max(unharmed.rows, key=lambda row: row.value or 0.0)
    assert fastest.key in {each.key() for each in best_elsewhere(postgres.url, "w")}
    assert best_elsewhere(postgres.url, "another workload") == []


def test_a_search_through_optunas_proxy_finds_the_same(tmp_path: Path, unharmed: Searched) -> None:
    with served(f"sqlite:///{tmp_path}/study.db") as url:
        found = searched(url)
        assert same(found, unharmed)
        assert found.result.unsaved is None


def test_a_journal_on_a_file_system_that_machines_share_finds_the_same(tmp_path: Path, unharmed: Searched) -> None:
    url = f"journal:///{tmp_path}/study.log"
    found = searched(url)
    assert same(found, unharmed)
    assert kept(url, "autopipe") == [each.value for each in unharmed.study.trials]
