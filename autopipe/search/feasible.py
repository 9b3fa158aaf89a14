"""The configurations of a space that can run, are allowed and are useful, and the reasons against the others. Pure.

A reason is a sentence for the user. Only a measurement can tell how much memory is really used: that is a constraint on
the trial, see `autopipe.search.objective`.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autopipe.errors import ConfigError, SpaceError
from autopipe.hardware.machine import size_text
from autopipe.measure import costs
from autopipe.measure.facts import Facts
from autopipe.pipeline.config import CACHE_SHARE, STORAGES, Params, PipelineConfig, Value, from_config, to_config
from autopipe.pipeline.space import Space

MOST_CANDIDATES = 10_000
_FEW = 4  # times the useful number, by measurement: a search does not try more
_LESS = 0.95  # a cut must take less than this share of a deeper one's room to be worth a trial


class Rule(enum.StrEnum):
    """The rule that leaves a configuration out."""

    FOREIGN = "foreign"  # foreign code
    ONLY = "only"  # `--only`
    INVALID = "invalid"  # no such configuration
    IMPOSSIBLE = "impossible"  # with this workload or on this machine
    DEVICES = "devices"
    POINTLESS = "pointless"  # brings nothing, by the measurements
    TWIN = "twin"  # runs as another does
    CONVERT = "convert"  # needs a conversion, which was not asked for
    DISK = "disk"
    CUT = "cut"
    CACHE = "cache"
    READS = "reads"
    USEFUL_WORKERS = "useful_workers"
    MAX_WORKERS = "max_workers"
    MAX_MEMORY = "max_memory"


class Rejection(NamedTuple):
    """The reason for leaving out a configuration: for a program, and as a sentence, whose wording may change."""

    rule: Rule
    reason: str


def not_asked_for(name: str, values: Sequence[Value]) -> Rejection:
    """Return the reason against settings that `--only` does not name."""
    return Rejection(Rule.ONLY, f"{name} {', '.join(map(str, values))}: not in `--only`")


def why_not(config: PipelineConfig, facts: Facts) -> Rejection | None:
    """Return the first reason why `config` cannot run or is not allowed, or None."""
    found = (rule(config, facts) for rule in _RULES)
    return next((each for each in found if each is not None), None)


def _foreign(config: PipelineConfig, facts: Facts) -> Rejection | None:
    if not config.loader.is_foreign:
        return None
    return Rejection(Rule.FOREIGN, "somebody else's code: there to be compared with")


def _only(config: PipelineConfig, facts: Facts) -> Rejection | None:
    params = from_config(config) if facts.limits.only else {}
    for name, values in facts.limits.only.items():
        if name in params and params[name] not in values:
            return not_asked_for(name, [params[name]])
    return None


def _impossible(config: PipelineConfig, facts: Facts) -> Rejection | None:
    params = from_config(config) if facts.workload.impossible else {}
    found = (each for each in facts.workload.impossible if params.get(each.parameter) == each.value)
    return next((Rejection(Rule.IMPOSSIBLE, f"{each.parameter} {each.value}: {each.reason}") for each in found), None)


def _setup(config: PipelineConfig, facts: Facts) -> Rejection | None:
    found = (useless(name, value, facts) for name, value in config.model_setup._asdict().items())
    return next((each for each in found if each is not None), None)


def useless(name: str, value: Value, facts: Facts) -> Rejection | None:
    """Return the reason why a setting of the model's setup (a number of devices, say) cannot run, or brings nothing."""
    if (reason := facts.workload.against(name, value)) is not None:
        return Rejection(Rule.IMPOSSIBLE, f"{name} {value}: {reason}")
    if name == "devices" and isinstance(value, int):
        most = max(1, facts.gpus)
        if value > most:
            why = facts.gpus_reason or f"Keras can train on {most} here"
            return Rejection(Rule.DEVICES, f"devices > {most}: {why}")
        if (size := facts.workload.batch_size) % value:
            return Rejection(Rule.DEVICES, f"devices {value}: a batch of {size} cannot be shared out evenly")
    if (name, value) in facts.pointless and name not in facts.limits.only:
        return Rejection(Rule.POINTLESS, f"{name} {value}: {facts.pointless[name, value]}")
    return None


def _cache(config: PipelineConfig, facts: Facts) -> Rejection | None:
    needed, free = costs.cache_bytes(config, facts.workload), facts.memory_bytes
    if config.cache_fraction < 1 and has_room_for_all(facts):
        return Rejection(Rule.CACHE, f"cache_fraction {config.cache_fraction}: there is room for all samples")
    if needed is None or free is None or needed <= CACHE_SHARE * free:
        return None
    what = "the whole set" if config.cache_fraction == 1 else f"{config.cache_fraction:.0%} of the set"
    most = f", of which it may take {CACHE_SHARE:.0%}" if needed <= free else ""
    return Rejection(
        Rule.CACHE, f"cache {config.cache}: needs {size_text(needed)} for {what}, {size_text(free)} free{most}"
    )


def has_room_for_all(facts: Facts) -> bool:
    """Return True if a cache of all samples fits, as far as is known."""
    whole, free = facts.workload.fixed_bytes, facts.memory_bytes
    return whole is None or free is None or whole <= CACHE_SHARE * free


def _convert(config: PipelineConfig, facts: Facts) -> Rejection | None:
    if not STORAGES[config.storage].converts:
        return None
    if not facts.limits.convert:
        return Rejection(
            Rule.CONVERT,
            f"storage {config.storage}: must be converted first, which needs `--convert`, or `--epochs N` to weigh it",
        )
    needed, free = costs.kept_bytes(config, facts.workload), facts.disk_bytes
    if needed is not None and free is not None and needed > free:
        return Rejection(
            Rule.DISK, f"storage {config.storage}: needs {size_text(needed)} on disk, {size_text(free)} free"
        )
    return None


def _cut(config: PipelineConfig, facts: Facts) -> Rejection | None:
    sizes = facts.workload.cuts.get(config.storage)
    if config.cut == "deepest" or sizes is None or config.cut in worthwhile_cuts(config.storage, facts):
        return None
    if config.cut not in sizes:
        why = f"{config.storage} keeps these samples after {', '.join(map(str, sizes))} ops only"
    elif config.cut == max(sizes):
        why = f"is the deepest for {config.storage}, which is tried as such"
    else:
        why = f"takes {size_text(sizes[config.cut])} as {config.storage}, no less than deeper ones"
    return Rejection(Rule.CUT, f"cut {config.cut}: {why}")


def worthwhile_cuts(storage: str, facts: Facts) -> list[int]:
    """Return the cuts that save room over every deeper one; others leave more to do and gain nothing."""
    sizes = facts.workload.cuts.get(storage, {})
    return [cut for cut in sizes if any(deeper > cut for deeper in sizes) and _saves_room(cut, sizes)]


def _saves_room(cut: int, sizes: Mapping[int, int]) -> bool:
    return all(sizes[cut] < _LESS * size for deeper, size in sizes.items() if deeper > cut)


def _reads_at_once(config: PipelineConfig, facts: Facts) -> Rejection | None:
    at_once, useful = config.loader.reads_at_once(), facts.reads_at_once
    if not config.loader.reads_ahead() or at_once is None or useful is None:
        return None
    if useful == 1:
        return Rejection(Rule.READS, "read_ahead: reads do not wait here")
    if at_once < _FEW * useful:
        return None
    return Rejection(Rule.READS, f"read_ahead {at_once}: more than {useful} reads at a time bring nothing")


def _useful_workers(config: PipelineConfig, facts: Facts) -> Rejection | None:
    elsewhere, count = config.loader.works_elsewhere, config.loader.worker_count()
    here = facts.workers_beside_reads if config.loader.reads_ahead() else facts.workers_at_once
    useful = facts.workers_elsewhere if elsewhere else here
    if useful is None or count is None:
        return None
    most = 2 * useful if elsewhere else 2 * max(facts.cores, useful)
    if count <= most:
        return None
    return Rejection(Rule.USEFUL_WORKERS, f"more than {most} workers: nothing waits that they could make use of")


def _workers(config: PipelineConfig, facts: Facts) -> Rejection | None:
    most, count = facts.limits.workers, config.loader.worker_count()
    if most is None:
        return None
    if count is None:
        return Rejection(
            Rule.MAX_WORKERS, f"{config.loader.kind} with auto workers: `--max-workers {most}` cannot be kept"
        )
    if count <= most:
        return None
    return Rejection(Rule.MAX_WORKERS, f"more than {most} workers: `--max-workers`")


def _memory(config: PipelineConfig, facts: Facts) -> Rejection | None:
    most = facts.limits.memory_bytes
    if most is None or costs.memory_bytes(config, facts.workload) <= most:
        return None
    return Rejection(Rule.MAX_MEMORY, f"cache and queue need more than `--max-memory` {size_text(most)}")


_RULES: tuple[Callable[[PipelineConfig, Facts], Rejection | None], ...] = (
    _foreign,
    _only,
    _impossible,
    _setup,
    _convert,
    _cut,
    _cache,
    _reads_at_once,
    _useful_workers,
    _workers,
    _memory,
)

_TWIN = Rejection(Rule.TWIN, "device_prefetch: makes no difference without an accelerator")


# ---------------------------------------------------------------- the candidates of a space


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration of the space, its flat parameters and its key."""

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
    """The remaining configurations of a space."""

    space: Space  # the given one, limited by `only`
    candidates: tuple[Candidate, ...]  # the configurations that can run, each once
    drops: tuple[Drop, ...]  # why the others are left out, the commonest reason first


def trim(space: Space, facts: Facts) -> Trimmed:
    """Leave out configurations that cannot run or are not allowed. Raises SpaceError if nothing is left, or
    `facts.limits.only` names values that the space does not have.
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
    """Return the configuration without knobs that have no effect here: equivalent ones become equal."""
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
    """Leave out useless configurations, now that `facts` know more; none if that would leave nothing. `bounds` are the
    measured ones, for a space that names them. Raises SpaceError if a parameter cannot take a value that follows from
    the measurements.
    """
    if trimmed.space.unmeasured and bounds:
        try:
            return trim(trimmed.space.measured(bounds), facts)
        except SpaceError:  # only useless configurations may use it
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
    """Return the space without settings that no candidate can have, which would multiply its grid.

    Those of devices and channels are counted in `dropped`; cuts and parts of a cache are not.
    """
    cuts = {cut for storage in facts.workload.cuts for cut in worthwhile_cuts(storage, facts)}
    part = not has_room_for_all(facts)

    def worth(name: str, value: Value) -> bool:
        if name == "cut":
            return value == "deepest" or value in cuts
        return name != "cache_fraction" or part or value == 1

    for parameter in space:
        values = [value for value in parameter.values if worth(parameter.name, value)]
        if values:  # else the user has asked for it, and each of them gets its reason
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
    """Count the combinations, up to the number above which a space is not listed."""
    return sum(1 for _ in itertools.islice(space.grid(), 10 * MOST_CANDIDATES))


def _combinations(space: Space) -> Iterator[Params]:
    """Yield the whole grid or, if it is too large, an even sample of it that is the same each time."""
    grid = list(itertools.islice(space.grid(), MOST_CANDIDATES + 1))
    if len(grid) <= MOST_CANDIDATES:
        return iter(grid)
    rng = random.Random(0)
    drawn = (space.sample(rng) for _ in range(3 * MOST_CANDIDATES))
    unique = {tuple(sorted(params.items(), key=lambda item: item[0])): params for params in drawn}
    return itertools.islice(iter(unique.values()), MOST_CANDIDATES)
