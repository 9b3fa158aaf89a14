"""The confirmation run: its configurations, their order, when it ends, and the verdict.

The best of many noisy trials is too good to be true. So the best few and the baselines run again, each once a block, in
a fresh order each block. `Pooled` weighs blocks and trials together, and removes what a block has in common. If
a difference is no more than noise, the cheapest configuration wins. The first section decides and runs nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import TypeAlias

from autopipe.measure import costs, stats
from autopipe.measure.facts import OVERTAKEN
from autopipe.measure.outcome import Measurement
from autopipe.measure.stats import FEWEST_PAIRS, Pooled, normal_point, student_t
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.measurer import MOST_OF_OTHERS
from autopipe.search.record import Point, taken
from autopipe.search.result import AskedBy, Asker, ConfirmationStarted
from autopipe.search.session import Session
from autopipe.values import Estimate

Blocks: TypeAlias = Mapping[str, Mapping[int, float]]
"""The rate of each configuration in each block in which it ran, by key."""

_LEVELS = {1: 0.05, 2: 0.0294, 3: 0.0221, 4: 0.0182, 5: 0.0158, 10: 0.0106, 15: 0.0086, 20: 0.0075}
"""The level of each of so many tests of data that grow, at which one is wrong in 5 % of cases (Pocock, Biometrika 64,
1977, table 1; he advises the same for Student's t). More of them share 5 % out evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The verdict of a confirmation run, and its data."""

    winner: str  # the key of the configuration to use
    against: Mapping[str, stats.Comparison]  # the winner compared with each other finalist, by key
    scores: Blocks  # the rate over a training of known length, with one-time costs: these are compared
    rounds: Blocks = field(default_factory=dict)  # images/s in each block; one far behind does not run again
    rates: Mapping[str, Estimate] = field(default_factory=dict)  # images/s of every finalist in the run, by key
    reached_share: Estimate | None = None  # of the model alone, side by side with it; None if that was not measured


def cost(config: PipelineConfig, *, cores: int, memory_bytes: float, baseline: bool = False) -> tuple[float, ...]:
    """Return the cost of a configuration, compared in order; callbacks wait for the end of the steps of a call."""
    workers = config.loader.worker_count()
    return (
        float(config.devices),
        float(config.kept.converts),
        float(cores if workers is None else workers),
        float(config.steps_per_execution),
        round(memory_bytes / 2**26),  # 64 MiB more or less is no difference
        0.0 if baseline else 1.0,
    )


def block_order(keys: Sequence[str], block: int, seed: int) -> list[str]:
    """Return the order of a block, by a Williams design over keys that are shuffled anew after two rounds of
    `len(keys)` blocks. The second round is backwards. In a round each key has each place once; with an even number of
    keys each also follows each other once, and with an odd number over two rounds.
    """
    count = len(keys)
    if count == 0:
        return []
    shuffled = sorted(keys)
    random.Random(f"{seed}/{block // (2 * count)}").shuffle(shuffled)
    zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]  # 0, 1, -1, 2, -2, ...
    order = [shuffled[(place + block) % count] for place in zigzag]
    return order[::-1] if (block // count) % 2 else order


def pairs(blocks: Blocks, pooled: Pooled, first: str, second: str) -> stats.Comparison | None:
    """Compare finalists over the blocks in which both ran, by the pooled ratio if these are few; None without any."""
    found = ratios(blocks.get(first, {}), blocks.get(second, {}))
    if not found:
        return None
    return stats.compare_pairs(found) if len(found) >= FEWEST_PAIRS else pooled.compared(first, second, len(found))


def ratios(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Return the ratio of two rates in each block that has both."""
    return [first[block] / second[block] for block in sorted(first.keys() & second.keys())]


def leader(finalists: Sequence[Point], blocks: Blocks, pooled: Pooled) -> str | None:
    """Return the key of the finalist with the highest value, of those that may win and ran, or None. One that ran in
    more blocks leads until another is significantly faster: of two alike, neither would be proved.
    """
    ran = [each.key for each in finalists if each.feasible and blocks.get(each.key)]
    if not ran:
        return None
    best = pooled.best(ran)
    before = max(ran, key=lambda key: (len(blocks[key]), pooled.value(key), key))
    ahead, spread = pooled.ahead(best, before)
    return best if ahead > normal_point(0.05) * spread else before


def repeatability(pooled: Pooled) -> float:
    """Return the largest difference of a configuration's measurements in 95 % of cases, in log units, 1 % at least."""
    return max(stats.REPEATABILITY * pooled.noise, 0.01)


def worth_having(pooled: Pooled) -> float:
    """Return the largest difference that does not matter, in log units: the repeatability limit, at most 2 %."""
    return min(repeatability(pooled), 1 - stats.EQUAL)


def as_good(pooled: Pooled, best: str, key: str) -> bool:
    """True if there is no significant difference and, at 90 %, the other is behind by what does not matter."""
    behind, spread = pooled.ahead(best, key)
    surely = behind + normal_point(0.2) * spread  # 10 % on one side
    return behind <= normal_point(0.05) * spread and surely <= worth_having(pooled)


def unproved(finalists: Sequence[Point], blocks: Blocks, pooled: Pooled, looks: int) -> set[str]:
    """Return the winner so far and those that it still has to be compared with: in three blocks at least, and until
    their pairs show which is faster, or that it does not matter. Empty if nothing is left to prove. These are the
    required baselines and the fastest one, or without baselines the best of the others. A test after each block that
    stops at the first difference finds one among equals in far more than one case of twenty. So each of the at most so
    many `looks` tests at the level at which one of them all is wrong in 5 % of cases (`_LEVELS`), which is shared out
    evenly among the finalists. What the second half of the looks could not tell either, is given up behind the first.
    """
    won = _winner(finalists, blocks, pooled)
    if won is None:
        return set()
    others = [each for each in finalists if each.key != won and blocks.get(each.key)]
    baselines = [each for each in others if each.baseline]
    rivals = {each.key for each in baselines if each.required}
    if others:
        rivals.add(pooled.best([each.key for each in baselines or others]))
    level = next((each for most, each in _LEVELS.items() if looks - FEWEST_PAIRS < most), 0.05 / looks)
    far = student_t(pooled.freedom, level / max(1, len(finalists) - 1))
    open_yet = {key for key in rivals if not _is_told_apart(blocks, pooled, won, key, far)}
    left = {key for key in open_yet if _may_be_told_apart(blocks, pooled, won, key, far, looks)}
    return {won, *left} if left else set()


def _may_be_told_apart(blocks: Blocks, pooled: Pooled, won: str, key: str, far: float, looks: int) -> bool:
    """True before half of the looks, or if all of them would tell the largest difference that there may be, or that it
    does not matter. Of equals that vary by 10 %, half of the rounds do then; of 20 % apart as many are told apart.
    """
    done, (ahead, spread) = len(blocks[won].keys() & blocks[key].keys()), pooled.ahead(won, key)
    in_the_end, largest = spread * math.sqrt(done / looks), abs(ahead) + normal_point(0.1) * spread  # 5 % on one side
    return 2 * done < looks or largest > far * in_the_end or normal_point(0.2) * in_the_end <= worth_having(pooled)


def _is_told_apart(blocks: Blocks, pooled: Pooled, won: str, key: str, far: float) -> bool:
    gain = pairs(blocks, pooled, won, key)
    if gain is None or gain.few or gain.low is None or gain.high is None:
        return False
    ahead, spread = pooled.ahead(won, key)
    of_pairs = math.log(gain.high / gain.low) / (2.0 * student_t(gain.pairs - 1))  # one may vary more than all do
    return (gain.decided and abs(ahead) > far * max(spread, of_pairs)) or as_good(pooled, won, key)


def _winner(finalists: Sequence[Point], blocks: Blocks, pooled: Pooled) -> str | None:
    """Return the key of the cheapest of the leader and those as good; None if no finalist that may win ran."""
    first = leader(finalists, blocks, pooled)
    if first is None:
        return None
    by_key = {finalist.key: finalist for finalist in finalists}
    others = [each for key, each in by_key.items() if key != first and each.feasible and blocks.get(key)]
    tied = [each.key for each in others if as_good(pooled, first, each.key) or _is_plainer(pooled, by_key[first], each)]
    return min([first, *tied], key=lambda key: (by_key[key].cost, -pooled.value(key), key))


def _is_plainer(pooled: Pooled, best: Point, other: Point) -> bool:
    """True if another one makes fewer steps a call, is the same else, and was not seen to be slower."""
    ahead, spread = pooled.ahead(best.key, other.key)
    steps = other.config.steps_per_execution
    is_twin = steps < best.config.steps_per_execution and (
        best.config.model_copy(update={"steps_per_execution": steps}) == other.config
    )
    return is_twin and ahead <= normal_point(0.05) * spread


def verdict(finalists: Sequence[Point], scores: Blocks, pooled: Pooled) -> Confirmation | None:
    """Return the winner by all measurements; None if no finalist that may win could be measured."""
    winner = _winner(finalists, scores, pooled)
    if winner is None:
        return None
    against = {each.key: pairs(scores, pooled, winner, each.key) for each in finalists if each.key != winner}
    compared = {key: comparison for key, comparison in against.items() if comparison is not None}
    return Confirmation(winner=winner, against=compared, scores=scores)


def estimate(rates: Collection[float], pooled: Pooled) -> Estimate:
    """Return the rate over blocks, with Student's 95 % interval of logarithms; if few, of all measurements."""
    logs, freedom = [math.log(rate) for rate in rates], len(rates) - 1
    mean = fmean(logs)
    if len(logs) >= FEWEST_PAIRS:
        spread = stdev(logs)
    else:
        spread, freedom = math.hypot(pooled.noise, pooled.drift), pooled.freedom
    reach = student_t(freedom) * spread / math.sqrt(len(logs))
    return Estimate(value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach))


def share(ran: Mapping[int, float], alone: Mapping[int, float], pooled: Pooled) -> Estimate | None:
    """Return the share of the model alone, by blocks that have both; None without any, or far above 1: disturbed."""
    if not (shares := ratios(ran, alone)) or (found := estimate(shares, pooled)).value > OVERTAKEN:
        return None
    return found.mapped(lambda each: min(1.0, each))


# -------------------- the run

_FAR = 2.0  # times the repeatability limit: what is so far behind after a block does not run in the next
_NEAR = 2 / 3  # of the fastest: what makes less in its trial is not proved, and no foreign code to prove against
ENOUGH_BLOCKS = 2  # blocks with fewer than which nothing can be compared


def _finalists(session: Session) -> list[Point]:
    """Return the finalists: the best few as they were measured, a cheap one that may be as good, and the required
    baselines. A model of the noise would leave out the best before anything is repeated (benchmarks/RESULTS.md).
    """
    points = session.points()
    ranked = sorted((each for each in points.values() if each.feasible), key=lambda each: (-each.value, each.key))
    ranked = [each for each in ranked if each.value >= _NEAR * ranked[0].value]
    count = session.settings.finalists
    best = [each.key for each in ranked[: max(1, count - 1)]]
    if len(ranked) > len(best) and count > 1:
        enough = ranked[0].value * math.exp(-min(stats.USUAL_NOISE, repeatability(session.pooled())))
        maybe = [finalist(session, each) for each in ranked if each.value >= enough]
        cheapest = min(maybe, key=lambda each: each.cost).key
        best.append(cheapest if cheapest not in best else ranked[len(best)].key)
    # To beat: all of the user's baselines, and the fastest of the foreign code.
    ran = [each for each in session.baselines if each.config.key() in points]
    theirs = [each.config.key() for each in ran if each.config.loader.is_foreign and not each.required]
    rates = {key: points[key].estimate.value for key in sorted(theirs, key=lambda key: -points[key].estimate.value)}
    near = [key for key, rate in rates.items() if rate >= _NEAR * max(rates.values())][:MOST_OF_OTHERS]
    rivals = [key for each in ran if (key := each.config.key()) in near or key not in rates]
    return [finalist(session, points[key]) for key in [*best, *(key for key in rivals if key not in best)]]


def expected_seconds(session: Session) -> float:
    """Return the time of the shortest confirmation run: a block of all finalists, and the others of a proof."""
    wanted, fewest, starting = _finalists(session), session.settings.blocks[0], 0.0
    if session.points().keys().isdisjoint(session.names) and any(each.unable is None for each in session.baselines):
        starting = session.starting_seconds + (1 + fewest) * session.trial_seconds()
    later = _later_seconds(session, _pair(session, wanted), fewest - 1)
    return starting + _block_seconds(session, wanted) + later


def _pair(session: Session, entered: Sequence[Point]) -> list[Point]:
    """Return the best finalist, and the baseline that a proof needs, if any ran: the fastest, if none is required."""
    named = [each for each in entered if each.baseline is not None]
    rival = max(named, key=lambda each: (each.required, each.estimate.value), default=None)
    return [each for each in entered[:1] if each is not rival] + ([] if rival is None else [rival])


def finalist(session: Session, point: Point) -> Point:
    """Return a point with what a confirmation run looks at: its cost, and whether it is a baseline."""
    facts = session.facts
    peaks = [taken(each, point.config, facts.workload).peak_rss_bytes for each in point.measurements]
    used = [float(peak) for peak in peaks if peak is not None]
    memory = stats.median(used) if used else float(costs.memory_bytes(point.config, facts.workload))
    baseline = session.names.get(point.key)
    least = cost(point.config, cores=facts.cores, memory_bytes=memory, baseline=baseline is not None)
    return replace(point, cost=least, baseline=baseline, required=point.key in session.required)


def run(session: Session, entered: list[Point]) -> None:
    """Run blocks, kept in the record for `judge`, until the winner is proved, or the time is up. After the first one,
    the winner, its rivals and the best of the others that are not far behind run; after the fewest, only the winner and
    its rivals. What fails is removed from `entered`.
    """
    configs = tuple(each.config for each in entered)
    session.on_event(ConfirmationStarted(configs=configs, blocks=session.settings.blocks))
    while running := _next_block(session, entered):
        number = 1 + max((row.block for row in session.record.rows() if row.block is not None), default=-1)
        order = block_order([each.key for each in running], number, session.settings.seed)
        by_key = {each.key: each for each in entered}
        for key in order:
            config = by_key[key].config
            session.run_config(config, AskedBy(Asker.PROOF, str(number)))
            if session.seconds_left(proving=True) == 0.0:
                return
            if session.ceilings and not config.loader.is_foreign:
                session.known_alone(config.model_setup)
        ran = {row.key for row in session.record.rows() if row.block == number and isinstance(row.outcome, Measurement)}
        failed = {each.key for each in running} - ran
        entered[:] = [each for each in entered if each.key not in failed]
        if not any(each.feasible for each in entered):
            return  # nothing is left to compare baselines with
        first = leader(entered, _measured_blocks(session, entered), session.pooled())
        if first is None or session.facts.workload.reads_alone:
            continue
        is_known = len(_alone(session, by_key[first])) >= session.settings.blocks[0]  # the time is for the proof then
        if not is_known and session.seconds_left(proving=True) > session.trial_seconds():
            alone = session.look_again(by_key[first].config.model_setup)
            if alone is not None:
                session.record.keep_block_ceiling(number, alone)


def _next_block(session: Session, entered: Sequence[Point]) -> Sequence[Point]:
    """Return the finalists that run in the next block; none if it is over."""
    fewest, most = session.settings.blocks
    blocks, pooled = _measured_blocks(session, entered), session.pooled()
    if (first := leader(entered, blocks, pooled)) is None:
        return entered
    others = [ran for key, ran in blocks.items() if key != first]  # a block that was interrupted does not count
    done = max((len(blocks[first].keys() & ran.keys()) for ran in others), default=len(blocks[first]))
    if done == 0:
        return entered
    needed = unproved(entered, blocks, pooled, most)
    enough = math.exp(-_FAR * repeatability(pooled)) * pooled.value(first)
    near = [key for key, ran in blocks.items() if ran and key not in needed and pooled.value(key) >= enough]
    also = max(near, key=pooled.value, default=None)  # one that may be as good
    running = [each for each in entered if each.key in needed]
    more = [each for each in entered if each.key in needed or each.key == also]
    later = _later_seconds(session, running, fewest - done - 1)  # a proof comes before what else may be as good
    if done < fewest and _has_time(session, more, later):
        running = more
    ended = max(map(len, blocks.values())) >= most  # of the rival, too, beside which others have led before
    return [] if ended or not _has_time(session, running) else running


def _measured_blocks(session: Session, entered: Sequence[Point], *, raw: bool = False) -> Blocks:
    """Return each finalist's result in each block: the study's objective, or `raw` images/s. Blocks count from the
    first with all of them; earlier ones were interrupted, or had other finalists.
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


def judge(session: Session, entered: Sequence[Point]) -> Confirmation | None:
    """Return the verdict of the blocks so far, or None if there are too few."""
    scored, raw = _measured_blocks(session, entered), _measured_blocks(session, entered, raw=True)
    if max((len(ran) for ran in scored.values()), default=0) < ENOUGH_BLOCKS:
        return None
    points, pooled = session.points(), session.pooled()  # one may have broken a limit in the confirmation run
    in_the_end = [replace(each, feasible=points[each.key].feasible) for each in entered]
    found = verdict(in_the_end, scored, pooled)
    if found is None:
        return None
    return replace(
        found,
        rounds=raw,
        rates={key: estimate(ran.values(), pooled) for key, ran in raw.items() if ran},
        reached_share=share(raw[found.winner], _alone(session, points[found.winner]), pooled),
    )


def entered(session: Session) -> list[Point]:
    """Return the finalists that time is left for; if not for all, those of an earlier confirmation run will do."""
    wanted = _finalists(session)
    pair, found = _pair(session, wanted), list[Point]()  # in all blocks; the others in the first one
    # Two prove nothing, but say more than trials far apart.
    if ENOUGH_BLOCKS * _block_seconds(session, pair) <= session.seconds_left(proving=True):
        found, later = pair, _later_seconds(session, pair, session.settings.blocks[0] - 1)
        for each in wanted:
            if each not in found and _has_time(session, [*found, each], later):
                found = [*found, each]
    if len(found) == len(wanted):
        return wanted
    return _proved_before(session) or [each for each in wanted if each in found]


def _proved_before(session: Session) -> list[Point]:
    """Return the finalists of a run in a resumed study whose proof still covers the best; else an empty list."""
    blocks: dict[int, set[str]] = {}
    for row in session.record.rows():
        if row.block is not None and isinstance(row.outcome, Measurement):
            blocks.setdefault(row.block, set()).add(row.key)
    ran = [set(), *(blocks[number] for number in sorted(blocks))]
    first = [now for before, now in itertools.pairwise(ran) if not now <= before]  # of each confirmation run
    points = session.points()
    keys = sorted(first[-1]) if first else []
    entered = [finalist(session, points[key]) for key in keys if key in points]
    best, measured = session.best(), _measured_blocks(session, entered)
    needed = session.required & points.keys()
    done = max((len(each) for each in measured.values()), default=0)
    if done < ENOUGH_BLOCKS or best is None or not needed | {best.key} <= measured.keys():
        return []
    return entered


def _alone(session: Session, point: Point) -> dict[int, float]:
    """Return the model alone in the setup of a point, in images/s, in each block in which it was measured."""
    setup, measured = point.config.model_setup, session.record.block_ceilings()
    return {block: each.model_images_per_second.value for block, each in measured.items() if each.setup == setup}


def _has_time(session: Session, running: Sequence[Point], later: float = 0.0) -> bool:
    """Return True if there is time for a block of these finalists, and `later` seconds are left."""
    return _block_seconds(session, running) + later <= session.seconds_left(proving=True)


def _block_seconds(session: Session, running: Sequence[Point]) -> float:
    """Return the time of a block of these finalists, as their last trials took it, with processes that start in it."""
    usual, took = session.trial_seconds(), dict[str, float]()
    for row in session.record.rows():
        if row.outcome is not None:  # a trial that was cut for being slow took less than a block does
            took[row.key] = max(row.running_seconds, usual) if row.block is None else row.seconds
    return sum(took.get(each.key, 0.0) for each in running)


def _later_seconds(session: Session, needed: Sequence[Point], blocks: int) -> float:
    """Return the time of so many blocks after the next one, each behind a look at the model alone."""
    alone = session.trial_seconds() if session.ceilings else 0.0
    return max(0, blocks) * (_block_seconds(session, needed) + alone)
