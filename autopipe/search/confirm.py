"""The proof: who runs in it, in which order, and what its blocks say. Pure; the runs themselves are `study`'s.

The best of many noisy trials is too good to be true. So the best few and the baselines run again, each once a block, in
a fresh order each block; figures are compared within blocks, where drift is common to both; and where the difference is
no more than noise, the cheapest wins.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.stats import Comparison, compare_pairs, student_t_95
from autopipe.core.value import Estimate

Blocks: TypeAlias = Mapping[str, Mapping[int, float]]
"""For each configuration's key, its rate in each block it ran in."""

WORTH_HAVING = 0.98
"""What is not proved slower and within 2 % of the best is as good as the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Somebody in the proof.

    Attributes:
        key: of the configuration.
        config: the configuration.
        cost: what it takes beside its rate; the lower wins a tie.
        baseline: its name if it is a baseline.
        may_win: False for a baseline that the user's limits rule out: it is there to be compared with.
    """

    key: str
    config: PipelineConfig
    cost: tuple[float, ...]
    baseline: str | None = None
    may_win: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the proof says.

    Attributes:
        winner: the key of the one to use.
        against: the winner compared with each other contender, by key.
        tied: keys of those that are as good as the fastest.
    """

    winner: str
    against: Mapping[str, Comparison]
    tied: tuple[str, ...]


def cost(config: PipelineConfig, *, cores: int, memory_bytes: float, baseline: bool) -> tuple[float, ...]:
    """Return what a configuration takes, compared in order: conversion, workers, memory; then the familiar one."""
    workers = config.loader.worker_count()
    return (
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


def pairs(blocks: Blocks, first: str, second: str) -> Comparison | None:
    """Compare two contenders over the blocks in which both ran."""
    mine, other = blocks.get(first, {}), blocks.get(second, {})
    common = sorted(mine.keys() & other.keys())
    if not common:
        return None
    return compare_pairs([mine[block] for block in common], [other[block] for block in common])


def leader(contenders: Sequence[Contender], blocks: Blocks) -> str | None:
    """Return who is fastest so far, of those that may win and ran in the most blocks; None if nobody did."""
    ran = {each.key: blocks[each.key] for each in contenders if each.may_win and blocks.get(each.key)}
    most = max((len(rates) for rates in ran.values()), default=0)
    full = [key for key, rates in ran.items() if len(rates) == most]
    return max(full, key=lambda key: (_mean(ran[key]), key), default=None)


def still_in(contenders: Sequence[Contender], blocks: Blocks) -> list[Contender]:
    """Return who has to run again: everybody but those proved slower than the leader, a baseline in three pairs."""
    first = leader(contenders, blocks)
    kept = []
    for contender in contenders:
        comparison = None if first is None else pairs(blocks, contender.key, first)
        enough = 2 if contender.baseline is None else 3
        if comparison is None or not comparison.slower or comparison.pairs < enough:
            kept.append(contender)
    return kept


def decided(contenders: Sequence[Contender], blocks: Blocks) -> bool:
    """Whether more blocks would change nothing: everybody is proved slower than the leader, or provably as good."""
    first = leader(contenders, blocks)
    for contender in contenders:
        if first is None:
            return False
        if contender.key == first:
            continue
        comparison = pairs(blocks, contender.key, first)
        if comparison is None:
            return False
        if not comparison.slower and comparison.interval.low < WORTH_HAVING:
            return False
    return True


def verdict(contenders: Sequence[Contender], blocks: Blocks) -> Verdict | None:
    """Return who wins, or None if nobody could be measured."""
    first = leader(contenders, blocks)
    if first is None:
        return None
    by_key = {contender.key: contender for contender in contenders}
    tied = [first]
    for key, contender in by_key.items():
        comparison = None if key == first or not contender.may_win else pairs(blocks, key, first)
        if comparison is not None and not comparison.slower and comparison.ratio >= WORTH_HAVING:
            tied.append(key)
    winner = min(tied, key=lambda key: (by_key[key].cost, -_mean(blocks[key]), key))
    against = {key: pairs(blocks, winner, key) for key in by_key if key != winner}
    return Verdict(
        winner=winner,
        against={key: comparison for key, comparison in against.items() if comparison is not None},
        tied=tuple(sorted(tied)),
    )


def estimate(ran: Mapping[int, float]) -> Estimate:
    """Return the rate over blocks, with Student's 95 % interval of their logarithms; one block has no width."""
    logs = [math.log(rate) for rate in ran.values()]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return Estimate(value=math.exp(mean), low=math.exp(mean), high=math.exp(mean))
    spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / (len(logs) - 1))
    reach = student_t_95(len(logs) - 1) * spread / math.sqrt(len(logs))
    return Estimate(value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach))


def _mean(ran: Mapping[int, float]) -> float:
    return sum(math.log(rate) for rate in ran.values()) / len(ran)
