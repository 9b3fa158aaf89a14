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
from pathlib import Path
from typing import Any, Self

import optuna
import pytest

from autopipe.search import studies
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.participants import BEAT_SECONDS
from autopipe.search.storage import open_storage, settle
from tests.servers.grpc_proxy import served
from tests.servers.postgres import Postgres, started

pytestmark = pytest.mark.timeout(180)

SCRIPT = textwrap.dedent(
    """
    import json, socket, sys

    url, host, beat = sys.argv[1:]
    socket.gethostname = lambda: host  # a machine of its own

    from autopipe.api import searching
    from autopipe.search import library, participants, study, together
    from autopipe.search.events import ConfirmationStarted, StudyJoined, TrialGivenBack
    from autopipe.search.measurer import Effort
    from autopipe.search.settings import Settings
    from tests.fakes.profiles import hardware
    from tests.fakes.surface import Surface
    from tests.servers.test_join import SPACE

    participants.BEAT_SECONDS, together.POLL_SECONDS = float(beat), 0.02
    free = False

    def says(*words):
        print(json.dumps(words), flush=True)

    class Waiting(Surface):
        # Measures when it is told to.
        def measure(self, config, *, effort=Effort.SEARCH, must_reach=None):
            global free
            if not free:
                says("measures", config.key())
                free = sys.stdin.readline().strip() == "on"
            return super().measure(config, effort=effort, must_reach=must_reach)

    def tell(event):
        if isinstance(event, (StudyJoined, ConfirmationStarted, TrialGivenBack)):
            says(type(event).__name__)
        if isinstance(event, StudyJoined):
            sys.stdin.readline()

    surface = Waiting(quirks=1, model_rate=60_000.0, seed=len(host))
    settings = Settings(
        trials=12, budget_seconds=None, finalists=2, blocks=(3, 3), clock=surface.clock,
        storage=url, digests={"workload": "w", "data": "d"}, join=True,
    )
    settings = searching._joined(settings, hardware(), tell)
    result = study.run(library.parse(SPACE, {"cores": 4, "gpus": 0}), surface, surface.facts(), settings, tell)
    told = [result.best_config.key(), result.proved, result.estimate.value, len(surface.measured)]
    says("ends", *told, str(result.ended_at))
    """
)
SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {range: [1, 2*cores], when: {loader: threads}}
  threads.queue_size: {choices: [2, 8], when: {loader: threads}}
  cache: [none, memory]
  finish: [device, host]
"""


class Machine:
    """A process that takes part in the study on a machine of its own. It waits for a word after each it says."""

    def __init__(self, url: str, host: str, beat_seconds: float = BEAT_SECONDS) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, url, host, str(beat_seconds)],
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
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "journal":
        yield f"journal:///{tmp_path}/study.log"
    elif request.param == "grpc":
        with served(f"sqlite:///{tmp_path}/study.db") as url:
            yield url
    else:
        server: Postgres = request.getfixturevalue("postgres")
        yield server.url
        storage = open_storage(server.url)
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


def both(url: str, stack: contextlib.ExitStack, beat_seconds: float = BEAT_SECONDS) -> list[tuple[Machine, str]]:
    """Begin on two machines, and return each with what it measures: it does until it is told. The first coordinates."""
    found = []
    for host in ("one", "another"):
        machine = stack.enter_context(Machine(url, host, beat_seconds))
        assert machine.says() == ["StudyJoined"]
        machine.tell()
        word, key = machine.says()
        assert word == "measures"
        found.append((machine, str(key)))
    return found


@pytest.mark.parametrize("url", ["postgresql", "grpc"], indirect=True)
def test_two_machines_take_different_trials_and_have_one_result(url: str) -> None:
    with contextlib.ExitStack() as stack:
        (one, its_key), (another, other_key) = both(url, stack)
        assert its_key != other_key
        another.tell("on")  # it runs ahead, and waits for the other's trial
        said = [one.rest(), another.rest()]
    ends = [each[-1] for each in said]
    assert ends[0][0] == "ends"
    assert ends[0][1:4] == ends[1][1:4]
    assert ends[0][5] == ends[1][5]
    assert ends[0][2], "it was proved"
    assert sum(words == ["ConfirmationStarted"] for each in said for words in each) == 1
    assert set(searched(trials(url)).values()) == {1}
    assert all(each[4] > 0 for each in ends)


@pytest.mark.parametrize("url", ["postgresql", "grpc"], indirect=True)
def test_of_machines_that_come_at_the_same_moment_one_makes_the_study(url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: studies.promise(url, "joint-0-1", {"workload": "w"}), range(4)))
    assert sorted(made) == [False, False, False, True]
    (found,) = studies.shared(url, "w").values()
    assert (found.opened, found.over) == (False, False)


@pytest.mark.parametrize(("url", "dies"), [("postgresql", 0), ("journal", 1)], indirect=["url"])
def test_a_machine_that_dies_gives_its_trial_back(url: str, dies: int) -> None:
    with contextlib.ExitStack() as stack:
        machines = both(url, stack, beat_seconds=0.5)
        dead, given_back = machines[dies]
        alive, _ = machines[1 - dies]
        dead.die()
        said = alive.rest()
    assert said.count(["TrialGivenBack"]) == 1
    assert said.count(["ConfirmationStarted"]) == 1
    assert said[-1][:1] + said[-1][2:3] == ["ends", True]
    found = trials(url)
    assert searched(found)[given_back] == 1
    assert set(searched(found).values()) == {1}
    assert all(each.state.is_finished() for each in found)
