"""`autopipe tune` from beginning to end: a child is killed, it is interrupted, resumed, checked and retuned.

Runs on JAX, which is imported in a second; few commands, because each starts a child that imports a framework.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import cv2
import numpy as np
import pytest

from autopipe.artifact import artifact as files
from tests.fakes.commands import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRAIN = """
import os, signal
import autopipe as ap

class Photos(ap.ImageFolder):
    def read(self, index):
        if os.path.exists("kill"):
            os.remove("kill")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(index)

def build_model():
    import keras
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

workload = ap.Workload(
    data=Photos("photos"), ops=[ap.Decode(), ap.Resize(16, 16), ap.Rescale(1 / 255)],
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


# Tests may run in the background of a shell, which starts what is there with Ctrl-C ignored.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from autopipe.cli.main import main
main()
"""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    said: list[str]


class Running:
    """A command that runs, and what it has said so far on stderr."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._out = home / "stdout"
        with self._out.open("w") as out:
            command = [sys.executable, "-c", COMMAND, *arguments]
            self.process = subprocess.Popen(
                command, cwd=home, env=environment(), stdout=out, stderr=subprocess.PIPE, text=True
            )
        self.said: list[str] = []

    def until(self, label: str) -> None:
        """Read stderr up to a line that begins with `label`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith(label):
                return
        raise AssertionError(f"no line began with {label!r}:\n{''.join(self.said)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stderr is not None
        self.process.terminate()
        self.process.wait()
        self.process.stderr.close()

    def end(self) -> Ended:
        """Wait for its end."""
        assert self.process.stderr is not None
        self.said += self.process.stderr
        return Ended(self.process.wait(), self._out.read_text(), self.said)


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


TUNE = ("tune", "train.py:workload", "--space", "space.yaml", "--trials", "6", "-v", "--json")


def ended(home: Path, *arguments: str) -> Ended:
    with Running(home, *arguments) as running:
        return running.end()


@pytest.fixture(scope="module")
def interrupted(home: Path) -> Ended:
    """A tune whose child died of kill -9 in a trial, and that was interrupted after one more."""
    with Running(home, *TUNE, "--budget", "10m") as tune:
        tune.until("ceiling")
        (home / "kill").touch()
        tune.until("failed")
        tune.until("trial")
        tune.process.send_signal(signal.SIGINT)
        return tune.end()


def test_a_killed_child_is_one_failed_trial_and_the_study_goes_on(interrupted: Ended) -> None:
    (failed,) = [line for line in interrupted.said if line.startswith("failed")]
    assert "crashed in" in failed
    assert "Traceback" not in "".join(interrupted.said)


def test_ctrl_c_writes_the_best_so_far_and_exits_with_130(home: Path, interrupted: Ended) -> None:
    assert interrupted.status == 130
    document = json.loads(interrupted.out)
    assert document["best"]["loader"]["kind"] in ("threads", "tfdata")
    assert not document["images_per_second"]["proved"]
    assert document["warnings"][0].startswith("The search was interrupted")
    assert files.read(home / "tuned" / "autopipe.json").profiles[0].winner.config == document["best"]
    assert (home / "tuned" / "tuned_pipeline.py").exists()
    assert interrupted.said[-1] == "interrupted\n"


def test_ctrl_c_before_anything_is_measured_writes_nothing(home: Path) -> None:
    with Running(
        home, "tune", "train.py:workload", "--space", "space.yaml", "--budget", "30s", "--out", "none"
    ) as tune:
        tune.until("ceiling")
        tune.process.send_signal(signal.SIGINT)
        stopped = tune.end()
    assert (stopped.status, stopped.out) == (130, "")
    assert "interrupted before any configuration could be measured" in stopped.said[-1]
    assert not any("best" in said for said in stopped.said)
    assert not list((home / "none").glob("*.json")) + list((home / "none").glob("*.py"))


@pytest.fixture(scope="module")
def resumed(home: Path, interrupted: Ended) -> Ended:
    """The same command again."""
    return ended(home, *TUNE, "--budget", "5m")


def test_the_same_command_goes_on_and_proves_the_best(home: Path, interrupted: Ended, resumed: Ended) -> None:
    assert resumed.status == 0, "".join(resumed.said)
    assert any(line.startswith("resumed") for line in resumed.said)
    document = json.loads(resumed.out)
    assert document["images_per_second"]["proved"]
    assert document["trials"] > json.loads(interrupted.out)["trials"]
    assert document["failed"] == 1
    assert document["artifact"] == "tuned/autopipe.json"
    assert files.read(home / "tuned" / "autopipe.json").profiles[0].winner.config == document["best"]


def test_other_ops_are_another_study_and_refused_with_both_sides(home: Path, resumed: Ended) -> None:
    (home / "other.py").write_text(TRAIN.replace("batch_size=8", "batch_size=4"))
    refused = ended(home, "tune", "other.py:workload", *TUNE[2:])
    said = "".join(refused.said)
    assert (refused.status, refused.out) == (2, "")
    assert "belongs to another workload" in said
    assert "Use --fresh to start a new one" in said


def test_after_a_change_of_the_model_it_is_stale_until_a_retune(home: Path, resumed: Ended) -> None:
    (home / "train.py").write_text(TRAIN.replace("Dense(2)", "Dense(3)"))
    check = ended(home, "check", "tuned/autopipe.json", "--quick", "--json")
    assert (check.status, json.loads(check.out)["verdict"]) == (4, "stale")
    assert "model" in json.loads(check.out)["reasons"][0]
    again = ("retune", "tuned/autopipe.json", "--if-stale", "--budget", "20s", "--json", "--exit-code")
    would = ended(home, *again, "--dry-run")
    assert would.status == 0, "".join(would.said)
    assert json.loads(would.out)["would"]
    retuned = ended(home, *again)
    assert retuned.status in (0, 6), "".join(retuned.said)
    document = json.loads(retuned.out)
    assert (retuned.status == 6) == document["kept"]
    assert any(line.startswith("as before") and f"--space {home / 'space.yaml'}" in line for line in retuned.said)
    assert document["retuned"]
    profiles = files.read(home / "tuned" / "autopipe.json").profiles
    assert [each.winner.config for each in profiles] == [document["config"]]
    fits = ended(home, *again)
    assert (fits.status, json.loads(fits.out)["retuned"]) == (7, False)
