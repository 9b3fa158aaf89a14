from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact import artifact as joining
from autopipe.artifact.artifact import KeptWarning
from autopipe.artifact.schema import ModuleReference
from autopipe.errors import ArtifactError
from autopipe.pipeline.loaders.threads import Threads
from tests.fakes.profiles import artifact, config, digest, hardware, profile

HERE = profile()
TENSORFLOW = profile(hardware=hardware(keras_backend="tensorflow"))
BIG = profile(hardware=hardware(cores=64))
NEW = profile(config=config(loader=Threads(workers=1)))
NAMED = ModuleReference(module="project.train")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "autopipe.json"


def test_profiles_of_other_machines_and_backends_stay(path: Path) -> None:
    old, new = (profile(hardware=hardware(keras_backend="jax"), key=key) for key in ("old", "new"))
    files.write(artifact(old, TENSORFLOW, BIG), path)
    joining.write_joined(artifact(new, workload=NAMED), path)
    assert files.read(path) == artifact(TENSORFLOW, BIG, new, workload=NAMED)


def test_a_workload_without_a_name_keeps_the_one_that_it_had(path: Path) -> None:
    files.write(artifact(workload=NAMED), path)
    joining.write_joined(artifact(NEW), path)
    assert files.read(path) == artifact(NEW, workload=NAMED)


def test_an_artefact_of_another_workload_is_kept_beside(path: Path) -> None:
    for number, size in enumerate((8, 16)):
        old = files.write(artifact(profile(workload=digest(batch_size=size))), path).read_bytes()
        with pytest.warns(KeptWarning, match=r"kept as `autopipe\.json\.bak.*batch size"):
            joining.write_joined(artifact(), path)
        assert path.with_name(f"autopipe.json.bak{number or ''}").read_bytes() == old
        assert files.read(path) == artifact()


def test_a_file_that_is_no_artefact_is_kept_beside(path: Path) -> None:
    path.write_text('{"schema_version": 2, "profi')
    with pytest.warns(KeptWarning, match="is no JSON, or was cut"):
        joining.write_joined(artifact(), path)
    assert path.with_name("autopipe.json.bak").read_text() == '{"schema_version": 2, "profi'
    assert files.read(path) == artifact()


@pytest.mark.parametrize(("name", "inside"), [("tuned", "tuned/autopipe.json"), (".", "autopipe.json")])
def test_no_folder_is_written_over_or_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, inside: str
) -> None:
    (tmp_path / "tuned").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="cannot be written") as caught:
        joining.write_joined(artifact(), name)
    assert caught.value.hint == f"Name a file in this folder: {inside}"
    with pytest.raises(ArtifactError, match="cannot be written"):
        joining.write_joined(artifact(), tmp_path / "gone" / "autopipe.json")
    assert list(tmp_path.rglob("*")) == [tmp_path / "tuned"]


def test_what_another_machine_wrote_during_a_retune_stays(path: Path) -> None:
    joining.renew(artifact(HERE, BIG), NEW, path)  # the file is gone meanwhile
    assert files.read(path) == artifact(BIG, NEW)
    known = artifact(HERE, workload=NAMED)
    files.write(artifact(HERE, BIG, workload=NAMED), path)
    joining.renew(known, NEW, path)
    assert files.read(path) == artifact(BIG, NEW, workload=NAMED)


def test_of_many_that_write_at_once_none_is_lost(path: Path) -> None:
    machines = [hardware(cpu_model=f"model {number}") for number in range(16)]
    files.write(artifact(HERE), path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda here: joining.renew(artifact(HERE), profile(hardware=here), path), machines))
    assert {each.hardware.cpu_model for each in files.read(path).profiles} == {
        HERE.hardware.cpu_model,
        *(here.cpu_model for here in machines),
    }


def test_no_lock_stays_beside_an_artefact(path: Path) -> None:
    joining.write_joined(artifact(profile()), path)
    joining.renew(artifact(profile()), profile(), path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_link_in_the_locks_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    path.with_name(f".{path.name}.lock").symlink_to(victim)
    joining.write_joined(artifact(profile()), path)
    assert len(files.read(path).profiles) == 1
    assert not victim.exists()
