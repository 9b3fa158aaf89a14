"""The configurations of a space that can run and are allowed, and the reasons against the others. Pure.

A reason is a sentence for the user. Only a measurement can tell how much memory is really used: that is a constraint on
the trial, see `autopipe.search.session`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from autopipe.errors import ConfigError, SpaceError
from autopipe.hardware.machine import size_text
from autopipe.measure import costs
from autopipe.measure.facts import Facts
from autopipe.pipeline import config as configs
from autopipe.pipeline.config import CACHE_SHARE, PipelineConfig, SettingValue
from autopipe.search.space import Parameter, Params, Space, from_config, to_config

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
            yield f"{name} {params[name]}: not in `--only`"
    for each in facts.workload.impossible:
        is_kept = each.parameter == "keep" and config.kept.holds(str(each.value))
        if is_kept or params.get(each.parameter) == each.value:
            yield f"{each.parameter} {each.value}: {each.reason}"


def _of_setup(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    for name, value in config.model_setup._asdict().items():
        yield from useless(name, value, facts)


def useless(name: str, value: SettingValue, facts: Facts) -> Iterator[str]:
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
        yield f"keep {kept.form}: must be converted first, which needs `--convert`, or `--epochs N` to weigh it"
    needed, free = costs.kept_bytes(config, workload), facts.disk_bytes
    if needed is not None and free is not None and needed > free:
        yield f"keep {kept.disk}: needs {size_text(needed)} on disk, {size_text(free)} free"
    yield from _of_cut(kept.form, kept.cut, workload.cuts.get(kept.form))


def _of_cut(place: str, cut: int | str, sizes: Mapping[int, int] | None) -> Iterator[str]:
    """Yield why keeping samples after `cut` ops brings nothing, by the whole set's bytes: it saves less than 5 %."""
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
    elif sizes[cut] >= 0.95 * min(deeper):
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


def _of_limits(config: PipelineConfig, facts: Facts) -> Iterator[str]:
    most, count, memory = facts.limits.workers, config.loader.worker_count(), facts.limits.memory_bytes
    if most is not None and count is None:
        yield f"{config.loader.kind} with auto workers: `--max-workers {most}` cannot limit them"
    if most is not None and count is not None and count > most:
        yield f"more than {most} workers: `--max-workers`"
    if memory is not None and costs.memory_bytes(config, facts.workload) > memory:
        whose = " of training and validation" if facts.workload.validation else ""
        yield f"cache and queue{whose} need more than `--max-memory` {size_text(memory)}"
    free = facts.memory_bytes
    if (
        free is not None
        and not config.kept.in_memory
        and costs.memory_bytes(config, facts.workload) > CACHE_SHARE * free
    ):
        yield f"queue: its batches take more than the {size_text(free)} of memory that are free"


_RULES: tuple[Rule, ...] = (_of_request, _of_setup, _of_storage, _of_memory, _of_device, _of_limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A space without the values that no configuration can have here."""

    asked: Space  # with them; a study goes on with it, as it does not depend on what is free today
    space: Space
    left_out: Mapping[str, int]  # combinations of the space that are left out, by the reason


def trim(space: Space, facts: Facts) -> Trimmed:
    """Leave out values that cannot run here, are not allowed, or bring nothing, whatever the other settings are. Raises
    SpaceError if no configuration is left, or if `facts.limits.only` names values that the space does not have.
    """
    dropped: Counter[str] = Counter()
    narrowed = space
    for name, values in facts.limits.only.items():
        narrowed = narrowed.only(name, values)
        gone = [value for value in space[name].values if value not in narrowed[name].values]
        if gone:
            dropped[f"{name} {', '.join(map(str, gone))}: not in `--only`"] = 0
    kinds = [str(kind) for kind in narrowed["loader"].values]
    there = facts.device_bytes is not None or "loader" in facts.limits.only
    fitting = [kind for kind in kinds if there or not configs.LOADERS[kind].keeps_on_device]
    worth, reasons = narrowed.only("loader", fitting) if fitting else narrowed, list[str]()
    for parameter in worth:
        against = {value: _useless_alone(worth, parameter, value, facts) for value in parameter.values}
        left = [value for value, reason in against.items() if reason is None]
        if left and len(left) < len(against):
            whole, worth = worth.count(), worth.only(parameter.name, left)
            each = (whole - worth.count()) // (len(against) - len(left))
            for reason in filter(None, against.values()):
                dropped[reason] += each
    for params in itertools.islice(worth.grid(), 20_000):  # until one can run
        if (why := _why_not(params, facts)) is None:
            return Trimmed(asked=narrowed, space=worth, left_out=dict(dropped.most_common()))
        reasons.append(why)
    raise SpaceError(
        f"No configuration of this space can run here: {'; '.join(dict.fromkeys(reasons))}.",
        hint="Widen the space or the limits.",
    )


def _why_not(params: Params, facts: Facts) -> str | None:
    try:
        return why_not(to_config(params), facts)
    except ConfigError as error:
        return error.message


def candidates(space: Space, facts: Facts) -> dict[str, PipelineConfig]:
    """Return the configurations of a small space that can run here, by key. Raises SpaceError if there is none."""
    params = (each for each in trim(space, facts).space.grid() if _why_not(each, facts) is None)
    return {config.key(): config for config in map(to_config, params)}


def _useless_alone(space: Space, parameter: Parameter, value: SettingValue, facts: Facts) -> str | None:
    """Return the reason against a value whatever the other settings are, or None."""
    name = parameter.name
    kind, is_knob, _ = name.partition(".")
    if is_knob and kind in space["loader"].values:
        try:
            config = to_config({**next(space.only("loader", [kind]).grid()), name: value})
        except ConfigError as error:
            return error.message
        if (reason := why_not(config, facts, (_of_limits,))) is not None:
            return reason
    if name == "device_prefetch" and not facts.accelerator and value != parameter.values[0]:
        return "device_prefetch: makes no difference without an accelerator"
    if name == "keep":
        place = PipelineConfig.model_construct(None, **dict[str, Any](keep=str(value)))
        if (reason := why_not(place, facts, (_of_storage, _of_memory))) is not None:
            return reason
    if name in configs.ModelSetup._fields:
        return next(useless(name, value, facts), None)
    return f"{name} {value}: {against}" if (against := facts.workload.against(name, value)) is not None else None
