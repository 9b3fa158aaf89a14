"""The rules of the confirmation run: its configurations, their order, and the verdict. Runs nothing.

The best of many noisy trials is too good to be true. So the best few and the baselines run again, each once a block, in
a fresh order each block. The surrogate weighs blocks and trials together, and removes what a block has in common. If
a difference is no more than noise, the cheapest configuration wins.

The last section is the effect of each setting: the rate over that of the same configuration with another value of it,
by the surrogate, so that trials that differ in more than one setting count, too.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeAlias

from autopipe.measure.facts import OVERTAKEN
from autopipe.measure.stats import (
    FEWEST_PAIRS,
    REPEATABILITY,
    Comparison,
    compare_pairs,
    normal_point,
    student_t,
    student_t_95,
)
from autopipe.pipeline.config import STORAGES, PipelineConfig, Value, from_config
from autopipe.search.result import Effect
from autopipe.search.surrogate import Surrogate
from autopipe.values import Estimate

Blocks: TypeAlias = Mapping[str, Mapping[int, float]]
"""The rate of each configuration in each block in which it ran, by key."""

_LEAST, _MOST = 0.01, 0.02  # a difference that counts on no machine, and one that counts on all
FAR = 10.0
"""Times faster: beyond it the exact factor does not matter, and a block of the slower one takes long."""
_SURE = 0.9  # probability that a configuration taken for as good is no farther behind than it may be


class Standing(enum.Enum):
    """A finalist compared with the leader."""

    OPEN = enum.auto()
    SLOWER = enum.auto()
    AS_GOOD = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A configuration in the confirmation run."""

    key: str
    config: PipelineConfig
    cost: tuple[float, ...]  # beside its rate; the lower wins a tie
    baseline: str | None = None  # its name if it is a baseline
    may_win: bool = True  # False for a baseline that the user's limits rule out: it only serves for comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of the confirmation run."""

    winner: str  # the key of the configuration to use
    against: Mapping[str, Comparison]  # the winner compared with each other finalist, by key
    tied: tuple[str, ...]  # keys of the finalists that are as good as the fastest


def cost(config: PipelineConfig, *, cores: int, memory_bytes: float, baseline: bool) -> tuple[float, ...]:
    """Return the cost of a configuration, compared in order: devices, conversion, workers, memory; then baselines."""
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
    odd number over two rounds, the second backwards.
    """
    count = len(keys)
    if count == 0:
        return []
    shuffled = sorted(keys)
    random.Random(f"{seed}/{block // (2 * count)}").shuffle(shuffled)
    zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]  # 0, 1, -1, 2, -2, ...
    order = [shuffled[(place + block) % count] for place in zigzag]
    return order[::-1] if (block // count) % 2 else order


def pairs(blocks: Blocks, surrogate: Surrogate, first: str, second: str) -> Comparison | None:
    """Compare two finalists over the blocks in which both ran; None if there is no such block.

    Fewer than three pairs (`Comparison.few`) show no spread: ratio and interval are the surrogate's then.
    """
    mine, other = blocks.get(first, {}), blocks.get(second, {})
    common = sorted(mine.keys() & other.keys())
    if not common:
        return None
    if len(common) >= FEWEST_PAIRS:
        return compare_pairs([mine[block] for block in common], [other[block] for block in common])
    return surrogate.compared(first, second, len(common))


def leader(finalists: Sequence[Finalist], blocks: Blocks, surrogate: Surrogate) -> str | None:
    """Return the key of the finalist with the highest value, of those that may win and ran; None if none did."""
    ran = [each.key for each in finalists if each.may_win and blocks.get(each.key)]
    return surrogate.best(ran) if ran else None


def repeatability(surrogate: Surrogate) -> float:
    """Return the largest difference of two measurements of one configuration in 95 % of cases, in log units.

    It is at least 1 %.
    """
    return max(REPEATABILITY * surrogate.noise, _LEAST)


def worth_having(surrogate: Surrogate) -> float:
    """Return the largest difference that does not matter, in log units: the repeatability limit, at most 2 %."""
    return min(repeatability(surrogate), _MOST)


def as_good(surrogate: Surrogate, best: str, key: str) -> bool:
    """Return True if a cheaper configuration may win over the best.

    It may if there is no significant difference and, with a probability of 90 %, it is at most `worth_having` behind.
    """
    behind, spread = surrogate.ahead(best, key)
    surely = behind + normal_point(2.0 * (1.0 - _SURE)) * spread
    return behind <= normal_point(0.05) * spread and surely <= worth_having(surrogate)


def standings(finalists: Sequence[Finalist], blocks: Blocks, surrogate: Surrogate, looks: int) -> dict[str, Standing]:
    """Compare each finalist with the leader so far, as one of at most `looks` times.

    A test after each block that stops at the first difference finds one among equals in far more than one case of
    twenty. So the 5 % are shared out evenly among the looks and the finalists: the linear spending function (Lan and
    DeMets, Biometrika 70, 1983; Kim and DeMets, Biometrika 74, 1987) with Bonferroni's bound in place of the joint
    distribution of the looks, which holds for any dependence among them.
    """
    first = leader(finalists, blocks, surrogate)
    found: dict[str, Standing] = {}
    alpha = 0.05 / (looks * max(1, len(finalists) - 1))
    far, width = student_t(surrogate.freedom, alpha), worth_having(surrogate)
    for key in (each.key for each in finalists if each.key != first):
        found[key] = Standing.OPEN
        if first is None or not blocks.get(key):
            continue
        behind, spread = surrogate.ahead(first, key)
        if behind - far * spread > 0.0:
            found[key] = Standing.SLOWER
        elif behind + far * spread <= width:
            found[key] = Standing.AS_GOOD
    return found


def still_in(finalists: Sequence[Finalist], blocks: Blocks, surrogate: Surrogate, looks: int) -> list[Finalist]:
    """Return the finalists that have to run again: the leader, and those neither proved slower nor as good.

    If all is decided: the leader and the best baseline, or else the best of the others, for an interval of three
    pairs. A finalist that is many times slower needs none; then the leader runs alone.
    """
    first = leader(finalists, blocks, surrogate)
    if first is None:
        return list(finalists)
    standing = standings(finalists, blocks, surrogate, looks)
    kept = {first, *(key for key, each in standing.items() if each is Standing.OPEN)}
    others = [each for each in finalists if each.key != first]
    near = [each for each in others if surrogate.ahead(first, each.key)[0] <= math.log(FAR)]
    if len(kept) == 1 and near:
        kept.add(surrogate.best([each.key for each in near if each.baseline] or [each.key for each in near]))
    return [each for each in finalists if each.key in kept]


def verdict(finalists: Sequence[Finalist], blocks: Blocks, surrogate: Surrogate) -> Verdict | None:
    """Return the winner by all measurements; None if no finalist that may win could be measured."""
    first = leader(finalists, blocks, surrogate)
    if first is None:
        return None
    by_key = {finalist.key: finalist for finalist in finalists}
    others = [key for key, each in by_key.items() if key != first and each.may_win and blocks.get(key)]
    tied = [first, *(key for key in others if as_good(surrogate, first, key))]
    winner = min(tied, key=lambda key: (by_key[key].cost, -surrogate.value(key), key))
    against = {key: pairs(blocks, surrogate, winner, key) for key in by_key if key != winner}
    return Verdict(
        winner=winner,
        against={key: comparison for key, comparison in against.items() if comparison is not None},
        tied=tuple(sorted(tied)),
    )


def estimate(ran: Mapping[int, float], surrogate: Surrogate) -> Estimate:
    """Return the rate over blocks with its 95 % interval: Student's, of their logarithms.

    With fewer than three blocks the interval comes from the spread of all measurements.
    """
    logs, freedom = [math.log(rate) for rate in ran.values()], len(ran) - 1
    mean = fmean(logs)
    if len(logs) >= FEWEST_PAIRS:
        spread = stdev(logs)
    else:
        spread, freedom = math.hypot(surrogate.noise, surrogate.learnt.drift), surrogate.freedom
    reach = student_t_95(freedom) * spread / math.sqrt(len(logs))
    return Estimate(value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach))


def share(ran: Mapping[int, float], alone: Mapping[int, float], surrogate: Surrogate) -> Estimate | None:
    """Return a configuration's share of the model alone, 0 to 1, from the blocks in which both were measured.

    The share is of pairs, because a disturbance of a block slows both. None if no block has both, or if the share is
    far above 1: then the model alone was disturbed in each block.
    """
    common = sorted(ran.keys() & alone.keys())
    if not common:
        return None
    found = estimate({block: ran[block] / alone[block] for block in common}, surrogate)
    if found.value > OVERTAKEN:
        return None
    return Estimate(value=min(1.0, found.value), low=min(1.0, found.low), high=min(1.0, found.high))


# -------------------- effects

_DEPENDENT = {"cache_fraction": "cache", "cut": "storage"}  # set if the other is


def effects(config: PipelineConfig, surrogate: Surrogate, blocks: Blocks) -> tuple[Effect, ...]:
    """Return the effect of each setting of a measured configuration, the largest first; `blocks` are of the
    confirmation. Of several configurations with one other value the fastest counts, and measured ones before others.
    """
    own, measured = from_config(config), set(surrogate.measured)
    if config.key() not in measured:
        return ()
    best: dict[tuple[str, Value], tuple[bool, float, str]] = {}
    for key, other in surrogate.features.configs.items():
        change = None if other.loader.is_foreign else only_change(own, from_config(other))
        if change is not None:
            this = (key in measured, surrogate.value(key), key)
            best[change] = max(best.get(change, this), this)
    found = []
    for (setting, value), (was_measured, _, key) in best.items():
        mine, its = blocks.get(config.key(), {}), blocks.get(key, {})
        common = sorted(mine.keys() & its.keys())
        gain = surrogate.compared(config.key(), key, len(common))
        ratios = [mine[at] / its[at] for at in common]
        effect = Effect(
            setting=setting,
            value=own[setting],
            other=value,
            ratio=gain.ratio,
            low=gain.interval.low,
            high=gain.interval.high if math.isfinite(gain.interval.high) else None,
            measured=was_measured,
            paired=_paired(ratios) if len(ratios) > 1 else None,
        )
        found.append(effect)
    return tuple(sorted(found, key=lambda each: -abs(math.log(each.ratio))))


def _paired(ratios: Sequence[float]) -> Estimate:
    gain = compare_pairs(ratios, [1.0] * len(ratios))
    return Estimate(value=gain.ratio, low=gain.interval.low, high=gain.interval.high)


def only_change(own: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[str, Value] | None:
    """Return the only setting in which two configurations differ, with the other's value; else None.

    A setting that only one of them has depends on another: the knobs of a loader, the fraction that a cache holds.
    """
    changed = [name for name in own if name in other and own[name] != other[name]]
    changed = [name for name in changed if _DEPENDENT.get(name) not in changed]
    return (changed[0], other[changed[0]]) if len(changed) == 1 else None
