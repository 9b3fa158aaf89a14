"""Commands over an artefact that import no workload: show, merge and schema."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from autopipe.api.merging import merge
from autopipe.tuned import artifact as files
from autopipe.tuned import fingerprint, joining
from autopipe.tuned.schema import FileReference
from tests.fakes.profiles import artifact, config, digest, hardware, profile
from tests.unit.cli.conftest import Autopipe

HERE = fingerprint.detect()


def test_show_marks_the_profile_of_this_machine(autopipe: Autopipe, tmp_path: Path) -> None:
    known = artifact(profile(hardware=hardware(cpu_model="Another")), profile(hardware=HERE))
    ended = autopipe("show", files.write(known, tmp_path / "a.json"))
    assert ended.status == 0
    assert "profile 1 of 2\n" in ended.out
    assert "profile 2 of 2 (used on this machine)" in ended.out
    assert "note:" not in ended.out


def test_show_says_when_no_profile_is_of_this_machine(autopipe: Autopipe, tmp_path: Path) -> None:
    ended = autopipe("show", files.write(artifact(), tmp_path / "a.json"))
    assert "note: The artefact's only profile is not of a machine like this one. It is taken all the same." in " ".join(
        ended.out.split()
    )


def test_show_tells_of_a_profile_whose_loader_is_not_installed(autopipe: Autopipe, tmp_path: Path) -> None:
    known = artifact(profile(hardware=HERE, config={**config(), "loader": {"kind": "theirs"}}))
    ended = autopipe("show", files.write(known, tmp_path / "a.json"))
    said = " ".join(ended.out.split())
    assert ended.status == 0
    assert "a package with its loader is missing" in said
    assert "note: The `config` of a profile cannot be used:" in said


def test_show_as_json_is_the_artefact(autopipe: Autopipe, tmp_path: Path) -> None:
    path = files.write(artifact(), tmp_path / "a.json")
    assert files.parse(autopipe("show", path, "--json").out.encode()) == artifact()


@pytest.mark.parametrize("command", ["show", "check", "retune"])
def test_from_where_a_tune_was_run_its_artefact_is_named(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned").mkdir()
    files.write(artifact(), tmp_path / "tuned" / "autopipe.json")
    ended = autopipe(command)
    assert (ended.status, ended.out) == (2, "")
    hint = ended.err.splitlines()[-1]
    assert hint.startswith("hint: Name the one in the folder below: ")
    assert hint.endswith("tuned/autopipe.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema_version": 99, "profiles": []}', "schema_version=99, but this autopipe reads version 1"),
        ('{"schema_version": 1, "profi', "is no JSON, or was cut"),
        ('{"profiles": []}', "has no `schema_version`"),
        ('{"schema_version": 1, "profiles": []}', "`profiles` is wrong"),
    ],
)
@pytest.mark.parametrize("command", ["show", "check", "retune"])
def test_what_is_no_artefact_of_this_version_is_refused(
    autopipe: Autopipe, tmp_path: Path, command: str, content: str, said: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    ended = autopipe(command, path)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


def test_retune_refuses_a_folder_that_cannot_be_written_to(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.write(artifact(), tmp_path / "a.json")
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)  # as root one may write anywhere
    ended = autopipe("retune", path, "--workload", "train.py:workload")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: The artefact's folder must be writable, but {str(tmp_path)!r} is not.")
    assert "--out" not in ended.err


def test_merge_unites_profiles_and_leads_to_the_first_ones_workload(autopipe: Autopipe, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "one").mkdir()
    named = FileReference(path="../train.py", origin=str(tmp_path / "train.py"))
    one = files.write(artifact(profile(hardware=HERE), workload=named), tmp_path / "one" / "a.json")
    two = files.write(artifact(), tmp_path / "b.json")
    ended = autopipe("merge", one, two, "-o", tmp_path / "c.json")
    assert (ended.status, ended.out) == (0, "")
    assert "with 2 profiles" in ended.err
    merged = files.read(tmp_path / "c.json")
    assert {each.hardware.cpu_model for each in merged.profiles} == {HERE.cpu_model, hardware().cpu_model}
    assert merged.workload == FileReference(path="train.py")


def test_merge_makes_the_folder_that_it_writes_to(autopipe: Autopipe, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    one = files.write(artifact(workload=FileReference(path="train.py")), tmp_path / "a.json")
    out = tmp_path / "new" / "tuned" / "autopipe.json"
    ended = autopipe("merge", one, "--out", out)
    assert (ended.status, ended.out) == (0, ""), ended.err
    assert files.read(out).workload == FileReference(path="../../train.py", origin=str(tmp_path / "train.py"))


def test_merge_says_why_a_folder_cannot_be_made(autopipe: Autopipe, tmp_path: Path) -> None:
    one = files.write(artifact(), tmp_path / "a.json")
    ended = autopipe("merge", one, "--out", one / "autopipe.json")
    assert (ended.status, ended.out) == (2, "")
    assert "cannot be written: Not a directory" in ended.err


def test_merge_waits_for_whoever_writes_to_the_same_artefact(tmp_path: Path) -> None:
    out = files.write(artifact(), tmp_path / "a.json")
    other = files.write(artifact(profile(hardware=HERE)), tmp_path / "b.json")
    merging = threading.Thread(target=merge, args=([out, other], out))
    with joining.alone(out):
        merging.start()
        merging.join(0.5)  # where it does not wait it ends in a few milliseconds
        assert merging.is_alive()
        files.write(artifact(profile(hardware=hardware(cpu_model="Third"))), out)
    merging.join(60)
    assert {each.hardware.cpu_model for each in files.read(out).profiles} == {"Third", HERE.cpu_model}


def test_merge_refuses_two_workloads(autopipe: Autopipe, tmp_path: Path) -> None:
    one = files.write(artifact(), tmp_path / "a.json")
    two = files.write(artifact(profile(workload=digest(batch_size=8))), tmp_path / "b.json")
    ended = autopipe("merge", one, two, "-o", tmp_path / "c.json")
    assert ended.status == 2
    assert "Only artefacts of one workload can be merged" in ended.err
    assert not (tmp_path / "c.json").exists()


def test_schema_describes_what_is_written(autopipe: Autopipe) -> None:
    schema = json.loads(autopipe("schema").out)
    assert schema["title"] == "autopipe.json"
    assert set(artifact().model_dump()) == set(schema["properties"])


def test_what_could_not_be_kept_is_not_measured(autopipe: Autopipe, tmp_path: Path) -> None:
    ended = autopipe("measure", "nowhere.py:workload", "--mode", "predict", "--keep", tmp_path / "none.json")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: There is no artefact `{tmp_path / 'none.json'}`")
