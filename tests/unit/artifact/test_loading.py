"""An artifact that is loaded, and where its workload may lie."""

from __future__ import annotations

import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import autopipe as ap
from autopipe import again
from autopipe.api import tuning
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen, factory, reference
from autopipe.artifact.artifact import Stored, stored
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference, Reference
from autopipe.errors import ArtifactError, ConfigError, TrialError
from autopipe.measure import fingerprint
from autopipe.measure.trial.child import IN_TRIAL
from autopipe.search import space as spaces
from autopipe.search import study
from autopipe.search.settings import Settings
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

    def run(stored: Any, settings: Any, watcher: Any, **_: Any) -> tuning.Retuned:
        ran.append(settings.budget_seconds)
        found = profile(hardware=fingerprint.detect())
        files.renew(stored.artifact, found, stored.path)
        return tuning.Retuned(profile=found)

    monkeypatch.setattr(tuning, "rerun", run)
    return ran


def test_a_new_machine_is_retuned_once_and_then_known(path: Path, retunes: list[float]) -> None:
    for _ in range(2):
        assert ap.load(path, on_new_hardware="retune", retune_seconds=45.0).choice.warning is None
    assert retunes == [45.0]


def test_of_jobs_that_start_at_once_one_retunes_and_the_others_wait(path: Path, retunes: list[float]) -> None:
    ready = threading.Barrier(16)

    def job(_: int) -> str | None:
        ready.wait()
        return ap.load(path, on_new_hardware="retune").choice.warning

    with ThreadPoolExecutor(16) as pool:
        warned = list(pool.map(job, range(16)))
    assert (len(retunes), warned) == (1, [None] * 16)


def test_for_want_of_a_retune_the_nearest_is_taken_and_it_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surface = Surface(fails=lambda config: True)
    space = spaces.load("quick", {"cores": 2, "gpus": 0})
    nothing = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=2)).result
    for said, run in (
        ("the study is another workload's", Mock(side_effect=TrialError("the study is another workload's"))),
        ("No configuration could be measured", Mock(return_value=tuning.Retuned(result=nothing))),
    ):
        monkeypatch.setattr(tuning, "rerun", run)
        with pytest.warns(factory.ProfileWarning) as warnings:
            assert ap.load(path, on_new_hardware="retune").profile == files.read(path).profiles[0]
        assert f"a retune failed: {said}" in str(warnings[0].message)


def test_a_trials_import_does_not_retune(path: Path, retunes: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IN_TRIAL, "1")
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
    assert not isinstance(stored.workload, ap.Workload)
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


# ---------------------------------------------------------------- reference


def test_a_file_and_a_module_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference.parse("train.py:photos") == FileReference(path=str(tmp_path / "train.py"), attribute="photos")
    assert reference.parse("project.train:photos") == ModuleReference(module="project.train", attribute="photos")
    with pytest.raises(ArtifactError, match=r"cannot name the workload 'caf\\udce9\.py:photos'"):
        reference.parse("caf\udce9.py:photos")


HELD = object()
"""Where the workload is."""
IN_FILE, IN_MODULE = {"photos": HELD, "__file__": "/project/train.py"}, {"photos": HELD}


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        ({}, None),
        ({"training": IN_MODULE}, ModuleReference(module="training", attribute="photos")),
        ({"training": IN_FILE}, FileReference(path="/project/train.py", attribute="photos")),
        # A module goes before the script that imports it,
        ({"__main__": {"photos": HELD, "__file__": "/project/tune.py"}, "train": IN_FILE}, "/project/train.py"),
        ({"__main__": {"photos": HELD, "__file__": "/project/tune.py"}}, "/project/tune.py"),
        # and what a notebook or a cell holds has no name.
        ({"__main__": IN_MODULE}, None),
        ({"__mp_main__": {"_": HELD, "photos": HELD, "__file__": "/tmp/notebook.py"}, "kept": {"_": HELD}}, None),
    ],
)
def test_an_object_is_found_in_the_module_or_the_file_that_holds_it(
    monkeypatch: pytest.MonkeyPatch, modules: dict[str, dict[str, Any]], found: Reference | str | None
) -> None:
    workload = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2)
    for name, holds in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update({key: workload if value is HELD else value for key, value in holds.items()})
        monkeypatch.setitem(sys.modules, name, module)
    wanted = FileReference(path=found, attribute="photos") if isinstance(found, str) else found
    assert reference.of_object(workload) == wanted


def test_a_path_is_written_from_the_folder_that_the_artifact_is_in(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    absolute = FileReference(path=str(tmp_path / "train.py"))
    assert reference.moved(absolute, None, tmp_path) == FileReference(path="train.py")
    outside = reference.moved(absolute, None, tmp_path / "tuned")
    assert outside == FileReference(path="../train.py", origin=str(tmp_path / "train.py"))
    assert reference.moved(outside, tmp_path / "tuned", tmp_path) == FileReference(path="train.py")
    inside = FileReference(path="train.py")
    assert reference.located(inside, tmp_path / "autopipe.json", with_origin=False) == tmp_path / "train.py"
    named = ModuleReference(module="project.train")  # alike from everywhere
    assert reference.moved(named, tmp_path, tmp_path / "tuned") is named
    assert reference.moved(None, tmp_path, tmp_path) is None


def test_an_artifact_that_was_moved_alone_finds_its_workload_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    named = FileReference(path="../gone/train.py", origin=str(tmp_path / "train.py"))
    moved = tmp_path / "elsewhere" / "autopipe.json"
    assert reference.located(named, moved, with_origin=True) == tmp_path / "train.py"
    with pytest.raises(ArtifactError, match="is gone"):
        reference.located(named, moved, with_origin=False)


def test_images_that_are_gone_are_named_with_all_places(tmp_path: Path) -> None:
    named = ImagesReference(path="photos", model="VGG16", image_size=96, batch_size=8, origin="/gone/photos")
    with pytest.raises(ArtifactError, match=f"{tmp_path / 'photos'}` and not at `/gone/photos`") as error:
        reference.located(named, tmp_path / "autopipe.json", with_origin=True)
    tune = "tune --images DIR --model VGG16 --image-size 96 --batch-size 8"  # what was tuned, but for where it is
    assert str(error.value.hint).endswith(tune)


def test_a_file_that_is_gone_is_named_once_and_with_the_command_that_mends_it(tmp_path: Path) -> None:
    named = FileReference(path="train.py", origin=str(tmp_path / "train.py"), attribute="photos")
    with pytest.raises(ArtifactError, match="is gone") as error:
        reference.located(named, tmp_path / "autopipe.json", with_origin=True)
    assert error.value.message.count(str(tmp_path / "train.py")) == 1
    assert error.value.hint == (
        f"If it was moved or renamed: {again.autopipe('repoint', tmp_path / 'autopipe.json', 'NEW.py:photos')}"
    )


def test_images_behind_a_url_are_where_they_are_and_always_outside_of_the_artifacts_folder(tmp_path: Path) -> None:
    named = ImagesReference(path="s3://bucket/photos", model="VGG16")
    assert reference.moved(named, tmp_path, tmp_path / "tuned") is named
    with pytest.raises(ArtifactError, match="must stay inside its folder"):
        reference.workload_of(artifact(workload=named), tmp_path / "autopipe.json")
    assert reference.located(named, tmp_path / "autopipe.json", with_origin=False) == "s3://bucket/photos"
    with pytest.raises(ArtifactError, match="is gone"):  # which the file of a workload never is
        reference.located(FileReference(path="s3://bucket/train.py"), tmp_path / "autopipe.json", with_origin=True)
