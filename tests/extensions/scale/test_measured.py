"""`autopipe scale` on two virtual devices, each of which stands for an accelerator of a known speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.commands import autopipe, succeeded

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
    line = "scale train.py:workload --json --devices 1,2,4 --virtual-devices 2"
    done = succeeded(
        autopipe(*line.split(), "--simulate-step", f"{STEP_SECONDS * 1e3:g}ms/8", cwd=tmp_path, backend="tensorflow")
    )
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
