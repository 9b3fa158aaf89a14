"""The configurations of a space that can run, are allowed and are useful, and the reasons against the others. Pure.

A reason is a sentence for the user. Only a measurement can tell how much memory is really used: that is a constraint on
the trial, see `autopipe.search.trials`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from autopipe.errors import ConfigError, SpaceError
from autopipe.hardware.machine import size_text
from autopipe.measure import costs
from autopipe.measure.facts import Ceiling, Facts
from autopipe.pipeline.config import (
    CACHE_SHARE,
    DEEPEST,
    LOADERS,
    Kept,
    ModelSetup,
    PipelineConfig,
    Value,
    from_config,
    to_config,
)
from autopipe.pipeline.space import Parameter, Space

MOST_CANDIDATES = 10_000
"""The most configurations that are listed; of a larger space, some at random."""

_MOST_COMBINED = 500_000
_FEW = 4  # times the useful number, by measurement: a search does not try more
_LESS = 0.95  # a cut must take less than this share of a deeper one's room to be worth a trial


Rule: TypeAlias = Callable[[PipelineConfig, Facts], Iterator[str]]


def why_not(config: PipelineConfig, facts: Facts, rules: Iterable[Rule] | None = None) -> str | None:
    """Return the first reason why `config` cannot run or is not allowed, by all rules or by these; or None."""
    asked = _RULES if rules is None else rules
    return next(itertools.chain.from_iterable(rule(config, facts) for rule in asked), None)


def _of_request(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    if config.loader.is_foreign:
        yield "foreign code is only a baseline"
    params = from_config(config) if facts.limits.only or facts.workload.impossible else {}
    for name, values in facts.limits.only.items():
        if name in params and params[name] not in values:
            yield _not_asked_for(name, [params[name]])
    for each in facts.workload.impossible:
        is_kept = each.parameter == "keep" and config.kept.holds(str(each.value))
        if is_kept or params.get(each.parameter) == each.value:
            yield f"{each.parameter} {each.value}: {each.reason}"


def _not_asked_for(name: str, values: Sequence[Value]) -> str:
    return f"{name} {', '.join(map(str, values))}: not in `--only`"


def _of_setup(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    for name, value in config.model_setup._asdict().items():
        yield from _useless(name, value, facts)


def _useless(name: str, value: Value, facts: Facts) -> Iterator[str]:
    """Yield why a setting of the model's setup (a number of devices, say) cannot run, or brings nothing."""
    if (reason := facts.workload.against(name, value)) is not None:
        yield f"{name} {value}: {reason}"
    if name == "devices" and isinstance(value, int):
        most, size = max(1, facts.gpus), facts.workload.batch_size
        if value > most:
            yield f"devices > {most}: {facts.gpus_reason or f'Keras can train on {most} here'}"
        if size % value:
            yield f"devices {value}: a batch of {size} cannot be shared out evenly"
    if (name, value) in facts.pointless and name not in facts.limits.only:
        yield f"{name} {value}: {facts.pointless[name, value]}"


def _of_storage(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    kept, workload = config.kept, facts.workload
    if not kept.converts:
        return
    if not facts.limits.convert:
        yield _not_converted(kept.form)
    needed, free = costs.kept_bytes(config, workload), facts.disk_bytes
    if needed is not None and free is not None and needed > free:
        yield f"keep {kept.disk}: needs {size_text(needed)} on disk, {size_text(free)} free"
    yield from _of_cut(kept.form, kept.cut, workload.cuts.get(kept.form))


def _not_converted(form: str) -> str:
    return f"keep {form}: must be converted first, which needs `--convert`, or `--epochs N` to weigh it"


def _of_cut(place: str, cut: int | str, sizes: Mapping[int, int] | None) -> Iterator[str]:
    """Yield why keeping samples after `cut` ops brings nothing, by the bytes of the whole set after each cut.

    A cut is worth a trial if it saves room over every deeper one; others leave more to do.
    """
    if not isinstance(cut, int):
        return
    if sizes is None:
        yield f"keep {place}:{cut}: it is not known to take less than `{place}`"
        return
    deeper = [size for other, size in sizes.items() if other > cut]
    if cut not in sizes:
        yield f"keep {place}:{cut}: samples can be kept so after {', '.join(map(str, sizes))} ops only"
    elif not deeper:
        yield f"keep {place}:{cut}: is the deepest, which `{place}` tries"
    elif sizes[cut] >= _LESS * min(deeper):
        yield f"keep {place}:{cut}: takes {size_text(sizes[cut])}, no less than after more ops"


def _of_memory(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    kept = config.kept
    if not kept.in_memory:
        return
    workload, free = facts.workload, facts.memory_bytes
    needed, others = costs.cache_bytes(config, workload), costs.validation_cache_bytes(config, workload)
    whole = costs.whole_cache_bytes(config, workload)
    if kept.encoded and kept.converts:
        yield f"keep {kept}: samples are read from {kept.form}, which `{kept.form}+memory` keeps as they are"
    fits = whole is None or free is None or whole + others / kept.part <= CACHE_SHARE * free
    if kept.part < 1 and fits and facts.limits.memory_bytes is None:  # else only a measurement tells what is left
        yield f"keep {kept.memory}: there is room for all samples"
    if needed is not None and free is not None and needed + others > CACHE_SHARE * free:
        most = f", of which it may take {CACHE_SHARE:.0%}" if needed + others <= free else ""
        whose = f" for training's and {size_text(others)} for validation's samples" if others else ""
        yield f"keep {kept.memory}: needs {size_text(needed)}{whose}, {size_text(free)} free{most}"


def _of_device(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    loader, needed = config.loader, facts.workload.fixed_bytes
    if not loader.keeps_on_device:
        return
    if config.devices > 1:
        yield f"loader {loader.kind}: keeps samples on one device"
    free = None if facts.device_bytes is None else max(0, facts.device_bytes - facts.model_device_bytes)
    if needed is not None and free is not None and needed > free:
        yield f"loader {loader.kind}: needs {size_text(needed)} on the device, {size_text(free)} free beside the model"
    if needed is not None and facts.memory_bytes is not None and needed > CACHE_SHARE * facts.memory_bytes:
        yield (
            f"loader {loader.kind}: makes the samples in memory, which takes {size_text(needed)}, "
            f"{size_text(facts.memory_bytes)} free"
        )


def _of_workers(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    loader, at_once, reads = config.loader, config.loader.reads_at_once(), facts.reads_at_once
    if loader.reads_ahead() and at_once is not None and reads is not None:
        if reads == 1:
            yield "read_ahead: reads do not wait here"
        if at_once >= _FEW * reads:
            yield f"read_ahead {at_once}: more than {reads} reads at a time bring nothing"
    count, elsewhere = loader.worker_count(), loader.works_elsewhere
    here = facts.workers_beside_reads if loader.reads_ahead() else facts.workers_at_once
    useful = facts.workers_elsewhere if elsewhere else here
    if useful is not None and count is not None:
        most = 2 * (useful if elsewhere else max(facts.cores, useful))
        if count > most:
            yield f"more than {most} workers: reads wait too little for so many to help"


def _of_limits(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    most, count, memory = facts.limits.workers, config.loader.worker_count(), facts.limits.memory_bytes
    if most is not None and count is None:
        yield f"{config.loader.kind} with auto workers: `--max-workers {most}` cannot limit them"
    if most is not None and count is not None and count > most:
        yield f"more than {most} workers: `--max-workers`"
    if memory is not None and costs.memory_bytes(config, facts.workload) > memory:
        whose = " of training and validation" if facts.workload.validation else ""
        yield f"cache and queue{whose} need more than `--max-memory` {size_text(memory)}"


_RULES: tuple[Rule, ...] = (_of_request, _of_setup, _of_storage, _of_memory, _of_device, _of_workers, _of_limits)
_TWIN = "device_prefetch: makes no difference without an accelerator"


# ---------------------------------------------------------------- the candidates of a space


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """The remaining configurations of a space."""

    space: Space  # the given one, limited by `only`
    candidates: Mapping[str, PipelineConfig]  # the listed configurations that can run, by key
    left_out: Mapping[str, int]  # those that cannot, by the reason, the commonest first
    whole: int  # the configurations that can run, listed or not


def trim(space: Space, facts: Facts) -> Trimmed:
    """Leave out configurations that cannot run or are not allowed, and list the others, at most `MOST_CANDIDATES`.

    Raises SpaceError if nothing is left, `facts.limits.only` names values that the space does not have, or a space has
    too many combinations.
    """
    dropped: Counter[str] = Counter()
    narrowed = space
    for name, values in facts.limits.only.items():
        narrowed = narrowed.only(name, values)
        gone = [value for value in space[name].values if value not in narrowed[name].values]
        if gone:
            dropped[_not_asked_for(name, gone)] = 0
    worth = _worth_listing(narrowed, facts, dropped)
    if worth.count() > _MOST_COMBINED:
        raise SpaceError(
            f"This space has {worth.count():,} combinations, but a search takes at most {_MOST_COMBINED:,}.",
            hint="Give its parameters fewer values.",
        )
    combined = list(worth.grid())
    listed = combined
    if len(combined) > MOST_CANDIDATES:
        listed = random.Random(0).sample(combined, MOST_CANDIDATES)
    candidates: dict[str, PipelineConfig] = {}
    for params in listed:
        try:
            config = to_config(params)
        except ConfigError as error:
            dropped[error.message] += 1
            continue
        why = why_not(config, facts)
        if why is None:
            candidates.setdefault(config.key(), config)
        else:
            dropped[why] += 1
    if not candidates:
        reasons = "; ".join(dropped)
        raise SpaceError(
            f"No configuration of this space can run here: {reasons}.", hint="Widen the space or the limits."
        )
    return Trimmed(
        space=narrowed,
        candidates=candidates,
        left_out=dict(dropped.most_common()),
        whole=len(candidates) + len(combined) - len(listed),
    )


def convertible(space: Space, facts: Facts) -> Mapping[str, PipelineConfig]:
    """Return the configurations that could run if the user let samples be converted."""
    values = [str(value) for each in space if each.name == "keep" for value in each.values]
    try:
        return trim(
            space.only("keep", [each for each in values if Kept.of(each).converts]), facts.converting
        ).candidates
    except SpaceError:
        return {}


def narrowed(trimmed: Trimmed, facts: Facts) -> Trimmed:
    """Leave out useless configurations, now that `facts` know more; none if that would leave nothing."""
    if trimmed.whole > len(trimmed.candidates):  # fewer are left, so that more of them can be listed
        try:
            return trim(trimmed.space, facts)
        except SpaceError:
            return trimmed
    dropped = Counter(trimmed.left_out)
    left = {}
    for key, config in trimmed.candidates.items():
        why = why_not(config, facts)
        if why is None:
            left[key] = config
        else:
            dropped[why] += 1
    if not left:
        return trimmed
    return replace(trimmed, candidates=left, left_out=dict(dropped.most_common()), whole=len(left))


def _worth_listing(space: Space, facts: Facts, dropped: Counter[str]) -> Space:
    """Return the space without settings that no candidate can have, which would multiply its grid.

    They are counted in `dropped`, but for parts of the samples, numbers of ops, and loaders for an accelerator that is
    not there.
    """
    keep = [str(value) for each in space if each.name == "keep" for value in each.values]
    places = {value: PipelineConfig.model_construct(None, **dict[str, Any](keep=value)) for value in keep}
    rules = (_of_storage, _of_memory)
    if worth := [value for value in keep if _is_whole(value) or why_not(places[value], facts, rules) is None]:
        space = space.only("keep", worth)  # if none, the user has asked for them, and each gets its reason
    kinds = [str(kind) for kind in space["loader"].values]
    there = facts.device_bytes is not None or "loader" in facts.limits.only
    if worth := [kind for kind in kinds if there or not LOADERS[kind].keeps_on_device]:
        space = space.only("loader", worth)
    for parameter in space:
        reasons = {value: _useless_alone(space, parameter, value, facts) for value in parameter.values}
        left = [value for value, reason in reasons.items() if reason is None]
        if left and len(left) < len(reasons):
            whole, space = space.count(), space.only(parameter.name, left)
            each = (whole - space.count()) // (len(reasons) - len(left))
            for reason in filter(None, reasons.values()):
                dropped[reason] += each
    return space


def _useless_alone(space: Space, parameter: Parameter, value: Value, facts: Facts) -> str | None:
    """Return the reason against a value whatever the other settings are, or None."""
    name = parameter.name
    kind, is_knob, _ = name.partition(".")
    if is_knob and kind in space["loader"].values:  # with the fewest workers and reads
        try:
            config = to_config({**next(space.only("loader", [kind]).grid()), name: value})
        except ConfigError as error:
            return error.message
        if (reason := next(_of_workers(config, facts), None)) is not None:
            return reason
    if name == "device_prefetch" and not facts.accelerator and value != parameter.values[0]:
        return _TWIN
    if name == "keep" and (kept := Kept.of(str(value))).converts and not facts.limits.convert:
        return _not_converted(kept.form)
    if name in ModelSetup._fields:
        return next(_useless(name, value, facts), None)
    return f"{name} {value}: {against}" if (against := facts.workload.against(name, value)) is not None else None


def _is_whole(keep: str) -> bool:
    kept = Kept.of(keep)
    return kept.part == 1 and kept.cut == DEEPEST


# ---------------------------------------------------------------- setups of the model that are worth a trial

# A setup is a number of devices, an order of channels, steps per call, and the place where ops finish. If the model
# alone is no faster in a setup, no loader can make it faster. `autopipe.search.session` measures them.

Setting = tuple[str, Value]

_SHORT_STEP_SECONDS = 0.005
_PAYS = 1.05  # times the rate of fewer (devices, say): a smaller gain is not worth their cost
_FASTER = 1.02  # times the rate of the usual value of a setting that is no number: less is noise
# The gain of the most is the largest, so that noise hides it last; if they do not pay, fewer do not either.
_MOST_FIRST = ("steps_per_execution",)
_NOT_JUDGED = ("finish",)  # the loader's work depends on it as well


def ordered(setups: Iterable[ModelSetup]) -> list[ModelSetup]:
    """Return setups in the order of measuring: the usual first, then few devices, and many steps.

    Those of equal devices and channels stay together, because they share a process.
    """

    def place(setup: ModelSetup) -> tuple[tuple[bool, int], ...]:
        places = []
        for name, value, usual in zip(ModelSetup._fields, setup, ModelSetup(), strict=True):
            number = value if isinstance(value, int) else 0
            places.append((value != usual, -number if name in _MOST_FIRST else number))
        return (*places[:2], *places[:1:-1])

    return sorted(set(setups), key=place)


def useless(
    ceilings: Sequence[Ceiling],
    setups: Iterable[ModelSetup],
    named: Collection[str] = (),
    batch_size: int = 1,
    *,
    measuring: bool = False,
) -> dict[Setting, str]:
    """Return the settings that are not worth a trial, with the reason: they bring nothing, or were not measured.

    Several devices or steps per call are tried only if they pay, and so only if they were measured, unless `measuring`
    goes on. Several steps a call are for short steps: a call takes some tenths of a millisecond. Of all possible
    `setups`, `ceilings` have the measured ones. `named` settings, which the user has asked for, are not judged.
    """
    rates = {each.setup: each.model_images_per_second.value for each in ceilings}
    wanted, found = list(setups), dict[Setting, str]()
    step = batch_size / max(rates.values(), default=math.inf)
    if step > _SHORT_STEP_SECONDS and "steps_per_execution" not in named:
        why = f"a step takes {1000 * step:.3g} ms, of which its call is little"
        found = {("steps_per_execution", each): why for each in {setup.steps_per_execution for setup in wanted} - {1}}
    for name in ModelSetup._fields:
        if name not in _NOT_JUDGED and name not in named:
            found = _pointless(rates, name, {getattr(each, name) for each in wanted}) | found
    for name in ("devices", "steps_per_execution") if ceilings and not measuring else ():
        unknown = {getattr(each, name) for each in wanted} - {1, *(getattr(each, name) for each in rates)}
        why = "there was no time to measure the model alone with it"
        found = {(name, count): why for count in sorted(unknown) if name not in named} | found
    return found


def _pointless(rates: Mapping[ModelSetup, float], name: str, values: set[Value]) -> dict[Setting, str]:
    """Return the values of one setting that bring nothing.

    If some devices do not pay over fewer, more do not either. Several steps per call are compared with one.
    """
    found: dict[Setting, str] = {}
    best, stop = getattr(ModelSetup(), name), ""
    most_first = name in _MOST_FIRST
    for value in sorted(values - {best}, reverse=most_first):
        gain, is_count = _gain(rates, name, value, best), isinstance(value, int)
        if not stop and gain is not None and gain < (_PAYS if is_count else _FASTER):
            stop = f"the model alone is no faster with it: {gain:.2f} times the rate of {name} {best}"
        if stop:
            found[name, value] = stop
        elif gain is not None and not most_first:
            best = value
        stop = stop if is_count else ""
    return found


def _gain(rates: Mapping[ModelSetup, float], name: str, value: Value, other: Value) -> float | None:
    """Return the largest ratio of a value's rate to another's over all pairs; None if there is no pair."""
    change: dict[str, Any] = {name: other}
    pairs = [(rate, setup._replace(**change)) for setup, rate in rates.items() if getattr(setup, name) == value]
    return max((rate / rates[usual] for rate, usual in pairs if usual in rates), default=None)


def hopeless(setup: ModelSetup, known: Mapping[Setting, str]) -> bool:
    """Return True if a setup has a setting that brings nothing."""
    return not known.keys().isdisjoint(setup._asdict().items())


def rival(ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """Return the fastest of those that share a process with the last and differ from it in one setting, if any."""
    *others, last = ceilings
    alike = (each for each in others if each.setup[:2] == last.setup[:2])
    near = (each for each in alike if sum(map(lambda a, b: a != b, each.setup, last.setup)) == 1)
    return max(near, key=lambda each: each.model_images_per_second.value, default=None)
