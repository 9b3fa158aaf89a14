"""How far the figures of a search can be believed, and what it would take to know more. Pure, for a reader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Measurement
from autopipe.core.params import Value, from_config
from autopipe.core.stats import Comparison, median, student_t_95
from autopipe.search.record import Row
from autopipe.search.result import SearchResult

MOST_ROUNDS = 24
"""More rounds than that are no advice."""

_BUSY_CORES = 0.5  # taken by other programs
_DRIFT = 0.05
_FIGURES = 1.1  # times; less is no difference that single trials could tell


def decided(gain: Comparison) -> bool:
    """Whether a comparison says which of two is faster."""
    return not gain.interval.low <= 1.0 <= gain.interval.high


def rounds_to_decide(gain: Comparison) -> int | None:
    """Return how many more rounds would decide, if they vary as the ones so far; None if too many would be needed."""
    low, high = gain.interval
    if gain.pairs < 2 or low <= 0 or not math.isfinite(high):
        return None
    spread = math.log(high / low) / 2 * math.sqrt(gain.pairs) / student_t_95(gain.pairs - 1)
    for rounds in range(gain.pairs + 1, MOST_ROUNDS + 1):
        if student_t_95(rounds - 1) * spread / math.sqrt(rounds) < abs(math.log(gain.ratio)):
            return rounds - gain.pairs
    return None


def round_seconds(rows: Sequence[Row]) -> float:
    """Return how long a round of the proof took, in seconds; 0 without one."""
    proved = [row for row in rows if row.block is not None]
    return sum(row.seconds for row in proved) / max(1, len({row.block for row in proved}))


def sentence(result: SearchResult) -> str:
    """Return how far to trust what was found, and why."""
    measured = [row.outcome for row in result.trials if isinstance(row.outcome, Measurement)]
    others = [each.resources.others_cpu_percent for each in measured]
    cores = median([each / 100 for each in others if each is not None] or [0.0])
    reasons = []
    if result.interrupted:
        reasons.append("interrupted, so nothing was proved")
    elif not result.proved:
        reasons.append("nothing was proved")
    if cores >= _BUSY_CORES:
        reasons.append(f"other programs took {cores:.1f} cores")
    if result.drift is not None and abs(result.drift) > _DRIFT:
        reasons.append(f"the baselines ended {abs(result.drift):.0%} {'faster' if result.drift > 0 else 'slower'}")
    if not reasons:
        return "good: proved side by side, on a quiet machine."
    ratios = " Ratios hold: they were measured side by side." if result.proved else ""
    return f"low: {'; '.join(reasons)}.{ratios}"


def brought(result: SearchResult) -> str:
    """Return what single settings of the best are worth: its rate over that of a trial that differs in one only."""
    if result.best_config is None:
        return ""
    rates: dict[str, tuple[PipelineConfig, list[float]]] = {}
    for row in result.trials:
        if isinstance(row.outcome, Measurement) and row.block is None:
            rates.setdefault(row.key, (row.config, []))[1].append(row.outcome.images_per_second.value)
    if result.best_config.key() not in rates:
        return ""
    best = median(rates[result.best_config.key()][1])
    found: dict[str, tuple[float, str]] = {}
    for config, seen in rates.values():
        changed = _only_change(from_config(result.best_config.normalised()), from_config(config.normalised()))
        times = best / median(seen)
        if changed is not None and (changed[0] not in found or times < found[changed[0]][0]):
            found[changed[0]] = (times, f"{changed[0]} {changed[1]} -> {changed[2]} {times:.1f}x")
    gains = sorted((each for each in found.values() if each[0] >= _FIGURES), reverse=True)
    same = sorted(name for name, (times, _) in found.items() if times < _FIGURES)
    rest = f"no difference that single trials could tell: {', '.join(same)}" if same else ""
    return "; ".join(filter(None, (", ".join(text for _, text in gains), rest)))


def _only_change(best: Mapping[str, Value], other: Mapping[str, Value]) -> tuple[str, Value, Value] | None:
    """Return the one setting in which two configurations differ, with the other's value and the best's.

    What is set on one side only depends on it: the knobs of a loader, the fraction that a cache holds.
    """
    changed = [name for name in best if name in other and best[name] != other[name]]
    return (changed[0], other[changed[0]], best[changed[0]]) if len(changed) == 1 else None
