from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autopipe.core.value import JsonObject
from autopipe.errors import ArtifactError
from autopipe.tuned import artifact as files
from autopipe.tuned.schema import FileReference, ImagesReference, ModuleReference
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


def test_an_artifact_of_every_released_version_is_read() -> None:
    versions = [json.loads(path.read_text())["schema_version"] for path in sorted(ASSETS.glob("v*.json"))]
    assert versions == [1, 2, 3, 4]
    for path in ASSETS.glob("v*.json"):
        assert len(files.read(path).profiles) == 2


def test_version_1_is_version_2_without_the_keras_backend() -> None:
    old, new = (files.read(ASSETS / f"v{version}.json") for version in (1, 2))
    assert [each.hardware.keras_backend for each in old.profiles] == [None, None]
    assert [each.hardware.keras_backend for each in new.profiles] == ["tensorflow", "jax"]
    text = new.model_dump_json().replace('"keras_backend":"tensorflow"', '"keras_backend":null')
    assert old.model_dump_json() == text.replace('"keras_backend":"jax"', '"keras_backend":null')


def test_version_2_is_version_3_without_the_names_of_ops() -> None:
    old, new = (files.read(ASSETS / f"v{version}.json") for version in (2, 3))
    assert [each.workload.op_list for each in old.profiles] == [None, None]
    ops = new.profiles[0].workload.op_list
    assert ops is not None
    assert [op.text for op in ops] == ["Decode(channels=3)", "Rescale(scale=0.5, offset=0.0)"]
    known = [each.model_copy(update={"op_list": None}) for each in (profile.workload for profile in new.profiles)]
    assert known == [each.workload for each in old.profiles]


def test_version_3_is_version_4_without_findings() -> None:
    old, new = (files.read(ASSETS / f"v{version}.json") for version in (3, 4))
    assert [each.findings for each in old.profiles] == [None, None]
    findings = new.profiles[0].findings
    assert findings is not None
    assert [each.name for each in findings.contests] == ["Keras PyDataset"]
    assert old.profiles == tuple(each.model_copy(update={"findings": None}) for each in new.profiles)


def test_an_older_version_is_migrated_step_by_step() -> None:
    def from_minus_one(content: JsonObject) -> JsonObject:
        return {**content, "schema_version": 0}

    def from_zero(content: JsonObject) -> JsonObject:
        return {"schema_version": 4, "profiles": content["machines"]}

    old = json.loads(_text())
    text = json.dumps({"schema_version": -1, "machines": old["profiles"]}).encode()
    assert profiles.artifact() == files.parse(text, migrations={-1: from_minus_one, 0: from_zero})


def test_a_migrated_file_is_refused_with_the_place_too() -> None:
    text = (ASSETS / "v1.json").read_bytes().replace(b'"cores": 2', b'"cores": -2')
    with pytest.raises(ArtifactError, match=r"`profiles\[0\].hardware.cores` is wrong"):
        files.parse(text)


@pytest.mark.parametrize(("version", "advice"), [(5, "upgrade"), (0, "autopipe tune"), ("1", "autopipe tune")])
def test_another_version_is_refused_with_both_versions_and_what_to_do(version: object, advice: str) -> None:
    with pytest.raises(ArtifactError, match=rf"schema_version={version!r}, but this autopipe reads version 4") as error:
        files.parse(_text(schema_version=version))
    assert advice in str(error.value.hint)


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_version_that_only_looks_like_one_is_refused(version: object) -> None:
    with pytest.raises(ArtifactError, match="schema_version"):
        files.parse(_text(schema_version=version))


def test_a_cut_file_is_refused_with_the_place() -> None:
    with pytest.raises(ArtifactError, match=r"was cut: EOF while parsing .* at line 1 column 100"):
        files.parse(_text()[:100])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("profiles", 0, "hardware", "cores"), "two", r"`profiles\[0\].hardware.cores` is wrong: .* but got 'two'"),
        (("profiles", 0, "measurement", "data_wait_share"), 2, r"`profiles\[0\].measurement.data_wait_share` is wrong"),
        (("profiles", 0, "colour"), 2, r"`profiles\[0\].colour` is no key"),
        (("profiles",), [], r"`profiles` is wrong"),
        (
            ("workload",),
            {"kind": "x" * 9999},
            r"`workload` is wrong: 'kind' must be one of 'file'.{9,60}, but got \{.{100,150}\.$",
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


def test_a_missing_value_is_refused_with_the_place() -> None:
    content = json.loads(_text())
    del content["profiles"][0]["key"]
    with pytest.raises(ArtifactError, match=r"`profiles\[0\].key` is missing"):
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


def test_a_missing_file_is_named_with_the_near_one(tmp_path: Path) -> None:
    files.write(profiles.artifact(), tmp_path / "autopipe.json")
    with pytest.raises(ArtifactError, match=r"Did you mean `autopipe.json`"):
        files.read(tmp_path / "autopip.json")


def test_a_folder_is_no_artifact_and_the_file_in_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is a folder") as error:
        files.read(tmp_path)
    assert str(tmp_path / "autopipe.json") in str(error.value.hint)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "autopipe.json")
    with pytest.raises(ArtifactError, match="There is no artefact"):
        files.read(tmp_path / "autopipe.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "autopipe.json"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(ArtifactError, match="cannot be written"):
        files.write(profiles.artifact(), folder)
    assert [folder] == list(tmp_path.iterdir())
    assert [folder / "old"] == list(folder.iterdir())


def test_the_schema_names_every_key_of_the_file() -> None:
    schema = files.json_schema()
    assert {"schema_version", "workload", "profiles"} == set(schema["properties"])
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
