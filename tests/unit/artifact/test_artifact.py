"""The file of an artifact: what is read, refused and written, what other writers of it keep, and its workload."""

import json
import os
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
from autopipe.artifact import factory, reference
from autopipe.artifact.artifact import KeptWarning, Stored, stored
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference, Reference
from autopipe.errors import ArtifactError, ConfigError, TrialError
from autopipe.measure import fingerprint
from autopipe.measure.trial.child import IN_TRIAL
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search import space as spaces
from autopipe.search import study
from autopipe.search.settings import Settings
from tests.fakes.profiles import artifact, config, digest, hardware, profile
from tests.fakes.surface import Surface

ASSETS = Path(__file__).parents[2] / "assets" / "artifacts"


def _text(value: object = None, *path: str | int) -> bytes:
    """Return an artifact with another value in a place, or without what is there if that is `...`."""
    content = place = json.loads(artifact().model_dump_json())
    for part in path[:-1]:
        place = place[part]
    if value is ...:
        del place[path[-1]]
    elif path:
        place[path[-1]] = value
    return json.dumps(content).encode()


def test_what_is_written_is_read_back_and_so_is_what_was_written_before(tmp_path: Path) -> None:
    origin = FileReference(path="../train.py", origin="/home/ada/train.py", attribute="photos")
    images = ImagesReference(path="photos", model="mobilenet_v2")
    for workload in (None, origin, ModuleReference(module="project.training"), images):
        known = artifact(workload=workload)
        assert known == files.read(files.write(known, tmp_path / "autopipe.json"))
    assert len(files.read(ASSETS / "v1.json").profiles) == 2


VERSIONS = (0, 2, "1", None, True, 1.0)
PROFILE = ("profiles", 0)
WINNER = (*PROFILE, "result", "winner")
STILL = {"value": 0.0, "low": 0.0, "high": 0.0}
KINDS = r"`workload` is wrong: 'kind' must be one of 'file'.{9,60}, but got \{.{100,150}\. "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((_text(each, "schema_version"), rf"={each!r}, but this autopipe reads version 1") for each in VERSIONS),
        (_text()[:100], r"was cut: EOF while parsing .* at line 1 column 100"),
        (b"null", "must hold a JSON object"),
        (b"{}", "has no `schema_version`"),
        (_text({"kind": "file", "path": "a\x00b.py"}, "workload"), "workload.file.path"),
        (_text({"kind": "module", "module": "os; import this"}, "workload"), "workload.module.module"),
        (_text({"kind": "code", "text": "1 + 1"}, "workload"), "must be one of 'file'"),
        (_text({"kind": "x" * 9999}, "workload"), KINDS),
        (_text().replace(b"1250.0", b"NaN"), "is no JSON"),
        (_text().replace(b"1250.0", b"1e999"), r"model_images_per_second"),
        (_text("two", *PROFILE, "hardware", "cores"), r"`profiles\[0\].hardware.cores` is wrong: .* but got 'two'"),
        (_text(2, *WINNER, "data_wait_share"), r"winner.data_wait_share` is wrong"),
        (_text(STILL, *WINNER, "images_per_second"), "a `winner`, with a rate above 0"),
        (_text(2, *PROFILE, "colour"), r"`profiles\[0\].colour` is no key"),
        (_text([], "profiles"), r"`profiles` is wrong"),
        (_text(..., *PROFILE, "result"), "result` is missing"),  # which every tune writes
        (_text(..., *PROFILE, "request"), "request` is missing"),
        (_text(..., *WINNER, "key"), r"result\.winner\.key` is missing"),
    ],
)
def test_what_is_no_artifact_of_this_version_is_refused_with_what_to_do(text: bytes, said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as error:
        files.parse(text)
    assert error.value.message.startswith("`autopipe.json`")
    assert "autopipe tune" in str(error.value.hint)


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "autopipe.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArtifactError, match="larger than 16 MiB"):
        files.read(path)


def test_a_missing_file_is_named_with_the_near_one_or_the_one_of_a_tune(tmp_path: Path) -> None:
    (tmp_path / "tuned").mkdir()
    below = files.write(artifact(), tmp_path / "tuned" / "autopipe.json")
    for has_pipe in (False, True):
        if has_pipe:  # which is not waited for
            os.mkfifo(tmp_path / "autopipe.json")
        with pytest.raises(ArtifactError, match="There is no artifact") as error:
            files.read(tmp_path / "autopipe.json")
        assert error.value.hint == f"Name the one in the folder below: {below}"
    (tmp_path / "autopipe.json").unlink()
    files.write(artifact(), tmp_path / "autopipe.json")
    with pytest.raises(ArtifactError, match=r"Did you mean `autopipe.json`"):
        files.read(tmp_path / "autopip.json")
    with pytest.raises(ArtifactError, match=r"train\.py:workload`\. That is a workload's name"):
        files.read(tmp_path / "train.py:workload")
    with pytest.raises(ArtifactError, match=r"must be the path of an artifact.*but got") as error:
        files.located(profile())
    assert "tuned.save(" in str(error.value.hint)


HERE = profile()
TENSORFLOW = profile(hardware=hardware(keras_backend="tensorflow"))
BIG = profile(hardware=hardware(cores=64))
NEW = profile(config=config(loader=Threads(workers=1)))
NAMED = ModuleReference(module="project.train")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "autopipe.json"


def test_profiles_of_other_machines_and_backends_stay_and_the_name_of_the_workload(path: Path) -> None:
    old, new = (profile(hardware=hardware(keras_backend="jax"), key=key) for key in ("old", "new"))
    files.write(artifact(old, TENSORFLOW, BIG), path)
    files.write_joined(artifact(new, workload=NAMED), path)
    assert files.read(path) == artifact(TENSORFLOW, BIG, new, workload=NAMED)
    files.write_joined(artifact(old), path)  # of a workload without a name
    assert files.read(path) == artifact(TENSORFLOW, BIG, old, workload=NAMED)


def test_a_file_of_another_workload_or_that_is_no_artifact_is_kept_beside(path: Path) -> None:
    others = [files.write(artifact(profile(workload=digest(batch_size=size))), path).read_bytes() for size in (8, 16)]
    for number, old in enumerate([*others, b'{"schema_version": 2, "profi']):
        path.write_bytes(old)
        why = "batch size" if number < 2 else "is no JSON, or was cut"
        with pytest.warns(KeptWarning, match=rf"kept as `autopipe\.json\.bak.*{why}"):
            files.write_joined(artifact(), path)
        assert path.with_name(f"autopipe.json.bak{number or ''}").read_bytes() == old
        assert files.read(path) == artifact()


def test_no_folder_is_replaced_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tuned").mkdir()
    monkeypatch.chdir(tmp_path)
    usual = "Name a folder that exists, has room and may be written to."
    for name, hint in ("tuned", "Name a file in this folder: tuned/autopipe.json"), ("gone/autopipe.json", usual):
        with pytest.raises(ArtifactError, match="cannot be written") as caught:
            files.write_joined(artifact(), name)
        assert caught.value.hint == hint
    assert list(tmp_path.rglob("*")) == [tmp_path / "tuned"]


def test_what_another_machine_wrote_during_a_retune_stays(path: Path) -> None:
    files.renew(artifact(HERE, BIG), NEW, path)  # the file is gone meanwhile
    assert files.read(path) == artifact(BIG, NEW)
    known = artifact(HERE, workload=NAMED)
    files.write(artifact(HERE, BIG, workload=NAMED), path)
    files.renew(known, NEW, path)
    assert files.read(path) == artifact(BIG, NEW, workload=NAMED)


def test_of_many_that_write_at_once_none_is_lost_and_no_lock_stays(path: Path) -> None:
    machines = [hardware(cpu_model=f"model {number}") for number in range(16)]
    files.write(artifact(HERE), path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda here: files.renew(artifact(HERE), profile(hardware=here), path), machines))
    found = {each.hardware.cpu_model for each in files.read(path).profiles}
    assert found == {each.cpu_model for each in (HERE.hardware, *machines)}
    assert list(path.parent.iterdir()) == [path]


def test_a_link_in_the_locks_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    path.with_name(f".{path.name}.lock").symlink_to(victim)
    files.write_joined(artifact(), path)
    assert len(files.read(path).profiles) == 1
    assert not victim.exists()


@pytest.fixture
def unknown(path: Path) -> Path:
    """An artifact of another machine."""
    path.with_name("train.py").touch()
    return files.write(artifact(workload=FileReference(path="train.py")), path)


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


def test_of_jobs_that_start_at_once_one_retunes_and_the_others_wait(unknown: Path, retunes: list[float]) -> None:
    ready = threading.Barrier(16)

    def job(_: int) -> str | None:
        ready.wait()
        return ap.load(unknown, on_new_hardware="retune", retune_seconds=45.0).choice.warning

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(job, range(16))) == [None] * 16
    assert ap.load(unknown, on_new_hardware="retune").choice.warning is None  # as it is known now
    assert retunes == [45.0]


def test_for_want_of_a_retune_the_nearest_is_taken_and_told(unknown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surface = Surface(fails=lambda config: True)
    space = spaces.load("quick", {"cores": 2, "gpus": 0})
    nothing = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=2)).result
    failed, empty = Mock(side_effect=TrialError("It is another's.")), Mock(return_value=tuning.Retuned(result=nothing))
    for said, run in {"It is another's": failed, "No configuration could be measured": empty}.items():
        monkeypatch.setattr(tuning, "rerun", run)
        with pytest.warns(factory.ProfileWarning) as warnings:
            assert ap.load(unknown, on_new_hardware="retune").profile == files.read(unknown).profiles[0]
        assert f"a retune failed: {said}" in str(warnings[0].message)


def test_a_trials_import_does_not_retune(unknown: Path, retunes: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtifactError, match="not of this machine"):
        ap.load(unknown, on_new_hardware="error")
    with pytest.raises(ConfigError, match="must be one of nearest, retune, error, but got 'tune'"):
        ap.load(unknown, on_new_hardware="tune")  # type: ignore[arg-type]  # a caller's mistake
    monkeypatch.setenv(IN_TRIAL, "1")
    with pytest.warns(factory.ProfileWarning, match=str(unknown)):
        ap.load(unknown, on_new_hardware="retune")
    assert retunes == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with `train.py`, and `tuned/` in it for the artifact."""
    (tmp_path / "my home" / "tuned").mkdir(parents=True)
    (tmp_path / "my home" / "train.py").touch()
    return tmp_path / "my home"


def written(project: Path, named: Reference | None) -> Path:
    return files.write(artifact(workload=named), project / "tuned" / "autopipe.json")


def named(stored: Stored) -> tuple[str, bool]:
    """Return the name of a workload, and whether it may be a function."""
    assert not isinstance(stored.workload, ap.Workload)
    return stored.workload.text, stored.workload.may_call


ABOVE = FileReference(path="../train.py")


def test_a_workload_elsewhere_is_to_be_allowed(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_and_a_module_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference.parse("train.py:photos") == FileReference(path=str(tmp_path / "train.py"), attribute="photos")
    assert reference.parse("project.train:photos") == ModuleReference(module="project.train", attribute="photos")
    with pytest.raises(ArtifactError, match=r"cannot name the workload 'caf\\udce9\.py:photos'"):
        reference.parse("caf\udce9.py:photos")


def test_an_object_is_found_in_the_module_or_the_file_that_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2)
    alone: dict[str, Any] = {"photos": workload}
    train, tune, cell = (alone | {"__file__": f"/project/{name}.py"} for name in ("train", "tune", "notebook"))
    module = ModuleReference(module="training", attribute="photos")
    of_train, of_tune = (FileReference(path=f"/project/{name}.py", attribute="photos") for name in ("train", "tune"))
    cases: list[tuple[dict[str, Any], Reference | None]] = [
        ({}, None),
        ({"training": alone}, module),
        ({"training": train}, of_train),
        ({"__main__": tune, "train": train}, of_train),  # a module goes before the script that imports it
        ({"__main__": tune}, of_tune),
        ({"__main__": alone}, None),  # what a notebook or a cell holds has no name
        ({"__mp_main__": cell | {"_": workload}, "kept": {"_": workload}}, None),
    ]
    for modules, found in cases:
        with monkeypatch.context() as patch:
            for name, holds in modules.items():
                made = types.ModuleType(name)
                vars(made).update(holds)
                patch.setitem(sys.modules, name, made)
            assert reference.of_object(workload) == found


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
    remote = ImagesReference(path="s3://bucket/photos", model="VGG16")
    assert reference.moved(remote, tmp_path, tmp_path / "tuned") is remote
    assert reference.located(remote, tmp_path / "autopipe.json", with_origin=False) == "s3://bucket/photos"


def test_a_workload_of_a_moved_artifact_is_found_where_it_was_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    path, old = tmp_path / "elsewhere" / "autopipe.json", tmp_path / "train.py"
    moved = FileReference(path="../gone/train.py", origin=str(old))
    old.touch()
    assert reference.located(moved, path, with_origin=True) == old
    with pytest.raises(ArtifactError, match="is gone"):
        reference.located(moved, path, with_origin=False)
    old.unlink()
    same = FileReference(path="../train.py", origin=str(old), attribute="photos")
    with pytest.raises(ArtifactError, match="is gone") as error:
        reference.located(same, path, with_origin=True)
    assert error.value.message.count(str(old)) == 1
    assert error.value.hint == f"If it was moved or renamed: {again.autopipe('repoint', path, 'NEW.py:photos')}"
    images = ImagesReference(path="photos", model="VGG16", image_size=96, batch_size=8, origin="/gone/photos")
    with pytest.raises(ArtifactError, match=f"{path.with_name('photos')}` and not at `/gone/photos`") as error:
        reference.located(images, path, with_origin=True)
    tune = "tune --images DIR --model VGG16 --image-size 96 --batch-size 8"  # what was tuned, but for where it is
    assert str(error.value.hint).endswith(tune)
