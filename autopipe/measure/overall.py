"""The rate that a stopwatch reads over a trial's windows, of which some hold the pause before an epoch. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from autopipe.core.outcome import Window
from autopipe.core.value import Estimate

_RESAMPLES = 1000


def overall(windows: Sequence[Window], epoch_images: int | None = None, images_before: int | None = None) -> Estimate:
    """Return the images of all windows together over the time they took, with its bootstrap interval.

    It is what a stopwatch reads; the median of windows leaves out pauses that fall into few of them.

    Args:
        windows: one after the other.
        epoch_images: images of an epoch; if one fits in, as many whole ones as there are count, each with its pause.
            If none does, a pause counts as in a whole one, whose other images go on as in the other windows.
            None where images are those that the loader made: it goes on in the model's pauses.
        images_before: those of the training before the first window, which tell where epochs begin; None: unknown.
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
    """Return those windows in a row that are the most whole epochs, of as many the last; none, if there is no epoch.

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
