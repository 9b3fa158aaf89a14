"""Which configuration a retune keeps. Whole retunes, with trials: tests/integration/test_cli_tune.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from autopipe.api.found import Found
from autopipe.api.retuning import FORMER, When, chosen
from autopipe.core.config import PipelineConfig
from autopipe.core.space import Space
from autopipe.core.value import Estimate
from autopipe.loaders.threads import Threads
from autopipe.search import library, study
from autopipe.search.measurer import Baseline
from autopipe.search.settings import Settings
from autopipe.tuned.check import Result, Verdict
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import hardware
from tests.fakes.surface import Surface

SLOW = PipelineConfig(loader=Threads(workers=1))
GOOD = PipelineConfig(loader=Threads(workers=8))


@dataclasses.dataclass(kw_only=True)
class Rivalled(Surface):
    """A machine on which a former configuration is one of the baselines."""

    former: PipelineConfig

    def baselines(self) -> Sequence[Baseline]:
        return [*super().baselines(), Baseline(name=FORMER, config=self.former)]


@pytest.fixture
def space() -> Space:
    return library.load("quick", {"cores": 4, "gpus": 0})


def searched(space: Space, former: PipelineConfig, **changes: object) -> Found:
    surface = Rivalled(former=former, cores=4, model_rate=60_000.0, noise=0.01, seed=1)
    settings = dataclasses.replace(Settings(clock=surface.clock, trials=12), **changes)  # type: ignore[arg-type]
    result = study.run(space, surface, surface.facts(), settings)
    return Found(result=result, described=DESCRIBED, hardware=hardware(), settings=Settings())


def test_a_configuration_that_is_proved_faster_takes_the_place_of_the_former(space: Space) -> None:
    found = searched(space, SLOW)
    profile, kept = chosen(found, SLOW)
    assert profile is not None
    assert found.result.best_config is not None
    assert (profile.key, kept) == (found.result.best_config.key(), False)
    assert profile.key != SLOW.key()


def test_the_former_stays_if_no_proof_was_run(space: Space) -> None:
    profile, kept = chosen(searched(space, SLOW, blocks=(0, 0)), SLOW)
    assert profile is not None
    assert (profile.key, kept) == (SLOW.key(), True)


def test_the_former_stays_if_the_search_was_interrupted(space: Space) -> None:
    found = searched(space, SLOW)
    cut = dataclasses.replace(found, result=dataclasses.replace(found.result, interrupted=True))
    assert chosen(cut, SLOW)[1]


def test_a_former_that_wins_again_stays_with_its_new_figures(space: Space) -> None:
    best = searched(space, SLOW).result.best_config
    assert best is not None
    found = searched(space, best)
    profile, kept = chosen(found, best)
    assert profile is not None
    assert (profile.key, kept) == (best.key(), True)
    assert found.result.estimate is not None
    assert profile.measurement.images_per_second == found.result.estimate


def test_a_former_that_cannot_run_any_more_is_given_up(space: Space) -> None:
    broken = GOOD.key()
    surface = Rivalled(
        former=GOOD, cores=4, model_rate=60_000.0, noise=0.01, fails=lambda config: config.key() == broken
    )
    result = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, trials=12))
    found = Found(result=result, described=DESCRIBED, hardware=hardware(), settings=Settings())
    profile, kept = chosen(found, GOOD)
    assert profile is not None
    assert not kept
    assert profile.key != GOOD.key()


def test_a_machine_without_a_former_takes_the_best(space: Space) -> None:
    found = searched(space, SLOW)
    profile, kept = chosen(found, None)
    assert profile is not None
    assert found.result.best_config is not None
    assert (profile.key, kept) == (found.result.best_config.key(), False)


# ---------------------------------------------------------------- when


def checked(verdict: Verdict, *, measured: bool = False, only_software: bool = False) -> Result:
    rate = Estimate(value=1.0, low=1.0, high=1.0) if measured else None
    return Result(verdict=verdict, age_days=1, profile=None, images_per_second=rate, only_software=only_software)


@pytest.mark.parametrize(
    ("when", "asks"),
    [
        (When(stale=True), {Verdict.STALE, Verdict.DRIFTED}),
        (When(drifted=True), {Verdict.DRIFTED}),
        (When(stale=True, drifted=True), {Verdict.STALE, Verdict.DRIFTED}),
    ],
)
def test_what_was_found_is_a_reason_or_is_not(when: When, asks: set[Verdict]) -> None:
    assert {verdict for verdict in Verdict if when.asks_for(checked(verdict))} == asks
    assert not when.always
    assert When().always


def test_only_a_pipeline_that_was_measured_to_be_as_fast_keeps_its_profile_over_new_versions() -> None:
    assert checked(Verdict.STALE, measured=True, only_software=True).fits_but_for_software
    assert not checked(Verdict.STALE, only_software=True).fits_but_for_software
    assert not checked(Verdict.DRIFTED, measured=True, only_software=True).fits_but_for_software
    assert not checked(Verdict.STALE, measured=True).fits_but_for_software
