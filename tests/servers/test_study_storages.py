"""Studies in a PostgreSQL server, and behind Optuna's gRPC proxy: the same result, and none lost."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
import sqlalchemy

from autopipe.search import storage
from autopipe.search.conclusion import Searched
from autopipe.search.record import best_elsewhere
from tests.fakes.searches import nothing, same, searched
from tests.servers.postgres import Postgres, started

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("collected")]


@pytest.fixture(scope="module")
def unharmed() -> Searched:
    return searched(None)[0]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started() as server:
        yield server


def kept(url: str, name: str) -> list[float | None]:
    return [each.value for each in optuna.load_study(study_name=name, storage=storage.open_storage(url)).trials]


@pytest.mark.parametrize("harm", ["nothing", "restart"])
def test_a_search_in_postgresql_finds_the_same_and_keeps_it_also_if_the_server_is_killed_and_restarted(
    postgres: Postgres, unharmed: Searched, harm: str
) -> None:
    found, _ = searched(postgres.url, getattr(postgres, harm, nothing), name=harm)
    assert same(found, unharmed)
    assert found.result.unsaved is None
    assert kept(postgres.url, harm) == [each.value for each in unharmed.study.trials]


def test_a_connection_that_breaks_at_any_statement_loses_no_trial(postgres: Postgres, unharmed: Searched) -> None:
    seen: set[str] = set()

    def broken(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if statement not in seen:
            seen.add(statement)
            postgres.disconnect()

    def begin() -> None:
        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", broken)

    try:
        found, _ = searched(postgres.url, begin, name="broken")
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


@contextlib.contextmanager
def served(url: str) -> Iterator[str]:
    """Serve a storage by Optuna's gRPC proxy, in a process of its own; yield its URL."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
    code = (
        "import sys, optuna; from autopipe.search.storage import open_storage;"
        "optuna.storages.run_grpc_proxy_server(open_storage(sys.argv[1]), host='127.0.0.1', port=int(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, url, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            process.kill()


def test_a_search_through_optunas_proxy_finds_the_same(tmp_path: Path, unharmed: Searched) -> None:
    with served(f"sqlite:///{tmp_path}/study.db") as url:
        found, _ = searched(url)
        assert same(found, unharmed)
        assert found.result.unsaved is None
