"""Studies in a PostgreSQL server: the same result, also if the server goes away."""

import gc
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import optuna
import pytest

from autopipe.search import record
from autopipe.search.conclusion import Searched
from autopipe.search.result import StorageLost
from tests.fakes.searches import HARMED_AT, nothing, same, searched
from tests.servers.postgres import Postgres, started

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Close the connections that Optuna leaves to the collector here, where its warning fails no test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def unharmed() -> Searched:
    return searched(None)[0]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started() as server:
        yield server


def kept(url: str, name: str) -> list[float | None]:
    with record.opened(url) as there:
        return [each.value for each in optuna.load_study(study_name=name, storage=there).trials]


@pytest.mark.parametrize("harm", ["nothing", "restart"])
def test_a_search_in_postgresql_finds_the_same_and_keeps_it_also_if_the_server_is_killed_and_restarted(
    postgres: Postgres, unharmed: Searched, harm: str
) -> None:
    found, _ = searched(postgres.url, getattr(postgres, harm, nothing), name=harm)
    assert same(found, unharmed)
    assert found.result.unsaved is None
    assert kept(postgres.url, harm) == [each.value for each in unharmed.study.trials]


def test_a_server_that_is_stopped_costs_no_result(postgres: Postgres, unharmed: Searched) -> None:
    try:
        found, told = searched(postgres.url, postgres.stop, name="stopped")
    finally:
        postgres.start()
    (lost,) = [each.reason for each in told if isinstance(each, StorageLost)]
    assert found.result.unsaved == lost
    assert same(found, unharmed)
    assert kept(postgres.url, "stopped") == [each.value for each in unharmed.study.trials[:HARMED_AT]]


@pytest.mark.filterwarnings("ignore:.*deleted while still open:ResourceWarning")  # Optuna's own, of a failed try
def test_machines_that_come_to_an_empty_database_at_the_same_moment_can_all_use_it(postgres: Postgres) -> None:
    url, barrier = postgres.empty("new"), threading.Barrier(4, timeout=60)

    def make(_: int) -> None:
        barrier.wait()
        with record.opened(url):
            pass

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(make, range(4)))
