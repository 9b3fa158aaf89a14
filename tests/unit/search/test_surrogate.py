from __future__ import annotations

import math

import numpy as np
import optuna
import pytest

from autopipe.pipeline.config import Params, PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.pipeline.space import Space
from autopipe.search import suggest
from autopipe.search.feasible import candidates
from autopipe.search.surrogate import Array, Features, Reading, Surrogate
from tests.fakes.spaces import holds
from tests.fakes.surface import Surface
from tests.unit.search.conftest import space_of

SURFACE = Surface(quirks=1)


def configs_of(space: Space) -> dict[str, PipelineConfig]:
    return candidates(space, SURFACE.facts())


def all_of(space: Space) -> Array:
    """Return how far apart the configurations of a space are, setting by setting."""
    features = Features(configs_of(space), 4)
    rows = features.rows(features.configs)
    return features.distances(rows, rows)


def test_alike_configurations_are_near_and_covariances_positive_whatever_settings_matter(space: Space) -> None:
    apart = all_of(space)
    assert apart.min() >= 0.0
    assert apart.max() <= 1.0
    assert not apart[range(len(apart)), range(len(apart))].any()
    np.testing.assert_array_equal(apart, apart.transpose(1, 0, 2))
    for weight in (0.03, 0.3, 3.0, 30.0):
        for at in range(apart.shape[2]):
            assert np.linalg.eigvalsh(np.exp(-weight * apart[..., at])).min() > -1e-9


def test_settings_may_be_any_numbers() -> None:
    values = [-1, 0, 1, 4, -3.5, 2.5]
    configs = {str(value): PipelineConfig(loader=Wrapped.model_validate({"prefetch": value})) for value in values}
    features = Features(configs, 4)
    apart = features.distances(features.rows(configs), features.rows(configs))
    assert np.isfinite(apart).all()
    assert (apart.sum(axis=2)[~np.eye(len(values), dtype=bool)] > 0).all()


def one_setting(*readings: tuple[str, Reading]) -> Surrogate:
    """Return a surrogate of two configurations that differ in one setting."""
    configs = {key: PipelineConfig(loader=Threads(workers=2), keep=key) for key in ("none", "memory")}
    return Surrogate(Features(configs, 4), readings)


def test_a_shaky_measurement_counts_for_less_than_a_steady_one() -> None:
    surrogate = one_setting(
        ("none", Reading(math.log(100.0), 0.01**2)),
        ("none", Reading(math.log(150.0), 0.5**2)),
        ("memory", Reading(math.log(90.0), 1e-4)),
    )
    assert surrogate.value("none") == pytest.approx(100.0, rel=0.02)
    assert surrogate.ahead("none", "memory")[1] > 0.0


def test_repeats_make_surer() -> None:
    def doubt(count: int) -> float:
        rates = {"none": 100.0, "memory": 90.0}
        several = [(key, Reading(math.log(rate), 0.05**2)) for key, rate in rates.items() for _ in range(count)]
        return one_setting(*several).ahead("none", "memory")[1]

    assert doubt(8) < doubt(4) < doubt(2)


def test_what_a_block_is_off_is_left_out_of_the_difference() -> None:
    blocks = [(100.0, 90.0), (50.0, 45.0), (75.0, 67.5), (130.0, 117.0)]
    keys = ("none", "memory")
    together = [
        (key, Reading(math.log(rate), 1e-6, block))
        for block, rates in enumerate(blocks)
        for key, rate in zip(keys, rates, strict=True)
    ]
    alone = [(key, reading._replace(block=None)) for key, reading in together]
    ahead, doubt = one_setting(*together).ahead(*keys)
    assert math.exp(ahead) == pytest.approx(100 / 90, rel=0.01)
    assert doubt < 0.01
    assert one_setting(*alone).ahead(*keys)[1] > 5 * doubt


def test_a_trial_is_asked_only_for_what_counts(space: Space) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial = study.ask()
        params = suggest.suggest(space, trial)
        assert holds(space, params)
        assert trial.params == params


def test_of_a_configuration_outside_the_space_what_fits_is_kept(space: Space) -> None:
    knobs: Params = {"loader": "threads", "threads.workers": 99, "threads.queue_size": 8}
    outside: Params = {**knobs, "finish": "host", "keep": "array"}
    assert suggest.fitting(space, outside) == {"loader": "threads", "threads.queue_size": 8, "finish": "host"}
    places = space_of({"loader": ["threads"], "keep": ["none", "memory:100%"]})
    assert suggest.fitting(places, {"loader": "threads", "keep": "memory"})["keep"] == "memory:100%"
    without = space.only("loader", ["threads"])
    assert suggest.fitting(without, {"loader": "keras", "keras.workers": 1, "keep": "none"}) == {"keep": "none"}
