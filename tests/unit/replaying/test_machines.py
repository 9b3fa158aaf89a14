"""What a warm start is worth, on a surface: exact and seeded."""

from __future__ import annotations

import pytest
from replaying import machines, search
from replaying.search import Comparison
from replaying.table import Table

from autopipe.pipeline.space import Space

TRIALS = 16
AS_GOOD = 0.02  # behind the best, at most, as a confirmation run has it


def test_another_machine_is_the_same_for_a_seed_and_like_the_first_one(recorded: Table) -> None:
    rates, first, second = recorded.rates(), *(machines.other_machine(recorded, seed=seed) for seed in (1, 2))
    assert first.rates() == machines.other_machine(recorded, seed=1).rates() != second.rates()
    factors = [there / rates[key] for key, there in first.rates().items()]
    assert max(factors) / min(factors) > 1.2
    assert all(0.2 < factor < 5.0 for factor in factors)


def test_no_spread_leaves_every_setting_as_it_is(recorded: Table) -> None:
    there = machines.other_machine(recorded, seed=1, spread=0.0).rates()
    assert all(there[key] == pytest.approx(rate, rel=0.1) for key, rate in recorded.rates().items())


def test_what_is_known_after_a_search_is_its_best_in_order(recorded: Table, space: Space) -> None:
    trimmed = search.recorded(recorded, space)
    known = machines.known_after(recorded, trimmed, seed=0, trials=TRIALS, count=3)
    rates = recorded.rates()
    best = max(rates[key] for key in trimmed.candidates)
    assert len(known) == 3
    assert rates[known[0].key()] >= 0.95 * best


def test_a_retune_needs_at_most_half_the_trials_of_a_tune_from_nothing(recorded: Table, space: Space) -> None:
    cold, warm = machines.compare(recorded, space, machines=4, trials=TRIALS, count=5)
    matched = machines.trials_to_match(cold, warm)
    assert matched is not None
    assert matched <= TRIALS // 2
    assert warm.worst[TRIALS // 2 - 1] <= AS_GOOD
    assert warm.worst[TRIALS // 2 + 1] == cold.worst[TRIALS // 2] == 0.0  # two trials later


def test_a_retune_that_never_comes_as_near_matches_nowhere() -> None:
    cold = Comparison(sampler="cold", median=(0.5, 0.1), worst=(0.5, 0.1))
    warm = Comparison(sampler="warm", median=(0.3, 0.2), worst=(0.3, 0.2))
    assert machines.trials_to_match(cold, warm) is None
    assert machines.trials_to_match(warm, cold) == 2


def test_from_one_recorded_machine_to_another_a_retune_begins_nearer_to_the_best(recorded: Table, space: Space) -> None:
    there = machines.other_machine(recorded, seed=3)
    cold, warm = machines.between(recorded, there, space, seeds=1, trials=8, count=3)
    assert (cold.sampler, warm.sampler) == ("tune from nothing", "retune")
    assert warm.median[5] <= cold.median[5]
