from __future__ import annotations

import optuna

from autopipe.core.space import Space
from autopipe.search import study
from autopipe.search.feasible import trim
from autopipe.search.samplers import SamplerContext, SurrogateSampler
from autopipe.search.settings import Settings
from autopipe.search.suggest import distributions
from tests.fakes.surface import Surface


def context(space: Space, seed: int = 0) -> SamplerContext:
    surface = Surface()
    candidates = trim(space, surface.facts()).candidates
    return SamplerContext(space=space, candidates=candidates, cores=4, predict=surface.true_rate, seed=seed)


def test_the_surrogate_tries_nothing_twice_and_comes_to_an_end(space: Space) -> None:
    chooser = SurrogateSampler(context(space.only("loader", ["processes"])))
    measured: dict[str, float] = {}
    while (chosen := chooser.choose(measured, set())) is not None:
        assert chosen.key not in measured
        measured[chosen.key] = Surface().true_rate(chosen.config)
    assert len(measured) == len(trim(space.only("loader", ["processes"]), Surface().facts()).candidates)


def test_what_is_predicted_far_below_the_best_measured_comes_last(space: Space) -> None:
    threads = space.only("loader", ["threads", "keras"]).only("threads.queue_size", [8])
    rates = {each.key: Surface().true_rate(each.config) for each in context(threads).candidates}
    chooser = SurrogateSampler(context(threads))
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
    mine = optuna.create_study(direction="maximize", sampler=SurrogateSampler(context(space)))
    trial = mine.ask(distributions(space))
    assert space["loader"].values.count(trial.params["loader"]) == 1
