"""Each example, run as its own docstring says: its demo data made, and its training run without the tuner.

Of examples/migrate each script after its migration trains; those before it are what others wrote, and are not run. Each
script of `benchmarks/` starts, and the record of a machine is written without an accelerator.
"""

from __future__ import annotations

import difflib
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from autopipe.workload.data.records import frame, serialise
from tests.fakes.commands import ROOT, python, succeeded

ON_JAX = ("photos", "custom_source", "two_inputs")  # it is imported in a second
EXAMPLES = sorted(
    path.parent
    for path in (ROOT / "examples").glob("*/train.py")
    if path.parent.name != "branches"  # below
)

MIGRATED = sorted(path.stem.removesuffix("_before") for path in (ROOT / "examples" / "migrate").glob("*_before.py"))


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
    assert "images/s" in _run(script, "-m", "autopipe", "measure", f"{script}:{target}", "--time", "1s")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_py_dataset_that_uses_multiprocessing_is_measured_beside_worker_processes() -> None:
    script = _with_demo(ROOT / "examples" / "existing_pydataset") / "train_tuned.py"
    line = ("measure", f"{script}:workload", "--time", "1s", "--set", "wrapped.workers=2")
    shown = _run(script, "-m", "autopipe", *line)
    assert re.search(r"the dataset without the model +images/s", shown)
    assert re.search(r"processes\(workers=\d+\).* [\d.]+ \(", shown), shown


@pytest.mark.parametrize(
    ("plain", "changed", "most"),
    [
        ("existing_pydataset/train.py", "existing_pydataset/train_tuned.py", 3),
        ("two_inputs/by_keras.py", "two_inputs/train.py", 10),
        *((f"migrate/{name}_before.py", f"migrate/{name}_after.py", 10) for name in MIGRATED),
    ],
)
def test_a_script_of_plain_keras_takes_few_more_lines(plain: str, changed: str, most: int) -> None:
    before, after = ((ROOT / "examples" / name).read_text().split('"""', 2)[2] for name in (plain, changed))
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    assert 0 < len([line for line in lines if line.startswith("+") and line.strip("+ ")]) <= most


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


RUN_ALL = """
import os, runpy, sys
for script, data in zip(sys.argv[1::2], sys.argv[2::2]):
    os.environ["DATA"] = data
    runpy.run_path(script, run_name="__main__")
    print("trained", script)
"""


def photos(root: Path) -> Path:
    runpy.run_path(str(ROOT / "examples" / "photos" / "make_demo.py"))["make"](root, per_class=3)
    return root


def pets(root: Path) -> Path:
    rng = np.random.default_rng(0)
    for folder in ("images", "annotations/trimaps"):
        (root / folder).mkdir(parents=True)
    for number in range(8):
        cv2.imwrite(str(root / "images" / f"{number}.jpg"), rng.integers(0, 256, (90, 120, 3), np.uint8))
        cv2.imwrite(str(root / "annotations/trimaps" / f"{number}.png"), rng.integers(1, 4, (90, 120), np.uint8))
    return root


def records(root: Path, images: Path) -> Path:
    root.mkdir()
    values: list[dict[str, bytes | int]] = [
        {"image/encoded": file.read_bytes(), "image/class/label": number % 8}
        for number, file in enumerate(sorted(images.rglob("*.jpg")))
    ]
    (root / "0.tfrecord").write_bytes(b"".join(frame(serialise(value)) for value in values))
    return root


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_script_trains_after_its_migration(tmp_path: Path) -> None:
    classes = photos(tmp_path / "photos")
    data = {"segmentation": pets(tmp_path / "pets"), "tfrecords": records(tmp_path / "records", classes)}
    assert set(MIGRATED) == {"classification", "generator", "hugging_face", "segmentation", "tfrecords"}
    scripts = [
        (str(ROOT / "examples" / "migrate" / f"{name}_after.py"), str(data.get(name, classes))) for name in MIGRATED
    ]
    home = {name: str(tmp_path / "home") for name in ("HF_HOME", "XDG_CACHE_HOME")}
    parts = [part for pair in scripts for part in pair]
    done = succeeded(python("-c", RUN_ALL, *parts, HF_HUB_OFFLINE="1", **home))
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("trained")] == [
        script for script, _ in scripts
    ]


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


# ---------------------------------------------------------------- benchmarks

BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = [path for path in sorted(BENCHMARKS.rglob("*.py")) if 'if __name__ == "__main__":' in path.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_tells_how_it_is_used(script: Path) -> None:
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_record_of_a_machine_is_written_as_its_parts_end(tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(BENCHMARKS / "device" / "record.py"), str(tmp_path), "--small"]
    subprocess.run([*command, "--only", "machine,loaders,lock,transfer"], check=True, stdout=subprocess.DEVNULL)

    record = json.loads((tmp_path / "results.json").read_text())
    assert {name: part["ended"] for name, part in record["parts"].items()} == dict.fromkeys(
        ("photographs", "machine", "loaders", "lock", "transfer"), "ok"
    )
    rates = {row["what"]: row["images/s"] for row in record["parts"]["loaders"]["rows"] if "images/s" in row}
    assert {"crops: Threads(2)", "crops: Processes(2)", "whole: bare C loop, 2 threads"} <= rates.keys()
    assert min(rates.values()) > 0
    assert "crops: Threads(2)" in (tmp_path / "table.txt").read_text()
