from __future__ import annotations

import pytest

from autopipe.measure import costs
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.space import Space
from autopipe.search.study import rule_of_thumb, seeds
from tests.fakes.surface import Surface
from tests.unit.search.conftest import session_of


def test_the_rule_of_thumb_is_a_worker_a_core_on_the_files_as_they_are(space: Space) -> None:
    chosen = rule_of_thumb(session_of(space, Surface()).trimmed.candidates, cores=4).config
    assert (chosen.loader.kind, chosen.loader.worker_count(), chosen.finish) == ("threads", 4, "device")
    assert (chosen.storage, chosen.cache, chosen.device_prefetch) == ("files", "memory", 2)


def test_seeds_are_of_different_kinds_and_the_best_of_theirs(space: Space) -> None:
    session = session_of(space, Surface(model_rate=60_000.0))
    chosen = seeds(session)
    kinds = [(seed.config.loader.kind, seed.config.cache) for _, seed in chosen]
    assert len(set(kinds)) == len(kinds) >= 4
    assert {word for word, _ in chosen} == {"rule", "predicted"}
    for (word, seed), kind in zip(chosen, kinds, strict=True):
        same = [each.config for each in session.ranked() if (each.config.loader.kind, each.config.cache) == kind]
        assert word == "rule" or session.promise(seed.config) >= 0.97 * max(map(session.promise, same))


def test_without_predictions_there_is_the_rule_alone(space: Space) -> None:
    assert [word for word, _ in seeds(session_of(space, Surface(), ceilings=False))] == ["rule"]


def test_a_rule_of_thumb_that_is_predicted_to_be_far_off_is_not_tried(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(config: PipelineConfig, known: costs.Costs) -> float:
        return float(config.loader.worker_count() or 4)

    monkeypatch.setattr(costs, "predict", waiting)
    session = session_of(space, Surface())
    chosen = seeds(session)
    assert {word for word, _ in chosen} == {"predicted"}
    assert chosen[0][1].config.loader.worker_count() == max(
        each.config.loader.worker_count() or 4 for each in session.trimmed.candidates
    )
