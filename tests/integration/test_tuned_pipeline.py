"""The generated module, used as people use it: from anywhere, after a move, in a notebook, in another process.

What `autopipe check` says of its profile with a real child that trains, and what a training says of it; and a training
that is killed and started again.
"""

import datetime
import json
import runpy
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.api import tuning
from autopipe.artifact import factory
from autopipe.artifact.schema import Profile
from autopipe.hardware import machine
from autopipe.hardware.gpu import keras_backend
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.search import searching
from autopipe.search.searching import hardware_of
from tests.fakes.commands import ROOT, TRAIN, forgotten, python, succeeded
from tests.fakes.profiles import about, of_this_machine, profile

SAMPLES, EPOCHS = 30, 3


@pytest.fixture(params=["tuned"])
def project(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Path]]:
    """The folder of a workload file, and that of its artifact: below it, unless a test says otherwise."""
    home = tmp_path / "home"
    home.mkdir()
    here = fingerprint.detect().model_copy(update={"keras_backend": BACKEND})
    with forgotten(tmp_path):
        folder = of_this_machine(home, below=request.param, hardware=here).parent
    monkeypatch.chdir("/")
    with forgotten(tmp_path):
        yield home, folder


def _run(code: str, cwd: Path | str = "/", *, warnings: str = "error") -> str:
    return succeeded(python("-W", warnings, "-c", code, cwd=cwd, backend=BACKEND)).stdout


BACKEND = keras_backend() or "tensorflow"  # of this process


def _imported(folder: Path) -> str:
    return f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\nimport tuned_pipeline as t"


def _use(folder: Path) -> tuple[int, int]:
    """Return how many samples the module's loader gives, and its workers."""
    made = runpy.run_path(str(folder / "tuned_pipeline.py"))
    with made["make_loader"]() as loader:
        return sum(len(x) for x, _ in loader.batches(0)), made["CONFIG"].loader.workers


@pytest.mark.parametrize("project", [".", "tuned"], indirect=True)
@pytest.mark.parametrize("whole", [True, False])
def test_it_works_after_the_project_or_its_folder_alone_was_moved(
    project: tuple[Path, Path], whole: bool, tmp_path: Path
) -> None:
    home, folder = project
    moved = tmp_path / "new" / (folder.relative_to(home) if whole else "tuned")
    shutil.copytree(home if whole else folder, tmp_path / "new" if whole else moved)
    if whole or folder.name == "tuned":
        shutil.rmtree(home if whole else folder)
    assert _use(moved) == (256, 2)


def test_it_imports_no_framework_and_no_workload_before_it_is_used(project: tuple[Path, Path]) -> None:
    _, folder = project
    code = 'print(sorted({"tensorflow", "keras", "jax", "torch", "train"} & sys.modules.keys()))'
    assert _run(f"{_imported(folder)}\n{code}") == "[]\n"


@pytest.mark.slow
def test_it_works_in_a_spawned_process(project: tuple[Path, Path], tmp_path: Path) -> None:
    _, folder = project
    script = tmp_path / "spawn.py"
    script.write_text(f"""import multiprocessing
{_imported(folder)}

def count(shard):
    with t.make_loader(shard) as loader:
        return sum(len(x) for x, y in loader.batches(0))

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(count, [(0, 2), (1, 2)]))
""")
    assert succeeded(python(script, cwd="/", backend=BACKEND)).stdout == "[128, 128]\n"


@pytest.mark.slow
def test_it_works_in_a_notebook(project: tuple[Path, Path], tmp_path: Path) -> None:
    import nbclient
    import nbformat

    _, folder = project
    cells = [
        _imported(folder),
        "with t.make_loader() as loader:\n    count = sum(len(x) for x, y in loader.batches(0))\ncount",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[1].outputs[0]["data"]["text/plain"] == "256"


def test_a_workload_that_was_changed_after_tuning_still_trains(project: tuple[Path, Path]) -> None:
    """What is trained is the workload's matter; a warning says that the figures are old."""
    home, folder = project
    # Of another length: Python takes the bytecode of a file that has the same length in the same second.
    (home / "train.py").write_text(TRAIN.replace("batch_size=4", "batch_size=8") + "\n")
    with pytest.warns(factory.ProfileWarning, match="the batch size was 4 and is 8"):
        assert _use(folder) == (256, 2)


@pytest.mark.slow
def test_the_trainer_trains_the_workloads_own_model_and_names_another_backend(project: tuple[Path, Path]) -> None:
    """The backend is chosen after the artifact was loaded, and so is only known when the trainer is made."""
    _, folder = project
    code = f"""{_imported(folder)}
import os, warnings
os.environ["KERAS_BACKEND"] = "jax"
with warnings.catch_warnings(record=True) as seen, t.make_trainer() as trainer:
    history = trainer.fit(epochs=2, verbose=0)
    print(len(history.history["loss"]), type(trainer.model).__name__, trainer.promise)
print([str(each.message) for each in seen if each.category.__name__ == "ProfileWarning"])
"""
    trained, warned = _run(code, warnings="default").splitlines()
    assert trained == "2 Sequential None"
    assert "measured on Keras's tensorflow backend, but this trains on jax" in warned


def _profile(described: Description, rate: float) -> Profile:
    """Return a profile of this machine and of the described workload, with a rate."""
    here = fingerprint.of_machine(machine.detect(), described.storage_kind, described.backend)
    digest, now = described.digest, datetime.datetime.now(datetime.UTC)
    return profile(hardware=here, workload=digest, images_per_second=about(rate), ceiling=None, measured_at=now)


@pytest.mark.slow
def test_profiles_that_hold_or_drifted_or_went_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(tuning, "PROOF", {"min_seconds": 0.5, "max_seconds": 1.0})
    (tmp_path / "train.py").write_text(TRAIN)

    with searching.runner_for(f"{tmp_path / 'train.py'}:workload") as runner, tuning.Processes(runner) as processes:
        described = searching.description(runner)
        here = hardware_of(machine.detect(), described)
        holds = tuning.check_with(processes, described, _profile(described, 1e-3), here)
        drifted = tuning.check_with(processes, described, _profile(described, 1e12), here)
        another = described.model_copy(update={"ops": "f" * 16, "op_list": described.op_list[1:]})
        stale = tuning.check_with(processes, another, _profile(described, 1.0), here, measures=lambda judged: False)
    assert described.backend == "jax"
    assert [each.exit_code for each in (holds, drifted, stale)] == [0, 5, 4]
    assert holds.rows[0].together is not None
    assert holds.rows[0].together.value > 1.0
    assert "images/s, but 1,000,000,000,000 when it was tuned" in drifted.reasons[0]
    assert "Rescale was removed" in stale.reasons[0]


# ---------------------------------------------------------------- a training: what is logged, and when it warns

CODE = """
import sys, warnings
sys.path.insert(0, {root!r})
import numpy as np, keras
import autopipe as ap
from autopipe.artifact import factory
from autopipe.measure import fingerprint
from autopipe.artifact.drift import DriftMonitor, DriftWarning
from tests.fakes.profiles import about, profile

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
data = ap.Arrays(np.zeros((64, 4), "float32"), np.zeros((64, 1), "float32"))
workload = ap.Workload(data=data, ops=[ap.Rescale(2.0)], batch_size=4, model=model)
known = dict(hardware=fingerprint.detect(data), workload=fingerprint.workload_digest(workload))

def train(promised):
    tuned = factory.of_profile(profile(images_per_second=about(promised), **known), workload)
    with warnings.catch_warnings(record=True) as seen, tuned.make_trainer() as trainer:
        warnings.simplefilter("always")
        loader = trainer.loader
        history = trainer.fit(epochs=3, verbose=0, callbacks=[DriftMonitor()]).history
        assert trainer.loader is loader
    figures = "images_per_second", "data_wait_share", "cores_of_others", "lost_workers"
    assert [len(history[figure]) for figure in figures] == [3] * 4
    assert min(history["images_per_second"]) > 1 and 0 <= min(history["data_wait_share"]) <= 1
    return sum(issubclass(warning.category, DriftWarning) for warning in seen)

print(train(promised=1.0), train(promised=1e9))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_training_that_is_too_slow_is_warned_once_and_its_logs_have_figures(backend: str) -> None:
    assert succeeded(python("-c", CODE.format(root=str(ROOT)), backend=backend)).stdout == "0 1\n"


# ---------------------------------------------------------------- a training that is killed by SIGKILL in mid-epoch

COUNTING = """
import json, os, signal, sys
from pathlib import Path
import keras
import numpy as np
import autopipe as ap

SAMPLES, EPOCHS = {samples}, {epochs}

class Counts(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(SAMPLES,), initializer="zeros", trainable=False)
        self.scale = self.add_weight(shape=(), initializer="ones")
    def call(self, x):
        numbers = keras.ops.cast(x[:, 0], "int32")
        self.seen.assign(self.seen + keras.ops.sum(keras.ops.one_hot(numbers, SAMPLES), axis=0))
        return x * self.scale

def build_model():
    model = keras.Sequential([keras.Input((1,)), Counts()])
    model.compile(optimizer=keras.optimizers.SGD(1e-9), loss="mse")
    return model

epoch = 0
def begin(number, logs):
    global epoch
    epoch = number

def kill(batch, logs):
    if [epoch, batch] == json.loads(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

def save(batch, logs):
    # As somebody does who keeps weights and state by hand: files of a step, and then one that names them.
    if batch % 4 == 3:
        state = trainer.state_dict()
        weights = f"{{state['epoch']}}-{{state['batch']}}.weights.h5"
        saved.model.save_weights(weights)  # which has what the steps trained
        Path("new.json").write_text(json.dumps([weights, state]))
        Path("new.json").replace("state.json")

killed = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_train_batch_end=kill)
saved = keras.callbacks.LambdaCallback(on_train_batch_end=save)
numbers = np.arange(SAMPLES, dtype="float32")[:, None]
data = ap.Arrays(numbers, numbers)
workload = ap.Workload(data=data, ops=[ap.Rescale(1.0)], batch_size=3, model=build_model, seed=1)
with ap.make_trainer(workload, ap.PipelineConfig(loader=ap.{loader})) as trainer:
    if {by_hand}:
        done = 0
        if Path("state.json").exists():
            weights, state = json.loads(Path("state.json").read_text())
            trainer.model.load_weights(weights)
            trainer.load_state_dict(state)
            done = state["epoch"]
        trainer.fit(epochs=EPOCHS, initial_epoch=done, verbose=0, callbacks=[saved, killed])
    else:
        backup = keras.callbacks.BackupAndRestore("backup", save_freq=4)
        best = keras.callbacks.ModelCheckpoint("best.weights.h5", monitor="loss", save_weights_only=True)
        trainer.fit(epochs=EPOCHS, verbose=0, callbacks=[backup, best, killed])
    print(json.dumps(np.asarray(trainer.model.layers[0].seen).tolist()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_hand", "loader", "kills"),
    [(False, "Threads(workers=2)", [(1, 5), (1, 8)]), (True, "Processes(workers=2)", [(1, 5)])],
)
def test_each_sample_counts_once_an_epoch_however_often_the_training_was_killed(
    tmp_path: Path, by_hand: bool, loader: str, kills: list[tuple[int, int]]
) -> None:
    """Killed between two saves, and again before the resumed run has saved anything."""
    script = tmp_path / "train.py"
    script.write_text(COUNTING.format(samples=SAMPLES, epochs=EPOCHS, by_hand=by_hand, loader=loader))
    for kill in kills:
        killed = python(script, json.dumps(kill), cwd=tmp_path)
        assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, ""), killed.stderr
    ended = succeeded(python(script, json.dumps(None), cwd=tmp_path))
    assert json.loads(ended.stdout) == [EPOCHS] * SAMPLES
