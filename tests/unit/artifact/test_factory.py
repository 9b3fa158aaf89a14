"""A tuned pipeline, made of an artifact or of a fresh profile, and of converted samples beside it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.artifact import converting, factory, pick
from autopipe.artifact.schema import FileReference, ModuleReference, Profile
from autopipe.measure import description, facts, fingerprint
from autopipe.measure.trial import workload_import
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline.assembly import conversion_of
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.storage.convert import convert
from autopipe.search.settings import Request
from autopipe.values import Estimate
from autopipe.workload.data.source import first_digest
from autopipe.workload.mode import Mode
from autopipe.workload.ops import custom, planner
from tests.fakes import profiles
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import about, config, digest, hardware

WORKLOAD = ap.Workload(data=ap.Arrays(np.arange(16.0).reshape(8, 2)), ops=[], batch_size=2, shuffle=False)


def profile(**changes: Any) -> Profile:
    return profiles.profile(workload=digest(batch_size=2), **changes)


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names by which workloads were imported, all of which are `WORKLOAD`'s."""
    asked: list[str] = []

    def load(named: ap.Workload | WorkloadName | str) -> ap.Workload:
        if not isinstance(named, ap.Workload):
            asked.append(named if isinstance(named, str) else named.text)
        return WORKLOAD

    monkeypatch.setattr(workload_import, "load_workload", load)
    return asked


def written(folder: Path, *known: Profile, **named: Any) -> Path:
    """Write an artifact; `named` is its workload, in a file if not told otherwise."""
    named = {"workload": FileReference(path="train.py"), **named}
    return files.write(profiles.artifact(*(known or (profile(),)), **named), folder / "autopipe.json")


def test_a_workload_is_imported_when_used(tmp_path: Path, imported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    written(tmp_path, workload=FileReference(path="train.py", attribute="photos"))
    monkeypatch.chdir(tmp_path)
    tuned = factory.load("autopipe.json", here=hardware())
    monkeypatch.chdir("/")
    assert (tuned.config.loader, imported) == (ap.Threads(workers=2, queue_size=8), [])
    with tuned.make_loader(shard=(1, 2)) as loader:
        assert len(list(loader.epoch(0))) == 2
    tuned.make_loader().close()
    assert imported == [f"{tmp_path / 'train.py'}:photos"]  # once for all


def test_what_was_measured_comes_with_it_and_is_shown_in_a_summary(tmp_path: Path, imported: list[str]) -> None:
    fast = profile(images_per_second=about(14_912.0))
    tuned = factory.load(written(tmp_path, fast), here=hardware())
    assert (tuned.measurement, tuned.ceiling, tuned.study) == (fast.winner, fast.result.ceiling, None)
    assert tuned.baselines[0].name == "keras"
    assert repr(tuned) == (
        "<Tuned: config threads(workers=2), measured 14,912 (14,614 to 15,210) images/s, keras 400 (392 to 408) "
        "images/s, the model alone 1,250 (1,225 to 1,275) images/s, machine Imaginary 9000, 2 cores, of "
        "train.py:workload>"
    )
    unsteady = profile(images_per_second=Estimate(value=900.0, low=100.0, high=5000.0))
    assert "measured 900 (too unsteady) images/s" in repr(factory.of_profile(unsteady, WORKLOAD))


def test_a_workload_that_no_file_holds_is_said_to_be_needed_again(tmp_path: Path, imported: list[str]) -> None:
    tuned = factory.of_profile(profile(), ap.Workload(data=WORKLOAD.data, ops=[], batch_size=2))
    with pytest.warns(factory.NamelessWarning, match=r"ap\.load\('.*autopipe\.json', workload=workload\)") as caught:
        path = tuned.save(tmp_path / "autopipe.json")
    assert caught[0].filename == __file__
    with pytest.raises(ap.ArtifactError, match=r"does not say where its workload is.*workload=workload"):
        factory.load(path, here=hardware()).make_trainer()
    assert factory.load(path, here=hardware(), workload=WORKLOAD).workload is WORKLOAD
    with pytest.raises(ap.ArtifactError, match="`path` must be the path of a file, but got 5") as raised:
        tuned.save(5)  # type: ignore[arg-type]  # the point of the test
    assert raised.value.hint == 'Such as save("autopipe.json").'


def test_a_given_workload_is_used_instead_or_a_module_by_its_name(tmp_path: Path, imported: list[str]) -> None:
    gone = written(tmp_path, workload=FileReference(path="/gone.py"))
    for given in (WORKLOAD, "elsewhere.py:workload"):
        assert factory.load(gone, here=hardware(), workload=given).workload is WORKLOAD
    module = ModuleReference(module="project.train")
    path = written(tmp_path, workload=module)
    assert factory.load(path, here=hardware(), pinned=module.model_dump()).workload is WORKLOAD
    assert imported == ["elsewhere.py:workload", "project.train:workload"]


def test_a_fresh_profile_is_like_a_read_one_and_joins_those_of_others(tmp_path: Path, imported: list[str]) -> None:
    other, new = profile(hardware=hardware(cores=64)), profile(config=config(loader=ap.Threads(workers=1)))
    path, script = written(tmp_path, other, profile()), tmp_path / "new.py"
    tuned = factory.of_profile(new, WORKLOAD, named=FileReference(path=str(script)), study="the study")
    assert (tuned.workload, tuned.study) == (WORKLOAD, "the study")
    again = factory.load(tuned.save(path), here=hardware())
    assert (again.artifact.workload, again.artifact.profiles) == (FileReference(path="new.py"), (other, new))
    assert again.config == tuned.config == pick.config_of(new)
    elsewhere = again.save(tmp_path / "tuned" / "here" / "autopipe.json")
    assert files.read(elsewhere).workload == FileReference(path="../../new.py", origin=str(script))


def test_a_trainer_predicts_by_what_was_tuned_for_that_and_trains_by_the_rest(tmp_path: Path) -> None:
    here = fingerprint.detect()
    path = profiles.of_this_machine(tmp_path, hardware=here)
    known = files.read(path)
    asked = {"request": Request(mode=Mode.PREDICT), "config": config(loader=ap.TfData())}
    served = profiles.profile(hardware=here, workload=known.profiles[0].workload, **asked)
    files.write(pick.with_profile(known, served), path)
    tuned = factory.load(path)
    with tuned.make_trainer() as trainer, trainer.serving[Mode.PREDICT](tuned.workload.data, 1) as loader:
        kinds = [type(each).__module__.rpartition(".")[2] for each in (trainer.loader, loader)]
    assert (kinds, list(trainer.serving)) == (["streaming", "tfdata"], [Mode.PREDICT])


ARRAY = STORAGES["array"]


def workload(times: int = 1, own: Path = Path("/nowhere")) -> ap.Workload:
    data = ap.Arrays(np.arange(16.0).reshape(8, 2) * times)
    return ap.Workload(data=data, ops=[], batch_size=2, shuffle=False, converted=str(own))


def doubled(numbers: np.ndarray) -> np.ndarray:
    return 2 * numbers


def tuned(folder: Path, made: ap.Workload) -> factory.Tuned:
    path = written(folder, profile(config=config(keep="array")), workload=None)
    return factory.load(path, here=hardware(), workload=made)


def described(made: ap.Workload) -> facts.Description:
    plan = planner.make_plan(made)
    told = {"samples": len(made.data), "data_digest": first_digest(made.data), "first_ops": fingerprint.first_ops(plan)}
    return DESCRIBED.model_copy(update={**told, "cuts": description.cut_sizes(made, plan)})


def converted(made: ap.Workload, folder: Path) -> None:
    convert(conversion_of(made, planner.make_plan(made), ARRAY), ARRAY, folder)


@pytest.mark.parametrize("place", ["converted/of-monday", "own/array"])
def test_the_set_beside_the_artifact_is_found_or_that_of_the_workload(tmp_path: Path, place: str) -> None:
    made = workload(own=tmp_path / "own")
    converted(made, tmp_path / place)
    if place.startswith("own"):
        converted(workload(times=2), tmp_path / "converted" / "array")
    with tuned(tmp_path, made).make_loader() as loader:
        assert sorted(float(number) for x, _ in loader.epoch(0) for number in x.ravel()) == list(range(16))


def test_without_a_set_what_to_run_is_said_and_a_set_of_other_data_is_named_and_not_used(tmp_path: Path) -> None:
    with pytest.raises(ap.StorageError, match="has no set of the 8 samples") as caught:
        tuned(tmp_path, workload(own=tmp_path / "own")).make_loader()
    assert caught.value.hint == f"Run `autopipe convert` for this workload, with --to array --out {tmp_path}/own/array"
    converted(workload(times=2), tmp_path / "converted" / "array")
    with pytest.raises(ap.StorageError, match="was made from other data"):
        tuned(tmp_path, workload()).make_loader()


def test_whether_anything_is_left_to_convert_is_told_by_the_workloads_description(tmp_path: Path) -> None:
    array, made = PipelineConfig(loader=ap.Threads(workers=1), keep="array"), workload()

    def is_beside(made: ap.Workload = made, keep: str = "array") -> bool:
        return converting.is_beside(tmp_path, described(made), array.model_copy(update={"keep": keep}))

    assert not is_beside()
    converted(made, tmp_path / "converted" / "array")
    assert [is_beside(keep=keep) for keep in ("array", "array:0", "none")] == [True, True, False]
    assert not is_beside(workload(times=2))
    assert not is_beside(dataclasses.replace(made, ops=[custom.Map(doubled)]))
    next((tmp_path / "converted" / "array").glob("x-*.npy")).write_bytes(b"")
    assert not is_beside()
