"""How far the figures of a search can be believed, and what it would take to know more. Pure, for a reader."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autopipe.core.bottleneck import AS_FAST
from autopipe.core.outcome import Measurement
from autopipe.core.stats import Comparison, median, student_t_95
from autopipe.reports import wording
from autopipe.search.effects import Effect
from autopipe.search.result import SearchResult
from autopipe.search.row import Row
from autopipe.search.settings import BLOCKS
from autopipe.search.stopping import Reason

_BUSY_CORES = 0.5  # of those that may be used, taken by other programs
_DRIFT = 0.05
_FIGURES = 1.05  # times; less is not worth a word


def rounds_to_decide(gain: Comparison) -> int | None:
    """Return how many more rounds would decide, if they vary as the ones so far; None if no tune has so many."""
    low, high = gain.interval
    if gain.few or low <= 0 or not math.isfinite(high):  # of few pairs the interval is not of their own spread
        return None
    spread = math.log(high / low) / 2 * math.sqrt(gain.pairs) / student_t_95(gain.pairs - 1)
    for rounds in range(gain.pairs + 1, BLOCKS[1] + 1):
        if student_t_95(rounds - 1) * spread / math.sqrt(rounds) < abs(math.log(gain.ratio)):
            return rounds - gain.pairs
    return None


def round_seconds(rows: Sequence[Row]) -> float:
    """Return how long a round of the confirmation run took, in seconds; 0 without one."""
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
    elif not result.proved and not _all_are_there(result):
        reasons.append("nothing was proved")
    if cores >= _BUSY_CORES:
        reasons.append(f"other programs took {cores:.1f} of the cores")
    if result.drift is not None and abs(result.drift) > _DRIFT:
        reasons.append(f"the baselines ended {abs(result.drift):.0%} {'faster' if result.drift > 0 else 'slower'}")
    if unsure := _undecided(result):
        reasons.append(f"the rounds do not tell the winner from {wording.listed(unsure)}")
    if not reasons and not result.proved:
        return "good: a baseline is as fast as the model alone, too, so that no gain is claimed."
    if not reasons:
        return "good: proved side by side, on cores that little else used."
    ratios = " Ratios hold: they were measured side by side." if result.proved and not unsure else ""
    return f"low: {'; '.join(reasons)}.{ratios}"


def _undecided(result: SearchResult) -> list[str]:
    """Return the baselines that the winner seems to be ahead of, or behind, and is not proved to be."""
    ran = [(each.name, each.gain) for each in result.baselines if each.gain is not None and result.proved]
    apart = [(name, gain) for name, gain in ran if abs(math.log(gain.ratio)) > math.log(_FIGURES)]
    return [name for name, gain in apart if not (gain.faster or gain.slower)]


def _all_are_there(result: SearchResult) -> bool:
    """Whether the best and a baseline are both at the ceiling, so that there was nothing to prove."""
    best = result.estimate
    if best is None or result.stopped_because.reason is not Reason.CEILING:
        return False
    rates = [each.estimate.value for each in result.baselines if each.estimate is not None]
    return any(rate >= AS_FAST * best.value for rate in rates)


def brought(result: SearchResult) -> str:
    """Return what single settings of the best bring against their next best value, and those that bring nothing."""
    gains: dict[str, Effect] = {}
    for each in result.effects:
        known = gains.get(each.setting)
        brings = each.gain.faster and each.gain.ratio >= _FIGURES
        if brings and (known is None or each.gain.ratio < known.gain.ratio):
            gains[each.setting] = each
    ranked = sorted(gains.values(), key=lambda each: -each.gain.ratio)
    said = [f"{each.setting} {each.other} -> {each.value} {each.gain.ratio:.1f}x" for each in ranked]
    telling = {each.setting for each in result.effects if each.gain.faster or each.gain.slower}
    same = sorted({each.setting for each in result.effects if each.measured} - telling)
    rest = f"no difference that could be told: {', '.join(same)}" if same else ""
    return "; ".join(filter(None, (", ".join(said), rest)))
