from __future__ import annotations

import importlib.util

import optuna
import pytest

from autopipe.core.facts import Limits
from autopipe.core.space import Space
from autopipe.errors import ConfigError, MissingExtraError
from autopipe.search import samplers, study
from autopipe.search.feasible import trim
from autopipe.search.samplers import Outlook
from autopipe.search.settings import Settings
from autopipe.search.suggest import distributions
from autopipe.search.surface import Surface


def outlook(space: Space, seed: int = 0) -> Outlook:
    surface = Surface()
    candidates = trim(space, surface.facts(), Limits()).candidates
    return Outlook(space=space, candidates=candidates, cores=4, predict=surface.true_rate, seed=seed)


def test_an_unknown_sampler_gets_the_near_one(space: Space) -> None:
    with pytest.raises(ConfigError, match="Did you mean `surrogate`"):
        samplers.create("surogate", outlook(space))


def test_a_sampler_without_its_package_names_the_extra(space: Space) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed")
    with pytest.raises(MissingExtraError, match="torch"):
        samplers.create("gp", outlook(space))


def search(space: Space, name: str, seed: int = 0, trials: int = 25) -> list[float]:
    """Return the true rates of what was tried, in order."""
    surface = Surface(seed=seed, quirks=5, cores=8, model_rate=60_000.0)
    settings = Settings(
        trials=trials, budget_seconds=None, seed=seed, sampler=name, patience=99, reached_share=2.0, blocks=(0, 0)
    )
    result = study.run(space, surface, surface.facts(), settings)
    return [surface.true_rate(row.config) for row in result.trials]


@pytest.mark.parametrize("name", ["surrogate", "random", "tpe", "tpe-group", "coordinate"])
def test_each_sampler_searches_and_the_same_seed_gives_the_same_search(space: Space, name: str) -> None:
    first = search(space, name, seed=3, trials=14)
    assert first == search(space, name, seed=3, trials=14)
    assert len(first) == 14


def test_the_surrogate_tries_nothing_twice_and_comes_to_an_end(space: Space) -> None:
    chooser = samplers.create("surrogate", outlook(space.only("loader", ["processes"])))
    assert isinstance(chooser, samplers.ListSampler)
    measured: dict[str, float] = {}
    while (chosen := chooser.choose(measured, set())) is not None:
        assert chosen.key not in measured
        measured[chosen.key] = Surface().true_rate(chosen.config)
    assert len(measured) == len(trim(space.only("loader", ["processes"]), Surface().facts(), Limits()).candidates)


def test_what_is_predicted_far_below_the_best_measured_comes_last(space: Space) -> None:
    threads = space.only("loader", ["threads", "keras"]).only("threads.queue_size", [8])
    rates = {each.key: Surface().true_rate(each.config) for each in outlook(threads).candidates}
    chooser = samplers.create("surrogate", outlook(threads))
    assert isinstance(chooser, samplers.ListSampler)
    measured: dict[str, float] = {}
    while (chosen := chooser.choose(measured, set())) is not None:
        measured[chosen.key] = rates[chosen.key]
    reachable = [rate >= 0.3 * max(rates.values()) for rate in measured.values()]
    assert not all(reachable)
    assert reachable == sorted(reachable, reverse=True)


def test_the_surrogate_keeps_away_from_what_is_like_a_failure(space: Space) -> None:
    surface = Surface(fails=lambda config: config.loader.kind == "processes", quirks=2)
    settings = Settings(trials=20, budget_seconds=None, patience=99, reached_share=2.0, blocks=(0, 0))
    result = study.run(space, surface, surface.facts(), settings)
    assert 1 <= len(result.failed) <= 5
    assert result.best_config is not None


def test_a_foreign_study_can_use_the_sampler_as_any_other(space: Space) -> None:
    mine = optuna.create_study(direction="maximize", sampler=samplers.create("surrogate", outlook(space)))
    trial = mine.ask(distributions(space))
    assert space["loader"].values.count(trial.params["loader"]) == 1
