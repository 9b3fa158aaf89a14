"""`autopipe measure --mode`: the model's own step by the command line, kept in an artefact and its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.trial.workload_import import load_workload
from autopipe.tuned import artifact as files
from autopipe.tuned import fingerprint
from autopipe.tuned.findings import Findings
from autopipe.tuned.schema import FileReference
from tests.fakes.profiles import artifact, profile
from tests.fakes.workload_script import TRAIN


@pytest.mark.slow
def test_a_step_is_timed_and_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    workload = load_workload(f"{tmp_path / 'train.py'}:workload")
    here = profile(
        hardware=fingerprint.detect(workload.data).model_copy(update={"keras_backend": "jax"}),
        workload=fingerprint.workload_digest(workload),
        findings=Findings(),
    )
    path = files.write(artifact(here, workload=FileReference(path="train.py")), tmp_path / "autopipe.json")
    line = [
        "measure",
        "train.py:workload",
        "--mode",
        "predict",
        "--seconds",
        "0.5",
        "--json",
        "--keep",
        "autopipe.json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", *line],
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    findings = files.read(path).profiles[0].findings
    assert findings is not None
    (kept,) = findings.step_times
    assert kept.model_dump(mode="json") == told
    assert (kept.mode, kept.batch_size) == ("predict", 4)
    assert "How long does the model itself take?" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "before"), [("tensorflow", "import tensorflow as tf; tf.constant(0)"), ("jax", "")]
)
def test_two_virtual_devices_are_measured(backend: str, before: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{before}\n{TRAIN}")
    line = [
        "measure",
        "train.py:workload",
        "--virtual-devices",
        "2",
        "--set",
        "devices=2",
        "--seconds",
        "0.5",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", *line],
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["ran"]["devices"]) == 2
