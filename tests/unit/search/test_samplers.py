from __future__ import annotations

import math

import optuna

from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.feasible import trim
from autopipe.search.settings import Settings
from autopipe.search.surrogate import Features, Reading, SamplerContext, Surrogate, SurrogateSampler, distributions
from tests.fakes.surface import Surface


class Search:
    """A search whose trials are true rates."""

    def __init__(self, space: Space) -> None:
        surface = Surface()
        self.candidates = {each.key: each.config for each in trim(space, surface.facts()).candidates}
        self.worth: dict[str, float | None] = {}
        self._rate = surface.true_rate
        self._features = Features(self.candidates, 4, self._trend)
        context = SamplerContext(
            space=space,
            candidates=sorted(trim(space, surface.facts()).candidates, key=lambda each: -self._trend(each.config)),
            seed=0,
            trend=self._trend,
            worth=lambda: self.worth,
            surrogate=self._surrogate,
        )
        self.sampler = SurrogateSampler(context)

    def run(self) -> list[float]:
        """Try all candidates, and return their rates."""
        while (chosen := self.sampler.choose(self.worth)) is not None:
            assert chosen.key not in self.worth
            self.worth[chosen.key] = self._rate(chosen.config)
        return [rate for rate in self.worth.values() if rate is not None]

    def _trend(self, config: PipelineConfig) -> float:
        return math.log(self._rate(config))

    def _surrogate(self) -> Surrogate:
        readings = [(key, Reading(math.log(rate), 0.0)) for key, rate in self.worth.items() if rate is not None]
        return Surrogate(self._features, readings)


def test_the_surrogate_tries_nothing_twice_and_comes_to_an_end(space: Space) -> None:
    search = Search(space.only("loader", ["processes"]))
    assert len(search.run()) == len(search.candidates)


def test_what_is_predicted_far_below_the_best_measured_comes_last(space: Space) -> None:
    rates = Search(space.only("loader", ["threads", "tfdata"]).only("threads.queue_size", [8])).run()
    reachable = [rate >= 0.3 * max(rates) for rate in rates]
    assert not all(reachable)
    assert reachable == sorted(reachable, reverse=True)


def test_the_surrogate_keeps_away_from_what_is_like_a_failure(space: Space) -> None:
    surface = Surface(fails=lambda config: config.loader.kind == "processes", quirks=2)
    settings = Settings(trials=20, budget_seconds=None, patience=99, reached_share=2.0, blocks=(0, 0))
    ended = study.run(space, surface, surface.facts(), settings)
    assert 1 <= ended.result.failed <= 5
    assert ended.best_config is not None


def test_a_foreign_study_can_use_the_sampler_as_any_other(space: Space) -> None:
    mine = optuna.create_study(direction="maximize", sampler=Search(space).sampler)
    trial = mine.ask(distributions(space))
    assert space["loader"].values.count(trial.params["loader"]) == 1
