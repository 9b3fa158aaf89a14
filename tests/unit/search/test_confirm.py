"""The proof's decisions, on rates that are made up."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.params import to_config
from autopipe.search import confirm
from autopipe.search.confirm import Contender

CONFIG = to_config({"loader": "threads", "threads.workers": 2})


def contender(key: str, cost: float = 1.0, baseline: str | None = None) -> Contender:
    return Contender(key=key, config=CONFIG, cost=(cost,), baseline=baseline)


def blocks(**rates: list[float]) -> dict[str, dict[int, float]]:
    return {key: dict(enumerate(row)) for key, row in rates.items()}


@pytest.mark.parametrize("keys", ["abcd", "abcde"])
def test_each_has_each_place_and_follows_each_other_equally_often(keys: str) -> None:
    orders = [confirm.block_order(list(keys), block, seed=7) for block in range(2 * len(keys))]
    places = Counter((key, order.index(key)) for order in orders for key in order)
    neighbours = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert all("".join(sorted(order)) == keys for order in orders)
    assert set(places.values()) == {2}
    assert set(neighbours.values()) == {2}
    assert len(neighbours) == len(keys) * (len(keys) - 1)


def test_the_order_of_a_block_hangs_on_the_seed_alone() -> None:
    keys = ["a", "b", "c", "d", "e"]
    assert confirm.block_order(keys, 3, seed=7) == confirm.block_order(keys[::-1], 3, seed=7)
    assert [confirm.block_order(keys, 0, seed=seed) for seed in range(9)].count(
        confirm.block_order(keys, 0, seed=0)
    ) < 5
    assert confirm.block_order([], 0, seed=7) == []


def test_the_faster_wins_when_it_is_proved() -> None:
    verdict = confirm.verdict(
        [contender("a", cost=9.0), contender("b")], blocks(a=[110, 88, 111, 99], b=[100, 80, 100, 90])
    )
    assert verdict is not None
    assert verdict.winner == "a"
    assert verdict.against["b"].faster
    assert verdict.tied == ("a",)


def test_on_a_tie_the_cheapest_wins() -> None:
    verdict = confirm.verdict(
        [contender("a", cost=4.0), contender("b", cost=2.0)], blocks(a=[101, 99, 101, 100], b=[100, 100, 100, 99])
    )
    assert verdict is not None
    assert verdict.winner == "b"
    assert verdict.tied == ("a", "b")


def test_too_noisy_to_tell_is_no_tie_when_the_gap_is_wide() -> None:
    verdict = confirm.verdict([contender("a", cost=9.0), contender("b")], blocks(a=[150, 90, 140], b=[100, 80, 120]))
    assert verdict is not None
    assert verdict.winner == "a"
    assert not verdict.against["b"].faster


def test_an_imagined_gain_is_declared_in_at_most_one_case_of_twenty() -> None:
    rng = np.random.default_rng(0)
    declared = 0
    for _ in range(400):
        drift = rng.normal(100, 8, 5)
        rates = blocks(a=(drift * rng.normal(1, 0.02, 5)).tolist(), b=(drift * rng.normal(1, 0.02, 5)).tolist())
        comparison = confirm.pairs(rates, "a", "b")
        assert comparison is not None
        declared += comparison.faster
    assert declared / 400 <= 0.05


def test_who_is_beaten_leaves_the_race_and_a_baseline_after_three_pairs() -> None:
    entered = [contender("a"), contender("b"), contender("base", baseline="keras")]
    two = blocks(a=[100, 101], b=[50, 50.6], base=[10, 10.1])
    three = blocks(a=[100, 101, 100], b=[50, 50.6, 50], base=[10, 10.1, 10])
    assert [each.key for each in confirm.still_in(entered, two)] == ["a", "base"]
    assert [each.key for each in confirm.still_in(entered, three)] == ["a"]


def test_decided_when_all_are_beaten_or_as_good() -> None:
    entered = [contender("a"), contender("b"), contender("c")]
    assert confirm.decided(entered, blocks(a=[100, 101, 99], b=[50, 51, 50], c=[99.9, 100.9, 98.9]))
    assert not confirm.decided(entered, blocks(a=[100, 101, 99], b=[50, 51, 50], c=[99, 92, 103]))
    assert not confirm.decided(entered, blocks(a=[100], b=[50]))


def test_the_leader_is_among_those_that_ran_the_most_blocks() -> None:
    entered = [contender("a"), contender("b")]
    assert confirm.leader(entered, blocks(a=[100, 100], b=[200])) == "a"
    assert confirm.leader(entered, {}) is None
    assert confirm.verdict([contender("a")], {}) is None


def test_what_the_limits_rule_out_is_compared_with_and_never_wins() -> None:
    ruled_out = Contender(key="base", config=CONFIG, cost=(0.0,), baseline="keras", may_win=False)
    verdict = confirm.verdict([contender("a"), ruled_out], blocks(a=[100, 101, 99], base=[200, 201, 199]))
    assert verdict is not None
    assert verdict.winner == "a"
    assert verdict.against["base"].slower


def test_the_estimate_is_the_proofs_with_its_interval() -> None:
    estimate = confirm.estimate({0: 99.0, 1: 100.0, 2: 101.0})
    assert estimate.value == pytest.approx(100.0, abs=0.01)
    assert estimate.low < 99.0
    assert estimate.high > 101.0
    assert confirm.estimate({0: 99.0}).high == pytest.approx(99.0)


def config(workers: int, **rest: str) -> PipelineConfig:
    return to_config({"loader": "threads", "threads.workers": workers, **rest})


def test_cheap_means_no_conversion_then_few_workers_then_little_memory_then_familiar() -> None:
    def cost(chosen: PipelineConfig, memory: float = 0.0, *, baseline: bool = False) -> tuple[float, ...]:
        return confirm.cost(chosen, cores=4, memory_bytes=memory, baseline=baseline)

    assert cost(config(8)) < cost(config(1, storage="tfrecord"))
    assert cost(config(1), memory=9e9) < cost(config(2))
    assert cost(config(2), memory=1e9) < cost(config(2), memory=2e9)
    assert cost(config(2), baseline=True) < cost(config(2))
