"""Which configuration a retune keeps, and what it says. With trials: tests/integration/test_cli_tune.py."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import Mock

import numpy as np
import pytest

import autopipe as ap
from autopipe.api import tuning
from autopipe.api.tuning import FORMER, When
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen, pick
from autopipe.artifact.drift import Result, Verdict
from autopipe.artifact.schema import FileReference
from autopipe.measure import fingerprint
from autopipe.measure.facts import Limits
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.measure.rows import Row
from autopipe.search import conclusion, confirmation, measurer, study
from autopipe.search import space as spaces
from autopipe.search.result import Reason, Stop
from autopipe.search.searching import Watcher
from autopipe.search.settings import Settings
from autopipe.search.space import Space
from autopipe.values import Estimate, JsonObject
from autopipe.workload.mode import Mode
from benchmarks.machines import Machine, Played
from tests.fakes.commands import TRAIN
from tests.fakes.facts import DESCRIBED, known
from tests.fakes.fleet import Fleet, Trials, imaginary
from tests.fakes.profiles import artifact, profile
from tests.fakes.surface import Surface

SLOW = ap.PipelineConfig(loader=ap.Threads(workers=1))
GOOD = ap.PipelineConfig(loader=ap.Threads(workers=8))


@pytest.fixture
def space() -> Space:
    return spaces.load("quick", {"cores": 4, "gpus": 0})


def searched(
    space: Space,
    former: ap.PipelineConfig,
    fails: Callable[[ap.PipelineConfig], bool] = lambda _: False,
    **changes: object,
) -> conclusion.Searched:
    """Search on a machine on which a former configuration is one of the baselines."""
    rival = measurer.Baseline(name=FORMER, config=former, required=True, incumbent=True)
    known: Any = {"cores": 4, "model_rate": 60_000.0, "noise": 0.01, "seed": 1, "fails": fails}
    surface = Surface(compared=[*Surface().baselines(), rival], **known)
    settings = dataclasses.replace(Settings(clock=surface.clock, trials=12), **changes)  # type: ignore[arg-type]
    return study.run(space, surface, surface.facts(), settings)


def test_the_former_stays_until_another_is_proved_if_it_can_run(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    first = searched(space, SLOW)
    best = known(first.best_config)
    assert best.key() == known(first.confirmation).winner != SLOW.key()
    again = searched(space, best)
    assert again.best_config == best
    assert again.result.images_per_second == known(again.confirmation).rates[best.key()]
    found = searched(space, SLOW, blocks=(0, 0))
    (former,), winner = (each for each in found.result.baselines if each.incumbent), known(found.result.winner)
    assert (former.key, former.images_per_second) == (winner.key, winner.images_per_second)
    assert known(searched(space, GOOD, fails=GOOD.__eq__).best_config) != GOOD
    assert known(searched(space, GOOD, limits=Limits(workers=4), blocks=(0, 0)).best_config) != GOOD
    monkeypatch.setattr(confirmation, "run", Mock(side_effect=KeyboardInterrupt))
    cut = searched(space, SLOW)
    assert (cut.result.interrupted, cut.best_config, found.best_config) == (True, SLOW, SLOW)


def checked(verdict: Verdict, *, measured: bool = False, comparable: bool = False) -> Result:
    rows = (Row(name="threads", together=Estimate(value=1.0, low=1.0, high=1.0)),) if measured else ()
    return Result(verdict=verdict, age_days=1, profile=None, rows=rows, is_comparable=comparable)


def test_a_pipeline_is_measured_if_asked_for_or_if_it_may_be_as_fast_as_it_was() -> None:
    cases: list[tuple[When, Verdict, bool, bool]] = [
        (When(), Verdict.FITS, True, True),
        (When(), Verdict.STALE, False, False),
        (When(dry_run=True), Verdict.FITS, True, False),
        (When(stale=True), Verdict.FITS, True, False),
        (When(stale=True), Verdict.STALE, True, True),
        (When(stale=True), Verdict.STALE, False, False),
        (When(stale=True, dry_run=True), Verdict.STALE, True, False),
        (When(drifted=True, dry_run=True), Verdict.STALE, False, True),
    ]
    for when, verdict, comparable, measures in cases:
        assert when.measures(checked(verdict, comparable=comparable)) is measures


def test_what_was_found_is_a_reason_or_is_not_and_what_was_measured_to_be_as_fast_keeps_its_profile() -> None:
    fits, stale, drifted = (checked(each, measured=True, comparable=True) for each in Verdict)
    asked = {When(stale=True): [stale, drifted], When(drifted=True): [drifted], When(): [fits, stale, drifted]}
    for when, reasons in asked.items():
        assert [each for each in (fits, stale, drifted) if when.asks_for(each)] == reasons
    assert [each.holds for each in (fits, stale, drifted)] == [True, True, False]
    assert not checked(Verdict.STALE, measured=True).holds
    assert not checked(Verdict.STALE, comparable=True).holds


class Player(Trials):
    """Plays other people's code, too."""

    def measure(self, config: ap.PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
        return self.surface.measure(config)


PLAYED = Machine(
    name="played", cores=16, physical=16, model=12_000.0, native=0.8e-3, python=0.2e-3, serial=0.0, crosstalk=0.0
)


def test_a_retune_ends_soon_unless_the_order_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, path = Fleet(monkeypatch), tmp_path / "autopipe.json"
    (tmp_path / "train.py").write_text(TRAIN)

    def play(machine: Machine) -> Any:
        surface: Any = Played(machine)
        fleet.at(imaginary(cores=16, gpus=1), surface)
        fleet.trials = Player(surface, accelerators=1)
        return surface

    def retuned(surface: Any) -> tuning.Retuned:
        monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=surface.clock))
        return tuning.rerun(files.stored(path), Settings(), Watcher(), given=[])

    play(PLAYED)
    only: dict[str, Any] = {"loader": ["threads", "processes"]}
    ap.tune(f"{tmp_path / 'train.py'}:workload", budget=None, only=only).save(path)
    before = files.read(path).profiles[0]
    assert pick.config_of(before).loader.kind == "threads"
    assert before.result.raced
    done = retuned(same := play(PLAYED))
    after = files.read(path).profiles[0]
    assert (done.kept, done.result, after.result) == (True, None, before.result)
    assert after.measured_at >= before.measured_at
    assert same.now <= 30.0  # seconds, from the start of the process
    done = retuned(play(dataclasses.replace(PLAYED, serial=1.0)))  # the user's op holds Python's lock now
    assert not done.kept
    assert pick.config_of(known(done.profile)).loader.kind == "processes"


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_retune_that_measures_nothing_says_so_and_ends_where_the_user_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: Space, *, interrupted: bool
) -> None:
    (tmp_path / "train.py").touch()
    stored = artifact(profile(hardware=fingerprint.detect()), workload=FileReference(path="train.py"))
    path = files.write(stored, tmp_path / "autopipe.json")
    surface = Surface(fails=lambda config: True)
    result = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=2)).result
    cut = Stop(reason=Reason.INTERRUPTED, message="Interrupted.") if interrupted else result.stop
    ended = tuning.Retuned(result=result.model_copy(update={"stop": cut}))
    monkeypatch.setattr(tuning, "rerun", lambda *_, **__: ended)
    assert codegen.profile_of(result, DESCRIBED, fingerprint.detect(), Settings()) is None
    said = "failed, so the present profile is used: No configuration could"
    with pytest.raises(ap.SearchInterruptedError) if interrupted else pytest.warns(ap.ProfileWarning, match=said):
        assert ap.retune(path).profile == stored.profiles[0]


Notebook: TypeAlias = tuple[Path, ap.Workload, Fleet]


@pytest.fixture
def notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """An artifact of a workload that no file holds, the workload, and the machine of the tune."""
    fleet, path = Fleet(monkeypatch), tmp_path / "autopipe.json"
    fleet.at(imaginary(cores=2), Surface())
    data = ap.Arrays(np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32"))
    workload = ap.Workload(data=data, ops=[ap.Rescale(0.5)], batch_size=4)
    with pytest.warns(ap.NamelessWarning):
        ap.tune(workload, space="quick", trials=4, budget=None).save(path)
    return path, workload, fleet


@pytest.mark.parametrize("cores", [2, 4])
def test_a_read_only_folder_stops_a_search(notebooks: Notebook, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    path, workload, fleet = notebooks
    fleet.at(imaginary(cores=cores), Surface())
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)  # as root one may write anywhere
    stored = files.stored(path, workload=workload)
    not_writable = f"The artifact's folder must be writable, but {str(path.parent)!r} is not."

    def retuned(**when: bool) -> tuning.Retuned:
        return tuning.rerun(stored, Settings(trials=4), Watcher(), when=When(**when), given=["trials"])

    assert retuned(stale=True, dry_run=True).would is (cores == 4)
    with pytest.raises(ap.ArtifactError, match=not_writable) if cores == 4 else contextlib.nullcontext():
        assert retuned(stale=True).profile is None
    with pytest.raises(ap.ArtifactError, match=not_writable):
        retuned()


def test_a_workload_of_a_notebook_is_retuned_here_and_on_new_hardware(notebooks: Notebook) -> None:
    path, workload, fleet = notebooks
    before = files.read(path).profiles[0]
    assert ap.retune(path.parent, workload=workload, trials=4).profile.measured_at >= before.measured_at
    with pytest.raises(ap.ConfigError, match=r"`workload` must be an ap\.Workload"):
        ap.retune(path, workload=3)  # type: ignore[arg-type]  # as a user may
    fleet.at(imaginary(cores=4), Surface())
    tuned = ap.load(path, workload=workload, on_new_hardware="retune", retune_seconds=60)  # a warning would be an error
    assert tuned.profile.hardware.cores == 4
    assert {each.hardware.cores for each in files.read(path).profiles} == {2, 4}


def test_tunes_for_prediction_leave_the_profile_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, path = Fleet(monkeypatch), tmp_path / "autopipe.json"
    (tmp_path / "train.py").write_text(TRAIN)
    fleet.at(imaginary(), Surface())
    workload = f"{tmp_path / 'train.py'}:workload"
    before = ap.tune(workload, space="quick", trials=4, budget=None).profile
    files.write(artifact(before), path)
    for seed in (0, 1):  # the second asks for something else, so that it searches
        settings = Settings(trials=4, mode=Mode.PREDICT, seed=seed)
        stored = files.stored(path, workload=workload)
        tuning.rerun(stored, settings, Watcher(), given=["trials", "mode", "seed"])
        found = {each.request.mode: each for each in files.read(path).profiles}
        assert found == {Mode.TRAIN: before, Mode.PREDICT: found[Mode.PREDICT]}
        assert (FORMER in {each.name for each in found[Mode.PREDICT].result.baselines}) == (seed == 1)
    assert ap.load(path).profile == before
