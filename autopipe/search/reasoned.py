"""The trials that reasoning asks for, before and after the sampler's: baselines, known configurations, predictions.

What is reasoned is `autopipe.search.seeds`'s; here it is run, as long as the search is not over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from autopipe.core import footprint
from autopipe.core.config import PipelineConfig
from autopipe.core.params import from_config
from autopipe.search import budget, decision, feasible, rules, seeds
from autopipe.search.feasible import Candidate
from autopipe.search.measurer import Baseline
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.session import Session
from autopipe.search.stopping import Stop

Over: TypeAlias = Callable[[], Stop | None]
"""Returns why the search is over, or None."""

_BASELINES_SHARE = 1 / 4  # of the time that is left, for baselines beyond the second
_WORTH_TELLING = 1.15  # times the best that needs no conversion: less is not worth a trial of one


def run_baselines(session: Session, baselines: Sequence[Baseline]) -> None:
    """Measure each baseline, unless that was done; where time is short the required or the first few only."""
    session.required = {each.config.key() for each in baselines if each.required}
    in_turn = sorted((each for each in baselines if each.unable is None), key=lambda each: not each.required)
    began, most = session.seconds(), _BASELINES_SHARE * session.seconds_left()
    for number, baseline in enumerate(in_turn if session.settings.seeding else ()):
        late = budget.is_short(session) or (number > 1 and session.seconds() - began > most)
        if number > 0 and not baseline.required and late:
            continue  # what has not been tried yet is worth more than another comparison
        _run_unless_done(session, baseline.config, AskedBy(Asker.BASELINE, baseline.name))


def run_baselines_on(session: Session, baselines: Sequence[Baseline]) -> list[Baseline]:
    """Measure the baselines on as many devices as the best has, and return them: none where that is one.

    Beside those of one device they tell what the loader brings apart from what the devices bring.
    """
    best = session.best()
    if best is None or best.config.devices == 1 or not session.settings.seeding:
        return []
    count = best.config.devices
    found = []
    for baseline in baselines:
        if baseline.config.devices == 1 and baseline.unable is None and not budget.is_short(session):
            config = baseline.config.model_copy(update={"devices": count})
            name = f"{baseline.name}, {count} {'virtual ' if session.facts.workload.virtual_devices else ''}devices"
            found.append(Baseline(name=name, config=config))
            _run_unless_done(session, config, AskedBy(Asker.BASELINE, name))
    return found


def run_simplest(session: Session, over: Over) -> None:
    """Try the candidate that takes least of those that are predicted to be at the ceiling."""
    if not session.can_predict or not session.settings.seeding or over() is not None:
        return
    enough = session.settings.ceiling_share * session.highest_ceiling().model_images_per_second.value
    there = [each for each in session.trimmed.candidates if (session.predicted(each.config) or 0.0) >= enough]
    if there:
        least = min(there, key=lambda each: (_planned_cost(session, each.config), each.key))
        _run_unless_done(session, least.config, AskedBy(Asker.SEED, "simplest"))


def run_known(session: Session, over: Over) -> None:
    """Try what did well elsewhere or before."""
    for config in session.settings.known:
        if over() is not None:
            return
        # Predictions say more than what did well with more workers or reads at a time than are of use here.
        if rules.why_not(config, replace(session.facts, pointless={})) is None:
            _run_unless_done(session, config, AskedBy(Asker.KNOWN))


def run_seeds(session: Session, over: Over) -> None:
    """Try what reasoning and the cost model suggest."""
    if not session.settings.seeding or _knows_better(session):
        return
    promise = (lambda each: session.promise(each.config)) if session.can_predict else None
    for seed in seeds.seeds(session.trimmed.candidates, session.facts.cores, promise):
        if over() is not None:
            return
        if promise is None or _can_win(session, seed.candidate.config):
            _run_unless_done(session, seed.candidate.config, seed.origin)


def run_advice(session: Session, over: Over) -> None:
    """Measure the converted form of each storage that should be faster, though the user has to ask for it to win.

    What it takes and when it pays is shown beside the result. Nothing is converted where the user has refused that.
    """
    settled = session.settings.convert is False or session.facts.limits.convert
    if settled or not session.settings.seeding or not session.can_predict:
        return
    could = feasible.convertible(session.trimmed.space, session.facts)
    by_storage: dict[str, PipelineConfig] = {}
    for candidate in sorted(could, key=lambda each: (-session.promise(each.config), each.key)):
        by_storage.setdefault(candidate.config.storage, candidate.config)
    for config in by_storage.values():
        best = session.best()
        if best is not None and session.promise(config) < _WORTH_TELLING * best.value:
            continue
        if over() is not None:
            return
        _run_unless_done(session, config, AskedBy(Asker.ADVICE))


def run_cheaper(session: Session, over: Over) -> None:
    """Try what takes less than the best and may be at the ceiling, too."""
    best = session.best()
    if best is None or not session.can_predict or not session.settings.seeding:
        return
    named = Candidate(params=from_config(best.config), config=best.config, key=best.key)
    enough = session.settings.ceiling_share * best.value
    for candidate in seeds.cheaper(
        named,
        session.trimmed.candidates,
        lambda each: _planned_cost(session, each.config),
        lambda each: session.promise(each.config),
        enough=enough,
    ):
        if over() is not None:
            return
        _run_unless_done(session, candidate.config, AskedBy(Asker.SEED, "cheaper"))


def _planned_cost(session: Session, config: PipelineConfig) -> tuple[float, ...]:
    """Return what a configuration takes beside time, as far as it is known before it has run."""
    planned = footprint.memory_bytes(config, session.facts.workload)
    return decision.cost(config, cores=session.facts.cores, memory_bytes=float(planned), baseline=False)


def _knows_better(session: Session) -> bool:
    """Whether something that did well elsewhere runs here: it says more than predictions do.

    The sampler goes on from the predictions all the same. Replayed retunes are nearer to the best without these
    seeds (benchmarks/RESULTS.md).
    """
    known = {config.key() for config in session.settings.known}
    return any(row.key in known and row.value is not None for row in session.search_rows())


def _can_win(session: Session, config: PipelineConfig) -> bool:
    """Whether it would be the best if its prediction were as far too low as any so far; a trial of it is wasted if not.

    So predictions that were near the truth rule out much, and others little.
    """
    best = session.best()
    if best is None:
        return True
    farthest = max(point.value / session.promise(point.config) for point in session.points().values())
    return farthest * session.promise(config) >= best.value


def _run_unless_done(session: Session, config: PipelineConfig, origin: AskedBy) -> None:
    done = {row.key for row in session.search_rows() if row.outcome is not None}
    if session.others.me is not None:
        done |= session.record.under_way()
    if config.key() not in done:
        session.run_config(config, origin)
