"""The effect of each setting of a configuration: its rate over that of the same with another value of one setting.

The surrogate tells it from everything measured, so that trials that differ in more than one setting count, too. The
ratio over the blocks in which both ran is given beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autopipe.core.config import PipelineConfig
from autopipe.core.params import Value, from_config
from autopipe.core.stats import Comparison, compare_pairs
from autopipe.search.decision import Blocks
from autopipe.search.surrogate import Surrogate

_DEPENDENT = {"cache_fraction": "cache", "cut": "storage"}  # set if the other is


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a setting against one other value of it."""

    setting: str
    value: Value  # as the configuration has it
    other: Value
    gain: Comparison  # the rate over that with the other value, with its 95 % interval; `pairs` are of `paired`
    measured: bool  # whether the other was measured, and not only configurations that are like it
    paired: Comparison | None  # from blocks in which both ran; None if there are fewer than two


def effects(config: PipelineConfig, surrogate: Surrogate, blocks: Blocks) -> tuple[Effect, ...]:
    """Return the effect of each setting of a configuration, the largest first.

    Of several configurations with one other value the fastest counts, and one that was measured before one that was
    not.

    Args:
        config: the configuration, one of those that were measured.
        surrogate: of all that was measured.
        blocks: the rates in the blocks of the confirmation run, by key.
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
        effect = Effect(
            setting=setting,
            value=own[setting],
            other=value,
            gain=surrogate.compared(config.key(), key, len(common)),
            measured=was_measured,
            paired=compare_pairs([mine[at] for at in common], [its[at] for at in common]) if len(common) > 1 else None,
        )
        found.append(effect)
    return tuple(sorted(found, key=lambda each: -abs(math.log(each.gain.ratio))))


def only_change(own: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[str, Value] | None:
    """Return the one setting in which two configurations differ, with the other's value; None if it is not one.

    A setting that only one of them has depends on another: the knobs of a loader, the fraction that a cache holds.
    """
    changed = [name for name in own if name in other and own[name] != other[name]]
    changed = [name for name in changed if _DEPENDENT.get(name) not in changed]
    return (changed[0], other[changed[0]]) if len(changed) == 1 else None
