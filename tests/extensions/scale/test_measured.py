"""`autopipe scale` on two virtual devices, each of which stands for an accelerator of a known speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEP_SECONDS = 0.04

SCRIPT = """
import numpy as np
import autopipe as ap

images = np.zeros((64, 8, 8, 3), np.uint8)
labels = np.zeros(64, np.int64)
workload = ap.Workload(data=ap.Arrays(images, labels), ops=[ap.Rescale(1 / 255)], batch_size=8, model=lambda: None)
"""


@pytest.mark.slow
def test_what_is_here_is_measured_and_what_is_not_is_predicted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "autopipe", "scale", "train.py:workload", "--json", "--devices", "1,2,4"]
    command += ["--virtual-devices", "2", "--simulate-step", f"{STEP_SECONDS * 1e3:g}ms/8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    one, two, four = found["strong"]
    assert [row["measured"] for row in found["strong"]] == [True, True, False]
    assert one["step_seconds"] >= STEP_SECONDS
    assert two["step_seconds"] >= STEP_SECONDS / 2
    assert four["step_seconds"] >= STEP_SECONDS / 4
    assert found["weak"][1]["batch_size"] == 16
    assert found["virtual"]
    assert found["gradient_bytes"] == 0  # it learns nothing
    assert any("2 virtual devices were asked for" in note for note in found["notes"])
