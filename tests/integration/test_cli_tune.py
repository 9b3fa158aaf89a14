"""`autopipe tune` from beginning to end: a child is killed, it is interrupted, resumed, checked and retuned.

Runs on JAX, which is imported in a second; few commands, because each starts a child that imports a framework.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import psutil
import pytest

from autopipe.tuned import artifact as files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TRAIN = """
import autopipe as ap

def build_model():
    import keras
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

workload = ap.Workload(
    data=ap.ImageFolder("photos"), ops=[ap.Decode(), ap.Resize(16, 16), ap.Rescale(1 / 255)],
    batch_size=8, model=build_model,
)
"""
SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {choices: [1, 2], when: {loader: threads}}
  threads.queue_size: {choices: [2, 4, 8], when: {loader: threads}}
  cache: [none]
  storage: [files]
  finish: [device]
  device_prefetch: [0, 2]
"""


class Running:
    """A command that runs, and what it has said so far on stderr."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from autopipe.cli.main import main; main()", *arguments],
            cwd=home,
            env={**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._out: list[str] = []
        self._reader = threading.Thread(target=self._read_out, daemon=True)
        self._reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        self._out.append(self.process.stdout.read())

    def until(self, label: str) -> str:
        """Read stderr up to a line that begins with `label`, and return that line."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith(label):
                return line
        pytest.fail(f"no line began with {label!r}:\n{''.join(self.said)}")

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its status and its stdout."""
        assert self.process.stderr is not None
        self.said += self.process.stderr
        status = self.process.wait()
        self._reader.join()
        return status, "".join(self._out)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small workload, a small space and sixty small photos."""
    folder = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for number in range(60):
        path = folder / "photos" / f"class {number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), rng.integers(0, 256, (64, 80, 3), np.uint8))
    (folder / "train.py").write_text(TRAIN)
    (folder / "space.yaml").write_text(SPACE)
    return folder


TUNE = ("tune", "train.py:workload", "--space", "space.yaml", "--budget", "10m", "--trials", "7", "-v", "--json")


@pytest.fixture(scope="module")
def interrupted(home: Path) -> Iterator[tuple[int, str, Running]]:
    """A tune whose child was killed by kill -9 in its first trial, and that was then interrupted after two more."""
    tune = Running(home, *TUNE)
    tune.until("ceiling")
    (child,) = psutil.Process(tune.process.pid).children()
    child.send_signal(signal.SIGKILL)
    tune.until("failed")
    tune.until("trial")
    tune.until("trial")
    tune.process.send_signal(signal.SIGINT)
    status, out = tune.end()
    yield status, out, tune
    assert not psutil.pid_exists(tune.process.pid)


def test_a_killed_child_is_one_failed_trial_and_the_study_goes_on(interrupted: tuple[int, str, Running]) -> None:
    _, _, tune = interrupted
    (failed,) = [line for line in tune.said if line.startswith("failed")]
    assert "crashed in" in failed
    assert "Traceback" not in "".join(tune.said)


def test_ctrl_c_writes_the_best_so_far_and_exits_with_130(home: Path, interrupted: tuple[int, str, Running]) -> None:
    status, out, tune = interrupted
    assert status == 130
    document = json.loads(out)
    assert document["best"]["loader"]["kind"] in ("threads", "keras", "tfdata")
    assert not document["images_per_second"]["proved"]
    assert document["warnings"][0].startswith("The search was interrupted")
    assert files.read(home / "tuned" / "autopipe.json").profiles[0].config == document["best"]
    assert (home / "tuned" / "tuned_pipeline.py").exists()
    assert tune.said[-1] == "interrupted\n"


@pytest.fixture(scope="module")
def resumed(home: Path, interrupted: tuple[int, str, Running]) -> tuple[int, str, Running]:
    """The same command again."""
    tune = Running(home, *TUNE)
    status, out = tune.end()
    return status, out, tune


def test_the_same_command_goes_on_and_proves_the_best(
    home: Path, interrupted: tuple[int, str, Running], resumed: tuple[int, str, Running]
) -> None:
    before, (status, out, tune) = json.loads(interrupted[1]), resumed
    assert status == 0, "".join(tune.said)
    assert any(line.startswith("resumed") for line in tune.said)
    document = json.loads(out)
    assert document["images_per_second"]["proved"]
    assert document["trials"] > before["trials"]
    assert document["failed"] == 1
    assert document["artifact"] == "tuned/autopipe.json"
    assert files.read(home / "tuned" / "autopipe.json").profiles[0].config == document["best"]


def test_other_ops_are_another_study_and_refused_with_both_sides(home: Path, resumed: tuple[int, str, Running]) -> None:
    (home / "other.py").write_text(TRAIN.replace("batch_size=8", "batch_size=4"))
    status, out = (tune := Running(home, "tune", "other.py:workload", *TUNE[2:])).end()
    said = "".join(tune.said)
    assert (status, out) == (2, "")
    assert "cannot be gone on with, because it is of another workload" in said
    assert "hint: Use --fresh to begin anew" in said


def test_a_check_finds_that_it_fits(home: Path, resumed: tuple[int, str, Running]) -> None:
    status, out = Running(home, "check", "tuned/autopipe.json", "--quick", "--json").end()
    assert (status, json.loads(out)["verdict"]) == (0, "fits")


def test_a_check_after_the_model_changed_is_stale_and_a_retune_mends_it(
    home: Path, resumed: tuple[int, str, Running]
) -> None:
    (home / "train.py").write_text(TRAIN.replace("Dense(2)", "Dense(3)"))
    status, out = Running(home, "check", "tuned/autopipe.json", "--quick", "--json").end()
    assert (status, json.loads(out)["verdict"]) == (4, "stale")
    assert "model" in json.loads(out)["reasons"][0]
    retune = Running(
        home, "retune", "tuned/autopipe.json", "--if-stale", "--space", "space.yaml", "--trials", "4", "--json"
    )
    status, out = retune.end()
    assert status == 0, "".join(retune.said)
    document = json.loads(out)
    assert document["retuned"]
    artifact = files.read(home / "tuned" / "autopipe.json")
    assert [each.config for each in artifact.profiles] == [document["config"]]
    status, out = Running(home, "retune", "tuned/autopipe.json", "--if-stale", "--json").end()
    assert (status, json.loads(out)["retuned"]) == (0, False)
