"""The generated module, used as people use it: from anywhere, after a move, in a notebook, in another process."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.artifact import factory
from autopipe.hardware.gpu import keras_backend
from autopipe.measure import fingerprint
from tests.fakes.commands import ROOT, forgotten, python, succeeded
from tests.fakes.profiles import of_this_machine
from tests.fakes.workload_script import TRAIN


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


def _use(folder: Path) -> tuple[int, int]:
    """Return how many samples the module's loader gives, and its workers."""
    made = runpy.run_path(str(folder / "tuned_pipeline.py"))
    with made["make_loader"]() as loader:
        return sum(len(x) for x, _ in loader.batches(0)), made["CONFIG"].loader.workers


side_by_side_too = pytest.mark.parametrize("project", [".", "tuned"], indirect=True)


@side_by_side_too
def test_it_works_after_the_project_was_moved(project: tuple[Path, Path], tmp_path: Path) -> None:
    home, folder = project
    home.rename(tmp_path / "new")
    moved = tmp_path / "new" / folder.relative_to(home)
    assert _use(moved) == (256, 2)


@side_by_side_too
def test_it_works_after_its_folder_was_moved_alone(project: tuple[Path, Path], tmp_path: Path) -> None:
    _, folder = project
    moved = tmp_path / "far" / "away"
    shutil.copytree(folder, moved)
    if folder.name == "tuned":
        shutil.rmtree(folder)
    assert _use(moved) == (256, 2)


def test_it_imports_no_framework_and_no_workload_before_it_is_used(project: tuple[Path, Path]) -> None:
    _, folder = project
    code = f"""
import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]
import tuned_pipeline
print(sorted({{"tensorflow", "keras", "jax", "torch", "train"}} & sys.modules.keys()))
"""
    assert _run(code) == "[]\n"


@pytest.mark.slow
def test_it_works_in_a_spawned_process(project: tuple[Path, Path], tmp_path: Path) -> None:
    _, folder = project
    script = tmp_path / "spawn.py"
    script.write_text(f"""
import multiprocessing, sys
sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]
import tuned_pipeline

def count(shard):
    with tuned_pipeline.make_loader(shard) as loader:
        return sum(len(x) for x, y in loader.batches(0))

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(count, [(0, 2), (1, 2)]))
""")
    done = python(script, cwd="/", backend=BACKEND)
    assert (done.returncode, done.stdout) == (0, "[128, 128]\n"), done.stderr


@pytest.mark.slow
def test_it_works_in_a_notebook(project: tuple[Path, Path], tmp_path: Path) -> None:
    import nbclient
    import nbformat

    _, folder = project
    cells = [
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\nimport tuned_pipeline as t",
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
    code = f"""
import os, warnings
import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]
import tuned_pipeline as t
os.environ["KERAS_BACKEND"] = "jax"
with warnings.catch_warnings(record=True) as seen, t.make_trainer() as trainer:
    history = trainer.fit(epochs=2, verbose=0)
    print(len(history.history["loss"]), type(trainer.model).__name__, trainer.promise)
print([str(each.message) for each in seen if each.category.__name__ == "ProfileWarning"])
"""
    trained, warned = _run(code, warnings="default").splitlines()
    assert trained == "2 Sequential None"
    assert "measured on Keras's tensorflow backend, but this trains on jax" in warned
