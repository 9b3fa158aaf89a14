"""Which configurations are tried first: what reasoning suggests before anything has been learnt. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autopipe.core.config import STORAGES
from autopipe.search.feasible import Candidate
from autopipe.search.origin import AskedBy, Asker

_TRUSTED = 0.7  # of the best prediction: below it the rule of thumb is not tried
_HOPELESS = 0.25  # of the best prediction: below it nothing is
_MOST_PREDICTED, _MOST_CHEAPER = 4, 3  # that are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A configuration to try early, and on whose advice."""

    candidate: Candidate
    origin: AskedBy


def rule_of_thumb(candidates: Sequence[Candidate], cores: int) -> Candidate:
    """Return what someone who knows the trade would try: no conversion, a worker a core, little to send, a cache."""

    def distance(candidate: Candidate) -> tuple[object, ...]:
        config = candidate.config
        workers = config.loader.worker_count()
        return (
            STORAGES[config.storage].converts,
            config.loader.rank,
            config.finish != "device",
            config.cache == "none",
            config.devices,
            abs((workers or cores) - cores),
            config.channels != "last",
            -config.device_prefetch,
            candidate.key,
        )

    return min(candidates, key=distance)


def seeds(candidates: Sequence[Candidate], cores: int, predict: Callable[[Candidate], float] | None) -> list[Seed]:
    """Return what to try first, best guess first: the rule of thumb, and the best predictions of different kinds.

    Predictions are close together near the top, and wrong in the same way for like configurations: so no two seeds
    share loader, cache and storage. What is predicted to be far from the best is not tried for a start, the rule of
    thumb included: it is wrong where reads or ops wait.
    """
    rule = Seed(candidate=rule_of_thumb(candidates, cores), origin=AskedBy(Asker.SEED, "rule"))
    if predict is None:
        return [rule]
    ranked = sorted(candidates, key=lambda each: (-predict(each), each.key))
    highest = predict(ranked[0])
    chosen = [rule] if predict(rule.candidate) >= _TRUSTED * highest else []
    kinds = {_kind(each.candidate) for each in chosen}
    for candidate in ranked:
        if len(chosen) > _MOST_PREDICTED or predict(candidate) < _HOPELESS * highest:
            break
        if _kind(candidate) not in kinds:
            kinds.add(_kind(candidate))
            chosen.append(Seed(candidate=candidate, origin=AskedBy(Asker.SEED, "predicted")))
    return chosen


def cheaper(
    best: Candidate,
    candidates: Sequence[Candidate],
    cost: Callable[[Candidate], tuple[float, ...]],
    predict: Callable[[Candidate], float],
    *,
    enough: float,
) -> list[Candidate]:
    """Return what takes less than the best and may be as fast, the most like it first: the first at a ceiling is not
    the cheapest there.

    Args:
        best: what reached the ceiling.
        candidates: all that may be tried.
        cost: what one takes, compared in order.
        predict: its predicted value.
        enough: the least value that counts as being there.
    """

    def unlike(candidate: Candidate) -> int:
        return len(best.params.items() ^ candidate.params.items())

    less = [each for each in candidates if cost(each) < cost(best) and predict(each) >= enough]
    return sorted(less, key=lambda each: (unlike(each), cost(each), each.key))[:_MOST_CHEAPER]


def _kind(candidate: Candidate) -> tuple[str, str, str]:
    return candidate.config.loader.kind, candidate.config.cache, candidate.config.storage
