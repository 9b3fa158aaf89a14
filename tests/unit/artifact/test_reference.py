from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from autopipe import again
from autopipe.artifact import reference
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference
from autopipe.errors import ArtifactError
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.workload import Workload


def test_a_file_and_a_module_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference.parse("train.py:photos") == FileReference(path=str(tmp_path / "train.py"), attribute="photos")
    assert reference.parse("project.train:photos") == ModuleReference(module="project.train", attribute="photos")


@pytest.fixture
def workload() -> Workload:
    return Workload(data=Arrays(np.zeros((4, 2))), ops=[], batch_size=2)


def test_an_object_is_found_in_the_module_that_holds_it(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("training")
    module.__dict__["photos"] = workload
    monkeypatch.setitem(sys.modules, "training", module)
    assert reference.of_object(workload) == ModuleReference(module="training", attribute="photos")
    module.__file__ = "/project/training.py"
    assert reference.of_object(workload) == FileReference(path="/project/training.py", attribute="photos")


def test_a_module_goes_before_the_script_that_imports_it(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    script, module = types.ModuleType("__main__"), types.ModuleType("train")
    script.__dict__.update(photos=workload, __file__="/project/tune.py")
    module.__dict__.update(photos=workload, __file__="/project/train.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    monkeypatch.setitem(sys.modules, "train", module)
    assert reference.of_object(workload) == FileReference(path="/project/train.py", attribute="photos")
    monkeypatch.delitem(sys.modules, "train")
    assert reference.of_object(workload) == FileReference(path="/project/tune.py", attribute="photos")


def test_what_a_notebook_or_a_cell_holds_has_no_name(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reference.of_object(workload) is None
    notebook = types.ModuleType("__main__")
    notebook.__dict__["photos"] = workload
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, "__main__", notebook)
        assert reference.of_object(workload) is None
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(_=workload, photos=workload, __file__="/tmp/notebook.py")
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    other = types.ModuleType("kept")
    other.__dict__["_"] = workload
    monkeypatch.setitem(sys.modules, "kept", other)
    assert reference.of_object(workload) is None


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
    assert reference.is_outside(named, tmp_path)
    assert reference.located(named, tmp_path / "autopipe.json", with_origin=False) == "s3://bucket/photos"
    with pytest.raises(ArtifactError, match="is gone"):  # which the file of a workload never is
        reference.located(FileReference(path="s3://bucket/train.py"), tmp_path / "autopipe.json", with_origin=True)
