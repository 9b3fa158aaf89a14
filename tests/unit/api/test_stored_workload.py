"""Where the workload of an artefact may lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from autopipe.api.stored_workload import Stored, read
from autopipe.core.workload import Workload
from autopipe.errors import ArtifactError
from autopipe.tuned import artifact as files
from autopipe.tuned import codegen
from autopipe.tuned.schema import FileReference, ModuleReference, Reference
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


def named(stored: Stored) -> tuple[str, bool]:
    """Return the name of a workload, and whether it may be a function."""
    assert not isinstance(stored.workload, Workload)
    return stored.workload.text, stored.workload.may_call


ABOVE = FileReference(path="../train.py")


def test_a_workload_below_the_working_directory_is_taken(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    path = written(project, ABOVE)
    assert named(read(path.relative_to(project))) == (f"{project / 'train.py'}:workload", False)


def test_a_workload_elsewhere_is_taken_only_if_that_is_allowed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "tuned")
    path = written(project, ABOVE)
    with pytest.raises(ArtifactError, match="must stay inside its folder") as raised:
        read(path)
    assert f"--workload {project / 'train.py'}:workload" in str(raised.value.hint)
    assert named(read(path, allow_outside=True)) == (f"{project / 'train.py'}:workload", True)


def test_where_it_once_lay_is_not_looked_at_unless_that_is_allowed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (tmp_path / "train.py").touch()
    path = written(project, FileReference(path="../gone.py", origin=str(tmp_path / "train.py")))
    with pytest.raises(ArtifactError):
        read(path)
    assert named(read(path, allow_outside=True)) == (f"{tmp_path / 'train.py'}:workload", True)


def test_a_module_is_taken_only_if_somebody_says_so(project: Path) -> None:
    path = written(project, ModuleReference(module="a.b", attribute="w"))
    with pytest.raises(ArtifactError, match=r"names the module `a\.b`") as raised:
        read(path)
    assert "--workload a.b:w" in str(raised.value.hint)
    assert named(read(path, allow_outside=True)) == ("a.b:w", True)


def test_what_the_module_beside_it_names_too_is_taken_from_everywhere(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    path = written(project, ABOVE)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(ABOVE, path.name))
    assert named(read(path)) == (f"{project / 'train.py'}:workload", True)


def test_a_workload_without_a_name_must_be_given(project: Path) -> None:
    path = written(project, None)
    with pytest.raises(ArtifactError, match="does not say where its workload is"):
        read(path)
    assert named(read(path, workload="train.py:workload")) == ("train.py:workload", True)
