"""`autopipe measure --mode`: the model's own step by the command line, kept in an artefact and its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from tests.fakes.commands import autopipe, succeeded
from tests.fakes.profiles import of_this_machine
from tests.fakes.workload_script import TRAIN


@pytest.mark.slow
def test_a_step_is_timed_and_kept(tmp_path: Path) -> None:
    path = of_this_machine(tmp_path)
    line = "measure train.py:workload --mode predict --seconds 0.5 --json --keep autopipe.json"
    told = json.loads(succeeded(autopipe(*line.split(), cwd=tmp_path)).stdout)
    (kept,) = files.read(path).profiles[0].step_times
    assert kept.model_dump(mode="json") == told
    assert (kept.mode, kept.batch_size) == ("predict", 4)
    assert "How long does the model itself take?" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "before"), [("tensorflow", "import tensorflow as tf; tf.constant(0)"), ("jax", "")]
)
def test_two_virtual_devices_are_measured(backend: str, before: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{before}\n{TRAIN}")
    line = "measure train.py:workload --virtual-devices 2 --set devices=2 --seconds 0.5 --json"
    done = succeeded(autopipe(*line.split(), cwd=tmp_path, backend=backend))
    assert len(json.loads(done.stdout)["ran"]["devices"]) == 2
