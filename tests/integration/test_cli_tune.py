"""`autopipe tune` from beginning to end: a child is killed, it is interrupted and ended, resumed, checked and retuned.

Runs on JAX, which is imported in a second; few commands, because each starts a child that imports a framework.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil
import pytest

from autopipe.artifact import artifact as files
from autopipe.measure.trial import child
from tests.fakes.commands import Done, autopipe, environment, python, succeeded
from tests.fakes.images import in_classes
from tests.fakes.profiles import of_this_machine

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
  keep: [none]
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


class Running:
    """A command that runs, and what it has said so far on stderr."""

    def __init__(self, home: Path, *arguments: str) -> None:
        command, pipe = [sys.executable, "-c", COMMAND, *arguments], subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=home, env=environment(), stdout=pipe, stderr=pipe, text=True)
        self._said = ""

    def until(self, label: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said += line
            if line.startswith(label):
                return
        raise AssertionError(f"no line began with {label!r}:\n{self._said}")

    def interrupted(self) -> Done:
        """Send Ctrl-C; what the command has started ends with it."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGINT)
        out, said = self.process.communicate()
        assert family != []
        assert psutil.wait_procs(family, timeout=20)[1] == []
        return Done(self.process.args, self.process.returncode, out, self._said + said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small workload, a small space and sixty small photos."""
    folder = tmp_path_factory.mktemp("home")
    in_classes(folder / "photos", 60, (64, 80), suffix=".jpg")
    (folder / "train.py").write_text(TRAIN)
    (folder / "space.yaml").write_text(SPACE)
    return folder


TUNE = ("tune", "train.py:workload", "--space", "space.yaml", "--trials", "6", "-v", "--json")


@pytest.fixture(scope="module")
def interrupted(home: Path) -> Done:
    """A tune whose child died of kill -9 in a trial, and that was interrupted after one more."""
    with Running(home, *TUNE, "--budget", "10m") as tune:
        tune.until("ceiling")
        (home / "kill").touch()
        tune.until("failed")
        tune.until("trial")
        return tune.interrupted()


def test_a_killed_child_is_one_failed_trial_and_the_study_goes_on(interrupted: Done) -> None:
    (failed,) = [line for line in interrupted.stderr.splitlines() if line.startswith("failed")]
    assert "crashed in" in failed
    assert "Traceback" not in interrupted.stderr


def test_ctrl_c_writes_the_best_so_far_and_exits_with_130(home: Path, interrupted: Done) -> None:
    assert interrupted.returncode == 130
    document = json.loads(interrupted.stdout)
    assert document["best"]["loader"]["kind"] in ("threads", "tfdata")
    assert not document["images_per_second"]["proved"]
    assert document["warnings"][0].startswith("The search was interrupted")
    assert files.read(home / "tuned" / "autopipe.json").profiles[0].winner.config == document["best"]
    assert (home / "tuned" / "tuned_pipeline.py").exists()
    assert interrupted.stderr.splitlines()[-1] == "interrupted"


def test_ctrl_c_before_anything_is_measured_writes_nothing(home: Path) -> None:
    with Running(home, *TUNE[:4], "--budget", "30s", "--out", "none") as tune:
        tune.until("ceiling")
        stopped = tune.interrupted()
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert "interrupted before any configuration could be measured" in stopped.stderr.splitlines()[-1]
    assert not any("best" in line for line in stopped.stderr.splitlines())
    assert not list((home / "none").glob("*.json")) + list((home / "none").glob("*.py"))


def test_sigterm_while_the_first_process_starts_is_an_end_in_order_that_says_how_to_go_on(tmp_path: Path) -> None:
    """As a batch system sends it."""
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


def test_a_workload_that_cannot_be_trained_is_told_before_anything_is_measured(home: Path) -> None:
    (home / "small.py").write_text(TRAIN.replace("Input((16, 16, 3))", "Input((8, 8, 3))"))
    refused = autopipe("tune", "small.py:workload", "--out", "small", cwd=home)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "error: " in refused.stderr
    assert "(None, 8, 8, 3), but gets (None, 16, 16, 3)" in refused.stderr
    assert "hint: Change the samples" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture(scope="module")
def resumed(home: Path, interrupted: Done) -> Done:
    return autopipe(*TUNE, "--budget", "5m", cwd=home)


def test_the_same_command_goes_on_and_proves_the_best(home: Path, interrupted: Done, resumed: Done) -> None:
    document = json.loads(succeeded(resumed).stdout)
    assert any(line.startswith("resumed") for line in resumed.stderr.splitlines())
    assert document["images_per_second"]["proved"]
    assert document["trials"] > json.loads(interrupted.stdout)["trials"]
    failures = [line for run in (interrupted, resumed) for line in run.stderr.splitlines() if line.startswith("failed")]
    assert document["failed"] == 1, failures
    assert document["artifact"] == "tuned/autopipe.json"
    assert files.read(home / "tuned" / "autopipe.json").profiles[0].winner.config == document["best"]


def test_other_ops_are_another_study_and_refused_with_both_sides(home: Path, resumed: Done) -> None:
    (home / "other.py").write_text(TRAIN.replace("batch_size=8", "batch_size=4"))
    refused = autopipe("tune", "other.py:workload", *TUNE[2:], cwd=home)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "was recorded for something else: workload: " in refused.stderr
    assert "`--fresh`" in refused.stderr


def test_after_a_change_of_the_model_it_is_stale_until_a_retune(home: Path, resumed: Done) -> None:
    (home / "train.py").write_text(TRAIN.replace("Dense(2)", "Dense(3)"))
    check = autopipe("check", "tuned/autopipe.json", "--quick", "--json", cwd=home)
    assert (check.returncode, json.loads(check.stdout)["verdict"]) == (4, "stale")
    assert "model" in json.loads(check.stdout)["reasons"][0]
    again = ("retune", "tuned/autopipe.json", "--if-stale", "--budget", "20s", "--json", "--exit-code")
    assert json.loads(succeeded(autopipe(*again, "--dry-run", cwd=home)).stdout)["would"]
    retuned = autopipe(*again, cwd=home)
    assert retuned.returncode in (0, 6), retuned.stderr
    document = json.loads(retuned.stdout)
    assert (retuned.returncode == 6) == document["kept"]
    before = [line for line in retuned.stderr.splitlines() if line.startswith("as before")]
    assert any(f"--space {home / 'space.yaml'}" in line for line in before)
    assert document["retuned"]
    profiles = files.read(home / "tuned" / "autopipe.json").profiles
    assert [each.winner.config for each in profiles] == [document["config"]]
    fits = autopipe(*again, cwd=home)
    assert (fits.returncode, json.loads(fits.stdout)["retuned"]) == (7, False)


SERVED = """
import tuned_pipeline
trainer = tuned_pipeline.make_trainer()
images = tuned_pipeline.TUNED.workload.data
print(trainer.promise, len(trainer.predict(images, verbose=0)))
"""


@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_a_tune_for_serving_writes_a_pipeline_that_serves(mode: str, home: Path) -> None:
    out = home / mode
    tune = ("tune", "train.py:workload", "--space", "space.yaml", "--trials", "5", "--budget", "60s", "--json")
    found = json.loads(succeeded(autopipe(*tune, "--mode", mode, "--out", out, cwd=home)).stdout)
    assert any(f"Keras's `{mode}`" in said for said in found["warnings"])
    assert found["images_per_second"]["value"] > 0
    assert files.read(out / "autopipe.json").profiles[0].request.mode == mode
    assert succeeded(python("-c", SERVED, cwd=out)).stdout.split() == ["None", "60"]


def test_workloads_stand_side_by_side_with_what_limits_each(home: Path) -> None:
    (home / "other.py").write_text(TRAIN.replace("Resize(16, 16)", "Resize(16, 16), ap.RandomFlip()"))
    compared = ("compare", "train.py:workload", "other.py:workload", "--time", "0.5s")
    lines = succeeded(autopipe(*compared, cwd=home)).stdout.splitlines()
    assert lines[0].split() == "images/s model alone loader alone together".split()  # noqa: SIM905
    names = ["train.py:workload", "other.py:workload"]
    begun = [line.split()[0] for line in lines[1:] if ":" in line[:20]]
    assert begun == [*names, *(f"{name}:" for name in names)]
    found = json.loads(succeeded(autopipe(*compared, "--json", cwd=home)).stdout)
    assert [row["name"] for row in found] == ["train.py:workload", "other.py:workload"]
    for row in found:
        assert min(row[part]["value"] for part in ("model", "loader", "together")) > 0


def test_an_artifact_is_compared_by_its_own_configuration(tmp_path: Path) -> None:
    path = of_this_machine(tmp_path)
    (row,) = json.loads(succeeded(autopipe("compare", path, "--time", "0.5s", "--json", cwd=tmp_path)).stdout)
    assert row["config"] == files.read(path).profiles[0].winner.config
