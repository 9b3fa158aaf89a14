from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest

from autopipe.artifact import artifact as files
from autopipe.artifact.schema import FileReference
from autopipe.errors import ConfigError
from autopipe.extensions.fleet import members
from autopipe.measure import fingerprint, outcome
from autopipe.search import library, study
from autopipe.search.settings import Settings
from tests.fakes.profiles import NOON, about, artifact, digest, hardware, profile
from tests.fakes.surface import Surface

TOMORROW = NOON + datetime.timedelta(days=1)
NEXT_YEAR = NOON + datetime.timedelta(days=365)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two artefacts of one workload on machines alike, one of another workload, and what is no artefact."""
    named = FileReference(path="train.py")
    fast = profile(hardware=hardware(cores=4), images_per_second=about(3000.0))
    files.write(artifact(profile(), workload=named), tmp_path / "one.json")
    (tmp_path / "deep").mkdir()
    files.write(artifact(fast, workload=named), tmp_path / "deep" / "two.json")
    files.write(artifact(profile(workload=digest(ops="f" * 16), hardware=fingerprint.detect())), tmp_path / "here.json")
    (tmp_path / "other.json").write_text("{}")
    return tmp_path


def test_each_profile_of_each_artefact_is_a_member(folder: Path) -> None:
    found = {Path(each.place).name: each for each in members.of_folder(folder, TOMORROW)}
    assert set(found) == {"one.json", "two.json", "here.json"}
    one, two, here = found["one.json"], found["two.json"], found["here.json"]
    assert (one.workload, one.images_per_second, one.gain) == ("train.py:workload", 1000.0, 2.5)
    assert (one.best_on_similar, two.best_on_similar, here.best_on_similar) == (3000.0, 1000.0, None)
    assert (one.state, here.state) == ("elsewhere", "fits")


@pytest.mark.parametrize("other", [{"samples": 50_000}, {"mean_bytes": 110_000.0}, {"model": "a" * 16}])
def test_a_rate_with_other_data_or_another_model_is_compared_with_none(folder: Path, other: dict[str, Any]) -> None:
    named = FileReference(path="train.py")
    fastest = profile(workload=digest(**other), hardware=hardware(cores=6), images_per_second=about(9000.0))
    files.write(artifact(fastest, workload=named), folder / "three.json")
    found = {Path(each.place).name: each.best_on_similar for each in members.of_folder(folder, TOMORROW)}
    assert (found["one.json"], found["three.json"]) == (3000.0, None)


def test_what_is_old_is_stale_wherever_it_is(folder: Path) -> None:
    assert {each.state for each in members.of_folder(folder, NEXT_YEAR)} == {"stale"}


def test_a_folder_without_an_artefact_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no artefact"):
        members.of_folder(tmp_path, NOON)
    with pytest.raises(ConfigError, match="no folder or file"):
        members.of_folder(tmp_path / "elsewhere", NOON)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with a study of two machines' each, and one of somebody else."""
    import optuna

    file = tmp_path_factory.mktemp("storage") / "studies.db"
    for cores, name in ((2, "small"), (8, "large")):
        surface = Surface(cores=cores, model_rate=60_000.0)
        settings = Settings(
            trials=4,
            blocks=(0, 0),
            clock=surface.clock,
            storage=f"sqlite:///{file}",
            study_name=name,
            digests={"workload": "w", "hardware": hardware(cores=cores).model_dump_json()},
        )
        study.run(library.load("quick", {"cores": cores, "gpus": 0}), surface, surface.facts(), settings)
    optuna.create_study(storage=f"sqlite:///{file}", study_name="somebody else's")
    return file


@pytest.fixture
def storage(searched: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(searched, tmp_path)}"


def test_each_study_of_a_storage_is_a_member(storage: str) -> None:
    small, large = sorted(
        members.of_storage(storage, datetime.datetime.now(datetime.UTC)),
        key=lambda each: each.cores or 0,
    )
    assert (small.place, large.place) == ("small", "large")
    assert small.images_per_second is not None
    assert small.best_on_similar == large.images_per_second
    assert small.trials is not None
    assert small.trials >= 4
    assert {small.state, large.state} == {"elsewhere"}


def test_studies_are_compared_where_their_data_are_the_same_but_for_the_files_times(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    same, times, names = (
        f"files=9 names={name} sizes=c times={at}" for name, at in (("a", "d"), ("a", "e"), ("b", "d"))
    )
    for cores, data in ((2, same), (4, times), (8, names)):
        surface = Surface(cores=cores, model_rate=60_000.0)
        known = {"workload": "w", "data": data, "hardware": hardware(cores=cores).model_dump_json()}
        asked: dict[str, Any] = {
            "trials": 3,
            "blocks": (0, 0),
            "storage": url,
            "study_name": f"{cores} cores",
            "digests": known,
        }
        settings = Settings(clock=surface.clock, **asked)
        study.run(library.load("quick", {"cores": cores, "gpus": 0}), surface, surface.facts(), settings)
    found = {each.place: each for each in members.of_storage(url, datetime.datetime.now(datetime.UTC))}
    assert found["2 cores"].best_on_similar == found["4 cores"].images_per_second
    assert found["8 cores"].best_on_similar is None


def test_a_studys_rate_is_without_what_was_charged_once(tmp_path: Path) -> None:
    url, surface = f"sqlite:///{tmp_path}/study.db", Surface(decode_seconds=0.004, sample_count=50_000, noise=0.002)
    asked: dict[str, Any] = {"trials": 6, "blocks": (0, 0), "storage": url, "epochs": 1, "digests": {"workload": "w"}}
    settings = Settings(clock=surface.clock, **asked)
    ran = study.run(library.load("quick", {"cores": 4, "gpus": 0}), surface, surface.facts(), settings).rows
    rates = {row.outcome.images_per_second.value for row in ran if isinstance(row.outcome, outcome.Measurement)}
    (member,) = members.of_storage(url, TOMORROW)
    assert member.images_per_second in rates
