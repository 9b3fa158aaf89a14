"""A search whose process is killed, at every phase, and run again: at most the running trial is lost. One whose storage
fails in the middle ends with its best, and what was measured is not lost.
"""

import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autopipe.errors import TrialError
from autopipe.search.conclusion import Searched
from autopipe.search.result import Event, StorageLost
from tests.fakes.commands import environment
from tests.fakes.searches import same, searched

SCRIPT = """
import os, signal, sys
from autopipe.search import lock
from tests.fakes import searches
from tests.fakes.surface import Surface

folder, kill_at, wait = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["wait"]

class Mortal(Surface):
    # Dies in its n-th call: 0 is the ceiling, then one a trial.
    calls = 0
    def _call(self):
        if self.calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
    def ceiling(self, setup):
        self._call()
        return super().ceiling(setup)
    def before(self, config, proof):
        if wait:
            print("measuring", flush=True)
            sys.stdin.readline()
        self._call()

surface = Mortal(quirks=1, model_rate=60_000.0)
with lock.Queue(lambda who: print("waits", flush=True)).held("autopipe-test-" + folder.replace("/", "-")[-60:]):
    print("proved", searches.run(surface, f"sqlite:///{folder}/study.db").result.proved)
"""


def start(folder: Path, kill_at: int, *rest: str) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", SCRIPT, str(folder), str(kill_at), *rest], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment())


# In turn: the ceilings, the first baseline, a seed, a trial of the sampler, a block of the confirmation run.
@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [0, 1, 4, 8, 13])
def test_a_killed_search_goes_on_and_loses_at_most_the_running_trial(tmp_path: Path, kill_at: int) -> None:
    killed = start(tmp_path, kill_at)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    before = written(tmp_path)
    assert [trial.state for trial in before] == [TrialState.COMPLETE] * max(0, kill_at - 1)

    resumed = start(tmp_path, 10_000)
    assert (resumed.communicate()[0], resumed.returncode) == ("proved True\n", 0)
    after = written(tmp_path)
    assert [trial.values for trial in after[: len(before)]] == [trial.values for trial in before]
    assert {trial.state for trial in after} == {TrialState.COMPLETE}
    assert len([trial for trial in after if not trial.user_attrs["origin"].startswith("proof")]) == 9


@pytest.mark.slow
def test_two_searches_queue_up_and_a_killed_one_lets_the_other_go_on(tmp_path: Path) -> None:
    first = start(tmp_path, 10_000, "wait")
    assert first.stdout is not None
    assert first.stdout.readline() == "measuring\n"
    second = start(tmp_path, 10_000)
    assert second.stdout is not None
    assert second.stdout.readline() == "waits\n"
    first.kill()
    first.communicate()
    assert (second.communicate()[0], second.returncode) == ("proved True\n", 0)


# ---------------------------------------------------------------- storages that fail


def lost(told: Sequence[Event]) -> list[str]:
    return [event.reason for event in told if isinstance(event, StorageLost)]


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db?timeout=0.1"


def written(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="autopipe", storage=url(folder)).trials


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    ended, told = searched(url(tmp_path_factory.mktemp("unharmed")))
    assert lost(told) == []
    return ended


@pytest.mark.slow
def test_a_storage_that_keeps_all_has_what_the_search_knows(tmp_path: Path) -> None:
    ended, _ = searched(url(tmp_path))
    known, kept = (
        [(each.number, each.state, each.values, each.params, each.user_attrs) for each in trials]
        for trials in (ended.study.trials, written(tmp_path))
    )
    assert known == kept
    assert ended.result.unsaved is None


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna tries again after a pause of random length."""
    monkeypatch.setattr(random, "random", lambda: 0.0)


LOCKS: list[sqlite3.Connection] = []
FILES = resource.getrlimit(resource.RLIMIT_FSIZE)


def lock(folder: Path) -> None:
    LOCKS.append(sqlite3.connect(folder / "study.db", isolation_level=None))
    LOCKS[-1].execute("BEGIN EXCLUSIVE")


def remove(folder: Path) -> None:
    (folder / "study.db").unlink()


def limit(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "study.db").stat().st_size, FILES[1]))


@pytest.mark.parametrize(("harm", "said"), [(remove, "readonly"), (limit, "disk"), (lock, "database is locked")])
@pytest.mark.slow
def test_a_file_that_can_be_written_no_longer_costs_no_result(
    harm: Callable[[Path], None], said: str, unharmed: Searched, tmp_path: Path
) -> None:
    try:
        ended, told = searched(url(tmp_path), lambda: harm(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, FILES)
        while LOCKS:
            LOCKS.pop().close()
    (reason,) = lost(told)
    assert said in reason
    assert ended.result.unsaved == reason
    assert same(ended, unharmed)
    assert harm is not remove or not (tmp_path / "study.db").exists()


def test_a_study_that_cannot_be_opened_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(TrialError, match="cannot be used: file is not a database"):
        searched(url(tmp_path))
