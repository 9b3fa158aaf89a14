"""The file of an artifact: what is read, refused and written, and what other writers of it keep."""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact.artifact import KeptWarning
from autopipe.artifact.schema import FileReference, ImagesReference, ModuleReference
from autopipe.errors import ArtifactError
from autopipe.pipeline.loaders.workers import Threads
from autopipe.values import Value
from tests.fakes.profiles import artifact, config, digest, hardware, profile

ASSETS = Path(__file__).parents[2] / "assets" / "artifacts"


def _text(**changes: object) -> bytes:
    return json.dumps({**json.loads(artifact().model_dump_json()), **changes}).encode()


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
    known = artifact(workload=workload)
    assert known == files.read(files.write(known, tmp_path / "autopipe.json"))


def test_a_file_that_was_written_before_is_read() -> None:
    assert len(files.read(ASSETS / "v1.json").profiles) == 2


VERSIONS = [0, 2, 4, "1", None, True, 1.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((_text(schema_version=each), rf"={each!r}, but this autopipe reads version 1") for each in VERSIONS),
        (_text()[:100], r"was cut: EOF while parsing .* at line 1 column 100"),
        *(
            (text, r"autopipe\.json")
            for text in (
                b"null",
                b"{}",
                _text(workload={"kind": "file", "path": "a\x00b.py"}),
                _text(workload={"kind": "module", "module": "os; import this"}),
                _text(workload={"kind": "code", "text": "1 + 1"}),
                _text().replace(b"1250.0", b"NaN"),
                _text().replace(b"1250.0", b"1e999"),
            )
        ),
    ],
)
def test_what_is_no_artifact_of_this_version_is_refused_with_what_to_do(text: bytes, said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as error:
        files.parse(text)
    assert "autopipe tune" in str(error.value.hint) or text in (b"null", b"{}")


STILL = {"value": 0.0, "low": 0.0, "high": 0.0}
LACKING = [("result",), ("request",), ("result", "winner", "key")]  # which every tune writes


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("profiles", 0, "hardware", "cores"), "two", r"`profiles\[0\].hardware.cores` is wrong: .* but got 'two'"),
        (("profiles", 0, "result", "winner", "data_wait_share"), 2, r"winner.data_wait_share` is wrong"),
        (("profiles", 0, "result", "winner", "images_per_second"), STILL, "a `winner`, with a rate above 0"),
        (("profiles", 0, "colour"), 2, r"`profiles\[0\].colour` is no key"),
        (("profiles",), [], r"`profiles` is wrong"),
        *((("profiles", 0, *path), None, rf"{'.'.join(path)}` is missing") for path in LACKING),
        (
            ("workload",),
            {"kind": "x" * 9999},
            r"`workload` is wrong: 'kind' must be one of 'file'.{9,60}, but got \{.{100,150}\. ",
        ),
    ],
)
def test_a_value_that_is_wrong_or_missing_is_named(path: tuple[str | int, ...], value: object, said: str) -> None:
    content = json.loads(_text())
    place = content
    for part in path[:-1]:
        place = place[part]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(ArtifactError, match=said) as error:
        files.parse(json.dumps(content).encode())
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


def test_what_is_no_path_is_refused_with_what_gives_one() -> None:
    with pytest.raises(ArtifactError, match=r"must be the path of an artifact.*but got") as error:
        files.located(profile())
    assert "tuned.save(" in str(error.value.hint)


# ---------------------------------------------------------------- joining

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


def test_an_artifact_of_another_workload_is_kept_beside(path: Path) -> None:
    for number, size in enumerate((8, 16)):
        old = files.write(artifact(profile(workload=digest(batch_size=size))), path).read_bytes()
        with pytest.warns(KeptWarning, match=r"kept as `autopipe\.json\.bak.*batch size"):
            files.write_joined(artifact(), path)
        assert path.with_name(f"autopipe.json.bak{number or ''}").read_bytes() == old
        assert files.read(path) == artifact()


def test_a_file_that_is_no_artifact_is_kept_beside(path: Path) -> None:
    path.write_text('{"schema_version": 2, "profi')
    with pytest.warns(KeptWarning, match="is no JSON, or was cut"):
        files.write_joined(artifact(), path)
    assert path.with_name("autopipe.json.bak").read_text() == '{"schema_version": 2, "profi'
    assert files.read(path) == artifact()


@pytest.mark.parametrize(("name", "inside"), [("tuned", "tuned/autopipe.json"), (".", "autopipe.json")])
def test_no_folder_is_replaced_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, inside: str) -> None:
    (tmp_path / "tuned").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="cannot be written") as caught:
        files.write_joined(artifact(), name)
    assert caught.value.hint == f"Name a file in this folder: {inside}"
    with pytest.raises(ArtifactError, match="cannot be written"):
        files.write_joined(artifact(), tmp_path / "gone" / "autopipe.json")
    assert list(tmp_path.rglob("*")) == [tmp_path / "tuned"]


def test_what_another_machine_wrote_during_a_retune_stays(path: Path) -> None:
    files.renew(artifact(HERE, BIG), NEW, path)  # the file is gone meanwhile
    assert files.read(path) == artifact(BIG, NEW)
    known = artifact(HERE, workload=NAMED)
    files.write(artifact(HERE, BIG, workload=NAMED), path)
    files.renew(known, NEW, path)
    assert files.read(path) == artifact(BIG, NEW, workload=NAMED)


def test_of_many_that_write_at_once_none_is_lost(path: Path) -> None:
    machines = [hardware(cpu_model=f"model {number}") for number in range(16)]
    files.write(artifact(HERE), path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda here: files.renew(artifact(HERE), profile(hardware=here), path), machines))
    assert {each.hardware.cpu_model for each in files.read(path).profiles} == {
        HERE.hardware.cpu_model,
        *(here.cpu_model for here in machines),
    }


def test_no_lock_stays_beside_an_artifact(path: Path) -> None:
    files.write_joined(artifact(), path)
    files.renew(artifact(), profile(), path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_link_in_the_locks_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    path.with_name(f".{path.name}.lock").symlink_to(victim)
    files.write_joined(artifact(), path)
    assert len(files.read(path).profiles) == 1
    assert not victim.exists()


def _values(kind: type[Value]) -> Iterator[type[Value]]:
    for each in kind.__subclasses__():
        yield each
        yield from _values(each)


def test_what_may_be_none_may_be_missing() -> None:
    """An artifact is written without what is None."""
    required = [
        f"{each.__name__}.{name}"
        for each in _values(Value)
        for name, field in each.model_fields.items()
        if field.is_required() and type(None) in typing.get_args(field.annotation)
    ]
    assert required == []
