"""Ctrl-C in the middle of `ap.tune`, as a notebook sends it: it comes back with what was found, no child is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autopipe.api import searching, tuning
from autopipe.search.events import Event, SearchStopped, TrialFinished

pytestmark = pytest.mark.timeout(180)

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
        yield np.zeros((8, 4), np.float32), np.zeros(8)

def build_model():
    import keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
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
