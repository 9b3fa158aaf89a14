from __future__ import annotations

import math

import numpy as np
import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.space import Space
from autopipe.loaders.wrapped import Wrapped
from autopipe.search.feasible import trim
from autopipe.search.surrogate import Array, Features, Reading, Surrogate, expected_gain
from tests.fakes.surface import Surface

SURFACE = Surface(quirks=1)


def learnt(space: Space, count: int, *, trend: float = 0.0) -> tuple[Features, Array, Array, Surrogate]:
    configs = [each.config for each in trim(space, SURFACE.facts()).candidates]
    features = Features(configs, SURFACE.cores)
    points = features.points
    rates = np.array([SURFACE.true_rate(config) for config in configs])
    seen = np.random.default_rng(0).permutation(len(configs))[:count]
    known = points[seen]
    readings = [(at, Reading(math.log(rate), 0.0)) for at, rate in enumerate(rates[seen])]
    surrogate = Surrogate(features.distances(known, known), trend * np.log(rates[seen]), readings)
    mean, spread = surrogate.predict(features.distances(points, known), trend * np.log(rates))
    return features, np.log(rates) - mean, spread, surrogate


def test_alike_configurations_are_near_each_other(space: Space) -> None:
    configs = [each.config for each in trim(space, SURFACE.facts()).candidates]
    features = Features(configs, 4)
    points = features.points
    apart = features.distances(points, points)
    assert apart.min() >= 0.0
    assert apart.max() <= 1.0
    assert not apart[range(len(points)), range(len(points))].any()
    np.testing.assert_array_equal(apart, apart.transpose(1, 0, 2))


@pytest.mark.parametrize("weight", [0.03, 0.3, 3.0, 30.0])
def test_covariances_stay_positive_whatever_settings_matter(space: Space, weight: float) -> None:
    configs = [each.config for each in trim(space, SURFACE.facts()).candidates]
    features = Features(configs, 4)
    points = features.points
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
    features = Features(configs, 4)
    apart = features.distances(features.points, features.points)
    assert np.isfinite(apart).all()
    assert (apart.sum(axis=2)[~np.eye(len(values), dtype=bool)] > 0).all()


def one_setting(*readings: tuple[int, Reading]) -> Surrogate:
    """Two configurations that differ in one setting."""
    apart = np.array([[[0.0], [1.0]], [[1.0], [0.0]]])
    return Surrogate(apart, np.zeros(2), readings)


def test_a_shaky_measurement_counts_for_less_than_a_steady_one() -> None:
    mean, covariance = one_setting(
        (0, Reading(math.log(100.0), 0.01**2)),
        (0, Reading(math.log(150.0), 0.5**2)),
        (1, Reading(math.log(90.0), 1e-4)),
    ).known()
    assert math.exp(mean[0]) == pytest.approx(100.0, rel=0.02)
    assert covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1] > 0.0


def test_repeats_make_surer() -> None:
    def doubt(count: int) -> float:
        several = [(at, Reading(math.log(rate), 0.05**2)) for at, rate in ((0, 100.0), (1, 90.0)) for _ in range(count)]
        _, covariance = one_setting(*several).known()
        return float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])

    assert doubt(8) < doubt(4) < doubt(2)


def test_what_a_block_is_off_is_left_out_of_the_difference() -> None:
    blocks = [(0, 100.0, 90.0), (1, 50.0, 45.0), (2, 75.0, 67.5), (3, 130.0, 117.0)]
    together = [(at, Reading(math.log(rate), 1e-6, block)) for block, *rates in blocks for at, rate in enumerate(rates)]
    alone = [(at, Reading(reading.log_value, reading.variance)) for at, reading in together]
    mean, covariance = one_setting(*together).known()
    _, without = one_setting(*alone).known()
    assert math.exp(mean[0] - mean[1]) == pytest.approx(100 / 90, rel=0.01)

    def doubt(of: Array) -> float:
        return math.sqrt(float(of[0, 0] + of[1, 1] - 2 * of[0, 1]))

    assert doubt(covariance) < 0.01
    assert doubt(without) > 5 * doubt(covariance)
