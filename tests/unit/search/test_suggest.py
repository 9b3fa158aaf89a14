from __future__ import annotations

import optuna

from autopipe.pipeline.config import Params
from autopipe.pipeline.space import Space
from autopipe.search import record
from tests.fakes.spaces import holds
from tests.unit.search.conftest import space_of


def test_a_trial_is_asked_only_for_what_counts(space: Space) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial = study.ask()
        params = record.suggest(space, trial)
        assert holds(space, params)
        assert trial.params == params


def test_of_a_configuration_outside_the_space_what_fits_is_kept(space: Space) -> None:
    knobs: Params = {"loader": "threads", "threads.workers": 99, "threads.queue_size": 8}
    outside: Params = {**knobs, "finish": "host", "keep": "array"}
    assert record.fitting(space, outside) == {"loader": "threads", "threads.queue_size": 8, "finish": "host"}
    places = space_of({"loader": ["threads"], "keep": ["none", "memory:100%"]})
    assert record.fitting(places, {"loader": "threads", "keep": "memory"})["keep"] == "memory:100%"
    without = space.only("loader", ["threads"])
    assert record.fitting(without, {"loader": "keras", "keras.workers": 1, "keep": "none"}) == {"keep": "none"}
