"""Which configurations of a space can run at all, and why the others cannot. Pure: facts in, candidates out.

A reason is a sentence for the user. What only a measurement can tell (memory really used, say) is a constraint on the
trial and is looked after in `autopipe.search.objective`.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from autopipe.core import costs
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.facts import Facts, Limits
from autopipe.core.params import Params, Value, from_config, to_config
from autopipe.core.space import Space
from autopipe.errors import ConfigError, SpaceError

MOST_CANDIDATES = 10_000
_GIB = 2**30
_FEW = 4  # times what is of use, by measurement, is as far as a search looks
_LESS = 0.95  # a cut must take less than this share of a deeper one's room to be worth a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration that may be tried: its flat parameters, and its canonical form with the key of that form."""

    params: Params
    config: PipelineConfig
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Configurations left out for one reason."""

    reason: str
    configs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """What is left of a space.

    Attributes:
        space: as it was, but for what the user limited it to with `only`.
        candidates: the configurations that can run, each canonical form once.
        drops: why the others are left out, the commonest reason first.
    """

    space: Space
    candidates: tuple[Candidate, ...]
    drops: tuple[Drop, ...]


def trim(space: Space, facts: Facts, limits: Limits) -> Trimmed:
    """Leave out what cannot run or is not allowed.

    Raises:
        SpaceError: nothing is left, or `limits.only` names what the space does not have.
    """
    dropped: Counter[str] = Counter()
    narrowed = space
    for name, values in limits.only.items():
        narrowed = narrowed.only(name, values)
        gone = [value for value in space[name].values if value not in narrowed[name].values]
        if gone:
            dropped[f"{name} {', '.join(map(str, gone))}: not in `--only`"] = 0
    candidates: dict[str, Candidate] = {}
    for params in _combinations(_worth_listing(narrowed, facts, limits, dropped)):
        try:
            config = to_config(params).normalised()
        except ConfigError as error:
            dropped[error.message] += 1
            continue
        why = why_not(config, facts, limits)
        if why is None:
            candidate = Candidate(params=params, config=config, key=config.key())
            kept = candidates.setdefault(_twin(config, facts).key(), candidate)
            if kept.key != config.key():
                dropped["device_prefetch: makes no difference without an accelerator"] += 1
        else:
            dropped[why] += 1
    if not candidates:
        reasons = "; ".join(dropped)
        raise SpaceError(
            f"No configuration of this space can run here: {reasons}.", hint="Widen the space or the limits."
        )
    drops = tuple(Drop(reason=reason, configs=count) for reason, count in dropped.most_common())
    return Trimmed(space=narrowed, candidates=tuple(candidates.values()), drops=drops)


def _twin(config: PipelineConfig, facts: Facts) -> PipelineConfig:
    """Return what all configurations have in common that are the same here: knobs without effect are left out of it."""
    return config if facts.accelerator is not False else config.model_copy(update={"device_prefetch": 0})


def convertible(space: Space, facts: Facts, limits: Limits) -> tuple[Candidate, ...]:
    """Return the configurations that could run if the user let samples be converted."""
    names = [str(value) for each in space if each.name == "storage" for value in each.values]
    converting = [name for name in names if STORAGES[name].converts]
    try:
        return trim(space.only("storage", converting), facts, replace(limits, convert=True)).candidates
    except SpaceError:
        return ()


def narrowed(trimmed: Trimmed, facts: Facts, limits: Limits, bounds: Mapping[str, int] | None = None) -> Trimmed:
    """Leave out what is of no use, now that `facts` know more; nothing if that would leave nothing.

    Args:
        trimmed: the space and its candidates.
        facts: what is known.
        limits: what the user allows.
        bounds: what was measured, for a space that names it.

    Raises:
        SpaceError: a parameter cannot take a value that follows from what was measured.
    """
    if trimmed.space.unmeasured and bounds:
        return trim(trimmed.space.measured(bounds), facts, limits)
    dropped = Counter({drop.reason: drop.configs for drop in trimmed.drops})
    left = []
    for candidate in trimmed.candidates:
        why = why_not(candidate.config, facts, limits)
        if why is None:
            left.append(candidate)
        else:
            dropped[why] += 1
    if not left:
        return trimmed
    drops = tuple(Drop(reason=reason, configs=count) for reason, count in dropped.most_common())
    return Trimmed(space=trimmed.space, candidates=tuple(left), drops=drops)


def _worth_listing(space: Space, facts: Facts, limits: Limits, dropped: Counter[str]) -> Space:
    """Return the space without settings that could be no candidate, which would multiply its grid.

    What is left out of devices and channels is counted as `dropped`; cuts and parts of a cache would say nothing.
    """
    cuts = {cut for storage in facts.cuts for cut in _worthwhile_cuts(storage, facts)}
    part = facts.prefix_bytes is not None and facts.memory_bytes is not None and facts.prefix_bytes > facts.memory_bytes

    def worth(name: str, value: Value) -> bool:
        if name == "cut":
            return value == "deepest" or value in cuts
        return name != "cache_fraction" or part or value == 1

    for parameter in space:
        values = [value for value in parameter.values if worth(parameter.name, value)]
        if values:  # if not, the user has asked for it, and each of them gets its reason
            space = space.only(parameter.name, values)
    for name in {"devices", "channels"} & {each.name for each in space}:
        reasons = {value: _useless(name, value, facts, limits) for value in space[name].values}
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


def why_not(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    """Return the first reason why `config` cannot run or is not allowed, or None."""
    for rule in _RULES:
        reason = rule(config, facts, limits)
        if reason is not None:
            return reason
    return None


# ---------------------------------------------------------------- rules

Rule = Callable[[PipelineConfig, Facts, Limits], str | None]


def _foreign(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    return "somebody else's code: there to be compared with" if config.loader.is_foreign else None


def _only(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    params = from_config(config) if limits.only else {}
    for name, values in limits.only.items():
        if name in params and params[name] not in values:
            return f"{name} {params[name]}: not in `--only`"
    return None


def _impossible(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    params: dict[str, Value] = from_config(config) if facts.impossible else {}
    for (name, value), reason in facts.impossible.items():
        if name in params and params[name] == value:
            return f"{name} {value}: {reason}"
    return None


def _setup(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    return _useless("devices", config.devices, facts, limits) or _useless("channels", config.channels, facts, limits)


def _useless(name: str, value: Value, facts: Facts, limits: Limits) -> str | None:
    """Return why a number of devices or an order of channels cannot be, or brings nothing."""
    if (name, value) in facts.impossible:
        return f"{name} {value}: {facts.impossible[name, value]}"
    if name == "devices" and isinstance(value, int):
        most = max(1, facts.gpus)
        if value > most:
            return f"devices > {most}: {facts.gpus_reason or f'Keras can train on {most} here'}"
        if facts.batch_size % value:
            return f"devices {value}: a batch of {facts.batch_size} cannot be shared out evenly"
    if (name, value) in facts.pointless and name not in limits.only:
        return f"{name} {value}: {facts.pointless[name, value]}"
    return None


def _cache(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    needed, free, whole = costs.cache_bytes(config, facts), facts.memory_bytes, facts.prefix_bytes
    if config.cache_fraction < 1 and (whole is None or free is None or whole <= free):
        return f"cache_fraction {config.cache_fraction}: there is room for all samples"
    if needed is None or free is None or needed <= free:
        return None
    what = "the whole set" if config.cache_fraction == 1 else f"{config.cache_fraction:.0%} of the set"
    return f"cache {config.cache}: needs {_gib(needed)} for {what}, {_gib(free)} free"


def _convert(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    if not STORAGES[config.storage].converts:
        return None
    if not limits.convert:
        return (
            f"storage {config.storage}: must be converted first, which needs `--convert`, or `--epochs N` to weigh it"
        )
    needed, free = costs.kept_bytes(config, facts), facts.disk_bytes
    if needed is not None and free is not None and needed > free:
        return f"storage {config.storage}: needs {_gib(needed)} on disk, {_gib(free)} free"
    return None


def _cut(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    sizes = facts.cuts.get(config.storage)
    if config.cut == "deepest" or sizes is None or config.cut in _worthwhile_cuts(config.storage, facts):
        return None
    if config.cut not in sizes:
        return f"cut {config.cut}: {config.storage} keeps these samples after {', '.join(map(str, sizes))} ops only"
    if config.cut == max(sizes):
        return f"cut {config.cut}: is the deepest for {config.storage}, which is tried as such"
    return f"cut {config.cut}: takes {_gib(sizes[config.cut])} as {config.storage}, no less than deeper ones"


def _worthwhile_cuts(storage: str, facts: Facts) -> list[int]:
    """Return the cuts that save room over every deeper one; others leave more to do and gain nothing."""
    sizes = facts.cuts.get(storage, {})
    return [cut for cut in sizes if any(deeper > cut for deeper in sizes) and _saves_room(cut, sizes)]


def _saves_room(cut: int, sizes: Mapping[int, int]) -> bool:
    return all(sizes[cut] < _LESS * size for deeper, size in sizes.items() if deeper > cut)


def _fork(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    if config.loader.forks():
        return (
            f"{config.loader.kind} with use_multiprocessing: forks after the framework has run, which can hang for ever"
        )
    return None


def _reads_at_once(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    at_once, useful = config.loader.reads_at_once(), facts.reads_at_once
    if not config.loader.reads_ahead() or at_once is None or useful is None:
        return None
    if useful == 1:
        return "read_ahead: reads do not wait here"
    return (
        f"read_ahead {at_once}: more than {useful} reads at a time bring nothing" if at_once >= _FEW * useful else None
    )


def _useful_workers(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    useful = facts.workers_beside_reads if config.loader.reads_ahead() else facts.workers_at_once
    count = config.loader.worker_count()
    if useful is None or count is None or count <= 2 * max(facts.cores, useful):
        return None
    return f"more than {2 * max(facts.cores, useful)} workers: nothing waits that they could make use of"


def _workers(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    if limits.workers is None:
        return None
    count = config.loader.worker_count()
    if count is None:
        return f"{config.loader.kind} with auto workers: `--max-workers {limits.workers}` cannot be kept"
    return f"more than {limits.workers} workers: `--max-workers`" if count > limits.workers else None


def _memory(config: PipelineConfig, facts: Facts, limits: Limits) -> str | None:
    if limits.memory_bytes is None:
        return None
    needed = (costs.cache_bytes(config, facts) or 0) + (costs.queue_bytes(config, facts) or 0)
    if needed <= limits.memory_bytes:
        return None
    return f"cache and queue need more than `--max-memory` {_gib(limits.memory_bytes)}"


_RULES: tuple[Rule, ...] = (
    _foreign,
    _only,
    _impossible,
    _fork,
    _setup,
    _convert,
    _cut,
    _cache,
    _reads_at_once,
    _useful_workers,
    _workers,
    _memory,
)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
