"""An artifact that is loaded, and where its workload may lie."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import autopipe as ap
from autopipe.api import retuning
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen, factory
from autopipe.artifact.artifact import Stored, stored
from autopipe.artifact.schema import FileReference, ModuleReference, Reference
from autopipe.errors import ArtifactError, ConfigError, TrialError
from autopipe.measure import fingerprint
from autopipe.measure.trial import protocol
from autopipe.search import library, study
from autopipe.search.settings import Settings
from autopipe.workload.workload import Workload
from tests.fakes.profiles import artifact, profile
from tests.fakes.surface import Surface


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An artifact of another machine."""
    (tmp_path / "train.py").touch()
    return files.write(artifact(workload=FileReference(path="train.py")), tmp_path / "autopipe.json")


@pytest.fixture
def retunes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The budgets of the retunes that were run; each adds a profile of this machine."""
    ran: list[float] = []

    def run(stored: Any, settings: Any, watcher: Any, **_: Any) -> retuning.Retuned:
        ran.append(settings.budget_seconds)
        found = profile(hardware=fingerprint.detect())
        files.renew(stored.artifact, found, stored.path)
        return retuning.Retuned(profile=found)

    monkeypatch.setattr(retuning, "run", run)
    return ran


def test_a_new_machine_is_retuned_once_and_then_known(path: Path, retunes: list[float]) -> None:
    for _ in range(2):
        tuned = ap.load(path, on_new_hardware="retune", retune_seconds=45.0)
        assert tuned.choice.warning is None
    assert retunes == [45.0]


def test_of_jobs_that_start_at_once_one_retunes_and_the_others_wait(path: Path, retunes: list[float]) -> None:
    warned: list[Any] = []
    ready = threading.Barrier(16)

    def job() -> None:
        ready.wait()
        warned.append(ap.load(path, on_new_hardware="retune").choice.warning)

    jobs = [threading.Thread(target=job) for _ in range(16)]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join()
    assert (len(retunes), warned) == (1, [None] * 16)


def test_where_a_retune_comes_to_nothing_the_nearest_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise TrialError("the study is another workload's")

    monkeypatch.setattr(retuning, "run", fails)
    with pytest.warns(factory.ProfileWarning) as warnings:
        tuned = ap.load(path, on_new_hardware="retune")
    assert "a retune failed: the study is another workload's" in str(warnings[0].message)
    assert tuned.profile == files.read(path).profiles[0]


def test_a_retune_that_measures_nothing_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surface = Surface(fails=lambda config: True)
    space = library.load("quick", {"cores": 2, "gpus": 0})
    result = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=2)).result
    monkeypatch.setattr(retuning, "run", lambda *_, **__: retuning.Retuned(result=result))
    with pytest.warns(factory.ProfileWarning) as warnings:
        ap.load(path, on_new_hardware="retune")
    assert "a retune failed: No configuration could be measured" in str(warnings[0].message)


def test_a_trials_import_does_not_retune(path: Path, retunes: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(protocol.IN_TRIAL, "1")
    with pytest.warns(factory.ProfileWarning):
        ap.load(path, on_new_hardware="retune")
    assert retunes == []


def test_what_to_do_is_one_of_three_of_which_one_is_an_error(path: Path) -> None:
    with pytest.raises(ArtifactError, match="not of this machine"):
        ap.load(path, on_new_hardware="error")
    with pytest.raises(ConfigError, match="must be one of nearest, retune, error, but got 'tune'"):
        ap.load(path, on_new_hardware="tune")  # type: ignore[arg-type]  # a caller's mistake


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with `train.py`, and `tuned/` in it for the artifact."""
    home = tmp_path / "my home"
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


def test_a_workload_below_the_working_directory_is_taken_and_one_elsewhere_only_if_that_is_allowed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    path = written(project, ABOVE)
    assert named(stored(path.relative_to(project))) == (f"{project / 'train.py'}:workload", False)
    monkeypatch.chdir(project / "tuned")
    with pytest.raises(ArtifactError, match="must stay inside its folder") as raised:
        stored(path)
    assert f"--workload '{project / 'train.py'}:workload'" in str(raised.value.hint)
    assert named(stored(path, allow_outside=True)) == (f"{project / 'train.py'}:workload", True)
    monkeypatch.chdir(project)
    (tmp_path / "train.py").touch()
    path = written(project, FileReference(path="../gone.py", origin=str(tmp_path / "train.py")))  # where it once lay
    with pytest.raises(ArtifactError):
        stored(path)
    assert named(stored(path, allow_outside=True)) == (f"{tmp_path / 'train.py'}:workload", True)


def test_a_module_is_taken_only_if_that_is_said_and_a_workload_without_a_name_only_if_given(project: Path) -> None:
    path = written(project, None)
    with pytest.raises(ArtifactError, match=r"does not say where its workload is.*workload=workload"):
        stored(path)
    assert named(stored(path, workload="train.py:workload")) == ("train.py:workload", True)
    path = written(project, ModuleReference(module="a.b", attribute="w"))
    with pytest.raises(ArtifactError, match=r"names the module `a\.b`.*--workload a.b:w"):
        stored(path)
    assert named(stored(path, allow_outside=True)) == ("a.b:w", True)


def test_what_the_module_beside_it_names_is_taken_everywhere(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path = written(project, ABOVE)
    path.with_name("tuned_pipeline.py").write_text(codegen.text_for(ABOVE, path.name))
    assert named(stored(path)) == (f"{project / 'train.py'}:workload", True)
