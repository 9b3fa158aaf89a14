"""Each example, run as its own docstring says: its demo data made, and its training run without the tuner."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from tests.fakes.commands import ROOT, python, succeeded

ON_JAX = ("photos", "custom_source", "two_inputs")  # it is imported in a second
EXAMPLES = sorted(
    path.parent
    for path in (ROOT / "examples").glob("*/train.py")
    if path.parent.name != "branches"  # below
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_trains_without_the_tuner(example: Path) -> None:
    script = _with_demo(example) / "train.py"
    assert "loss" in _run(script, str(script))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["one_hots", "masks"])
def test_a_dataset_of_ones_own_may_have_arrays_for_targets(target: str) -> None:
    script = _with_demo(ROOT / "examples" / "existing_tfdata") / "train.py"
    assert "images/s" in _run(script, "-m", "autopipe", "measure", f"{script}:{target}", "--seconds", "1")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_py_dataset_that_uses_multiprocessing_is_measured_beside_worker_processes() -> None:
    script = _with_demo(ROOT / "examples" / "existing_pydataset") / "train_tuned.py"
    line = ("measure", f"{script}:workload", "--seconds", "1", "--set", "wrapped.workers=2")
    shown = _run(script, "-m", "autopipe", *line)
    assert re.search(r"the dataset without the model +images/s", shown)
    assert re.search(r"processes\(workers=\d+\).* [\d.]+ \(", shown), shown


def test_a_py_dataset_is_tuned_by_six_lines_of_its_script_at_most() -> None:
    plain, tuned = (
        (ROOT / "examples" / "existing_pydataset" / name).read_text().split('"""', 2)[2].splitlines()
        for name in ("train.py", "train_tuned.py")
    )
    changed = [line for line in list(difflib.unified_diff(plain, tuned, n=0))[2:] if line[0] in "+-"]
    assert 0 < len([line for line in changed if line[1:].strip()]) <= 6


def test_a_model_of_two_inputs_takes_ten_lines_that_differ_from_plain_keras() -> None:
    plain, with_autopipe = (
        (ROOT / "examples" / "two_inputs" / name).read_text().split('"""', 2)[2].splitlines()
        for name in ("by_keras.py", "train.py")
    )
    lines = list(difflib.unified_diff(plain, with_autopipe, n=0))[2:]
    assert 0 < len([line for line in lines if line.startswith("+") and line.strip("+ ")]) <= 10


@pytest.mark.slow
def test_branches_stay_where_the_model_puts_them_and_train_the_same(tmp_path: Path) -> None:
    done = succeeded(python(ROOT / "examples" / "branches" / "train.py", cwd=tmp_path, backend="tensorflow"))
    rows = re.findall(r"^(.*): [\d,]+ images/s, loss (\S+), coarse branch on (\S+)$", done.stdout, re.MULTILINE)
    assert [(name, where) for name, _, where in rows] == [
        ("one device", "CPU:0"),
        ("branches on two", "CPU:1"),
        ("data parallel on two", "both"),
    ]
    assert len({round(float(loss), 3) for _, loss, _ in rows}) == 1


def _with_demo(example: Path) -> Path:
    maker = example / "make_demo.py"
    if maker.exists() and not (example / "demo").exists():
        _run(maker, str(maker))
    return example


def _run(script: Path, *line: str) -> str:
    backend = "jax" if script.parent.name in ON_JAX else "tensorflow"
    done = succeeded(python(*line, backend=backend))
    return done.stdout + done.stderr


@pytest.fixture(autouse=True)
def _demo_data(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PHOTOS", "CAMVID", "PHOTOS_TAR"):
        monkeypatch.delenv(name, raising=False)
