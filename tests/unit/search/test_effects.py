"""What each setting is worth, on a surface whose true rates are known."""

from __future__ import annotations

import math

import pytest

from autopipe.pipeline.config import from_config, to_config
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.conclusion import Searched, only_change
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface

SURFACE = Surface(model_rate=60_000.0, noise=0.01, seed=5)


@pytest.fixture(scope="module")
def _space() -> Space:
    from autopipe.search import library
    from tests.unit.search.conftest import SPACE

    return library.parse(SPACE, {"cores": 4, "gpus": 0})


@pytest.fixture(scope="module")
def ended(_space: Space) -> Searched:
    surface = Surface(model_rate=60_000.0, noise=0.01, seed=5)
    settings = Settings(clock=surface.clock, trials=60, patience=60, budget_seconds=None)
    return study.run(_space, surface, surface.facts(), settings)


def test_measured_effects_hold_the_true_ratio_nearly_always(ended: Searched) -> None:
    assert ended.best_config is not None
    own = dict(from_config(ended.best_config))
    held = told = 0
    for each in ended.result.effects:
        if not each.measured or each.setting == "loader":  # of another loader it is not said which
            continue
        other = to_config(
            {**own, each.setting: each.other, **({"cache_fraction": 1.0} if each.setting == "cache" else {})}
        )
        truth = SURFACE.true_rate(ended.best_config) / SURFACE.true_rate(other)
        told += 1
        held += each.low * 0.97 <= truth <= (each.high or math.inf) * 1.03
    assert told >= 4
    assert held >= told - 1


def test_the_largest_effect_comes_first_and_each_is_of_one_setting(ended: Searched) -> None:
    ratios = [abs(1 - each.ratio) for each in ended.result.effects]
    assert ratios[0] >= ratios[-1]
    assert ended.best_config is not None
    own = from_config(ended.best_config)
    assert all(own[each.setting] == each.value != each.other for each in ended.result.effects)
    assert "cache" in {each.setting for each in ended.result.effects}


@pytest.mark.parametrize(
    ("other", "change"),
    [
        ({"loader": "a", "a.workers": 2, "cache": "memory", "cache_fraction": 1.0}, ("cache", "memory")),
        ({"loader": "b", "b.queue": 1, "cache": "none"}, ("loader", "b")),
        ({"loader": "a", "a.workers": 4, "cache": "none"}, ("a.workers", 4)),
        ({"loader": "a", "a.workers": 4, "cache": "memory"}, None),
        ({"loader": "a", "a.workers": 2, "cache": "none"}, None),
    ],
)
def test_what_depends_on_another_setting_is_no_difference_of_its_own(
    other: dict[str, object], change: tuple[str, object] | None
) -> None:
    assert only_change({"loader": "a", "a.workers": 2, "cache": "none"}, other) == change  # type: ignore[arg-type]
