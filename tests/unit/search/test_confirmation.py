"""The confirmation run's decisions, on rates that are made up."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pytest

from autopipe.pipeline.config import Params, PipelineConfig, to_config
from autopipe.search import confirmation
from autopipe.search.confirmation import Finalist, Standing
from autopipe.search.surrogate import Features, Reading, Surrogate
from tests.unit.search.conftest import some

CONFIG = to_config({"loader": "threads", "threads.workers": 2})
KINDS: dict[str, Params] = {
    "a": {"loader": "threads", "threads.workers": 2},
    "b": {"loader": "tfdata"},
    "c": {"loader": "processes", "processes.workers": 2},
}
LOOKS = 6


def finalist(key: str, cost: float = 1.0, baseline: str | None = None) -> Finalist:
    return Finalist(key=key, config=CONFIG, cost=(cost,), baseline=baseline)


def blocks(**rates: list[float]) -> dict[str, dict[int, float]]:
    return {key: dict(enumerate(row)) for key, row in rates.items()}


Rates: TypeAlias = Mapping[str, Sequence[float]]


def belief(ran: confirmation.Blocks, trials: Rates | None = None, *, spread: float = 0.002) -> Surrogate:
    """Return what follows from the blocks and from trials; each reading knows itself to `spread`."""
    trials = trials or {}
    keys = sorted(ran.keys() | trials.keys())
    configs = {key: to_config(KINDS.get(key, {"loader": "keras", "keras.workers": 1})) for key in keys}
    readings = []
    for key in keys:
        readings += [(key, Reading(math.log(rate), spread**2, block)) for block, rate in ran.get(key, {}).items()]
        readings += [(key, Reading(math.log(rate), spread**2)) for rate in trials.get(key, [])]
    return Surrogate(Features(configs, cores=2), readings)


def verdict(
    entered: list[Finalist], ran: confirmation.Blocks, trials: Rates | None = None, *, spread: float = 0.002
) -> confirmation.Confirmation:
    found = some(confirmation.verdict(entered, ran, belief(ran, trials, spread=spread)))
    return found


@pytest.mark.parametrize("keys", ["abcd", "abcde"])
def test_each_has_each_place_and_follows_each_other_equally_often(keys: str) -> None:
    orders = [confirmation.block_order(list(keys), block, seed=7) for block in range(2 * len(keys))]
    places = Counter((key, order.index(key)) for order in orders for key in order)
    neighbours = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert all("".join(sorted(order)) == keys for order in orders)
    assert set(places.values()) == {2}
    assert set(neighbours.values()) == {2}
    assert len(neighbours) == len(keys) * (len(keys) - 1)


def test_the_order_of_a_block_hangs_on_the_seed_alone() -> None:
    keys = ["a", "b", "c", "d", "e"]
    assert confirmation.block_order(keys, 3, seed=7) == confirmation.block_order(keys[::-1], 3, seed=7)
    assert [confirmation.block_order(keys, 0, seed=seed) for seed in range(9)].count(
        confirmation.block_order(keys, 0, seed=0)
    ) < 5
    assert confirmation.block_order([], 0, seed=7) == []


def test_the_faster_wins_when_it_is_proved() -> None:
    found = verdict([finalist("a", cost=9.0), finalist("b")], blocks(a=[110, 88, 111, 99], b=[100, 80, 100, 90]))
    assert found.winner == "a"
    assert found.against["b"].faster
    assert found.tied == ("a",)


def test_on_a_tie_the_cheapest_wins() -> None:
    ran = blocks(a=[101, 99, 101, 100], b=[100, 100, 100, 99])
    found = verdict([finalist("a", cost=4.0), finalist("b", cost=2.0)], ran)
    assert found.winner == "b"
    assert found.tied == ("a", "b")


def test_too_noisy_to_tell_is_no_tie_when_the_gap_is_wide() -> None:
    ran = blocks(a=[200, 110, 190], b=[100, 90, 120])
    found = verdict([finalist("a", cost=9.0), finalist("b")], ran)
    assert found.winner == "a"
    assert not found.against["b"].faster


def test_what_is_a_tie_on_a_noisy_machine_is_a_difference_on_a_still_one() -> None:
    entered = [finalist("a", cost=9.0), finalist("b")]
    still = blocks(a=[100.8, 100.9, 100.7, 100.8, 100.8, 100.8], b=[100, 100.1, 99.9, 100, 100.1, 99.9])
    noisy = blocks(a=[101.6, 100.0, 101.5, 100.2, 101.4, 100.1], b=[99.4, 100.7, 99.3, 100.6, 99.5, 100.5])
    assert verdict(entered, still, spread=0.001).winner == "a"
    assert verdict(entered, noisy, spread=0.005).winner == "b"


def test_where_more_than_a_tie_may_be_given_away_the_cheaper_does_not_win() -> None:
    entered = [finalist("a", cost=9.0), finalist("b")]
    ran = blocks(a=[103.5, 98.0, 104.0, 99.5, 104.5, 99.5], b=[97.0, 103.0, 98.0, 102.5, 98.0, 101.5])
    assert verdict(entered, ran, spread=0.02).winner == "a"


def test_two_shaken_blocks_do_not_overturn_trials_that_agree() -> None:
    ran = blocks(a=[95.0, 92.0], b=[100.0, 104.0])
    trials = {"a": [140.0, 141.0, 139.0, 140.0, 140.0], "b": [100.0, 101.0, 99.0, 100.0, 100.0]}
    assert verdict([finalist("a"), finalist("b")], ran, trials, spread=0.15).winner == "a"


def test_configurations_that_are_alike_speak_for_each_other() -> None:
    ran = {"p": {0: 95.0, 1: 92.0}, "t": {0: 100.0, 1: 104.0}}

    configs, readings = {}, []

    def known(key: str, kind: str, workers: str, number: int, rate: float) -> None:
        configs[key] = to_config({"loader": kind, workers: number, "cache": "none" if number % 2 else "memory"})
        readings.append((key, Reading(math.log(rate), 0.03**2)))
        readings.extend((key, Reading(math.log(each), 0.15**2, block)) for block, each in ran.get(key, {}).items())

    known("p", "processes", "processes.workers", 2, 140.0)
    known("t", "tfdata", "tfdata.num_parallel_calls", 2, 100.0)
    for number in (1, 3, 4, 5):
        known(f"p{number}", "processes", "processes.workers", number, 139.0)
        known(f"t{number}", "tfdata", "tfdata.num_parallel_calls", number, 101.0)
    surrogate = Surrogate(Features(configs, cores=2), readings)
    found = some(confirmation.verdict([finalist("p"), finalist("t")], ran, surrogate))
    assert found.winner == "p"


def test_many_blocks_that_agree_overturn_a_lucky_trial() -> None:
    ran = blocks(a=[95.0, 95.2, 94.8, 95.1, 94.9, 95.0], b=[100.0, 100.1, 99.9, 100.0, 99.8, 100.2])
    assert verdict([finalist("a"), finalist("b")], ran, {"a": [120.0], "b": [100.0]}).winner == "b"


def test_one_that_differs_from_its_like_is_believed_as_it_was_measured_again_and_again() -> None:
    configs = {f"{n}": to_config({"loader": "threads", "threads.workers": n}) for n in (1, 2, 3, 4, 6, 8)}
    rates = {key: [100.0, 101.0, 100.0, 99.0] for key in configs} | {"3": [120.0, 121.0, 119.0, 120.0]}
    readings = [(key, Reading(math.log(rate), 0.01**2)) for key in configs for rate in rates[key]]
    found = Surrogate(Features(configs, cores=2), readings)
    assert found.value("3") == pytest.approx(120.0, rel=0.005)
    assert found.value("2") == pytest.approx(100.0, rel=0.005)


def cheaper_wins(seed: int, gap: float, noise: float) -> bool:
    """Whether, after three blocks on a machine that drifts, one that is cheaper and slower by `gap` wins."""
    rng = np.random.default_rng(seed)
    rates = {"a": 100.0, "b": 100.0 * (1 - gap), "c": 60.0}
    trials = {key: [rate * math.exp(rng.normal(0.0, noise))] for key, rate in rates.items()}
    ran: dict[str, dict[int, float]] = {key: {} for key in rates}
    for block in range(3):
        drift = rng.normal(0.0, 0.05)
        for key, rate in rates.items():
            ran[key][block] = rate * math.exp(drift + rng.normal(0.0, noise))
    entered = [finalist("a", cost=2.0), finalist("b", cost=1.0), finalist("c", cost=3.0, baseline="x")]
    return verdict(entered, ran, trials, spread=0.01).winner == "b"


def test_who_is_cheaper_wins_where_nothing_is_given_away_and_hardly_ever_where_it_is() -> None:
    assert sum(cheaper_wins(seed, gap=0.03, noise=0.03) for seed in range(40)) <= 4
    assert sum(cheaper_wins(seed, gap=0.002, noise=0.01) for seed in range(40)) >= 20


def wrongly_slower(seed: int, looks: int) -> bool:
    """Whether, of three that are equal, one is called slower in any look."""
    rng = np.random.default_rng(seed)
    entered = [finalist(key) for key in "abc"]
    trials = {key: [100.0 * math.exp(rng.normal(0.0, 0.03))] for key in "abc"}
    ran: dict[str, dict[int, float]] = {key: {} for key in "abc"}
    for block in range(looks):
        drift = rng.normal(0.0, 0.05)
        for rates in ran.values():
            rates[block] = 100.0 * math.exp(drift + rng.normal(0.0, 0.03))
        found = confirmation.standings(entered, ran, belief(ran, trials, spread=0.01), looks)
        if Standing.SLOWER in found.values():
            return True
    return False


def test_looking_after_each_block_calls_an_equal_one_slower_in_at_most_one_case_of_twenty() -> None:
    assert sum(wrongly_slower(seed, looks=4) for seed in range(40)) <= 2


def test_the_time_goes_where_the_decision_is() -> None:
    entered = [finalist("a"), finalist("b"), finalist("base", baseline="keras")]
    one = blocks(a=[100.0], b=[99.0], base=[10.0])
    trials = {"a": [101.0], "b": [99.5], "base": [10.1]}
    assert [each.key for each in confirmation.still_in(entered, one, belief(one, trials), LOOKS)] == ["a", "b"]


def test_where_all_is_decided_the_best_baseline_goes_on_for_its_interval() -> None:
    entered = [finalist("a"), finalist("base", baseline="keras"), finalist("c", baseline="tfdata")]
    ran = blocks(a=[100.0, 100.1], base=[10.0, 10.1], c=[50.0, 50.1])
    trials = {"a": [101.0], "base": [10.1], "c": [50.0]}
    believed = belief(ran, trials)
    assert Standing.OPEN not in confirmation.standings(entered, ran, believed, LOOKS).values()
    assert [each.key for each in confirmation.still_in(entered, ran, believed, LOOKS)] == ["a", "c"]


def test_the_leader_runs_alone_where_all_others_are_many_times_slower() -> None:
    """A block of a pipeline that makes ten images a second takes half a minute, and decides nothing."""
    entered = [finalist("a"), finalist("base", baseline="keras")]
    ran = blocks(a=[1000.0, 1001.0], base=[9.0, 9.1])
    believed = belief(ran, {"a": [1010.0], "base": [9.1]})
    assert [each.key for each in confirmation.still_in(entered, ran, believed, LOOKS)] == ["a"]


def test_who_proves_as_good_need_not_run_again() -> None:
    entered = [finalist("a"), finalist("b")]
    steady = [100.0, 100.1, 99.9, 100.0, 100.0, 100.0]
    ran = blocks(a=steady, b=steady)
    found = confirmation.standings(entered, ran, belief(ran, {"a": [100.0], "b": [100.0]}), LOOKS)
    assert list(found.values()) == [Standing.AS_GOOD]


def test_those_that_are_close_stay_open() -> None:
    ran = blocks(a=[100, 101, 99], b=[97, 101, 97], c=[50, 51, 50])
    believed = belief(ran, {"a": [100.0], "b": [98.0], "c": [50.0]})
    found = confirmation.standings([finalist("a"), finalist("b"), finalist("c")], ran, believed, LOOKS)
    assert found == {"b": Standing.OPEN, "c": Standing.SLOWER}


def test_nobody_wins_who_never_ran() -> None:
    ran = blocks(a=[100.0])
    assert confirmation.leader([finalist("a"), finalist("b")], ran, belief(ran, {"b": [200.0]})) == "a"
    assert confirmation.leader([finalist("b")], {}, belief(ran)) is None
    assert confirmation.verdict([finalist("b")], {}, belief(ran)) is None


def test_what_the_limits_rule_out_is_compared_with_and_never_wins() -> None:
    ruled_out = Finalist(key="base", config=CONFIG, cost=(0.0,), baseline="keras", may_win=False)
    found = verdict([finalist("a"), ruled_out], blocks(a=[100, 101, 99], base=[200, 201, 199]))
    assert found.winner == "a"
    assert found.against["base"].slower


def test_fewer_than_three_pairs_are_said_to_be_few_and_lend_their_noise_from_the_study() -> None:
    ran = blocks(a=[100.0], b=[50.0])
    comparison = some(confirmation.pairs(ran, belief(ran, {"a": [101.0, 99.0], "b": [50.0, 49.5]}), "a", "b"))
    assert comparison.few
    assert comparison.pairs == 1
    assert 1.0 < comparison.low < comparison.ratio < some(comparison.high) < 4.0
    three = blocks(a=[100, 101, 99], b=[50, 51, 50])
    enough = some(confirmation.pairs(three, belief(three), "a", "b"))
    assert not enough.few


def test_the_estimate_is_the_proofs_with_its_interval() -> None:
    ran = blocks(a=[99.0, 100.0, 101.0])
    estimate = confirmation.estimate(ran["a"], belief(ran))
    assert estimate.value == pytest.approx(100.0, abs=0.01)
    assert estimate.low < 99.0
    assert estimate.high > 101.0
    one = confirmation.estimate({0: 99.0}, belief(ran))
    assert one.low < 99.0 < one.high  # one block has no spread of its own, and yet is no certainty


def test_the_share_of_the_ceiling_is_of_the_same_block_and_never_more_than_all() -> None:
    ran, believed = {0: 900.0, 1: 450.0, 2: 810.0}, belief(blocks(a=[100.0]))
    found = some(confirmation.share(ran, {0: 1000.0, 1: 500.0, 2: 900.0, 3: 2000.0}, believed))
    assert found.value == pytest.approx(0.9)
    assert found.high < 0.95  # though the machine halved in between
    above = some(confirmation.share({0: 1100.0}, {0: 1000.0}, believed))
    assert above.value == above.high == 1.0
    assert confirmation.share(ran, {7: 1000.0}, believed) is None


def config(workers: int, **rest: str) -> PipelineConfig:
    return to_config({"loader": "threads", "threads.workers": workers, **rest})


def test_cheap_means_no_conversion_then_few_workers_then_little_memory_then_familiar() -> None:
    def cost(chosen: PipelineConfig, memory: float = 0.0, *, baseline: bool = False) -> tuple[float, ...]:
        return confirmation.cost(chosen, cores=4, memory_bytes=memory, baseline=baseline)

    assert cost(config(8, storage="tfrecord")) < cost(config(1).model_copy(update={"devices": 2}))
    assert cost(config(8)) < cost(config(1, storage="tfrecord"))
    assert cost(config(1), memory=9e9) < cost(config(2))
    assert cost(config(2), memory=1e9) < cost(config(2), memory=2e9)
    assert cost(config(2), baseline=True) < cost(config(2))
