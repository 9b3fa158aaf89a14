"""What each setting of a configuration is worth: its rate over that of the same with another value of one setting.

From all that was measured at once, by the surrogate, so that trials that differ in more than one setting count, too;
what was measured in turns, block by block, is given beside it. Decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autopipe.core.config import PipelineConfig
from autopipe.core.params import Value, from_config
from autopipe.core.stats import Comparison, compare_pairs
from autopipe.search.belief import Belief, Known, believe

_DEPENDENT = {"cache_fraction": "cache", "cut": "storage"}  # set where the other is
_MOST_UNTRIED = 24  # configurations of another loader that were never measured: the first of them by prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a setting is worth against one other value of it."""

    setting: str
    value: Value  # as the configuration has it
    other: Value
    gain: Comparison  # the rate over that with the other value, with its 95 % interval; `pairs` are of `paired`
    measured: bool  # whether the other was measured, and not only what is like it
    paired: Comparison | None  # from blocks in which both ran; None where they did not


def effects(
    config: PipelineConfig,
    candidates: Iterable[PipelineConfig],
    known: Mapping[str, Known],
    blocks: Mapping[str, Mapping[int, float]],
    *,
    cores: int,
    trend: Callable[[PipelineConfig], float],
) -> tuple[Effect, ...]:
    """Return what each setting of a configuration is worth; the largest effect first.

    Args:
        config: the configuration, one of those that were measured.
        candidates: what could have run.
        known: what was measured, by key.
        blocks: the rates in the blocks of the confirmation run, by key.
        cores: usable ones.
        trend: the logarithm of a configuration's prediction, or 0 where there is none.
    """
    if config.key() not in known:
        return ()
    others = _others(config, [*(each.config for each in known.values()), *candidates], known, trend)
    if not others:
        return ()
    untried = {
        each.key(): Known(config=each, trend=trend(each), readings=())
        for _, _, each in others
        if each.key() not in known
    }
    belief = believe({**known, **untried}, cores)
    best: dict[tuple[str, Value], Effect] = {}
    for setting, value, other in others:
        found = _effect(belief, config, (setting, value), other, known, blocks)
        before = best.get((setting, value))
        if before is None or (found.measured, -found.gain.ratio) > (before.measured, -before.gain.ratio):
            best[setting, value] = found
    return tuple(sorted(best.values(), key=lambda each: -abs(math.log(each.gain.ratio))))


def _effect(
    belief: Belief,
    config: PipelineConfig,
    change: tuple[str, Value],
    other: PipelineConfig,
    known: Mapping[str, Known],
    blocks: Mapping[str, Mapping[int, float]],
) -> Effect:
    mine, its = blocks.get(config.key(), {}), blocks.get(other.key(), {})
    common = sorted(mine.keys() & its.keys())
    paired = compare_pairs([mine[at] for at in common], [its[at] for at in common]) if len(common) > 1 else None
    return Effect(
        setting=change[0],
        value=from_config(config)[change[0]],
        other=change[1],
        gain=belief.compared(config.key(), other.key(), len(common)),
        measured=other.key() in known,
        paired=paired,
    )


def _others(
    config: PipelineConfig,
    configs: Sequence[PipelineConfig],
    known: Mapping[str, Known],
    trend: Callable[[PipelineConfig], float],
) -> list[tuple[str, Value, PipelineConfig]]:
    """Return what differs from the configuration in one setting, with the setting and the other's value of it."""
    own = from_config(config)
    found: dict[str, tuple[str, Value, PipelineConfig]] = {}
    for each in configs:
        if each.loader.is_foreign:  # what it differs in is no setting of ours
            continue
        change = only_change(own, from_config(each))
        if change is not None:
            found.setdefault(each.key(), (*change, each))
    loaders = [each for each in found.values() if each[0] == "loader" and each[2].key() not in known]
    loaders.sort(key=lambda each: -trend(each[2]))
    kept = {each[2].key() for each in loaders[:_MOST_UNTRIED]}
    return [each for key, each in found.items() if each[0] != "loader" or key in known or key in kept]


def only_change(own: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[str, Value] | None:
    """Return the one setting in which two configurations differ, with the other's value; None if it is not one.

    What is set on one side only depends on it: the knobs of a loader, the fraction that a cache holds.
    """
    changed = [name for name in own if name in other and own[name] != other[name]]
    changed = [name for name in changed if _DEPENDENT.get(name) not in changed]
    return (changed[0], other[changed[0]]) if len(changed) == 1 else None
