"""A tune that is ended: by Ctrl-C, as a notebook sends it, or by the SIGTERM of a batch system.

What was found is kept, how to go on is said, and neither a process nor its folder is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import psutil
import pytest
from optuna.trial import TrialState

from autopipe.api import tuning
from autopipe.measure.trial import child
from autopipe.search import searching
from autopipe.search.settings import STUDY
from autopipe.search.trials import Event, SearchStopped, TrialFinished

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TRAIN = """
import os, pathlib, signal, time
import numpy as np
import autopipe as ap

def make_dataset(calls=1):
    while True:
        press = pathlib.Path("press")
        if press.exists():
            press.unlink()
            os.kill(os.getppid(), signal.SIGINT)
        time.sleep(0.03)  # the model waits for data, so that there is something to search for
        yield np.zeros((8, 4), np.float32), np.zeros((8, 2, 3))

def build_model():
    import keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6), keras.layers.Reshape((2, 3))])
    model.compile("sgd", "mse")
    return model

workload = ap.wrap(make_dataset, model=build_model, steps=4, parameters={"calls": [1, 2, 3]})
"""


@pytest.fixture
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the workload, JAX, which is imported in a second, and Python's own handler of Ctrl-C."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    # No figure counts here: other tunes need not be waited for.
    monkeypatch.setattr(searching, "MEASURING", f"autopipe-test-{os.getpid()}")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_at_home")
def test_ctrl_c_within_a_trial_returns_the_best_so_far_and_leaves_no_child() -> None:
    others, told = set(psutil.Process().children(recursive=True)), list[Event]()

    def listen(event: Event) -> None:
        told.append(event)
        if isinstance(event, TrialFinished):
            Path("press").touch()  # for the trial that is next

    tuned = tuning.tune("train.py:workload", budget=None, on_event=listen)
    (finished,) = [event for event in told if isinstance(event, TrialFinished)]
    assert tuned.config == finished.config
    assert [event.stop.message for event in told if isinstance(event, SearchStopped)] == [
        "Interrupted: this is the best so far."
    ]
    assert set(psutil.Process().children(recursive=True)) <= others
    assert not Path("press").exists()


@pytest.mark.usefixtures("_at_home")
def test_ctrl_c_between_two_trials_keeps_the_study_in_its_file_and_leaves_no_child() -> None:
    others = set(psutil.Process().children(recursive=True))

    def listen(event: Event) -> None:
        if isinstance(event, TrialFinished):
            signal.raise_signal(signal.SIGINT)

    tuned = tuning.tune("train.py:workload", budget=None, storage="sqlite:///study.db", on_event=listen)
    kept = optuna.load_study(study_name=STUDY, storage="sqlite:///study.db").trials
    assert [trial.state for trial in kept] == [TrialState.COMPLETE]
    assert kept[0].user_attrs["config"] == tuned.config.model_dump(mode="json")
    assert set(psutil.Process().children(recursive=True)) <= others


def test_sigterm_while_the_first_process_starts_is_an_end_in_order_that_says_how_to_go_on(tmp_path: Path) -> None:
    ends = "import os, pathlib, signal\npathlib.Path('child').write_text(str(os.getpid()))\n"
    ends += "os.kill(os.getppid(), signal.SIGTERM)\nos.kill(os.getppid(), signal.SIGTERM)\n"
    (tmp_path / "train.py").write_text(f"{ends}{TRAIN}")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", "tune", "train.py:workload", "--fresh", "--budget", "1m"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    *_, how, last = done.stderr.splitlines()
    assert how.startswith("to go on  ")
    assert how.endswith(" tune train.py:workload --budget 1m")  # not a new study
    assert last == "interrupted"
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))
    assert list(temporary.glob(f"{child.PREFIX}*")) == []
    assert not (tmp_path / "tuned").exists()
