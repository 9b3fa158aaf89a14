from __future__ import annotations

import itertools

import numpy as np
import pytest

from autopipe.core import randomness

MANY = np.arange(20_000)
EXPECTED_ORDER = [7, 3, 5, 6, 1, 2, 4, 0]
EXPECTED_UNIFORMS = [0.5618980249980841, 0.962312026162305, 0.45051450458465236]


def test_the_numbers_of_a_release_are_those_of_the_next() -> None:
    """A changed generator would change every training silently: these are written down."""
    np.testing.assert_array_equal(randomness.epoch_order(0, 0, 8), EXPECTED_ORDER)
    np.testing.assert_allclose(randomness.uniforms(1, 2, np.array([3]), 4, 3)[0], EXPECTED_UNIFORMS, rtol=1e-15)


@pytest.mark.parametrize("changed", ["seed", "epoch", "stream", "sample"])
def test_every_key_makes_other_numbers(changed: str) -> None:
    keys = {"seed": 1, "epoch": 2, "stream": 3, "sample": 0}
    other = {**keys, changed: keys[changed] + 1}

    def drawn(key: dict[str, int]) -> np.ndarray:
        return randomness.uniforms(key["seed"], key["epoch"], MANY + key["sample"], key["stream"], 2)

    assert not np.any(drawn(keys) == drawn(other))


def test_numbers_are_uniform_and_unrelated() -> None:
    columns = [
        randomness.uniforms(seed, epoch, MANY, stream, 2)[:, draw]
        for seed, epoch, stream, draw in itertools.product((0, 1), (0, 1), (0, 1), (0, 1))
    ]
    for column in columns:
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        assert np.sum((counts - 1000) ** 2 / 1000) < 60  # chi-square, 19 degrees of freedom
        assert abs(np.corrcoef(column[:-1], column[1:])[0, 1]) < 0.03
    correlations = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlations).max() < 0.03


def test_each_epoch_has_an_order_of_its_own() -> None:
    assert len({tuple(randomness.epoch_order(0, epoch, 50)) for epoch in range(20)}) == 20
