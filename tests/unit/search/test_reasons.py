from __future__ import annotations

from autopipe.pipeline.space import Space
from autopipe.search.feasible import Candidate, trim
from autopipe.search.reasons import rule_of_thumb, seeds
from tests.fakes.surface import Surface

SURFACE = Surface()


def candidates(space: Space) -> tuple[Candidate, ...]:
    return trim(space, SURFACE.facts()).candidates


def true_rate(candidate: Candidate) -> float:
    return SURFACE.true_rate(candidate.config)


def test_the_rule_of_thumb_is_a_worker_a_core_on_the_files_as_they_are(space: Space) -> None:
    chosen = rule_of_thumb(candidates(space), cores=4).config
    assert (chosen.loader.kind, chosen.loader.worker_count(), chosen.finish) == ("threads", 4, "device")
    assert (chosen.storage, chosen.cache, chosen.device_prefetch) == ("files", "memory", 2)


def test_seeds_are_of_different_kinds_and_the_best_of_theirs(space: Space) -> None:
    chosen = seeds(candidates(space), 4, true_rate)
    kinds = [(seed.config.loader.kind, seed.config.cache) for _, seed in chosen]
    assert len(set(kinds)) == len(kinds) == 5
    assert [word for word, _ in chosen] == ["rule", *["predicted"] * 4]
    for (_, seed), kind in list(zip(chosen, kinds, strict=True))[1:]:
        same = [each for each in candidates(space) if (each.config.loader.kind, each.config.cache) == kind]
        assert true_rate(seed) == max(true_rate(each) for each in same)


def test_without_predictions_there_is_the_rule_alone(space: Space) -> None:
    assert [word for word, _ in seeds(candidates(space), 4, None)] == ["rule"]


def test_a_rule_of_thumb_that_is_predicted_to_be_far_off_is_not_tried(space: Space) -> None:
    def waiting(candidate: Candidate) -> float:
        return float(candidate.config.loader.worker_count() or 4)

    chosen = seeds(candidates(space), 4, waiting)
    assert {word for word, _ in chosen} == {"predicted"}
    assert chosen[0][1].config.loader.worker_count() == max(map(waiting, candidates(space)))
