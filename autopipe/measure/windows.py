"""Windows: from the times at which groups of steps ended to a rate with its interval, and when to stop. Pure.

A trial starts with a warm model and an empty queue, so a loader that is slower than the model never fills the queue,
and its rate shows at once. Two things are looked at besides, by the queue's level. While a queue still fills, the
loader takes more of the shared cores than it will later: those windows are left out. While a queue empties, the model
lives on earlier batches, for B * p / (p - c) batches (queue of B; p and c the seconds a batch of producer and
consumer), which is longer than a trial: there, the batches that the loader made count, not those that the model took.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from autopipe.measure import stats
from autopipe.measure.outcome import Window
from autopipe.values import Estimate

_FEWEST = 6  # windows before an interval means anything
_DRIFT = 0.05  # relative change from the first to the second half that is called drift
_TREND = 0.01  # negligible growth of a queue, as a share of the images trained on
_WINDOW_SECONDS = 0.1  # long against the clock and against waiting for the device
_PEEK_RESAMPLES = 200  # 0.2 ms; an interval is wanted at the edge of each window, while the loader goes on


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """The rule that ends a trial."""

    min_seconds: float = 1.0  # least time in windows that count
    # most time in windows that count; then the trial ends, stable or not. With discarded ones, at most twice as long
    max_seconds: float = 3.0
    half_width: float = 0.03  # the interval is narrow enough at this share of the median on either side
    ends_at: float = math.inf  # on the trial's clock; from then on the windows so far have to do
    hopeless_below: float | None = None  # images/s; a trial whose interval lies wholly below it ends early. None: never


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The state at the beginning of the first window, or at the end of a window."""

    seconds: float  # when, on the trial's clock, with all work before it done
    images: int  # images trained on since the first edge
    waited_seconds: float = 0.0  # the model's waiting for batches since then
    # mean images in the loader's queue since the edge before; None if unknown
    queued: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The figures of the windows so far."""

    windows: tuple[Window, ...]  # those that count
    left_out: int  # images trained on in windows at the beginning that do not count, because a queue still filled
    rate: Estimate  # images per second
    done: bool  # the trial can stop
    stable: bool  # the interval is narrow enough and nothing drifts
    emptied: bool = False  # a queue emptied, so that the windows' images are those that the loader made
    cut_short: bool = False  # it stopped because it could not win any more
    warnings: tuple[str, ...] = ()  # problems with advice; only when done


def read(
    edges: Sequence[Edge], rule: StopRule, *, burst: int = 1, epoch_images: int | None = None, final: bool = False
) -> Reading | None:
    """Read the edges of a trial; None while there are too few.

    Args:
        edges: the beginning, and the ends of the windows so far.
        rule: when to stop.
        burst: images that may arrive together, by which a queue's level varies without meaning. A trial goes on until
            it holds as many, in twice the most time at most, unless as many wait in the queue.
        epoch_images: images of an epoch, if known: a trial that can hold one goes on until it does.
        final: True if no more windows follow, for another reason than the rule.
    """
    if len(edges) < 2:
        return None
    first = min(_settled(edges, burst), len(edges) - 2)  # a window is left, however few there are
    kept = edges[first:]
    seconds, whole = edges[-1].seconds - kept[0].seconds, edges[-1].seconds - edges[0].seconds
    partial = _holds_part_of_a_burst(kept, burst)
    over = final or edges[-1].seconds >= rule.ends_at
    exhausted = over or (seconds >= rule.max_seconds and not partial) or whole >= 2 * rule.max_seconds
    if len(kept) <= _FEWEST and not exhausted:
        return None
    trend = _trend(kept)
    # A falling level within one burst has no meaning, as the next may fill it again; nor has an unknown one.
    in_a_burst = partial and (trend < 0 or kept[-1].queued is None)
    emptied = trend < 0 and not partial
    windows = _made(kept, burst) if emptied else _trained(kept)
    rates = [window.images / window.seconds for window in windows]
    rate = stats.estimate(rates, resamples=_PEEK_RESAMPLES)
    enough = len(rates) >= _FEWEST
    narrow = enough and rate.high - rate.low <= 2 * rule.half_width * rate.value
    drift = _drift(rates)
    filling = trend > rule.half_width
    stable = narrow and drift is None and not filling and not in_a_burst
    hopeless = enough and rule.hopeless_below is not None and rate.high < rule.hopeless_below
    cut_short = hopeless and not exhausted and not filling and (drift is None or drift < 0)
    short = epoch_images is not None and _images(kept) < epoch_images <= rule.max_seconds * rate.value
    done = exhausted or cut_short or (stable and not short and not partial and seconds >= rule.min_seconds)
    if done:
        rate = stats.estimate(rates)
    warned = done and not stable and not cut_short
    return Reading(
        windows=windows,
        left_out=_images(edges[: first + 1]),
        rate=rate,
        done=done,
        stable=stable,
        emptied=emptied,
        cut_short=cut_short,
        warnings=_warnings(rate, narrow=narrow, drift=drift, filling=filling, in_a_burst=in_a_burst) if warned else (),
    )


def window_steps(step_seconds: float, workers: int, rule: StopRule) -> int:
    """Compute the steps of a window: long against the clock, and whole bursts, in which workers deliver.

    It is half of a trial at most. If not even a burst fits in that, it is an equal part of one, with as few parts as
    possible, but at least a step.
    """
    step_seconds = max(step_seconds, 1e-6)
    bursts = max(1, math.ceil(_WINDOW_SECONDS / step_seconds / workers))
    half = max(1, math.floor(rule.max_seconds / 2 / step_seconds))
    part = math.ceil(workers / math.ceil(workers / half))
    return min(workers * bursts, half // workers * workers or part)


def _images(edges: Sequence[Edge]) -> int:
    return edges[-1].images - edges[0].images


def _holds_part_of_a_burst(edges: Sequence[Edge], burst: int) -> bool:
    """Return True if all images may have come in one burst, with unseen pauses before and after it.

    Workers that began together may deliver together: 64 that make a batch in 3 s feed any model for a second, then
    none. Images that wait in the queue come without a pause.
    """
    return _images(edges) < burst and (edges[-1].queued or 0.0) < burst


def _settled(edges: Sequence[Edge], burst: int) -> int:
    """Return the first edge from which on the queue is as full as in the second half of the trial.

    If it still empties in the second half, no edge is discarded for that: the loader's own rate counts then.
    """
    levels = [edge.queued for edge in edges if edge.queued is not None]
    if len(levels) < len(edges):
        return 0
    half = len(edges) // 2
    final = float(np.median(levels[half:]))
    emptying = _trend(edges[half:]) < 0
    return next(
        (
            edge
            for edge, level in enumerate(levels[:half])
            if -burst <= level - final and (emptying or level - final <= burst)
        ),
        half,
    )


def _trend(edges: Sequence[Edge]) -> float:
    """Return the growth of the queue, as a share of the images trained on; 0 if it may be chance.

    The slope of a straight line through all levels has to be 2.5 times its standard error.
    """
    levels = np.array([edge.queued for edge in edges if edge.queued is not None])
    if len(levels) < len(edges) or len(edges) < _FEWEST:
        return 0.0
    times = np.array([edge.seconds for edge in edges])
    times -= times.mean()
    spread = float((times**2).sum())
    slope = float((times * levels).sum()) / spread
    rest = levels - levels.mean() - slope * times
    error = math.sqrt(float((rest**2).sum()) / (len(edges) - 2) / spread)
    share = slope * (edges[-1].seconds - edges[0].seconds) / _images(edges)
    return share if abs(slope) > 2.5 * error and abs(share) > _TREND else 0.0


def _trained(edges: Sequence[Edge]) -> tuple[Window, ...]:
    return tuple(_window(begin, end, end.images - begin.images) for begin, end in itertools.pairwise(edges))


def _made(edges: Sequence[Edge], burst: int) -> tuple[Window, ...]:
    """Return a few long windows with the images that the loader made in each.

    A short one holds too few batches to count, so the figure follows from the queue's trend: over all windows or, if
    that has changed by more than bursts explain, over each half of them.
    """
    middle = len(edges) // 2
    halves = (edges[: middle + 1], edges[middle:])
    trends = [_trend(half) for half in halves]
    if abs(trends[1] - trends[0]) * min(map(_images, halves)) <= 2 * burst:
        trends = [_trend(edges)] * 2
    return tuple(
        _window(begin, end, max(1, round((1 + trend) * (end.images - begin.images))))
        for half, trend in zip(halves, trends, strict=True)
        for begin, end in itertools.pairwise(_thinned(half, _FEWEST // 2))
    )


def _thinned(edges: Sequence[Edge], windows: int) -> list[Edge]:
    """Return the edges of at most this many windows of similar length."""
    places = np.linspace(0, len(edges) - 1, min(windows, len(edges) - 1) + 1).round().astype(int)
    return [edges[place] for place in places]


def _window(begin: Edge, end: Edge, images: int) -> Window:
    seconds = max(end.seconds - begin.seconds, 1e-9)
    waiting = min(max(0.0, end.waited_seconds - begin.waited_seconds), seconds)
    return Window(images=images, seconds=seconds, waiting_seconds=waiting)


def _drift(rates: Sequence[float]) -> float | None:
    half = len(rates) // 2
    if half < _FEWEST // 2:
        return None
    before, after = rates[:half], rates[-half:]
    change = stats.median(after) / stats.median(before) - 1
    if abs(change) <= _DRIFT:
        return None
    first, second = (stats.bootstrap_interval(part, resamples=_PEEK_RESAMPLES) for part in (before, after))
    return change if first.high < second.low or second.high < first.low else None


def _warnings(rate: Estimate, *, narrow: bool, drift: float | None, filling: bool, in_a_burst: bool) -> tuple[str, ...]:
    said = []
    if drift is not None:
        said.append(
            f"drifting: the second half ran {abs(drift):.0%} {'faster' if drift > 0 else 'slower'} than the first; "
            "something else uses the machine, or it changes its clock. Measure again on a quiet machine."
        )
    if not rate.has_interval:
        said.append("unstable: its steps are so long that there is one window, and no interval. Allow more time.")
    elif not narrow:
        spread = (rate.high - rate.low) / 2 / rate.value
        said.append(f"unstable: ±{spread:.0%} after the longest time allowed. Allow more time, or quieten the machine.")
    if filling:
        said.append("unstable: the loader's queue was still filling, so the rate may be too low. Allow more time.")
    if in_a_burst:
        said.append("unstable: it may all have come in one burst of the workers, and then too high. Allow more time.")
    return tuple(said)


_RESAMPLES = 1000


def overall(windows: Sequence[Window], epoch_images: int | None = None, images_before: int | None = None) -> Estimate:
    """Return the images of all windows together over the time they took, with its bootstrap interval.

    It is a stopwatch's rate; the median of windows leaves out pauses that fall into few of them.

    Args:
        windows: one after the other.
        epoch_images: images of an epoch; if one fits in, as many whole ones as there are count, each with its pause.
            If none does, a pause counts as in a whole one, whose other images go on as in the other windows.
            None if images are those that the loader made: it goes on in the model's pauses.
        images_before: those before the first window, which give the beginnings of epochs; None: unknown.
    """
    if epoch_images is None:
        return _together(windows)
    whole = _whole_epochs(windows, epoch_images)
    if whole or images_before is None:
        return _together(whole or windows)
    paused: list[Window] = []
    others: list[Window] = []
    for window in windows:
        epoch_begins = -images_before % epoch_images < window.images
        (paused if epoch_begins else others).append(window)
        images_before += window.images
    if not paused or not others:
        return _together(windows)
    rest = epoch_images - sum(window.images for window in paused) / len(paused)
    seconds, steady = sum(window.seconds for window in paused) / len(paused), _together(others)
    low, value, high = (
        epoch_images / (seconds + rest / rate) if rate > 0 else 0.0 for rate in (steady.low, steady.value, steady.high)
    )
    return Estimate(value=value, low=low, high=high)


def _together(windows: Sequence[Window]) -> Estimate:
    images = np.array([window.images for window in windows], float)
    seconds = np.array([window.seconds for window in windows])
    value = float(images.sum() / seconds.sum())
    if len(windows) < 2:
        return Estimate.of_one(value)
    picks = np.random.default_rng(0).integers(len(windows), size=(_RESAMPLES, len(windows)))
    low, high = np.quantile(images[picks].sum(axis=1) / seconds[picks].sum(axis=1), [0.025, 0.975])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def _whole_epochs(windows: Sequence[Window], epoch_images: int) -> Sequence[Window]:
    """Return the consecutive windows with the most whole epochs, the last of equals; none if there is no epoch.

    An epoch may begin anywhere: from the middle of one to the middle of the next there is one pause, too.
    """
    ends = list(itertools.accumulate((window.images for window in windows), initial=0))
    rows = [
        (ends[stop] - ends[start], start, stop)
        for start, stop in itertools.combinations(range(len(ends)), 2)
        if (ends[stop] - ends[start]) % epoch_images == 0
    ]
    _, start, stop = max(rows, default=(0, 0, 0))
    return windows[start:stop]
