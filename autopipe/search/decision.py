"""The confirmation: who runs in it, in which order, and what its blocks say. Pure; the runs themselves are `study`'s.

The best of many noisy trials is too good to be true. So the best few and the baselines run again, each once a block, in
a fresh order each block. Blocks and trials are weighed together (`belief`), what is common to a block left out; and
where the difference is no more than noise, the cheapest wins.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeAlias

from autopipe.core.ceiling import OVERTAKEN
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.stats import (
    FEWEST_PAIRS,
    REPEATABILITY,
    Comparison,
    compare_pairs,
    normal_point,
    student_t,
    student_t_95,
)
from autopipe.core.value import Estimate
from autopipe.search.belief import Belief

Blocks: TypeAlias = Mapping[str, Mapping[int, float]]
"""For each configuration's key, its rate in each block it ran in."""

_LEAST, _MOST = 0.01, 0.02  # what is no difference on any machine, and what is one on all
_FAR = 10.0  # times faster: by how much exactly, nobody asks, and a block of the slower one takes long
_SURE = 0.9  # probability with which what is taken for as good is no farther behind than it may be


class Standing(enum.Enum):
    """How somebody in the confirmation run stands to the leader."""

    OPEN = enum.auto()
    SLOWER = enum.auto()
    AS_GOOD = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """Somebody in the confirmation run."""

    key: str
    config: PipelineConfig
    cost: tuple[float, ...]  # what it takes beside its rate; the lower wins a tie
    baseline: str | None = None  # its name if it is a baseline
    may_win: bool = True  # False for a baseline that the user's limits rule out: it is there to be compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the confirmation run says."""

    winner: str  # the key of the one to use
    against: Mapping[str, Comparison]  # the winner compared with each other finalist, by key
    tied: tuple[str, ...]  # keys of those that are as good as the fastest


def cost(config: PipelineConfig, *, cores: int, memory_bytes: float, baseline: bool) -> tuple[float, ...]:
    """Return what a configuration takes, compared in order: devices, conversion, workers, memory; then the familiar."""
    workers = config.loader.worker_count()
    return (
        float(config.devices),
        float(STORAGES[config.storage].converts),
        float(cores if workers is None else workers),
        round(memory_bytes / 2**26),  # 64 MiB more or less is no difference
        0.0 if baseline else 1.0,
    )


def block_order(keys: Sequence[str], block: int, seed: int) -> list[str]:
    """Return the order of a block, by a Williams design over keys that are shuffled once a round of `len(keys)` blocks.

    In a round each key has each place once; with an even number of keys each also follows each other once, and with an
    odd number it does so over two rounds, the second backwards.
    """
    count = len(keys)
    if count == 0:
        return []
    shuffled = sorted(keys)
    random.Random(f"{seed}/{block // (2 * count)}").shuffle(shuffled)
    zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]  # 0, 1, -1, 2, -2, ...
    order = [shuffled[(place + block) % count] for place in zigzag]
    return order[::-1] if (block // count) % 2 else order


def pairs(blocks: Blocks, belief: Belief, first: str, second: str) -> Comparison | None:
    """Compare two finalists over the blocks in which both ran, or return None if there is none.

    From fewer than three pairs (`Comparison.few`) no spread can be told: ratio and interval are the belief's then.
    """
    mine, other = blocks.get(first, {}), blocks.get(second, {})
    common = sorted(mine.keys() & other.keys())
    if not common:
        return None
    if len(common) >= FEWEST_PAIRS:
        return compare_pairs([mine[block] for block in common], [other[block] for block in common])
    return belief.compared(first, second, len(common))


def leader(finalists: Sequence[Finalist], blocks: Blocks, belief: Belief) -> str | None:
    """Return who is worth most, by all that is known, of those that may win and ran; None if nobody did."""
    ran = [each.key for each in finalists if each.may_win and blocks.get(each.key)]
    return belief.best(ran) if ran else None


def repeatability(belief: Belief) -> float:
    """Return by how much, in log units, two measurements of one configuration differ at most in 95 % of cases.

    The repeatability limit; 1 % on the stillest machine.
    """
    return max(REPEATABILITY * belief.noise, _LEAST)


def worth_having(belief: Belief) -> float:
    """Return what is no difference to anybody, in log units: the repeatability limit, but never more than 2 %."""
    return min(repeatability(belief), _MOST)


def as_good(belief: Belief, best: str, key: str) -> bool:
    """Whether a configuration may be taken for the best because it is cheaper.

    It cannot be told from the best, and is, with a probability of 90 %, no farther behind than `worth_having`.
    """
    behind, spread = belief.ahead(best, key)
    surely = behind + normal_point(2.0 * (1.0 - _SURE)) * spread
    return behind <= normal_point(0.05) * spread and surely <= worth_having(belief)


def standings(finalists: Sequence[Finalist], blocks: Blocks, belief: Belief, looks: int) -> dict[str, Standing]:
    """Return how each finalist stands to the leader, so far.

    Whoever looks after each block, and stops at the first that seems to decide, declares a difference where there is
    none in far more than one case of twenty. So the 5 % are shared out evenly among the looks and the finalists: the
    linear spending function (Lan and DeMets, Biometrika 70, 1983; Kim and DeMets, Biometrika 74, 1987) with
    Bonferroni's bound in place of the joint distribution of the looks, which holds for any dependence among them.

    Args:
        finalists: who is in the confirmation run.
        blocks: what ran.
        belief: of all that was measured.
        looks: how often this is asked at most.
    """
    first = leader(finalists, blocks, belief)
    found: dict[str, Standing] = {}
    alpha = 0.05 / (looks * max(1, len(finalists) - 1))
    far, width = student_t(belief.freedom, alpha), worth_having(belief)
    for key in (each.key for each in finalists if each.key != first):
        found[key] = Standing.OPEN
        if first is None or not blocks.get(key):
            continue
        behind, spread = belief.ahead(first, key)
        if behind - far * spread > 0.0:
            found[key] = Standing.SLOWER
        elif behind + far * spread <= width:
            found[key] = Standing.AS_GOOD
    return found


def still_in(finalists: Sequence[Finalist], blocks: Blocks, belief: Belief, looks: int) -> list[Finalist]:
    """Return who has to run again: the leader, and whoever is neither proved slower nor as good.

    Where all is decided: the leader and the best baseline, or else the best of the others, for an interval of three
    pairs. Who is several times slower needs none: then the leader runs alone.
    """
    first = leader(finalists, blocks, belief)
    if first is None:
        return list(finalists)
    standing = standings(finalists, blocks, belief, looks)
    kept = {first, *(key for key, each in standing.items() if each is Standing.OPEN)}
    others = [each for each in finalists if each.key != first]
    near = [each for each in others if belief.ahead(first, each.key)[0] <= math.log(_FAR)]
    if len(kept) == 1 and near:
        kept.add(belief.best([each.key for each in near if each.baseline] or [each.key for each in near]))
    return [each for each in finalists if each.key in kept]


def expected_blocks(
    finalists: Sequence[Finalist], values: Mapping[str, float], belief: Belief, blocks: tuple[int, int]
) -> dict[str, int]:
    """Return in how many blocks each will run at least, if its trials are right: who is far behind is soon left out.

    As in `still_in`, the leader does not run alone unless all others are several times slower.

    Args:
        finalists: who is in the confirmation run.
        values: what their trials say.
        belief: of all that was measured.
        blocks: fewest and most of the confirmation run.
    """
    fewest, most = blocks
    ranked = sorted(finalists, key=lambda each: (not each.may_win, -values[each.key], each.key))
    first, others = ranked[0], ranked[1:]
    expected = {first.key: fewest}
    alpha = 0.05 / (most * max(1, len(others)))
    for each in others:
        behind = math.log(values[first.key] / values[each.key])
        enough = (
            count
            for count in range(1, fewest)
            if behind > student_t(max(1, count * len(others) - 1), alpha) * belief.noise * math.sqrt(2 / (1 + count))
        )
        expected[each.key] = next(enough, fewest)
    near = [each for each in others if values[first.key] <= _FAR * values[each.key]]
    if near and all(expected[each.key] < fewest for each in others):
        expected[next((each for each in near if each.baseline), near[0]).key] = fewest
    return expected


def decided(finalists: Sequence[Finalist], blocks: Blocks, belief: Belief, looks: int) -> bool:
    """Whether more blocks would change nothing: everybody is proved slower than the leader, or as good."""
    if leader(finalists, blocks, belief) is None:
        return False
    return Standing.OPEN not in standings(finalists, blocks, belief, looks).values()


def verdict(finalists: Sequence[Finalist], blocks: Blocks, belief: Belief, looks: int) -> Verdict | None:
    """Return who wins by all that is known, or None if nobody could be measured."""
    first = leader(finalists, blocks, belief)
    if first is None:
        return None
    by_key = {finalist.key: finalist for finalist in finalists}
    others = [key for key, each in by_key.items() if key != first and each.may_win and blocks.get(key)]
    tied = [first, *(key for key in others if as_good(belief, first, key))]
    winner = min(tied, key=lambda key: (by_key[key].cost, -belief.value(key), key))
    against = {key: pairs(blocks, belief, winner, key) for key in by_key if key != winner}
    return Verdict(
        winner=winner,
        against={key: comparison for key, comparison in against.items() if comparison is not None},
        tied=tuple(sorted(tied)),
    )


def estimate(ran: Mapping[int, float], belief: Belief) -> Estimate:
    """Return the rate over blocks with its 95 % interval: Student's, of their logarithms.

    From fewer than three blocks no spread can be told: it is the one that all measurements together show.
    """
    logs, freedom = [math.log(rate) for rate in ran.values()], len(ran) - 1
    mean = fmean(logs)
    if len(logs) >= FEWEST_PAIRS:
        spread = stdev(logs)
    else:
        spread, freedom = math.hypot(belief.noise, belief.drift), belief.freedom
    reach = student_t_95(freedom) * spread / math.sqrt(len(logs))
    return Estimate(value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach))


def share(ran: Mapping[int, float], alone: Mapping[int, float], belief: Belief) -> Estimate | None:
    """Return how much of the model alone a configuration reaches, 0 to 1, from blocks in which both were measured.

    In pairs, since what slows a block down slows both: a fast block over a slow ceiling would be more than all of it.
    None, too, if it is far more than all of it all the same: the model alone was then disturbed in each block.
    """
    common = sorted(ran.keys() & alone.keys())
    if not common:
        return None
    found = estimate({block: ran[block] / alone[block] for block in common}, belief)
    if found.value > OVERTAKEN:
        return None
    return Estimate(value=min(1.0, found.value), low=min(1.0, found.low), high=min(1.0, found.high))
