"""The confirmation run's decisions, on rates that are made up."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest

from autopipe.measure.stats import FEWEST_PAIRS, Pooled, Reading
from autopipe.pipeline.loaders.workers import Threads
from autopipe.search import confirmation
from autopipe.search.record import Point
from autopipe.search.space import to_config
from autopipe.values import Estimate
from tests.unit.search.conftest import some

CONFIG = to_config({"loader": "threads", "threads.workers": 2})
LOOKS = 6


def finalist(key: str, cost: float = 1.0, baseline: str | None = None, *, feasible: bool = True) -> Point:
    """Return a finalist whose rates are in blocks that are made up."""
    known: dict[str, Any] = {"estimate": Estimate.of_one(1.0), "value": 1.0, "measurements": ()}
    return Point(key=key, config=CONFIG, feasible=feasible, cost=(cost,), baseline=baseline, **known)


def blocks(**rates: list[float]) -> dict[str, dict[int, float]]:
    return {key: dict(enumerate(row)) for key, row in rates.items()}


Rates: TypeAlias = Mapping[str, Sequence[float]]


def belief(ran: confirmation.Blocks, trials: Rates | None = None, *, spread: float = 0.002) -> Pooled:
    """Return what follows from the blocks and from trials; each reading knows itself to `spread`."""
    trials = trials or {}
    keys = sorted(ran.keys() | trials.keys())
    readings = []
    for key in keys:
        readings += [(key, Reading(math.log(rate), spread**2, block)) for block, rate in ran.get(key, {}).items()]
        readings += [(key, Reading(math.log(rate), spread**2)) for rate in trials.get(key, [])]
    return Pooled(readings)


def verdict(
    entered: list[Point], ran: confirmation.Blocks, trials: Rates | None = None, *, spread: float = 0.002
) -> confirmation.Confirmation:
    return some(confirmation.verdict(entered, ran, belief(ran, trials, spread=spread)))


@pytest.mark.parametrize("keys", ["abcd", "abcde"])
def test_each_has_each_place_and_follows_each_other_equally_often(keys: str) -> None:
    orders = [confirmation.block_order(list(keys), block, seed=7) for block in range(2 * len(keys))]
    places = Counter((key, order.index(key)) for order in orders for key in order)
    neighbours = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert all("".join(sorted(order)) == keys for order in orders)
    assert set(places.values()) == set(neighbours.values()) == {2}
    assert len(neighbours) == len(keys) * (len(keys) - 1)
    assert confirmation.block_order([*reversed(keys)], 3, seed=7) == orders[3]  # which hangs on the seed alone
    assert len({tuple(confirmation.block_order(list(keys), 0, seed=seed)) for seed in range(9)}) > 4
    assert confirmation.block_order([], 0, seed=7) == []


Pair: TypeAlias = tuple[list[float], list[float]]
WAVERING: Pair = ([101.6, 100.0, 101.5, 100.2, 101.4, 100.1], [99.4, 100.7, 99.3, 100.6, 99.5, 100.5])
STEADY: Pair = [100.8, 100.9, 100.7, 100.8, 100.8, 100.8], [100, 100.1, 99.9, 100, 100.1, 99.9]
APART: Pair = ([103.5, 98.0, 104.0, 99.5, 104.5, 99.5], [97.0, 103.0, 98.0, 102.5, 98.0, 101.5])
AGREEING: Pair = [95.0, 95.2, 94.8, 95.1, 94.9, 95.0], [100.0, 100.1, 99.9, 100.0, 99.8, 100.2]
TRIALS: Pair = ([140.0, 141.0, 139.0, 140.0, 140.0], [100.0, 101.0, 99.0, 100.0, 100.0])


def test_the_faster_wins_when_it_is_proved_and_the_cheaper_on_a_tie() -> None:
    cases: list[tuple[Pair, Pair | None, float, str, bool]] = [
        (([110, 88, 111, 99], [100, 80, 100, 90]), None, 0.002, "a", True),
        (([101, 99, 101, 100], [100, 100, 100, 99]), None, 0.002, "b", False),
        (([200, 110, 190], [100, 90, 120]), None, 0.002, "a", False),  # too noisy is no tie if the gap is wide
        (STEADY, None, 0.001, "a", True),  # a difference on a still machine
        (WAVERING, None, 0.005, "b", False),  # is a tie on a noisy one
        (APART, None, 0.02, "a", False),  # more than a tie may be given away
        (([95.0, 92.0], [100.0, 104.0]), TRIALS, 0.15, "a", True),  # two shaken blocks, and trials that agree
        (AGREEING, ([120.0], [100.0]), 0.002, "b", True),  # many blocks that agree, and a lucky trial
    ]
    for ran, trials, spread, winner, proved in cases:
        known = None if trials is None else dict(zip("ab", trials, strict=True))
        found = verdict([finalist("a", cost=9.0), finalist("b")], blocks(a=ran[0], b=ran[1]), known, spread=spread)
        assert found.winner == winner
        (against,) = found.against.values()
        assert against.faster is proved


@pytest.mark.parametrize(("gain", "winner"), [(1.04, "one"), (1.5, "many")])
def test_several_steps_a_call_win_only_if_they_are_seen_to_be_faster(gain: float, winner: str) -> None:
    many = replace(finalist("many", cost=9.0), config=CONFIG.model_copy(update={"steps_per_execution": 32}))
    rates = [100.0, 111.0, 95.0, 104.0]
    ran = blocks(many=[gain * rate for rate in rates], one=rates[::-1])
    assert verdict([many, finalist("one")], ran, spread=0.05).winner == winner
    other = replace(finalist("other"), config=CONFIG.model_copy(update={"keep": "memory"}))
    assert verdict([many, other], {"many": ran["many"], "other": ran["one"]}, spread=0.05).winner == "many"


EQUAL = [100.0, 100.1, 99.9, 100.0, 100.0, 100.0]
VARYING = [100.0, 112.0, 91.0]
SWAYING = {"a": [100.0, 100.1, 99.9, 100.0, 100.0], "b": [82, 97, 76, 98, 80]}
STEADIER = {key: [at, 1.001 * at, 0.999 * at, at, at] for key, at in {"c": 91.0, "d": 90.0, "e": 89.0}.items()}


def test_the_time_goes_to_the_winner_and_open_rivals() -> None:
    cases: list[tuple[Any, str, str]] = [
        ({"a": [100], "b": [99], "c": [10]}, "c", "ac"),  # a proof takes three pairs with the fastest baseline,
        ({"a": [100, 101, 99], "b": [99, 102, 98], "c": [10, 10.1, 9.9]}, "c", ""),
        ({"a": [100, 100.1], "b": [10, 10.1], "c": [50, 50.1]}, "bc", "ac"),
        ({"a": [1000, 1001], "b": [9, 9.1]}, "b", "ab"),  # however far behind it is,
        ({"a": [1000, 1001, 999], "b": [9, 9.1, 9]}, "b", ""),
        ({"a": [100, 101, 99], "b": [97, 101, 97], "c": [50, 51, 50]}, "", "ab"),  # or without one with the next best
        (SWAYING | STEADIER, "b", "ab"),  # what sways is not held to be as steady as the others are
        ({"a": EQUAL, "b": EQUAL}, "", ""),  # that they are equal is proved as well
        ({"a": VARYING, "b": [80, 80, 78]}, "b", "ab"),
        ({"a": VARYING, "b": VARYING[::-1]}, "b", ""),  # or given up, if as many looks more would not tell, either
    ]
    for ran, baselines, left in cases:
        entered = [finalist(key, baseline=key if key in baselines else None) for key in ran]
        there = blocks(**ran)
        believed = belief(there, {key: rates[:1] for key, rates in ran.items()})
        assert confirmation.unproved(entered, there, believed, LOOKS) == set(left)


def test_what_never_ran_or_the_limits_rule_out_never_wins() -> None:
    ruled_out = finalist("base", cost=0.0, baseline="keras", feasible=False)
    found = verdict([finalist("a"), ruled_out], blocks(a=[100, 101, 99], base=[200, 201, 199]))
    assert (found.winner, found.against["base"].decided, found.against["base"].faster) == ("a", True, False)
    ran = blocks(a=[100.0])
    assert confirmation.leader([finalist("a"), finalist("b")], ran, belief(ran, {"b": [200.0]})) == "a"
    assert confirmation.leader([finalist("b")], {}, belief(ran)) is None
    assert confirmation.verdict([finalist("b")], {}, belief(ran)) is None


def test_fewer_than_three_pairs_are_said_to_be_few_and_lend_their_noise_from_the_study() -> None:
    ran = blocks(a=[100.0], b=[50.0])
    comparison = some(confirmation.pairs(ran, belief(ran, {"a": [101.0, 99.0], "b": [50.0, 49.5]}), "a", "b"))
    assert (comparison.few, comparison.pairs) == (True, 1)
    assert 1.0 < comparison.low < comparison.ratio < some(comparison.high) < 4.0
    three = blocks(a=[100, 101, 99], b=[50, 51, 50])
    assert not some(confirmation.pairs(three, belief(three), "a", "b")).few


def test_the_estimate_and_the_share_of_the_ceiling_are_the_proofs_and_no_share_is_more_than_all() -> None:
    ran = blocks(a=[99.0, 100.0, 101.0])
    estimate, one = (confirmation.estimate(rates, belief(ran)) for rates in (ran["a"].values(), [99.0]))
    assert estimate.value == pytest.approx(100.0, abs=0.01)
    assert estimate.low < 99.0 < 101.0 < estimate.high
    assert one.low < 99.0 < one.high  # one block has no spread of its own, and yet is no certainty
    ours, believed = {0: 900.0, 1: 450.0, 2: 810.0}, belief(blocks(a=[100.0]))
    found = some(confirmation.share(ours, {0: 1000.0, 1: 500.0, 2: 900.0, 3: 2000.0}, believed))
    assert found.value == pytest.approx(0.9)
    assert found.high < 0.95  # though the machine halved in between
    above = some(confirmation.share({0: 1100.0}, {0: 1000.0}, believed))
    assert above.value == above.high == 1.0
    assert confirmation.share(ours, {7: 1000.0}, believed) is None


def test_cheap_means_no_conversion_then_few_workers_then_little_memory_then_familiar() -> None:
    def cost(workers: int, memory: float = 0.0, *, baseline: bool = False, **rest: object) -> tuple[float, ...]:
        config = CONFIG.model_copy(update={"loader": Threads(workers=workers), **rest})
        return confirmation.cost(config, cores=4, memory_bytes=memory, baseline=baseline)

    assert cost(8) < cost(8, keep="tfrecord") < cost(1, devices=2)
    assert cost(8) < cost(1, keep="tfrecord")
    assert cost(1, 9e9) < cost(2) < cost(2, 1e9) < cost(2, 2e9) < cost(2, 9e9) < cost(2, steps_per_execution=8)
    assert cost(2, 9e9, steps_per_execution=8) < cost(3)
    assert cost(2, baseline=True) < cost(2)


def drawn(
    seed: int, rates: Mapping[str, float], noise: float, count: int
) -> tuple[dict[str, dict[int, float]], dict[str, list[float]]]:
    """Draw a trial of each, and `count` blocks on a machine that drifts."""
    rng = np.random.default_rng(seed)
    trials = {key: [rate * math.exp(rng.normal(0.0, noise))] for key, rate in rates.items()}
    ran: dict[str, dict[int, float]] = {key: {} for key in rates}
    for block in range(count):
        drift = rng.normal(0.0, 0.05)
        for key, rate in rates.items():
            ran[key][block] = rate * math.exp(drift + rng.normal(0.0, noise))
    return ran, trials


def cheaper_wins(seed: int, gap: float, noise: float) -> bool:
    ran, trials = drawn(seed, {"a": 100.0, "b": 100.0 * (1 - gap), "c": 60.0}, noise, 3)
    entered = [finalist("a", cost=2.0), finalist("b", cost=1.0), finalist("c", cost=3.0, baseline="x")]
    return verdict(entered, ran, trials, spread=0.01).winner == "b"


def test_who_is_cheaper_wins_where_nothing_is_given_away_and_hardly_ever_where_it_is() -> None:
    assert sum(cheaper_wins(seed, gap=0.03, noise=0.03) for seed in range(60)) <= 6
    assert sum(cheaper_wins(seed, gap=0.002, noise=0.01) for seed in range(20)) >= 10


def wrongly_decided(seed: int, looks: int) -> bool:
    """Whether, of two that are equal, one is called faster as the looks end."""
    whole, trials = drawn(seed, dict.fromkeys("ab", 100.0), 0.03, looks)
    entered = [finalist("a"), finalist("b", baseline="b")]
    for count in range(FEWEST_PAIRS, looks + 1):
        ran = {key: {block: rates[block] for block in range(count)} for key, rates in whole.items()}
        believed = belief(ran, trials, spread=0.01)
        if not confirmation.unproved(entered, ran, believed, looks):
            break
    good = confirmation.as_good(believed, *sorted("ab", key=believed.value, reverse=True))
    return some(confirmation.pairs(ran, believed, "a", "b")).decided and not good


def test_looking_after_each_block_calls_an_equal_one_faster_in_at_most_one_case_of_twenty() -> None:
    assert sum(wrongly_decided(seed, looks=6) for seed in range(20)) <= 1
