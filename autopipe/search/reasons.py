"""The trials of a search that have a reason of their own, in order; the sampler chooses the others.

Baselines first, then configurations known from elsewhere, then predictions, then converted forms as advice. Each
yielded trial runs before the next is requested, so it may depend on the earlier ones. Runs nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from autopipe.measure import costs
from autopipe.pipeline.config import STORAGES, PipelineConfig, from_config
from autopipe.search import confirmation, feasible
from autopipe.search.feasible import Candidate
from autopipe.search.measurer import Baseline
from autopipe.search.objective import AskedBy, Asker
from autopipe.search.session import Session

_BASELINES_SHARE = 1 / 4  # of the time that is left, for baselines beyond the second
_TRUSTED = 0.7  # of the best prediction: below it the rule of thumb is not tried
_HOPELESS = 0.25  # of the best prediction: below it nothing is
_MOST_PREDICTED, _MOST_CHEAPER = 4, 3  # that are tried
_WORTH_TELLING = 1.15  # times the best that needs no conversion: less is not worth a trial of one


class Asked(NamedTuple):
    """A trial and its reason."""

    config: PipelineConfig
    origin: AskedBy


def baselines(session: Session, wanted: Sequence[Baseline]) -> Iterator[Asked]:
    """Yield each baseline that can run; if time is short only the required ones, or the first few."""
    in_turn = sorted((each for each in wanted if each.unable is None), key=lambda each: not each.required)
    began, most = session.seconds(), _BASELINES_SHARE * session.seconds_left()
    for number, baseline in enumerate(in_turn if session.settings.seeding else ()):
        late = session.is_short() or (number > 1 and session.seconds() - began > most)
        if number == 0 or baseline.required or not late:  # an untried configuration is worth more than a comparison
            yield Asked(baseline.config, AskedBy(Asker.BASELINE, baseline.name))


def on_more_devices(session: Session, wanted: Sequence[Baseline]) -> list[Baseline]:
    """Return the baselines on as many devices as the best has; none if that is one.

    Together with those on one device they separate the gain of the loader from that of the devices.
    """
    best = session.best()
    if best is None or best.config.devices == 1 or not session.settings.seeding:
        return []
    count, kind = best.config.devices, "virtual " if session.facts.workload.virtual_devices else ""
    return [
        Baseline(name=f"{each.name}, {count} {kind}devices", config=each.config.model_copy(update={"devices": count}))
        for each in wanted
        if each.config.devices == 1 and each.unable is None
    ]


def early(session: Session, *, simplest: bool) -> Iterator[Asked]:
    """Yield the trials before the sampler: the simplest, if asked for, known ones, predictions and advice."""
    if simplest and session.can_predict and session.settings.seeding:
        yield from _simplest(session)
    for config in session.settings.known:
        # Predictions are worth more than old bests with more workers or reads at a time than are useful here.
        if feasible.why_not(config, replace(session.facts, pointless={})) is None:
            yield Asked(config, AskedBy(Asker.KNOWN))
    if session.settings.seeding:
        yield from _predicted(session)
        yield from _advice(session)


def _simplest(session: Session) -> Iterator[Asked]:
    """Yield the candidate with the lowest cost of those that are predicted to be at the ceiling."""
    enough = session.settings.ceiling_share * session.highest_ceiling().model_images_per_second.value
    there = [each for each in session.trimmed.candidates if (session.predicted(each.config) or 0.0) >= enough]
    if there:
        least = min(there, key=lambda each: (_planned_cost(session, each.config), each.key))
        yield Asked(least.config, AskedBy(Asker.SEED, "simplest"))


def _predicted(session: Session) -> Iterator[Asked]:
    """Yield the rule of thumb and the best predictions, as long as they can win.

    They are skipped if a configuration from elsewhere runs here, which is better evidence; the sampler uses predictions
    anyway. Replayed retunes are nearer to the best without these seeds (benchmarks/RESULTS.md).
    """
    known = {config.key() for config in session.settings.known}
    if any(row.key in known and row.value is not None for row in session.search_rows()):
        return
    for word, candidate in seeds(session):
        if not session.can_predict or _can_win(session, candidate.config):
            yield Asked(candidate.config, AskedBy(Asker.SEED, word))


def _can_win(session: Session, config: PipelineConfig) -> bool:
    """True if it would be the best with the largest underestimate of any prediction so far; else a trial is wasted.

    So accurate predictions exclude much, and others little.
    """
    best = session.best()
    if best is None:
        return True
    farthest = max(point.value / session.promise(point.config) for point in session.points().values())
    return farthest * session.promise(config) >= best.value


def _advice(session: Session) -> Iterator[Asked]:
    """Yield the best configuration of each converted form that should be faster, though the user has to ask for it.

    The result shows its cost and pay-back. Nothing is converted if the user has refused that.
    """
    if session.settings.convert is False or session.facts.limits.convert or not session.can_predict:
        return
    could = feasible.convertible(session.trimmed.space, session.facts)
    by_storage: dict[str, PipelineConfig] = {}
    for candidate in sorted(could, key=lambda each: (-session.promise(each.config), each.key)):
        by_storage.setdefault(candidate.config.storage, candidate.config)
    for config in by_storage.values():
        best = session.best()
        if best is None or session.promise(config) >= _WORTH_TELLING * best.value:
            yield Asked(config, AskedBy(Asker.ADVICE))


def cheaper(session: Session) -> Iterator[Asked]:
    """Yield candidates that cost less than the best and may be as fast, the most similar first.

    The first configuration at the ceiling is seldom the cheapest there.
    """
    best = session.best()
    if best is None or not session.can_predict or not session.settings.seeding:
        return
    params, cost, enough = from_config(best.config), _planned_cost(session, best.config), session.settings.ceiling_share

    def unlike(candidate: Candidate) -> tuple[object, ...]:
        changes = len(params.items() ^ candidate.params.items())
        return changes, _planned_cost(session, candidate.config), candidate.key

    less = (each for each in session.trimmed.candidates if _planned_cost(session, each.config) < cost)
    near = [each for each in less if session.promise(each.config) >= enough * best.value]
    for candidate in sorted(near, key=unlike)[:_MOST_CHEAPER]:
        yield Asked(candidate.config, AskedBy(Asker.SEED, "cheaper"))


def _planned_cost(session: Session, config: PipelineConfig) -> tuple[float, ...]:
    """Return the cost of a configuration, as far as it is known before a trial."""
    planned = costs.memory_bytes(config, session.facts.workload)
    return confirmation.cost(config, cores=session.facts.cores, memory_bytes=float(planned), baseline=False)


def rule_of_thumb(candidates: Sequence[Candidate], cores: int) -> Candidate:
    """Return an expert's first choice: no conversion, a worker a core, little to send, a cache."""

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


def seeds(session: Session) -> list[tuple[str, Candidate]]:
    """Return the best guesses, the best first, each as `rule` or `predicted`: different kinds of configurations.

    Predictions are close together near the top, and wrong in the same way for similar configurations: so no two seeds
    share loader, cache and storage. No seed is predicted to be far from the best, the rule of thumb included: it is
    wrong if reads or ops wait.
    """
    rule = rule_of_thumb(session.trimmed.candidates, session.facts.cores)
    if not session.can_predict:
        return [("rule", rule)]
    ranked = session.ranked()
    highest = max(session.promise(each.config) for each in ranked)
    chosen = [("rule", rule)] if session.promise(rule.config) >= _TRUSTED * highest else []
    kinds = {_kind(each) for _, each in chosen}
    for candidate in ranked:
        if len(chosen) > _MOST_PREDICTED or session.promise(candidate.config) < _HOPELESS * highest:
            break
        if _kind(candidate) not in kinds:
            kinds.add(_kind(candidate))
            chosen.append(("predicted", candidate))
    return chosen


def _kind(candidate: Candidate) -> tuple[str, str, str]:
    return candidate.config.loader.kind, candidate.config.cache, candidate.config.storage
