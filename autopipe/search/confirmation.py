"""Runs the confirmation: the best few and the baselines, in blocks, until `decision` stops it or time is up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autopipe.measure import costs
from autopipe.measure.outcome import Measurement
from autopipe.measure.stats import median
from autopipe.search import decision, model_ceilings, objective
from autopipe.search.events import ConfirmationStarted
from autopipe.search.measurer import Baseline
from autopipe.search.objective import AskedBy, Asker, Point
from autopipe.search.session import Session
from autopipe.values import Estimate

MOST_OF_OTHERS = 2  # pieces of other people's code that are proved against; of the rest a trial tells enough
ENOUGH_BLOCKS = 2  # with fewer nothing can be compared
_MAYBE = 0.03  # in log units: a configuration farther behind the best is not tried for being cheap
_CLEAR = 3.0  # times the repeatability limit: one block decides
_SHORTEST_SECONDS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation(decision.Verdict):
    """The verdict of a confirmation run, and its data."""

    rates: dict[str, Estimate]  # images/s of every finalist in the confirmation run, by key
    reached_share: Estimate | None  # of the model alone, side by side with it; None if that was not measured
    rounds: decision.Blocks  # images/s of each finalist in each block, by key; one far behind does not run again
    # the same over the whole training, one-time costs included, if its length is known: these are compared
    scores: decision.Blocks


def finalists(session: Session, baselines: Sequence[Baseline]) -> list[decision.Finalist]:
    """Return the finalists: the best few points, a cheap one that may be as good, and the required baselines.

    The best are those that were measured highest. Before anything has been repeated, noise cannot be separated from
    properties of a configuration, and a model that takes both for noise leaves out the best (benchmarks/RESULTS.md).
    """
    points = session.points()
    names = {baseline.config.key(): baseline.name for baseline in baselines}
    ranked = sorted((each for each in points.values() if each.feasible), key=lambda each: (-each.value, each.key))
    count = session.settings.finalists
    best = [each.key for each in ranked[: max(1, count - 1)]]
    if len(ranked) > len(best) and count > 1:
        enough = ranked[0].value * math.exp(-min(_MAYBE, decision.repeatability(session.surrogate())))
        maybe = [finalist(session, each, None) for each in ranked if each.value >= enough]
        cheapest = min(maybe, key=lambda each: each.cost).key
        best.append(cheapest if cheapest not in best else ranked[len(best)].key)
    keys = [*best, *(key for key in to_beat(session, baselines) if key not in best)]
    return [finalist(session, points[key], names.get(key)) for key in keys]


def expected_blocks(session: Session, baselines: Sequence[Baseline]) -> dict[str, int]:
    """Return the least number of blocks of each finalist, by key: one that is far behind is soon left out.

    It is far behind if the largest noise in 95 % of cases does not explain the distance. Of those, the best baseline
    still runs in all blocks unless it is many times slower.
    """
    entered, points, fewest = finalists(session, baselines), session.points(), session.settings.blocks[0]
    best = max(points[each.key].value for each in entered if each.may_win)
    behind = {each.key: math.log(best / points[each.key].value) for each in entered}
    far = _CLEAR * decision.repeatability(session.surrogate())
    near = [each.key for each in entered if each.baseline and behind[each.key] < math.log(decision.FAR)]
    rival = min(near, key=lambda key: behind[key], default=None)
    return {key: fewest if by < far or key == rival else 1 for key, by in behind.items()}


def to_beat(session: Session, baselines: Sequence[Baseline]) -> list[str]:
    """Return the keys of the baselines that ran: all of the user's, and the fastest of the foreign code."""
    points = session.points()
    ran = [each for each in baselines if each.config.key() in points]
    theirs = [each.config.key() for each in ran if each.config.loader.is_foreign and not each.required]
    slower = sorted(theirs, key=lambda key: -points[key].estimate.value)[MOST_OF_OTHERS:]
    return [key for each in ran if (key := each.config.key()) not in slower]


def named(session: Session, keys: Sequence[str], baselines: Sequence[Baseline]) -> list[decision.Finalist]:
    """Return those finalists that are in the confirmation run of another process sharing the study."""
    names, points = {baseline.config.key(): baseline.name for baseline in baselines}, session.points()
    return [finalist(session, points[key], names.get(key)) for key in keys if key in points]


def finalist(session: Session, point: Point, baseline: str | None) -> decision.Finalist:
    """Return a point as a finalist, with its resources."""
    facts = session.facts
    cache = costs.cache_bytes(point.config, facts.workload)
    peaks = [objective.peak_bytes(each, cache) for each in point.measurements]
    used = [peak for peak in peaks if peak is not None]
    memory = median(used) if used else float(costs.memory_bytes(point.config, facts.workload))
    cost = decision.cost(point.config, cores=facts.cores, memory_bytes=memory, baseline=baseline is not None)
    return decision.Finalist(key=point.key, config=point.config, cost=cost, baseline=baseline, may_win=point.feasible)


def run(session: Session, entered: list[decision.Finalist]) -> None:
    """Run blocks until the result is decided. They are in the record, for `judge`.

    A finalist that fails in a block would fail again and cannot be used: it is removed from `entered`.
    """
    fewest, most = session.settings.blocks
    running = list(entered)
    session.on_event(ConfirmationStarted(configs=tuple(each.config for each in entered), blocks=(fewest, most)))
    while running:
        blocks, surrogate = measured_blocks(session, entered), session.surrogate()
        done = max((len(ran) for ran in blocks.values()), default=0)
        if done > 0:
            running = decision.still_in(entered, blocks, surrogate, most)
        standing = decision.standings(entered, blocks, surrogate, most).values()
        over = done >= most or (done >= fewest and decision.Standing.OPEN not in standing)
        if over or _no_time(session, len(running)):
            return
        number = 1 + max((row.block for row in session.record.rows() if row.block is not None), default=-1)
        order = decision.block_order([each.key for each in running], number, session.settings.seed)
        by_key = {each.key: each for each in entered}
        for key in order:
            config = by_key[key].config
            session.run_config(config, AskedBy(Asker.PROOF, str(number)))
            if session.seconds_left(proving=True) == 0.0:
                return
            if not config.loader.is_foreign:
                model_ceilings.know(session, config)
        ran = {row.key for row in session.record.rows() if row.block == number and isinstance(row.outcome, Measurement)}
        failed = {each.key for each in running} - ran
        entered[:] = [each for each in entered if each.key not in failed]
        running = [each for each in running if each.key not in failed]
        if not any(each.may_win for each in entered):
            return  # nothing is left to compare baselines with
        first = decision.leader(entered, measured_blocks(session, entered), session.surrogate())
        if first is not None and not _no_time(session, 1):
            alone = model_ceilings.look_again(session, by_key[first].config)
            if alone is not None:
                session.record.keep_block_ceiling(number, alone)


def measured_blocks(session: Session, entered: Sequence[decision.Finalist], *, raw: bool = False) -> decision.Blocks:
    """Return the result of each finalist in each block: the study's objective, or `raw` images/s.

    Blocks count from the first one in which all of these finalists ran. Earlier ones were interrupted, or belong to an
    earlier confirmation run with other finalists.
    """
    keys = {each.key for each in entered}
    blocks: dict[int, dict[str, float]] = {}
    for row in session.record.rows():
        if row.block is not None and row.key in keys and isinstance(row.outcome, Measurement):
            rate = row.outcome.images_per_second.value
            scored = rate if raw else session.score(row.config, [row.outcome], rate)
            blocks.setdefault(row.block, {})[row.key] = scored
    complete = [number for number, ran in blocks.items() if ran.keys() == keys]
    first = min(complete, default=0)
    by_key: dict[str, dict[int, float]] = {key: {} for key in sorted(keys)}
    for number, ran in blocks.items():
        for key, rate in ran.items():
            if number >= first and complete:
                by_key[key][number] = rate
    return by_key


def judge(session: Session, entered: Sequence[decision.Finalist]) -> Confirmation | None:
    """Return the verdict of the blocks so far, or None if there are too few."""
    scored, raw = measured_blocks(session, entered), measured_blocks(session, entered, raw=True)
    if max((len(ran) for ran in scored.values()), default=0) < ENOUGH_BLOCKS:
        return None
    points, surrogate = session.points(), session.surrogate()  # one may have broken a limit in the confirmation run
    in_the_end = [replace(each, may_win=points[each.key].feasible) for each in entered]
    verdict = decision.verdict(in_the_end, scored, surrogate)
    if verdict is None:
        return None
    return Confirmation(
        winner=verdict.winner,
        against=verdict.against,
        rates={key: decision.estimate(ran, surrogate) for key, ran in raw.items() if ran},
        reached_share=decision.share(raw[verdict.winner], _alone(session, points[verdict.winner]), surrogate),
        tied=verdict.tied,
        rounds=raw,
        scores=scored,
    )


def entered(session: Session, baselines: Sequence[Baseline]) -> list[decision.Finalist]:
    """Return the finalists that time is left for; if not for all, those of an earlier confirmation run will do."""
    wanted = finalists(session, baselines)
    found = _affordable(session, wanted, baselines)
    return found if len(found) == len(wanted) else _proved_before(session, baselines) or found


def _affordable(
    session: Session, entered: Sequence[decision.Finalist], baselines: Sequence[Baseline]
) -> list[decision.Finalist]:
    trial = max(session.trial_seconds(), _SHORTEST_SECONDS)
    room = session.seconds_left(proving=True) / (ENOUGH_BLOCKS * trial)
    if room >= len(entered):
        return list(entered)
    points, count = session.points(), int(room)
    required = {each.config.key() for each in baselines if each.required}
    named = [each for each in entered if each.baseline]
    rival = max(named, key=lambda each: (each.key in required, points[each.key].estimate.value), default=None)
    if count < 2 or rival is None or rival is entered[0]:
        return list(entered[:count]) if count > 1 else []
    return [*[each for each in entered if each is not rival][: count - 1], rival]


def _proved_before(session: Session, baselines: Sequence[Baseline]) -> list[decision.Finalist]:
    """Return the finalists of a confirmation run in the study, if it still covers the best; else an empty list.

    A resumed study whose time is used up keeps its proof.
    """
    blocks: dict[int, set[str]] = {}
    for row in session.record.rows():
        if row.block is not None and isinstance(row.outcome, Measurement):
            blocks.setdefault(row.block, set()).add(row.key)
    ran = [set(), *(blocks[number] for number in sorted(blocks))]
    first = [now for before, now in itertools.pairwise(ran) if not now <= before]  # of each confirmation run
    entered = named(session, sorted(first[-1]) if first else [], baselines)
    best, points, measured = session.best(), session.points(), measured_blocks(session, entered)
    needed = {each.config.key() for each in baselines if each.required and each.config.key() in points}
    done = max((len(each) for each in measured.values()), default=0)
    if done < ENOUGH_BLOCKS or best is None or not needed | {best.key} <= measured.keys():
        return []
    return entered


def _alone(session: Session, point: Point) -> dict[int, float]:
    """Return the model alone in the setup of a point, in images/s, in each block in which it was measured."""
    setup, measured = point.config.model_setup, session.record.block_ceilings()
    return {block: each.model_images_per_second.value for block, each in measured.items() if each.setup == setup}


def _no_time(session: Session, running: int) -> bool:
    return running * session.trial_seconds() > session.seconds_left(proving=True)
