"""Windows: from the times at which groups of steps ended to a rate with its interval, and when to stop. Pure.

A trial starts with a warm model and an empty queue, so a loader that is slower than the model never fills the queue and
its rate shows at once. Where a queue did fill (a hiccup, a retrace), the model first lives on it: the windows in which
the queue's level still falls are left out, which takes B * p / (p - c) batches for a queue of B, with p and c the seconds
a batch of producer and consumer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from autopipe.core import stats
from autopipe.core.outcome import Estimate, Window

_FEWEST = 6  # windows before an interval means anything
_DRIFT = 0.05  # relative change from the first to the second half that is called drift


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """When a trial has seen enough.

    Attributes:
        min_seconds: least time in windows.
        max_seconds: most time in windows; then the trial ends, stable or not.
        half_width: the interval is narrow enough at this share of the median on either side.
        hopeless_below: images/s; a trial whose interval lies wholly below it ends early. None: never.
    """

    min_seconds: float = 1.0
    max_seconds: float = 3.0
    half_width: float = 0.03
    hopeless_below: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The end of a window.

    Attributes:
        seconds: when, on the trial's clock, all work of the window done.
        images: images trained on in the window.
        waiting_seconds: how long the model waited for batches in it.
        level: finished batches waiting in the loader's queue, or None where it cannot tell.
    """

    seconds: float
    images: int
    waiting_seconds: float = 0.0
    level: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the windows say so far.

    Attributes:
        windows: those that count.
        left_out: how many at the beginning do not, because a queue was still draining.
        rate: images per second.
        done: whether to stop.
        stable: whether the interval is narrow enough and nothing drifts.
        cut_short: whether it stopped because it could not win any more.
        warnings: what is wrong, with advice.
    """

    windows: tuple[Window, ...]
    left_out: int
    rate: Estimate
    done: bool
    stable: bool
    cut_short: bool
    warnings: tuple[str, ...]


def read(start_seconds: float, edges: Sequence[Edge], rule: StopRule) -> Reading | None:
    """Return what the edges of a trial say, or None while there are too few.

    Args:
        start_seconds: when the first window began.
        edges: the ends of the windows so far.
        rule: when to stop.
    """
    windows = _windows(start_seconds, edges)
    spent = edges[-1].seconds - start_seconds if edges else 0.0
    exhausted = spent >= rule.max_seconds
    left_out = _draining(edges)
    kept = windows[left_out:]
    if len(kept) < _FEWEST and not (exhausted and kept):
        return None
    rates = [window.images / window.seconds for window in kept]
    rate = estimate(rates)
    narrow = rate.high - rate.low <= 2 * rule.half_width * rate.value and len(kept) >= _FEWEST
    drift = _drift(rates)
    hopeless = rule.hopeless_below is not None and len(kept) >= _FEWEST and rate.high < rule.hopeless_below
    long_enough = sum(window.seconds for window in kept) >= rule.min_seconds
    stable = narrow and drift is None
    done = exhausted or hopeless or (long_enough and stable)
    warnings = (
        _warnings(rate, narrow=narrow, drift=drift, draining=left_out == len(edges) - 1 > 0)
        if done and not hopeless
        else ()
    )
    return Reading(
        windows=kept, left_out=left_out, rate=rate, done=done, stable=stable, cut_short=hopeless, warnings=warnings
    )


def estimate(rates: Sequence[float]) -> Estimate:
    """Return the median of the windows' rates with its bootstrap interval; one window alone says nothing of its spread."""
    value = stats.median(rates)
    low, high = stats.bootstrap_interval(rates)
    if not math.isfinite(low):
        low, high = 0.0, 2 * value
    return Estimate(value=value, low=low, high=high)


def window_steps(step_seconds: float, workers: int, seconds: float = 0.1) -> int:
    """Return how many steps make a window: long against the clock and against the bursts in which workers deliver."""
    return max(1, workers, math.ceil(seconds / max(step_seconds, 1e-6)))


def discarded_steps(workers: int) -> int:
    """Return how many steps to leave out at the start: workers that begin together deliver their first batches together."""
    return workers + 2


def _windows(start: float, edges: Sequence[Edge]) -> tuple[Window, ...]:
    begins = [start, *(edge.seconds for edge in edges[:-1])]
    return tuple(
        Window(
            images=edge.images,
            seconds=edge.seconds - begin,
            waiting_seconds=min(edge.waiting_seconds, edge.seconds - begin),
        )
        for begin, edge in zip(begins, edges, strict=True)
    )


def _draining(edges: Sequence[Edge]) -> int:
    """Return how many leading windows lived on a queue that was emptying: up to where its level stops falling."""
    levels = [edge.level for edge in edges]
    if not levels or any(level is None for level in levels):
        return 0
    known = [level for level in levels if level is not None]
    floor = min(known[len(known) // 2 :])
    if known[0] <= floor + max(1, known[0] // 4):
        return 0
    return next(position for position, level in enumerate(known) if level <= floor + 1)


def _drift(rates: Sequence[float]) -> float | None:
    """Return the relative change from the first to the second half of the windows, if it is real and above 5 %."""
    half = len(rates) // 2
    if half < _FEWEST // 2:
        return None
    before, after = rates[:half], rates[-half:]
    change = stats.median(after) / stats.median(before) - 1
    first, second = stats.bootstrap_interval(before), stats.bootstrap_interval(after)
    apart = first.high < second.low or second.high < first.low
    return change if apart and abs(change) > _DRIFT else None


def _warnings(rate: Estimate, *, narrow: bool, drift: float | None, draining: bool) -> tuple[str, ...]:
    said = []
    if drift is not None:
        said.append(
            f"drifting: the second half ran {abs(drift):.0%} {'faster' if drift > 0 else 'slower'} than the first; "
            "something else uses the machine, or it changes its clock. Measure again on a quiet machine."
        )
    if not narrow:
        spread = (rate.high - rate.low) / 2 / rate.value
        said.append(f"unstable: ±{spread:.0%} after the longest time allowed. Allow more time, or quieten the machine.")
    if draining:
        said.append("the queue was still emptying at the end: the rate may be too high. Allow more time.")
    return tuple(said)
