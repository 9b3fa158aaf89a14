from __future__ import annotations

import math

import numpy as np
import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Limits
from autopipe.core.space import Space
from autopipe.loaders.wrapped import Wrapped
from autopipe.search.feasible import trim
from autopipe.search.surrogate import Array, Features, Surrogate, expected_gain
from tests.fakes.surface import Surface

SURFACE = Surface(quirks=1)


def learnt(space: Space, count: int, *, trend: float = 0.0) -> tuple[Features, Array, Array, Surrogate]:
    configs = [each.config for each in trim(space, SURFACE.facts(), Limits()).candidates]
    features = Features(configs, SURFACE.cores)
    points = features.points(configs)
    rates = np.array([SURFACE.true_rate(config) for config in configs])
    seen = np.random.default_rng(0).permutation(len(configs))[:count]
    known = points[seen]
    surrogate = Surrogate(features.distances(known, known), rates[seen], trend * np.log(rates[seen]), np.ones(count))
    mean, spread = surrogate.predict(features.distances(points, known), trend * np.log(rates))
    return features, np.log(rates) - mean, spread, surrogate


def test_alike_configurations_are_near_each_other(space: Space) -> None:
    configs = [each.config for each in trim(space, SURFACE.facts(), Limits()).candidates]
    features = Features(configs, 4)
    points = features.points(configs)
    apart = features.distances(points, points)
    assert apart.min() >= 0.0
    assert apart.max() <= 1.0
    assert not apart[range(len(points)), range(len(points))].any()
    np.testing.assert_array_equal(apart, apart.transpose(1, 0, 2))


@pytest.mark.parametrize("weight", [0.03, 0.3, 3.0, 30.0])
def test_covariances_stay_positive_whatever_settings_matter(space: Space, weight: float) -> None:
    configs = [each.config for each in trim(space, SURFACE.facts(), Limits()).candidates]
    features = Features(configs, 4)
    points = features.points(configs)
    apart = features.distances(points, points)
    for at in range(apart.shape[2]):
        assert np.linalg.eigvalsh(np.exp(-weight * apart[..., at])).min() > -1e-9


def test_more_trials_mean_smaller_errors(space: Space) -> None:
    errors = [float(np.abs(learnt(space, count)[1]).mean()) for count in (6, 12, 40)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.1


def test_a_right_prediction_is_trusted(space: Space) -> None:
    assert float(np.abs(learnt(space, 6, trend=1.0)[1]).max()) < 0.02


def test_errors_are_about_as_large_as_it_says(space: Space) -> None:
    _, errors, spread, _ = learnt(space, 20)
    assert 0.3 < float(np.sqrt(np.mean((errors / spread) ** 2))) < 2.5


def test_gain_is_expected_where_the_mean_or_the_doubt_is_large() -> None:
    gains = expected_gain(np.array([0.0, 1.0, 0.0, -5.0]), np.array([0.1, 0.1, 1.0, 0.1]), 0.0)
    assert gains[1] > gains[2] > gains[0] > gains[3]
    assert gains[0] == pytest.approx(0.1 / math.sqrt(2 * math.pi), rel=1e-4)
    assert gains[3] == pytest.approx(0.0, abs=1e-6)


def test_settings_may_be_any_numbers() -> None:
    values = [-1, 0, 1, 4, -3.5, 2.5]
    configs = [PipelineConfig(loader=Wrapped.model_validate({"prefetch": value})) for value in values]
    points = Features(configs, 4).points(configs)
    apart = Features(configs, 4).distances(points, points)
    assert np.isfinite(apart).all()
    assert (apart.sum(axis=2)[~np.eye(len(values), dtype=bool)] > 0).all()
