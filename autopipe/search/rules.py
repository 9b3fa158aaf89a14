"""Which configurations cannot run, are not allowed or bring nothing, and why. Pure: facts in, a reason out.

What only a measurement can tell (memory really used, say) is a constraint on the trial and is looked after in
`autopipe.search.objective`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from autopipe.core import footprint
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.facts import Facts
from autopipe.core.params import Value, from_config
from autopipe.hardware.memory import size_text

_FEW = 4  # times what is of use, by measurement, is as far as a search looks
_LESS = 0.95  # a cut must take less than this share of a deeper one's room to be worth a trial


class Rule(enum.StrEnum):
    """The rule that leaves a configuration out."""

    FOREIGN = "foreign"  # somebody else's code
    ONLY = "only"  # `--only`
    INVALID = "invalid"  # no such configuration
    IMPOSSIBLE = "impossible"  # with this workload or on this machine
    FORK = "fork"
    DEVICES = "devices"
    POINTLESS = "pointless"  # brings nothing, by what was measured
    TWIN = "twin"  # runs as another does
    CONVERT = "convert"  # nobody asked for a conversion
    DISK = "disk"
    CUT = "cut"
    CACHE = "cache"
    READS = "reads"
    USEFUL_WORKERS = "useful_workers"
    MAX_WORKERS = "max_workers"
    MAX_MEMORY = "max_memory"


class Rejection(NamedTuple):
    """Why a configuration is left out: for a program, and as a sentence for the user, whose wording may change."""

    rule: Rule
    reason: str


def not_asked_for(name: str, values: Sequence[Value]) -> Rejection:
    """Return why settings are left out that `--only` does not name."""
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
    """Return why a setting of the model's setup (a number of devices, say) cannot be, or brings nothing."""
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
    needed, free = footprint.cache_bytes(config, facts.workload), facts.memory_bytes
    if config.cache_fraction < 1 and has_room_for_all(facts):
        return Rejection(Rule.CACHE, f"cache_fraction {config.cache_fraction}: there is room for all samples")
    if needed is None or free is None or needed <= footprint.CACHE_SHARE * free:
        return None
    what = "the whole set" if config.cache_fraction == 1 else f"{config.cache_fraction:.0%} of the set"
    most = f", of which it may take {footprint.CACHE_SHARE:.0%}" if needed <= free else ""
    return Rejection(
        Rule.CACHE, f"cache {config.cache}: needs {size_text(needed)} for {what}, {size_text(free)} free{most}"
    )


def has_room_for_all(facts: Facts) -> bool:
    """Whether a cache of all samples fits, as far as is known."""
    whole, free = facts.workload.fixed_bytes, facts.memory_bytes
    return whole is None or free is None or whole <= footprint.CACHE_SHARE * free


def _convert(config: PipelineConfig, facts: Facts) -> Rejection | None:
    if not STORAGES[config.storage].converts:
        return None
    if not facts.limits.convert:
        return Rejection(
            Rule.CONVERT,
            f"storage {config.storage}: must be converted first, which needs `--convert`, or `--epochs N` to weigh it",
        )
    needed, free = footprint.kept_bytes(config, facts.workload), facts.disk_bytes
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


def _fork(config: PipelineConfig, facts: Facts) -> Rejection | None:
    if not config.loader.forks():
        return None
    why = "forks after the framework has run, which can hang for ever"
    return Rejection(Rule.FORK, f"{config.loader.kind} with use_multiprocessing: {why}")


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
    if most is None or footprint.memory_bytes(config, facts.workload) <= most:
        return None
    return Rejection(Rule.MAX_MEMORY, f"cache and queue need more than `--max-memory` {size_text(most)}")


_RULES: tuple[Callable[[PipelineConfig, Facts], Rejection | None], ...] = (
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
