"""A search whose process is killed, at every phase, and run again: at most the running trial is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.fakes.commands import environment

pytestmark = pytest.mark.slow

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path

    from autopipe.search import lock
    from tests.fakes import searches
    from tests.fakes.surface import Surface

    folder, kill_at, wait = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["wait"]

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
    def show(event):
        print(type(event).__name__, flush=True)

    with lock.Queue(lambda who: print("waits", flush=True)).held(f"autopipe-test-{folder.parent.name}-{folder.name}"):
        ended = searches.run(surface, f"sqlite:///{folder}/study.db", show)
    print("calls", surface.calls, "proved", ended.result.proved, "best", ended.best_config.key())
    """
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "search.py"
    path.write_text(SCRIPT)
    return path


def start(script: Path, kill_at: int, *rest: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(script), str(script.parent), str(kill_at), *rest]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment())


def trials(script: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="autopipe", storage=f"sqlite:///{script.parent}/study.db").trials


# In turn: the ceilings, the first baseline, a seed, a trial of the sampler, a block of the confirmation run.
@pytest.mark.parametrize("kill_at", [0, 1, 4, 8, 13])
def test_a_killed_search_goes_on_and_loses_at_most_the_running_trial(script: Path, kill_at: int) -> None:
    killed = start(script, kill_at)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    before = trials(script)
    assert [trial.state for trial in before] == [TrialState.COMPLETE] * max(0, kill_at - 1)

    resumed = start(script, 10_000)
    out, _ = resumed.communicate()
    assert resumed.returncode == 0
    assert "proved True" in out
    after = trials(script)
    assert [trial.values for trial in after[: len(before)]] == [trial.values for trial in before]
    assert {trial.state for trial in after} == {TrialState.COMPLETE}
    searched = [trial for trial in after if not trial.user_attrs["origin"].startswith("proof")]
    assert len(searched) == 9


def test_two_searches_queue_up_and_a_killed_one_lets_the_other_go_on(script: Path) -> None:
    first = start(script, 10_000, "wait")
    assert first.stdout is not None
    assert any(line == "measuring\n" for line in first.stdout)
    second = start(script, 10_000)
    assert second.stdout is not None
    assert second.stdout.readline() == "waits\n"
    first.kill()
    first.communicate()
    out, _ = second.communicate()
    assert second.returncode == 0
    assert "proved True" in out
