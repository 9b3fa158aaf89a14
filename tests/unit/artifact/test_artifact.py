from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference
from autopipe.errors import ArtifactError
from tests.fakes import profiles

ASSETS = Path(__file__).parents[2] / "assets" / "artifacts"


def _text(**changes: object) -> bytes:
    content = json.loads(profiles.artifact().model_dump_json())
    return json.dumps({**content, **changes}).encode()


@pytest.mark.parametrize(
    "workload",
    [
        None,
        FileReference(path="train.py"),
        FileReference(path="../train.py", origin="/home/ada/train.py", attribute="photos"),
        ModuleReference(module="project.training"),
        ImagesReference(path="photos", model="mobilenet_v2"),
    ],
)
def test_what_is_written_is_read_back(tmp_path: Path, workload: object) -> None:
    known = profiles.artifact(workload=workload)
    assert known == files.read(files.write(known, tmp_path / "autopipe.json"))


def test_a_file_that_was_written_before_is_read() -> None:
    assert len(files.read(ASSETS / "v1.json").profiles) == 2


@pytest.mark.parametrize("version", [0, 2, 4, "1", None, True, 1.0])
def test_another_version_is_refused_with_both_versions_and_what_to_do(version: object) -> None:
    with pytest.raises(ArtifactError, match=rf"schema_version={version!r}, but this autopipe reads version 1") as error:
        files.parse(_text(schema_version=version))
    assert "autopipe tune" in str(error.value.hint)


@pytest.mark.parametrize("missing", [("result",), ("request",), ("result", "winner", "key")])
def test_a_profile_that_lacks_what_every_tune_writes_says_to_tune_again(missing: tuple[str, ...]) -> None:
    content = json.loads(_text())
    place = content["profiles"][0]
    for part in missing[:-1]:
        place = place[part]
    del place[missing[-1]]
    with pytest.raises(ArtifactError, match=rf"`profiles\[0\].{'.'.join(missing)}` is missing") as error:
        files.parse(json.dumps(content).encode())
    assert "autopipe tune" in str(error.value.hint)


def test_a_cut_file_is_refused_with_the_place() -> None:
    with pytest.raises(ArtifactError, match=r"was cut: EOF while parsing .* at line 1 column 100"):
        files.parse(_text()[:100])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("profiles", 0, "hardware", "cores"), "two", r"`profiles\[0\].hardware.cores` is wrong: .* but got 'two'"),
        (("profiles", 0, "result", "winner", "data_wait_share"), 2, r"winner.data_wait_share` is wrong"),
        (("profiles", 0, "colour"), 2, r"`profiles\[0\].colour` is no key"),
        (("profiles",), [], r"`profiles` is wrong"),
        (
            ("workload",),
            {"kind": "x" * 9999},
            r"`workload` is wrong: 'kind' must be one of 'file'.{9,60}, but got \{.{100,150}\. ",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_the_place(path: tuple[str | int, ...], value: object, said: str) -> None:
    content = json.loads(_text())
    place = content
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(ArtifactError, match=said):
        files.parse(json.dumps(content).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x80\x04N.",  # a pickle
        b"[1, 2]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"schema_version": ' + b"[" * 300 + b"]" * 300 + b"}",
        _text(workload={"kind": "file", "path": "a\x00b.py"}),
        _text(workload={"kind": "module", "module": "os; import this"}),
        _text(workload={"kind": "code", "text": "1 + 1"}),
        _text().replace(b"1250.0", b"NaN"),
        _text().replace(b"1250.0", b"1e999"),
    ],
)
def test_what_is_no_artifact_is_refused(text: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"autopipe\.json"):
        files.parse(text)


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "autopipe.json"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArtifactError, match="larger than 16 MiB"):
        files.read(path)


def test_a_missing_file_is_named_with_the_near_one_and_a_folder_with_the_one_in_it(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is a folder") as error:
        files.read(tmp_path)
    assert str(tmp_path / "autopipe.json") in str(error.value.hint)
    files.write(profiles.artifact(), tmp_path / "autopipe.json")
    with pytest.raises(ArtifactError, match=r"Did you mean `autopipe.json`"):
        files.read(tmp_path / "autopip.json")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "autopipe.json")
    with pytest.raises(ArtifactError, match="There is no artefact"):
        files.read(tmp_path / "autopipe.json")
