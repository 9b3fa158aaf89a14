"""A tune that is ended: by Ctrl-C, as a notebook sends it, or by the SIGTERM of a batch system.

What was found is kept, how to go on is said, and neither a process nor its folder is left.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from autopipe.api import tuning
from autopipe.measure.trial import child
from autopipe.search import searching
from autopipe.search.result import Reason
from autopipe.search.trials import Event, SearchStopped, TrialFinished
from tests.fakes.commands import autopipe, children

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


def test_ctrl_c_within_a_trial_returns_the_best_so_far_and_leaves_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # which is imported in a second
    monkeypatch.setattr(searching, "MEASURING", f"autopipe-test-{os.getpid()}")  # other tunes need not be waited for
    others, told = set(children()), list[Event]()

    def listen(event: Event) -> None:
        told.append(event)
        if isinstance(event, TrialFinished):
            Path("press").touch()  # for the trial that is next

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tuned = tuning.tune("train.py:workload", budget=None, on_event=listen)
    finally:
        signal.signal(signal.SIGINT, before)
    (finished,) = [event for event in told if isinstance(event, TrialFinished)]
    assert tuned.config == finished.config
    assert [event.stop.reason for event in told if isinstance(event, SearchStopped)] == [Reason.INTERRUPTED]
    assert set(children()) <= others
    assert not Path("press").exists()


def test_sigterm_while_the_first_process_starts_is_an_end_in_order_that_says_how_to_go_on(tmp_path: Path) -> None:
    ends = "import os, pathlib, signal\npathlib.Path('child').write_text(str(os.getpid()))\n"
    ends += "os.kill(os.getppid(), signal.SIGTERM)\nos.kill(os.getppid(), signal.SIGTERM)\n"
    (tmp_path / "train.py").write_text(f"{ends}{TRAIN}")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    line = ("tune", "train.py:workload", "--fresh", "--budget", "1m")
    done = autopipe(*line, cwd=tmp_path, TMPDIR=str(temporary))
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    *_, how, last = done.stderr.splitlines()
    assert how.startswith("to go on  ")
    assert how.endswith(" tune train.py:workload --budget 1m")  # not a new study
    assert last == "interrupted"
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))
    assert list(temporary.glob(f"{child.PREFIX}*")) == []
    assert not (tmp_path / "tuned").exists()
