"""A tune for a machine that is not here: its whole space, its devices and cores, and an artefact that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact import pick
from autopipe.hardware import machine
from autopipe.measure import fingerprint
from autopipe.measure.fingerprint import MatchLevel
from tests.fakes.commands import autopipe, succeeded
from tests.fakes.images import in_classes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRAIN = """
import time
import autopipe as ap

def slow(image):
    time.sleep(0.01)
    return image

workload = ap.Workload(
    data=ap.ImageFolder("photos"), ops=[ap.Decode(), ap.Map(slow), ap.Resize(16, 16), ap.Rescale(1 / 255)],
    batch_size=8,
)
"""
SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {choices: [1, 16], when: {loader: threads}}
  devices: [4]
"""
MACHINE = "cores=16,gpus=4,step=40ms,exchange=0ms,memory=64G,samples=100000"


def test_a_tune_for_a_machine_that_is_not_here(tmp_path: Path) -> None:
    in_classes(tmp_path / "photos", 80, (20, 20))
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "space.yaml").write_text(SPACE)
    small = autopipe("tune", "train.py:workload", "--rehearse", "cores=2,step=1ms,memory=1K", cwd=tmp_path)
    assert small.returncode != 0
    assert "`memory` of a rehearsal must hold a batch, which takes 6.1 KiB, but got 1 KiB" in " ".join(
        small.stderr.split()
    )
    options = ("--rehearse", MACHINE, "--space", "space.yaml", "--budget", "20s", "--json")
    done = autopipe("tune", "train.py:workload", *options, cwd=tmp_path)
    document = json.loads(succeeded(done).stdout)
    # Four accelerators train 800 images/s; one worker makes 100, and 16 make more than they train.
    assert (document["best"]["devices"], document["best"]["loader"]["workers"]) == (4, 16)
    assert document["rehearsed"] == "16 cores, 4 accelerators of 40 ms a step"
    assert "rehearsed" in document["trust"]
    assert document["baselines"] == {}
    found = files.read(tmp_path / "tuned" / "autopipe.json")
    hardware = found.profiles[0].hardware
    assert (hardware.cores, "rehearsed" in hardware.cpu_model, len(hardware.gpus)) == (16, True, 4)
    assert pick.nearest(found, fingerprint.of_machine(machine.detect()))[1].level is not MatchLevel.SAME
    asked = found.profiles[0].request.rehearse
    assert asked is not None
    assert asked.text == "cores=16,gpus=4,step=40ms,memory=68719476736B,exchange=0ms,samples=100000"
