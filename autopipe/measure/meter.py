"""The meter: decides after which steps of a training the clock is read, and derives a rate from the readings.

The times at which groups of steps ended are edges of windows; from these follow a rate with its interval, and when to
stop. Nothing here holds a clock or imports a framework, so that tests can drive it.

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
from autopipe.measure.outcome import StopRule, Window
from autopipe.values import Estimate

AUTOTUNE_SECONDS = 1.0  # time for tf.data's own tuning: it looks after 10, 20, 40, ... ms, so most has happened by then
MOST_BEFORE_SECONDS = 2.0  # the most seconds of reading files outside of windows in a trial
_FEWEST = 6  # windows before an interval means anything
_PEEK_RESAMPLES = 200  # 0.2 ms; an interval is wanted at the edge of each window, while the loader goes on


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The state at the beginning of the first window, or at the end of a window."""

    seconds: float  # when, on the trial's clock, with all work before it done
    images: int  # images trained on since the first edge
    waited_seconds: float = 0.0  # the model's waiting for batches since then
    queued: float | None = None  # mean images in the loader's queue since the edge before; None if unknown


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
    """Read the edges of a trial, its beginning and the ends of the windows so far; None while there are too few.

    `burst` images may arrive together, by which a queue's level varies without meaning. A trial goes on until it holds
    as many, unless as many wait in the queue: in twice the most time at most, or in 20 s if the queue is not seen, as
    people have epochs of one burst; and until it holds an epoch of `epoch_images`, if it can. `final`: no more follow.
    """
    if len(edges) < 2:
        return None
    first = min(_settled(edges, burst), len(edges) - 2)  # a window is left, however few there are
    kept = edges[first:]
    seconds, whole = edges[-1].seconds - kept[0].seconds, edges[-1].seconds - edges[0].seconds
    # All images may have come in one burst, with unseen pauses before and after it: 64 workers that began together and
    # make a batch in 3 s feed any model for a second, then none. Images that wait in the queue come without a pause.
    partial = _images(kept) < burst and (kept[-1].queued or 0.0) < burst
    over = final or (rule.ends_at is not None and edges[-1].seconds >= rule.ends_at)
    most = 2 * rule.most_seconds if edges[-1].queued is not None else max(2 * rule.most_seconds, 20.0)
    exhausted = over or (seconds >= rule.most_seconds and not partial) or whole >= most
    if len(kept) <= _FEWEST and not exhausted:
        return None
    trend = _trend(kept)
    # A falling level within one burst has no meaning, as the next may fill it again; nor has an unknown one.
    in_a_burst = partial and (trend < 0 or kept[-1].queued is None)
    emptied = trend < 0 and not partial
    trained = (_window(begin, end, end.images - begin.images) for begin, end in itertools.pairwise(kept))
    windows = _made(kept, burst) if emptied else tuple(trained)
    rates = [window.images / window.seconds for window in windows]
    rate = stats.estimate(rates, resamples=_PEEK_RESAMPLES)
    enough = len(rates) >= _FEWEST
    narrow = enough and rate.high - rate.low <= 2 * rule.half_width * rate.value
    drift = _drift(rates)
    filling = trend > rule.half_width
    stable = narrow and drift is None and not filling and not in_a_burst
    hopeless = enough and rule.hopeless_below is not None and rate.high < rule.hopeless_below
    cut_short = hopeless and not exhausted and not filling and (drift is None or drift < 0)
    short = epoch_images is not None and _images(kept) < epoch_images <= rule.most_seconds * rate.value
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
    """Compute the steps of a window: 0.1 s, which is long against the clock, in whole bursts of the workers. It is half
    of a trial at most. If not even a burst fits in that, it is an equal part of one, with as few parts as possible, but
    at least a step.
    """
    step_seconds = max(step_seconds, 1e-6)
    bursts = max(1, math.ceil(0.1 / step_seconds / workers))
    half = max(1, math.floor(rule.most_seconds / 2 / step_seconds))
    return min(workers * bursts, half // workers * workers or math.ceil(workers / math.ceil(workers / half)))


def _images(edges: Sequence[Edge]) -> int:
    return edges[-1].images - edges[0].images


def _settled(edges: Sequence[Edge], burst: int) -> int:
    """Return the first edge with a queue as full as in the second half of the trial; all count if it empties there."""
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
    """Return the growth of the queue, as a share of the images; 0 if it may be chance (2.5 standard errors), or 1 %."""
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
    return share if abs(slope) > 2.5 * error and abs(share) > 0.01 else 0.0


def _made(edges: Sequence[Edge], burst: int) -> tuple[Window, ...]:
    """Return a few long windows with the images that the loader made in each, by the queue's trend: over all of them
    or, if that has changed by more than bursts explain, over each half.
    """
    middle = len(edges) // 2
    halves = (edges[: middle + 1], edges[middle:])
    trends = [_trend(half) for half in halves]
    if abs(trends[1] - trends[0]) * min(map(_images, halves)) <= 2 * burst:
        trends = [_trend(edges)] * 2
    windows = list[Window]()
    for half, trend in zip(halves, trends, strict=True):
        places = np.linspace(0, len(half) - 1, min(_FEWEST // 2, len(half) - 1) + 1).round().astype(int)
        for begin, end in itertools.pairwise(half[place] for place in places):
            windows.append(_window(begin, end, max(1, round((1 + trend) * (end.images - begin.images)))))
    return tuple(windows)


def _window(begin: Edge, end: Edge, images: int) -> Window:
    seconds = max(end.seconds - begin.seconds, 1e-9)
    waiting = min(max(0.0, end.waited_seconds - begin.waited_seconds), seconds)
    return Window(images=images, seconds=seconds, waiting_seconds=waiting)


def _drift(rates: Sequence[float]) -> float | None:
    """Return the change of rate from the first half to the second, if it is above 5 % and beyond both intervals."""
    half = len(rates) // 2
    if half < _FEWEST // 2:
        return None
    before, after = rates[:half], rates[-half:]
    change = stats.median(after) / stats.median(before) - 1
    if abs(change) <= 0.05:
        return None
    (low, high), (then_low, then_high) = (
        stats.bootstrap_interval(part, resamples=_PEEK_RESAMPLES) for part in (before, after)
    )
    return change if high < then_low or then_high < low else None


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
        said.append(
            "unstable: too wide an interval in the longest time allowed. Allow more time, or quieten the machine."
        )
    if filling:
        said.append("unstable: the loader's queue was still filling, so the rate may be too low. Allow more time.")
    if in_a_burst:
        said.append("unstable: it may all have come in one burst of the workers, and then too high. Allow more time.")
    return tuple(said)


def overall(windows: Sequence[Window], epoch_images: int | None = None, images_before: int | None = None) -> Estimate:
    """Return the images of all windows over the time they took, with its bootstrap interval: a stopwatch's rate, as the
    median of windows leaves out pauses that fall into few of them.

    If an epoch of `epoch_images` fits in, as many whole ones as there are count, each with its pause. If none does, a
    pause counts as in a whole one, whose other images go on as in the other windows. None: the loader made them, and
    goes on in the model's pauses. The `images_before` the first window give the beginnings of epochs, if known.
    """
    if epoch_images is None:
        return _together(windows)
    whole = _whole_epochs(windows, epoch_images)
    if whole or images_before is None:
        return _together(whole or windows)
    paused, others = list[Window](), list[Window]()
    for window in windows:
        (paused if -images_before % epoch_images < window.images else others).append(window)  # an epoch begins in it
        images_before += window.images
    if not paused or not others:
        return _together(windows)
    rest = epoch_images - sum(window.images for window in paused) / len(paused)
    seconds, steady = sum(window.seconds for window in paused) / len(paused), _together(others)
    return steady.mapped(lambda rate: epoch_images / (seconds + rest / rate) if rate > 0 else 0.0)


def _together(windows: Sequence[Window]) -> Estimate:
    images = np.array([window.images for window in windows], float)
    seconds = np.array([window.seconds for window in windows])
    value = float(images.sum() / seconds.sum())
    if len(windows) < 2:
        return Estimate.of_one(value)
    picks = np.random.default_rng(0).integers(len(windows), size=(1000, len(windows)))
    low, high = np.quantile(images[picks].sum(axis=1) / seconds[picks].sum(axis=1), [0.025, 0.975])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def _whole_epochs(windows: Sequence[Window], epoch_images: int) -> Sequence[Window]:
    """Return the consecutive windows with the most whole epochs, which may begin anywhere; none if there is none."""
    ends = list(itertools.accumulate((window.images for window in windows), initial=0))
    spans = itertools.combinations(range(len(ends)), 2)
    rows = ((ends[stop] - ends[start], start, stop) for start, stop in spans)
    _, start, stop = max((row for row in rows if row[0] % epoch_images == 0), default=(0, 0, 0))
    return windows[start:stop]


@dataclasses.dataclass(eq=False)
class Meter:
    """Follows one training from step to step."""

    batch_size: int
    workers: int  # of the loader, each of which makes whole batches
    rule: StopRule
    _: dataclasses.KW_ONLY
    fill_steps: int = 1  # in which caches fill: at least one, which waits for the loader to start
    settle_seconds: float = 0.0  # for the loader then, besides the time in which workers that began together spread out
    # Steps of an epoch, after which Keras pauses: the probe sets it. A window ends with each epoch, so that whole
    # epochs can be counted. None: no end, or not known.
    epoch_steps: int | None = None
    filled_at: float | None = None  # when the last of the fill steps had ended; None before
    began_at: float | None = None  # when the first window began; None before
    reading: Reading | None = None  # of the windows; None while there are too few
    _filled_steps: int = 0
    _began_steps: int = 0
    _edges: list[Edge] = dataclasses.field(default_factory=list)
    _steps: int = 0
    _looked_at: int = 0  # steps
    _levels: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers, self._next_look = max(1, self.workers), max(1, self.fill_steps)

    @property
    def images(self) -> int:
        return self._edges[-1].images if self._edges else 0

    @property
    def rate(self) -> float:
        spent = self._edges[-1].seconds - self._edges[0].seconds if len(self._edges) > 1 else 0.0
        return self.images / spent if spent > 0 else 0.0

    @property
    def overall(self) -> Estimate:
        """Images per second over all windows that count, or over whole epochs; requires a reading."""
        assert self.reading is not None
        epoch_images = None if self.reading.emptied else self.epoch_images
        return overall(self.reading.windows, epoch_images, self.discarded_batches * self.batch_size)

    @property
    def epoch_images(self) -> int | None:
        return None if self.epoch_steps is None else self.epoch_steps * self.batch_size

    @property
    def discarded_batches(self) -> int:
        return self._began_steps + (0 if self.reading is None else self.reading.left_out // self.batch_size)

    def step(self, steps: int, queued_batches: int | None, seconds: float) -> bool:
        """Note that `steps` steps so far have been issued, at `seconds`; True if it is time to `look`: the steps of a
        window are done, or they take far longer than those before, which waited in a queue. `queued_batches` is the
        level of the loader's queue, or None if unknown. Its mean counts: at the edges of windows alone, the bursts in
        which workers deliver would look like a trend.
        """
        self._steps = steps
        if queued_batches is not None:
            self._levels.append(queued_batches)
        late = bool(self._edges) and seconds - self._edges[-1].seconds >= self.rule.most_seconds / _FEWEST
        return steps >= self._next_look or (late and self._steps - self._looked_at >= self.workers)

    def look(self, seconds: float, waited_seconds: float) -> bool:
        """Take a reading after all work of these steps was done; True if the training goes on."""
        if self.filled_at is None:
            self.filled_at, self._filled_steps = seconds, self._steps
            self._next_look = self._steps + 1
        elif self.began_at is not None or self._has_settled(seconds):
            self._add_edge(seconds, waited_seconds)
        return self.reading is None or not self.reading.done

    def end(self, seconds: float, waited_seconds: float) -> None:
        if len(self._edges) == 1 and self._steps > self._began_steps:
            self._add_edge(seconds, waited_seconds)
        if self.reading is None or not self.reading.done:
            self._read(final=True)

    def _has_settled(self, seconds: float) -> bool:
        """True once workers have spread out and the loader had its time; else set the next look."""
        assert self.filled_at is not None
        spent, done = seconds - self.filled_at, self._steps - self._filled_steps
        step_seconds = max(spent / done, 1e-6)
        wanted = 1 if step_seconds > 0.25 else self.workers + 2  # slow steps are not spent on that
        missing = math.ceil((self.settle_seconds - spent) / step_seconds)
        # The first steps come in a burst and say little of the later ones, so no more are waited for than there were.
        self._next_look = max(self._filled_steps + wanted, self._steps + min(missing, done))
        left = (self.epoch_steps or 0) - self._steps  # of the first epoch, with its one-time work
        if self._next_look <= self._steps and 0 < left * step_seconds <= 1.0:
            self._next_look = self._steps + min(left, done)
        return self._next_look <= self._steps

    def _window_steps(self, seconds: float, steps: int) -> int:
        """Choose the steps of a window, by the time of the last `steps` or more."""
        assert self.filled_at is not None  # no edge is added before
        marks = [(self.filled_at, self._filled_steps)]
        marks += [(edge.seconds, self._began_steps + edge.images // self.batch_size) for edge in self._edges]
        before, steps_before = next((each for each in reversed(marks) if self._steps - each[1] >= steps), marks[0])
        return window_steps((seconds - before) / (self._steps - steps_before), self.workers, self.rule)

    def _add_edge(self, seconds: float, waited_seconds: float) -> None:
        # The batches of one burst came together, so their steps do not show the wait for the next burst.
        by_bursts = max(self.workers, self._window_steps(seconds, self.workers))
        steps = min(self._window_steps(seconds, 1), by_bursts)
        if self.epoch_steps is not None:  # to an epoch's end: the last within them, or one up to half as far again
            left = self.epoch_steps - self._steps % self.epoch_steps
            whole = max(0, steps - left) // self.epoch_steps * self.epoch_steps
            steps = left + whole if left <= 1.5 * steps else steps
        self._next_look = self._steps + steps
        if not self._edges:
            self.began_at, self._began_steps = seconds, self._steps
        mean = sum(self._levels) / len(self._levels) if self._levels else None
        self._levels.clear()
        self._looked_at = self._steps
        self._edges.append(
            Edge(
                seconds=seconds,
                images=(self._steps - self._began_steps) * self.batch_size,
                waited_seconds=waited_seconds,
                queued=None if mean is None else mean * self.batch_size,
            )
        )
        self._read(final=False)

    def _read(self, *, final: bool) -> None:
        burst = self.workers * self.batch_size
        self.reading = read(self._edges, self.rule, burst=burst, epoch_images=self.epoch_images, final=final)
