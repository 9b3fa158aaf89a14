"""A conversion that is killed with -9 at any moment, and run again, gives the files of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from autopipe.workload.ops import progressive
from tests.fakes.commands import content

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


REWRITE = """
import sys
from pathlib import Path
from autopipe.pipeline.storage import rewrite

rewrite._GROUP = 8
print("begun", flush=True)
report = lambda done, of: print(done, of, flush=True)
rewrite.rewrite((sys.argv[2],), Path(sys.argv[1]), workers=2, on_progress=report)
"""


def start(*arguments: Path, script: str = SCRIPT) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed_at(*arguments: Path, chance: random.Random, script: str = SCRIPT) -> bool:
    """Run the conversion and kill it after a random number of signs of progress; return whether it ended before."""
    with start(*arguments, script=script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(chance.randrange(20)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        return process.wait() == 0


@pytest.mark.slow
def test_the_files_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    chance = random.Random(0)
    times = int(os.environ.get("AUTOPIPE_TEST_KILLS", "4"))
    with start(tmp_path / "undisturbed") as process:
        assert process.wait() == 0
    expected = content(tmp_path / "undisturbed")
    ended = 0
    for number in range(times):
        folder = tmp_path / f"set_{number}"
        ended += killed_at(folder, chance=chance)
        killed_at(folder, chance=chance)  # the run that goes on is killed too
        with start(folder) as process:
            assert process.wait() == 0
        assert content(folder) == expected
        for path in folder.iterdir():
            path.unlink()
    assert ended < times  # some were really killed


@pytest.mark.slow
@pytest.mark.skipif(progressive.why_not() is not None, reason="needs a C compiler and libjpeg's headers")
def test_rewritten_files_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    chance, photos = random.Random(0), tmp_path / "photos"
    photos.mkdir()
    for number in range(160):
        coarse = np.random.default_rng(number).integers(0, 256, (40, 40, 3), np.uint8)
        settings = (cv2.IMWRITE_JPEG_PROGRESSIVE, int(number % 4 > 0))
        cv2.imwrite(str(photos / f"{number}.jpg"), cv2.resize(coarse, (600, 600)), settings)
    with start(tmp_path / "undisturbed", photos, script=REWRITE) as process:
        assert process.wait() == 0
    expected = content(tmp_path / "undisturbed")
    assert len(expected) == 160
    ended = 0
    for number in range(4):
        folder = tmp_path / f"set_{number}"
        ended += killed_at(folder, photos, chance=chance, script=REWRITE)
        killed_at(folder, photos, chance=chance, script=REWRITE)
        assert content(folder).items() <= expected.items() if folder.exists() else True  # no file is half written
        with start(folder, photos, script=REWRITE) as process:
            assert process.wait() == 0
        assert content(folder) == expected
        assert not list(folder.glob(".*.part"))
    assert ended < 4
