from __future__ import annotations

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution

from autopipe.pipeline.config import Params
from autopipe.pipeline.space import Space
from autopipe.search import surrogate
from tests.fakes.spaces import holds


def test_a_range_is_drawn_as_whole_numbers_and_choices_as_they_are(space: Space) -> None:
    drawn_from = surrogate.distributions(space)
    assert drawn_from["threads.workers"] == IntDistribution(1, 8, log=True)
    assert drawn_from["processes.workers"] == IntDistribution(1, 5)
    assert drawn_from["tfdata.num_parallel_calls"] == CategoricalDistribution(("auto", 4))


def test_a_trial_is_asked_only_for_what_counts(space: Space) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial = study.ask()
        params = surrogate.suggest(space, trial)
        assert holds(space, params)
        assert trial.params == params


def test_of_a_configuration_outside_the_space_what_fits_is_kept(space: Space) -> None:
    outside: Params = {
        "loader": "threads",
        "threads.workers": 99,
        "threads.queue_size": 8,
        "cache": "none",
        "storage": "array",
    }
    assert surrogate.fitting(space, outside) == {"loader": "threads", "threads.queue_size": 8, "cache": "none"}
    without = space.only("loader", ["threads"])
    assert surrogate.fitting(without, {"loader": "keras", "keras.workers": 1, "cache": "none"}) == {"cache": "none"}
