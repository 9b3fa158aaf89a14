"""`autopipe eject --to`: it imports the workload into the command's own process, and so do these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Autopipe, photos

TRAIN = """
import autopipe as ap

print("which importing it prints")


def dark(image):
    print("which an op prints")
    return image // 2


workload = ap.Workload(data=ap.ImageFolder("photos"), ops=[ap.Decode(), ap.Resize(4, 4), ap.Map(dark)], batch_size=2)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a workload that prints."""
    photos(tmp_path / "photos", each=2)
    (tmp_path / "talks.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stdout_holds_the_code_alone_whatever_the_workload_prints(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("eject", "--to", "keras", "--workload", "talks.py:workload")
    assert ended.status == 0, ended.err
    compile(ended.out, "plain.py", "exec")
    assert "prints\n" not in ended.out
    assert "which an op prints\n" in ended.err


def test_what_ops_print_is_not_in_a_document(home: Path, autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    ended = autopipe("verify", "--files", "--json", "talks.py:workload")
    assert (ended.status, ended.out[:1], ended.out[-2:]) == (0, "{", "}\n")
    assert "which an op prints\n" in ended.err


def test_a_folder_for_the_code_is_not_told_the_artefacts_name(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("eject", "--to", "keras", "--workload", "talks.py:workload", "--out", "photos")
    assert ended.status == 2
    assert ended.err.splitlines()[-1] == "hint: Name a file in this folder: photos/plain_pipeline.py"
