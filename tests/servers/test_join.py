"""Processes that share a study, as on machines of their own: one that is killed gives its trial back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import optuna
import pytest

from autopipe.search.record import open_record
from autopipe.search.storage import open_storage, settle
from autopipe.search.trials import AskedBy, Asker
from tests.servers.postgres import Postgres, started

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("collected")]

SCRIPT = textwrap.dedent(
    """
    import json, socket, sys

    url, host, grace = sys.argv[1:]
    socket.gethostname = lambda: host  # a machine of its own

    from autopipe.search import searching, storage
    from autopipe.search.trials import ConfirmationStarted, StudyJoined, TrialGivenBack
    from autopipe.search.settings import Settings
    from tests.fakes import searches
    from tests.fakes.profiles import hardware
    from tests.fakes.surface import Surface

    storage.HEARTBEAT_SECONDS, storage.GRACE_SECONDS = 1, int(grace)
    free = False

    def says(*words):
        print(json.dumps(words), flush=True)

    class Waiting(Surface):
        # Measures when it is told to.
        def before(self, config, proof):
            global free
            if not free:
                says("measures", config.key())
                free = sys.stdin.readline().strip() == "on"

    def tell(event):
        if isinstance(event, (StudyJoined, ConfirmationStarted, TrialGivenBack)):
            says(type(event).__name__)
        if isinstance(event, StudyJoined):
            sys.stdin.readline()

    surface = Waiting(quirks=1, model_rate=60_000.0, seed=len(host))
    asked = {"trials": 12, "digests": {"workload": "w", "data": "d"}, "join": True}
    joined = searching.joined(Settings(storage=url, **asked), hardware(), tell)
    ended = searches.run(surface, url, tell, **asked | {"study_name": joined.study_name, "digests": joined.digests})
    says("ends", ended.result.proved, len(surface.measured), ended.result.unsaved)
    """
)


class Machine:
    """A process that takes part in the study on a machine of its own. It waits for a word after each it says."""

    def __init__(self, url: str, host: str, grace_seconds: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, url, host, str(grace_seconds)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def says(self) -> list[Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it has ended"
        words: list[Any] = json.loads(line)
        return words

    def tell(self, word: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def die(self) -> None:
        self._process.kill()
        self._process.wait()

    def rest(self) -> list[list[Any]]:
        """Let it go on, and return all that it says until it ends."""
        with contextlib.suppress(BrokenPipeError):  # it may have ended already
            self.tell("on")
        said, _ = self._process.communicate()
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with started() as server:
        yield server


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    yield postgres.url
    storage = open_storage(postgres.url)
    for name in optuna.get_all_study_names(storage):
        optuna.delete_study(study_name=name, storage=storage)
    settle(storage)


def trials(url: str) -> list[optuna.trial.FrozenTrial]:
    storage = open_storage(url)
    (name,) = optuna.get_all_study_names(storage)  # all joined one
    found = optuna.load_study(study_name=name, storage=storage).trials
    settle(storage)
    return found


def searched(found: list[optuna.trial.FrozenTrial]) -> Counter[str]:
    """Return how often each configuration was measured in the search, second looks left out."""
    ran = [each.user_attrs for each in found if "outcome" in each.user_attrs]
    once = [each for each in ran if AskedBy.parse(each["origin"]).asker not in (Asker.AGAIN, Asker.PROOF)]
    return Counter(each["key"] for each in once)


def both(url: str, stack: contextlib.ExitStack, grace_seconds: int = 60) -> list[tuple[Machine, str]]:
    """Begin on two machines, and return each with what it measures: it does until it is told."""
    found = []
    for host in ("one", "another"):
        machine = stack.enter_context(Machine(url, host, grace_seconds))
        assert machine.says() == ["StudyJoined"]
        machine.tell()
        word, key = machine.says()
        assert word == "measures"
        found.append((machine, str(key)))
    return found


def test_two_machines_take_different_trials_and_each_proves_the_winner(url: str) -> None:
    with contextlib.ExitStack() as stack:
        (one, its_key), (another, other_key) = both(url, stack)
        assert its_key != other_key
        another.tell("on")  # it runs ahead, and waits for the other's trial
        said = [one.rest(), another.rest()]
    for each in said:
        assert each.count(["ConfirmationStarted"]) == 1
        assert each[-1][:2] + each[-1][3:] == ["ends", True, None]
        assert each[-1][2] > 0
    assert set(searched(trials(url)).values()) == {1}
    assert all(each.state.is_finished() for each in trials(url))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")  # silenced, but not for threads
def test_of_machines_that_come_at_the_same_moment_all_have_one_study(url: str) -> None:
    def opened(_: int) -> int:
        sampler = optuna.samplers.RandomSampler()
        record, lost = open_record(url, "joint", sampler=sampler, digests={}, fresh=False, shared=lambda trial: None)
        record.settle()
        return lost

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(opened, range(4))) == [0] * 4
    assert trials(url) == []


def test_a_machine_that_dies_gives_its_trial_back(url: str) -> None:
    with contextlib.ExitStack() as stack:
        (dead, given_back), (alive, _) = both(url, stack, grace_seconds=2)
        dead.die()
        said = alive.rest()
    assert said.count(["TrialGivenBack"]) == 1
    assert said.count(["ConfirmationStarted"]) == 1
    assert said[-1][:2] + said[-1][3:] == ["ends", True, None]
    found = trials(url)
    assert searched(found)[given_back] == 1
    assert set(searched(found).values()) == {1}
    assert all(each.state.is_finished() for each in found)
    assert [each.system_attrs["failed_trial"] for each in found if "failed_trial" in each.system_attrs] == [0]


def test_a_server_that_is_restarted_costs_a_machine_that_joined_no_result(url: str, postgres: Postgres) -> None:
    with contextlib.ExitStack() as stack:
        (one, _), (another, _) = both(url, stack)
        postgres.restart()
        another.tell("on")
        said = [one.rest(), another.rest()]
    assert [each[-1][3] for each in said] == [None, None]
    assert set(searched(trials(url)).values()) == {1}
