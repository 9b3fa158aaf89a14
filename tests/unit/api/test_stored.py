"""Where the workload of an artefact may lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from autopipe.api.stored import read
from autopipe.errors import ArtifactError
from autopipe.tuned import artifact as files
from autopipe.tuned.record import FileReference, ModuleReference, Reference
from tests.fakes.profiles import artifact


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with `train.py`, and `tuned/` in it for the artefact."""
    home = tmp_path / "home"
    (home / "tuned").mkdir(parents=True)
    (home / "train.py").touch()
    return home


def written(project: Path, named: Reference | None) -> Path:
    return files.write(artifact(workload=named), project / "tuned" / "autopipe.json")


ABOVE = FileReference(path="../train.py")


def test_a_workload_below_the_working_directory_is_taken(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    path = written(project, ABOVE)
    assert read(path.relative_to(project)).workload == f"{project / 'train.py'}:workload"


def test_a_workload_elsewhere_is_taken_only_if_that_is_allowed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "tuned")
    path = written(project, ABOVE)
    with pytest.raises(ArtifactError, match="must stay inside its folder") as raised:
        read(path)
    assert raised.value.hint is not None
    assert "--allow-outside" in raised.value.hint
    assert read(path, allow_outside=True).workload == f"{project / 'train.py'}:workload"


def test_where_it_once_lay_is_not_looked_at_unless_that_is_allowed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (tmp_path / "train.py").touch()
    path = written(project, FileReference(path="../gone.py", origin=str(tmp_path / "train.py")))
    with pytest.raises(ArtifactError):
        read(path)
    assert read(path, allow_outside=True).workload == f"{tmp_path / 'train.py'}:workload"


def test_a_module_is_named_as_it_is(project: Path) -> None:
    assert read(written(project, ModuleReference(module="a.b", attribute="w"))).workload == "a.b:w"


def test_a_workload_without_a_name_must_be_given(project: Path) -> None:
    path = written(project, None)
    with pytest.raises(ArtifactError, match="does not say where its workload is"):
        read(path)
    assert read(path, workload="train.py:workload").workload == "train.py:workload"
