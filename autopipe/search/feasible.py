"""Which configurations of a space can run at all, and why the others cannot. Pure: facts in, candidates out.

A reason is a sentence for the user. What only a measurement can tell (memory really used, say) is a constraint on the
trial and is looked after in `autopipe.search.objective`.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.facts import Facts
from autopipe.core.params import Params, Value, to_config
from autopipe.core.space import Space
from autopipe.errors import ConfigError, SpaceError
from autopipe.search.rules import (
    Rejection,
    Rule,
    has_room_for_all,
    not_asked_for,
    useless,
    why_not,
    worthwhile_cuts,
)

MOST_CANDIDATES = 10_000
_TWIN = Rejection(Rule.TWIN, "device_prefetch: makes no difference without an accelerator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration that may be tried, its flat parameters and its key."""

    params: Params
    config: PipelineConfig
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Configurations left out for one reason: the rule, and a sentence."""

    rule: Rule
    reason: str
    configs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """What is left of a space."""

    space: Space  # as it was, but for what the user limited it to with `only`
    candidates: tuple[Candidate, ...]  # the configurations that can run, each once
    drops: tuple[Drop, ...]  # why the others are left out, the commonest reason first


def trim(space: Space, facts: Facts) -> Trimmed:
    """Leave out what cannot run or is not allowed.

    Raises:
        SpaceError: nothing is left, or `facts.limits.only` names what the space does not have.
    """
    dropped: Counter[Rejection] = Counter()
    narrowed = space
    for name, values in facts.limits.only.items():
        narrowed = narrowed.only(name, values)
        gone = [value for value in space[name].values if value not in narrowed[name].values]
        if gone:
            dropped[not_asked_for(name, gone)] = 0
    candidates: dict[str, Candidate] = {}
    for params in _combinations(_worth_listing(narrowed, facts, dropped)):
        try:
            config = to_config(params)
        except ConfigError as error:
            dropped[Rejection(Rule.INVALID, error.message)] += 1
            continue
        why = why_not(config, facts)
        if why is None:
            candidate = Candidate(params=params, config=config, key=config.key())
            kept = candidates.setdefault(twin(config, facts).key(), candidate)
            if kept.key != config.key():
                dropped[_TWIN] += 1
        else:
            dropped[why] += 1
    if not candidates:
        reasons = "; ".join(each.reason for each in dropped)
        raise SpaceError(
            f"No configuration of this space can run here: {reasons}.", hint="Widen the space or the limits."
        )
    drops = _drops(dropped)
    return Trimmed(space=narrowed, candidates=tuple(candidates.values()), drops=drops)


def _drops(dropped: Counter[Rejection]) -> tuple[Drop, ...]:
    return tuple(Drop(rule=why.rule, reason=why.reason, configs=count) for why, count in dropped.most_common())


def twin(config: PipelineConfig, facts: Facts) -> PipelineConfig:
    """Return what all configurations have in common that are the same here: knobs without effect are left out of it."""
    return config if facts.accelerator else config.model_copy(update={"device_prefetch": 0})


def convertible(space: Space, facts: Facts) -> tuple[Candidate, ...]:
    """Return the configurations that could run if the user let samples be converted."""
    names = [str(value) for each in space if each.name == "storage" for value in each.values]
    converting = [name for name in names if STORAGES[name].converts]
    try:
        return trim(space.only("storage", converting), facts.converting).candidates
    except SpaceError:
        return ()


def narrowed(trimmed: Trimmed, facts: Facts, bounds: Mapping[str, int] | None = None) -> Trimmed:
    """Leave out what is of no use, now that `facts` know more; nothing if that would leave nothing.

    `bounds` are what was measured, for a space that names it.

    Raises:
        SpaceError: a parameter cannot take a value that follows from what was measured.
    """
    if trimmed.space.unmeasured and bounds:
        try:
            return trim(trimmed.space.measured(bounds), facts)
        except SpaceError:  # it may be for nothing but what is not worth a trial
            return trim(trimmed.space.measured(bounds), facts.unmeasured)
    dropped = Counter({Rejection(drop.rule, drop.reason): drop.configs for drop in trimmed.drops})
    left = []
    for candidate in trimmed.candidates:
        why = why_not(candidate.config, facts)
        if why is None:
            left.append(candidate)
        else:
            dropped[why] += 1
    if not left:
        return trimmed
    drops = _drops(dropped)
    return Trimmed(space=trimmed.space, candidates=tuple(left), drops=drops)


def _worth_listing(space: Space, facts: Facts, dropped: Counter[Rejection]) -> Space:
    """Return the space without settings that could be no candidate, which would multiply its grid.

    What is left out of devices and channels is counted as `dropped`; cuts and parts of a cache would say nothing.
    """
    cuts = {cut for storage in facts.workload.cuts for cut in worthwhile_cuts(storage, facts)}
    part = not has_room_for_all(facts)

    def worth(name: str, value: Value) -> bool:
        if name == "cut":
            return value == "deepest" or value in cuts
        return name != "cache_fraction" or part or value == 1

    for parameter in space:
        values = [value for value in parameter.values if worth(parameter.name, value)]
        if values:  # if not, the user has asked for it, and each of them gets its reason
            space = space.only(parameter.name, values)
    for name in {"devices", "channels"} & {each.name for each in space}:
        reasons = {value: useless(name, value, facts) for value in space[name].values}
        left = [value for value, reason in reasons.items() if reason is None]
        if left and len(left) < len(reasons):
            whole, space = _size(space), space.only(name, left)
            each = (whole - _size(space)) // (len(reasons) - len(left))
            dropped.update({reason: each for reason in reasons.values() if reason is not None})
    return space


def _size(space: Space) -> int:
    """Return how many combinations there are; counting ends where a space is too large to be listed anyway."""
    return sum(1 for _ in itertools.islice(space.grid(), 10 * MOST_CANDIDATES))


def _combinations(space: Space) -> Iterator[Params]:
    """Yield the whole grid, or where it is too large, an even sample of it that is the same each time."""
    grid = list(itertools.islice(space.grid(), MOST_CANDIDATES + 1))
    if len(grid) <= MOST_CANDIDATES:
        return iter(grid)
    rng = random.Random(0)
    drawn = (space.sample(rng) for _ in range(3 * MOST_CANDIDATES))
    unique = {tuple(sorted(params.items(), key=lambda item: item[0])): params for params in drawn}
    return itertools.islice(iter(unique.values()), MOST_CANDIDATES)
