"""`autopipe tune` from beginning to end: a child is killed, it is interrupted and ended, resumed, checked and retuned.

Runs on JAX, which is imported in a second; few commands, because each starts a child that imports a framework.

Below: `autopipe measure` of batch sizes, virtual devices and a dataset of the user's.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from autopipe.artifact import artifact as files
from autopipe.measure.outcome import Measurement
from autopipe.measure.trial import child
from autopipe.reports import tables
from tests.fakes.commands import TRAIN as SCRIPT
from tests.fakes.commands import Done, autopipe, environment, python, succeeded
from tests.fakes.damage import in_classes
from tests.fakes.reports import printed

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

ops = [ap.Decode(), ap.Resize(16, 16), ap.Rescale(1 / 255)]
workload = ap.Workload(data=Photos("photos"), ops=ops, batch_size=8, model=build_model)
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
        self.said = ""

    def until(self, label: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if line.startswith(label):
                return
        raise AssertionError(f"no line began with {label!r}:\n{self.said}")

    def interrupted(self) -> Done:
        """Send Ctrl-C; what the command has started ends with it."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGINT)
        out, said = self.process.communicate()
        assert family != []
        assert psutil.wait_procs(family, timeout=20)[1] == []
        return Done(self.process.args, self.process.returncode, out, self.said + said)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small workload, a small space and sixty small photos."""
    folder = tmp_path_factory.mktemp("home")
    in_classes(folder / "photos", 60, (64, 80), suffix=".jpg")
    (folder / "train.py").write_text(TRAIN)
    (folder / "space.yaml").write_text(SPACE)
    return folder


TUNE = ("tune", "train.py:workload", "--space", "space.yaml", "--trials", "6", "-v", "--json")


def begun(said: str, label: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith(label)]


def test_a_tune_loses_a_child_is_interrupted_goes_on_and_is_renewed_after_a_change(home: Path) -> None:
    tune, artifact = Running(home, *TUNE, "--budget", "10m"), home / "tuned" / "autopipe.json"
    tune.until("ceiling")
    (home / "kill").touch()  # the child dies of kill -9 in a trial
    tune.until("failed")
    tune.until("trial")
    interrupted = tune.interrupted()
    assert ["crashed in" in line for line in begun(interrupted.stderr, "failed")] == [True]
    assert (interrupted.returncode, "Traceback" in interrupted.stderr) == (130, False)
    assert interrupted.stderr.splitlines()[-1] == "interrupted"
    first = json.loads(interrupted.stdout)
    assert first["best"]["loader"]["kind"] in ("threads", "tfdata")
    assert not first["images_per_second"]["proved"]
    assert first["warnings"][0].startswith("The search was interrupted")
    assert files.read(artifact).profiles[0].winner.config == first["best"]
    assert artifact.with_name("tuned_pipeline.py").exists()

    resumed = succeeded(autopipe(*TUNE, "--budget", "5m", cwd=home))
    document = json.loads(resumed.stdout)
    assert begun(resumed.stderr, "resumed") != []
    assert document["images_per_second"]["proved"]
    assert document["trials"] > first["trials"]
    assert document["failed"] == 1, begun(resumed.stderr, "failed")
    assert document["artifact"] == "tuned/autopipe.json"
    assert files.read(artifact).profiles[0].winner.config == document["best"]

    (home / "other.py").write_text(TRAIN.replace("batch_size=8", "batch_size=4"))
    refused = autopipe("tune", "other.py:workload", *TUNE[2:], cwd=home)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.search("was recorded for something else: workload: .*`--fresh`", refused.stderr, re.DOTALL)

    (home / "train.py").write_text(TRAIN.replace("Dense(2)", "Dense(3)"))
    check = autopipe("check", "tuned/autopipe.json", "--quick", "--json", cwd=home)
    found = json.loads(check.stdout)
    assert (check.returncode, found["verdict"], "model" in found["reasons"][0]) == (4, "stale", True)
    again = ("retune", "tuned/autopipe.json", "--if-stale", "--budget", "20s", "--json", "--exit-code")
    assert json.loads(succeeded(autopipe(*again, "--dry-run", cwd=home)).stdout)["would"]
    retuned = autopipe(*again, cwd=home)
    document = json.loads(retuned.stdout)
    assert (retuned.returncode, document["retuned"]) == (6 if document["kept"] else 0, True), retuned.stderr
    assert any(f"--space {home / 'space.yaml'}" in line for line in begun(retuned.stderr, "as before"))
    assert [each.winner.config for each in files.read(artifact).profiles] == [document["config"]]
    fits = autopipe(*again, cwd=home)
    assert (fits.returncode, json.loads(fits.stdout)["retuned"]) == (7, False)


def test_ctrl_c_before_anything_is_measured_writes_nothing(home: Path) -> None:
    tune = Running(home, *TUNE[:4], "--budget", "30s", "--out", "none")
    tune.until("ceiling")
    stopped = tune.interrupted()
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert "interrupted before any configuration could be measured" in stopped.stderr.splitlines()[-1]
    assert "best" not in stopped.stderr
    assert not [*(home / "none").glob("*.json"), *(home / "none").glob("*.py")]


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
    # Not a new study.
    assert re.search(r"\nto go on  .* tune train\.py:workload --budget 1m\ninterrupted\n$", done.stderr), done.stderr
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))
    assert list(temporary.glob(f"{child.PREFIX}*")) == []
    assert not (tmp_path / "tuned").exists()


def test_a_workload_that_cannot_be_trained_is_told_before_anything_is_measured(home: Path) -> None:
    (home / "small.py").write_text(TRAIN.replace("Input((16, 16, 3))", "Input((8, 8, 3))"))
    refused = autopipe("tune", "small.py:workload", "--out", "small", cwd=home)
    assert (refused.returncode, refused.stdout, "Traceback" in refused.stderr) == (2, "", False)
    said = r"error: .*\(None, 8, 8, 3\), but gets \(None, 16, 16, 3\).*hint: Change the samples"
    assert re.search(said, refused.stderr, re.DOTALL), refused.stderr


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
    names = ["train.py:workload", "other.py:workload"]
    lines = succeeded(autopipe("compare", *names, "--time", "0.5s", cwd=home)).stdout.splitlines()
    assert lines[0].split() == ["images/s", "model", "alone", "loader", "alone", "together"]
    found = [line.split()[0] for line in lines[1:] if ":" in line[:20]]
    assert found == [*names, *(f"{name}:" for name in names)]
    rows = json.loads(succeeded(autopipe("compare", *names, "--time", "0.5s", "--json", cwd=home)).stdout)
    assert [row["name"] for row in rows] == names
    assert min(row[part]["value"] for row in rows for part in ("model", "loader", "together")) > 0


@pytest.mark.parametrize(
    ("backend", "before"), [("tensorflow", "import tensorflow as tf; tf.constant(0)"), ("jax", "")]
)
def test_two_virtual_devices_are_measured(backend: str, before: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{before}\n{SCRIPT}")
    line = "measure train.py:workload --virtual-devices 2 --set devices=2 --time 0.5s --json"
    done = succeeded(autopipe(*line.split(), cwd=tmp_path, backend=backend))
    assert len(json.loads(done.stdout)[0]["both"]["ran"]["devices"]) == 2


WRAPPED = """
import keras
import numpy as np
import autopipe as ap

class Data(keras.utils.PyDataset):
    def __init__(self, times):
        super().__init__()
        self.times = times
    def __len__(self):
        return 50
    def __getitem__(self, index):
        total = sum(number % 7 for number in range(100_000 * self.times))
        return np.full((4, 2, 2, 3), total % 7, "float32"), np.zeros(4)

def make_dataset(times: int = 2):
    sum(range(30_000_000))  # once, which makes no batch
    return Data(times)

workload = ap.wrap(make_dataset, model=ap.SimulatedAccelerator(0.001), parameters={"times": [1, 2, 4]})
"""


def test_a_wrapped_dataset_is_read_without_its_model_and_its_slow_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRAPPED)
    done = autopipe("measure", "train.py:workload", "--json", "--time", "1s", cwd=tmp_path)
    (row,) = json.loads(succeeded(done).stdout)
    found = [Measurement.model_validate_json(json.dumps(each)) for each in row["without_model"]]
    assert found[1].config["arguments"] == {"times": 2}
    assert [each["config"]["loader"].get("times") for each in row["without_model"]] == [2, None, 1, 4, 2]
    assert found[-1].config == row["both"]["config"]
    assert [each.lines is None for each in found] == [True, True, True, True, False]
    shown = printed(tables.without_model(found), 300)
    assert re.search(r"the dataset without the model +images/s", shown)
    assert [re.findall(rf"times={times}\b", shown) != [] for times in (1, 2, 4)] == [True, True, True]
    assert re.search(r"slow lines +of making data *\n +\d+% train\.py:13 ", shown), shown
    assert "train.py:17" not in shown


@pytest.mark.parametrize("model", ["", "step=lambda batch: time.sleep(0.1 * (len(batch[0]) == 4)), "])
def test_a_wrapped_dataset_is_measured_alone_or_beside_a_step_in_place_of_a_model(model: str, tmp_path: Path) -> None:
    text = WRAPPED.replace("model=ap.SimulatedAccelerator(0.001), ", model).replace("100_000", "1000")
    (tmp_path / "train.py").write_text("import time\n" + text)
    line = ("measure", "train.py:workload", "--time", "0.5s")
    (row,) = json.loads(succeeded(autopipe(*line, "--json", cwd=tmp_path)).stdout)
    beside, alone = (each["images_per_second"]["value"] for each in (row["both"], row["without_model"][0]))
    assert alone > 100
    assert (beside < 40) == bool(model)
