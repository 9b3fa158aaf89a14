"""A conversion that is killed with -9 at any moment, and run again, or is done in parts as the example shows, gives the
files of an undisturbed one in one piece.
"""

from __future__ import annotations

import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.artifact import converting
from tests.fakes.commands import content, python, succeeded
from tests.fakes.damage import in_classes

pytestmark = pytest.mark.slow

# Each sample costs about a millisecond, so that 400 of them leave time to be killed in.
SCRIPT = """
import sys
import numpy as np
import autopipe as ap
from autopipe.artifact import converting

class Numbers:
    def __len__(self):
        return 400
    def read(self, index):
        return np.random.default_rng(index).integers(0, 256, (256, 256, 3), np.uint8), index

job = converting.job(ap.Workload(data=Numbers(), ops=[], batch_size=2), "array", sys.argv[1])
print("begun", flush=True)
job.run(workers=2, on_progress=lambda done, of: print(done, of, flush=True))
"""


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True)


def converted(folder: Path) -> dict[str, bytes]:
    with start(folder) as process:
        assert process.wait() == 0
    return content(folder)


def killed_at(folder: Path, chance: random.Random) -> bool:
    """Run the conversion and kill it after a random number of signs of progress; return whether it ended before."""
    with start(folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(chance.randrange(20)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        return process.wait() == 0


def test_the_files_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    chance, expected = random.Random(0), converted(tmp_path / "undisturbed")
    ended = []
    for number in range(int(os.environ.get("AUTOPIPE_TEST_KILLS", "4"))):
        folder = tmp_path / f"set_{number}"
        ended.append(killed_at(folder, chance))
        killed_at(folder, chance)  # the run that goes on is killed too
        assert converted(folder) == expected
        shutil.rmtree(folder)
    assert not all(ended)  # some were really killed


# ---------------------------------------------------------------- in parts

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "convert_beam" / "convert.py"
TRAIN = """
import autopipe as ap
workload = ap.Workload(data=ap.ImageFolder({folder!r}), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=2)
"""


@pytest.fixture
def named(tmp_path: Path) -> str:
    folder = in_classes(tmp_path / "photos", 40, (12, 10))
    (tmp_path / "train.py").write_text(TRAIN.format(folder=str(folder)))
    return f"{tmp_path / 'train.py'}:workload"


@pytest.fixture
def whole(named: str, tmp_path: Path) -> dict[str, bytes]:
    converting.job(named, "array", tmp_path / "whole").run(workers=1)
    return content(tmp_path / "whole")


def test_a_pool_of_processes_gives_the_same_files(named: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    done = succeeded(python(EXAMPLE, named, "--out", tmp_path / "set", "--parts", "3", "--pool", cwd=tmp_path))
    assert "joined 40 samples" in done.stdout
    assert content(tmp_path / "set") == whole


def test_beams_local_runner_gives_the_same_files(named: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("apache_beam", reason="`make test-beam` runs this, with the package versions of Beam")
    with_beam = runpy.run_path(str(EXAMPLE))["with_beam"]
    with_beam(3, named, "array", str(tmp_path / "set"), ["--direct_num_workers=1"])
    converting.finish(tmp_path / "set")
    assert content(tmp_path / "set") == whole
