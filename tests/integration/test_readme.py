"""The README's Python, as a reader would run it: write the workload, tune it, train with what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def _blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos in ten classes, the README's workload as train.py, and what a short tune wrote."""
    folder = tmp_path_factory.mktemp("project")
    generator = np.random.default_rng(0)
    for number in range(40):
        place = folder / "photos" / f"class_{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        image = cv2.resize(generator.integers(0, 256, (6, 8, 3), np.uint8), (96, 72))
        cv2.imwrite(str(place / f"{number}.jpg"), image)
    (folder / "train.py").write_text(next(block for block in _blocks() if "workload = ap.Workload(" in block))
    _run(folder, "-m", "autopipe", "tune", "train.py:workload", "--space", "quick", "--trials", "3", "--budget", "60s")
    return folder


def _run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"KERAS_BACKEND": "jax"}  # imported in a second
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readmes_python_runs_in_the_order_of_the_page(project: Path) -> None:
    uses = [block for block in _blocks() if "workload = ap.Workload(" not in block]
    assert any("make_trainer" in block for block in uses)
    script = "import sys; sys.path.insert(0, 'tuned')\n" + "\n".join(uses)
    (project / "follow.py").write_text(script.replace("        ...", "        break"))
    output = _run(project, "follow.py")
    assert (project / "final.keras").exists()
    assert "(8, 64, 64, 3)" in output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_tune_writes_the_three_files_that_the_readme_names(project: Path) -> None:
    assert {"autopipe.json", "study.db", "tuned_pipeline.py"} <= {path.name for path in (project / "tuned").iterdir()}
