"""The effect of each setting of a configuration: its rate over that of the same with another value of one setting.

The surrogate tells it from everything measured, so that trials that differ in more than one setting count, too. The
ratio over the blocks in which both ran is given beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autopipe.measure.stats import compare_pairs
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.params import Value, from_config
from autopipe.search.decision import Blocks
from autopipe.search.result import Effect
from autopipe.search.surrogate import Surrogate
from autopipe.values import Estimate

_DEPENDENT = {"cache_fraction": "cache", "cut": "storage"}  # set if the other is


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
    """Return the one setting in which two configurations differ, with the other's value; None if it is not one.

    A setting that only one of them has depends on another: the knobs of a loader, the fraction that a cache holds.
    """
    changed = [name for name in own if name in other and own[name] != other[name]]
    changed = [name for name in changed if _DEPENDENT.get(name) not in changed]
    return (changed[0], other[changed[0]]) if len(changed) == 1 else None
