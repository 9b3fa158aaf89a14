"""A conversion in parts, by each of the ways that the example shows, gives the files of a conversion in one piece."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.fakes.commands import content, python, succeeded
from tests.fakes.images import in_classes

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "convert_beam" / "convert.py"
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
    from autopipe.artifact import converting

    converting.job(named, "array", tmp_path / "whole").run(workers=1)
    return content(tmp_path / "whole")


def test_a_pool_of_processes_gives_the_same_files(named: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    done = succeeded(python(SCRIPT, named, "--out", tmp_path / "set", "--parts", "3", "--pool", cwd=tmp_path))
    assert "joined 40 samples" in done.stdout
    assert content(tmp_path / "set") == whole


def test_beams_local_runner_gives_the_same_files(named: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("apache_beam", reason="`make test-beam` runs this, with the package versions of Beam")
    from autopipe.artifact import converting

    with_beam = runpy.run_path(str(SCRIPT))["with_beam"]
    with_beam(3, named, "array", str(tmp_path / "set"), ["--direct_num_workers=1"])
    converting.finish(tmp_path / "set")
    assert content(tmp_path / "set") == whole
