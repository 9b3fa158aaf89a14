from __future__ import annotations

import math

import pytest

from autopipe.core import stats
from autopipe.core.params import Params, to_config
from autopipe.core.stats import Comparison, Interval
from autopipe.reports import trust
from autopipe.search import library, study
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface


@pytest.mark.parametrize(
    ("low", "high", "decided"), [(1.1, 2.0, True), (0.5, 0.9, True), (0.9, 1.1, False), (0.0, math.inf, False)]
)
def test_an_interval_that_holds_one_decides_nothing(low: float, high: float, decided: bool) -> None:
    gain = Comparison(ratio=1.0, interval=Interval(low, high), pairs=3)
    assert (gain.faster or gain.slower) == decided


def test_as_many_more_rounds_as_it_says_decide_if_they_vary_alike() -> None:
    first, second = [1.10, 1.04, 1.16], [1.0, 1.03, 1.0]
    so_far = stats.compare_pairs(first, second)
    more = trust.rounds_to_decide(so_far)
    assert not so_far.faster
    assert not so_far.slower
    assert more is not None
    alike = (3 + more + 2) // 3
    assert stats.compare_pairs(first * alike, second * alike).faster


@pytest.mark.parametrize(
    "gain",
    [
        Comparison(ratio=1.0001, interval=Interval(0.9, 1.11), pairs=3),
        Comparison(ratio=1.09, interval=Interval(0.86, 1.39), pairs=3),
        Comparison(ratio=1.3, interval=Interval(0.99, 1.7), pairs=6),
        Comparison(ratio=2.0, interval=Interval(0.0, math.inf), pairs=1),
        Comparison(ratio=1.02, interval=Interval(0.97, 1.07), pairs=2),
    ],
    ids=[
        "too close",
        "more than a tune has",
        "all that a tune has",
        "one round",
        "an interval that is not of two pairs",
    ],
)
def test_what_cannot_be_decided_soon_is_not_promised(gain: Comparison) -> None:
    assert trust.rounds_to_decide(gain) is None


def test_what_a_setting_brought_is_its_rate_over_that_of_a_trial_without_it() -> None:
    space = library.parse(
        """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {choices: [4], when: {loader: threads}}
  threads.queue_size: {choices: [8], when: {loader: threads}}
  cache: [none, memory]
  finish: [device]
  device_prefetch: [2]
""",
        {"cores": 4, "gpus": 0},
    )
    surface = Surface(model_rate=60_000.0, noise=0.001)
    result = study.run(space, surface, surface.facts(), Settings(clock=surface.clock, budget_seconds=None))
    common: Params = {"loader": "threads", "threads.workers": 4, "threads.queue_size": 8, "device_prefetch": 2}
    with_cache, without = (to_config({**common, "cache": cache}) for cache in ("memory", "none"))
    times = surface.true_rate(with_cache) / surface.true_rate(without)
    assert trust.brought(result) == f"cache none -> memory {times:.1f}x"
