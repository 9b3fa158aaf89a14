from __future__ import annotations

import importlib.util

import pytest
from replaying import samplers

from autopipe.errors import MissingExtraError
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.settings import Settings
from tests.fakes.surface import Surface
from tests.unit.search.conftest import session_of


def test_a_sampler_without_its_package_names_the_extra(space: Space) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed")
    with pytest.raises(MissingExtraError, match="torch"):
        samplers.named("gp").create(session_of(space, Surface()))


def search(space: Space, name: str, seed: int = 0, trials: int = 25) -> list[float]:
    """Return the true rates of what was tried, in order."""
    surface = Surface(seed=seed, quirks=5, cores=8, model_rate=60_000.0)
    settings = Settings(
        trials=trials,
        budget_seconds=None,
        seed=seed,
        sampler=samplers.named(name),
        patience=99,
        reached_share=2.0,
        blocks=(0, 0),
    )
    result = study.run(space, surface, surface.facts(), settings)
    assert {row.origin.detail for row in result.rows if row.origin.detail in samplers.SAMPLERS} == {name}
    return [surface.true_rate(row.config) for row in result.rows]


@pytest.mark.parametrize("name", ["surrogate", "random", "tpe", "tpe-group", "coordinate"])
def test_each_sampler_searches_and_the_same_seed_gives_the_same_search(space: Space, name: str) -> None:
    first = search(space, name, seed=3, trials=14)
    assert first == search(space, name, seed=3, trials=14)
    assert len(first) == 14
