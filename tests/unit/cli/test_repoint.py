"""`autopipe repoint`: an artefact whose workload was renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from autopipe.tuned import artifact as files
from autopipe.tuned import codegen, pin
from autopipe.tuned.schema import FileReference
from tests.fakes.profiles import artifact, digest, profile
from tests.fakes.workload_script import TRAIN
from tests.unit.cli.conftest import Autopipe

OLD = FileReference(path="../train.py", attribute="workload")


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """The artefact of a `train.py` that is called `new.py` now."""
    (tmp_path / "tuned").mkdir()
    (tmp_path / "new.py").write_text(TRAIN.replace("workload =", "photos ="))
    path = tmp_path / "tuned" / "autopipe.json"
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(OLD, path.name))
    return files.write(artifact(profile(workload=digest(samples=256, batch_size=4)), workload=OLD), path)


def test_the_artefact_and_its_module_name_the_new_file(
    autopipe: Autopipe, renamed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = autopipe("repoint", "tuned/autopipe.json", "new.py:photos")
    assert (ended.status, ended.out) == (0, "")
    assert "wrote     tuned/autopipe.json and tuned/tuned_pipeline.py" in ended.err
    named = FileReference(path="../new.py", origin=str(tmp_path / "new.py"), attribute="photos")
    assert files.read(renamed).workload == named
    assert pin.beside(renamed) == pin.Pin(workload=named)


def test_another_workload_is_told_from_the_one_that_was_tuned(autopipe: Autopipe, renamed: Path) -> None:
    ended = autopipe("repoint", renamed, f"{renamed.parents[1] / 'new.py'}:photos")
    assert "was added" in ended.err
    assert "batch size" not in ended.err


def test_what_is_not_there_is_refused_and_nothing_is_written(autopipe: Autopipe, renamed: Path) -> None:
    before = renamed.read_text()
    ended = autopipe("repoint", renamed, f"{renamed.parents[1] / 'new.py'}:foto")
    assert ended.status == 2
    assert "Did you mean `photos`?" in ended.err
    assert renamed.read_text() == before


def test_a_module_of_the_users_own_is_left_alone(autopipe: Autopipe, renamed: Path) -> None:
    own = renamed.with_name("tuned_pipeline.py")
    own.write_text("# mine\n")
    ended = autopipe("repoint", renamed, f"{renamed.parents[1] / 'new.py'}:photos")
    assert ended.status == 0
    assert own.read_text() == "# mine\n"
