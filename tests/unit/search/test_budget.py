"""The rules that end a search, and the trials that have a reason."""

from __future__ import annotations

import math

import pytest

from autopipe.measure import costs
from autopipe.measure.facts import Ceiling
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.space import Space
from autopipe.search.budget import ceiling_stop, needed_share, no_gain_stop
from autopipe.search.result import Reason
from autopipe.search.study import rule_of_thumb, seeds
from autopipe.values import Estimate
from tests.fakes.surface import Surface
from tests.unit.search.conftest import session_of, some


def rate(value: float, width: float = 0.02) -> Estimate:
    return Estimate(value=value, low=value * (1 - width), high=value * (1 + width))


CEILING = Ceiling(model_images_per_second=rate(1000.0), model_core_seconds_per_image=0.0)


def test_a_model_of_eight_images_a_second_keeps_its_digits() -> None:
    slow = CEILING.model_copy(update={"model_images_per_second": rate(8.45)})
    stop = some(ceiling_stop(rate(8.32), slow, share=0.97, what="The best"))
    assert stop.message.startswith("The best reaches 8.32 images/s, 98% of the 8.45 that the model takes when")


def test_at_the_ceiling_there_is_nothing_to_gain() -> None:
    stop = some(ceiling_stop(rate(971.0), CEILING, share=0.97, what="The baseline keras"))
    assert stop.message.startswith("The baseline keras reaches 971 images/s, 97% of the 1,000")


def test_more_than_the_ceiling_is_said_to_be_all_of_it() -> None:
    stop = some(ceiling_stop(rate(1150.0), CEILING, share=0.97, what="it"))
    assert "1,150 images/s, 100% of the 1,000" in stop.message


def test_what_has_to_be_reached_follows_from_what_can_be_told_apart() -> None:
    still = CEILING.model_copy(update={"model_images_per_second": rate(1000.0, 0.001)})
    assert needed_share(rate(900.0, 0.001), still, 0.97) == 0.97
    assert needed_share(rate(900.0, 0.5), still, 0.97) == pytest.approx(0.95)
    assert 0.95 < needed_share(rate(900.0, 0.028), still, 0.97) < 0.97
    assert needed_share(rate(900.0, 0.5), still, math.inf) == math.inf  # a search that is never to end for it


def test_below_the_ceiling_or_without_one_the_search_goes_on() -> None:
    assert ceiling_stop(rate(960.0), CEILING, share=0.97, what="it") is None


def test_no_gain_means_none_beyond_the_interval_of_the_best_before() -> None:
    flat: list[Estimate | None] = [rate(100.0), *[rate(101.0)] * 4]
    stop = some(no_gain_stop(flat, patience=4))
    assert stop.reason is Reason.NO_GAIN
    assert no_gain_stop(flat, patience=5) is None
    assert no_gain_stop([*flat[:-1], rate(103.0)], patience=4) is None


def test_a_best_that_was_read_in_one_window_rules_out_no_gain() -> None:
    """Steps of eight seconds: the best rose from 100 to 195 images/s, which once was taken for none."""
    rose: list[Estimate | None] = [Estimate.of_one(100.0), *[Estimate.of_one(195.0)] * 4]
    assert no_gain_stop(rose, patience=4) is None
    assert no_gain_stop([Estimate.of_one(100.0)] * 5, patience=4) is None
    assert no_gain_stop([rate(100.0), *[Estimate.of_one(101.0)] * 4], patience=4) is not None


def test_failures_alone_are_not_taken_for_a_plateau() -> None:
    assert no_gain_stop([None] * 9, patience=4) is None


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
