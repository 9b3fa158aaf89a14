from __future__ import annotations

import math

import pytest

from autopipe.search.pooled import Pooled, Reading


def readings(rates: dict[str, list[float]], variance: float = 1e-6, *, blocks: bool = False) -> Pooled:
    """Return what follows from so many rates of each configuration, the first of each in one block, and so on."""
    return Pooled(
        [
            (key, Reading(math.log(rate), variance, at if blocks else None))
            for key, row in rates.items()
            for at, rate in enumerate(row)
        ]
    )


def test_a_shaky_measurement_counts_for_less_than_a_steady_one() -> None:
    pooled = Pooled(
        [
            ("a", Reading(math.log(100.0), 0.01**2)),
            ("a", Reading(math.log(150.0), 0.5**2)),
            ("b", Reading(math.log(90.0), 1e-4)),
        ]
    )
    assert pooled.value("a") == pytest.approx(100.0, rel=0.02)
    assert pooled.ahead("a", "b")[1] > 0.0


def test_repeats_make_surer() -> None:
    doubts = [readings({"a": [100.0] * count, "b": [90.0] * count}, 0.05**2).ahead("a", "b")[1] for count in (2, 4, 8)]
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[2] < doubts[0]


def test_what_a_block_is_off_is_left_out_of_the_difference() -> None:
    rates = {"a": [100.0, 50.0, 75.0, 130.0], "b": [90.0, 45.0, 67.5, 117.0]}
    together = readings(rates, blocks=True)
    ahead, doubt = together.ahead("a", "b")
    assert math.exp(ahead) == pytest.approx(100 / 90, rel=0.01)
    assert doubt < 0.01
    assert together.drift > together.noise
    assert readings(rates).ahead("a", "b")[1] > 5 * doubt


def test_one_that_ran_in_some_blocks_only_is_compared_by_those() -> None:
    rates = {"a": [100.0, 50.0, 75.0, 130.0], "b": [90.0, 45.0]}
    assert math.exp(readings(rates, blocks=True).ahead("a", "b")[0]) == pytest.approx(100 / 90, rel=0.01)


def test_the_noise_is_what_repeats_show_and_a_usual_one_before_there_are_any() -> None:
    assert readings({"a": [100.0], "b": [200.0]}).noise == pytest.approx(0.03, rel=0.1)
    assert readings({"a": [100.0, 100.1, 99.9], "b": [200.0, 200.1, 199.8]}).noise < 0.006
    assert readings({"a": [100.0, 130.0, 90.0], "b": [200.0, 170.0, 240.0]}).noise > 0.1
    assert readings({"a": [100.0], "b": [200.0]}).freedom == 1
