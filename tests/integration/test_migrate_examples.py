"""examples/migrate: each script after its migration trains, and differs from the one before in ten lines at most.

The scripts before it are what others wrote; they are compared and not run.
"""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path

import cv2
import numpy as np
import pytest

from autopipe.workload.data.records import frame, serialise
from tests.fakes.commands import ROOT, python, succeeded

EXAMPLES = ROOT / "examples"
BEFORE = sorted((EXAMPLES / "migrate").glob("*_before.py"))
RUN_ALL = """
import os, runpy, sys
for script, data in zip(sys.argv[1::2], sys.argv[2::2]):
    os.environ["DATA"] = data
    runpy.run_path(script, run_name="__main__")
    print("trained", script)
"""


def photos(root: Path) -> Path:
    runpy.run_path(str(EXAMPLES / "photos" / "make_demo.py"))["make"](root, per_class=3)
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


@pytest.mark.parametrize("before", BEFORE, ids=lambda path: path.stem)
def test_at_most_ten_lines_change(before: Path) -> None:
    after = before.with_name(before.name.replace("_before", "_after"))
    lines = list(difflib.unified_diff(before.read_text().splitlines(), after.read_text().splitlines(), n=0))[2:]
    added = [line for line in lines if line.startswith("+") and line.strip("+ ")]
    assert 0 < len(added) <= 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_script_trains_after_its_migration(tmp_path: Path) -> None:
    classes = photos(tmp_path / "photos")
    data = {"segmentation": pets(tmp_path / "pets"), "tfrecords": records(tmp_path / "records", classes)}
    names = [before.stem.removesuffix("_before") for before in BEFORE]
    assert set(names) == {"classification", "generator", "hugging_face", "segmentation", "tfrecords"}
    scripts = [(str(EXAMPLES / "migrate" / f"{name}_after.py"), str(data.get(name, classes))) for name in names]
    home = {name: str(tmp_path / "home") for name in ("HF_HOME", "XDG_CACHE_HOME")}
    parts = [part for pair in scripts for part in pair]
    done = succeeded(python("-c", RUN_ALL, *parts, HF_HUB_OFFLINE="1", **home))
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("trained")] == [
        script for script, _ in scripts
    ]
