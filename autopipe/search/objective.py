"""What a study maximises, and what its trials are held to. Pure functions of measurements.

Several measurements of one configuration are one point with more windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autopipe.measure import costs as core_costs
from autopipe.measure.facts import Limits
from autopipe.measure.outcome import Measurement, Resources
from autopipe.measure.stats import estimate, median
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate


def merged(measurements: Sequence[Measurement]) -> Estimate:
    """Return images/s over all measurements of one configuration: their median, as sure as all windows together are.

    A measurement's own rate counts the pauses between epochs, which the median of windows would leave out.
    """
    if len(measurements) == 1:
        return measurements[0].images_per_second
    value = median([each.images_per_second.value for each in measurements])
    windows = estimate([window.images / window.seconds for each in measurements for window in each.windows])
    return Estimate(value=value, low=value * windows.low / windows.value, high=value * windows.high / windows.value)


def score(images_per_second: float, one_time_seconds: float, images: int) -> float:
    """Return the rate over a whole training: what a study maximises where its length is known.

    Args:
        images_per_second: the steady rate.
        one_time_seconds: conversion, cache fill and start, which the steady rate leaves out.
        images: that the training goes through, in all epochs.
    """
    return images / (one_time_seconds + images / images_per_second)


def one_time_seconds(measurements: Sequence[Measurement], predicted: tuple[float, float], sample_count: int) -> float:
    """Return what has to be paid once: conversion, filling the cache, and the wait for the first batch.

    Args:
        measurements: of one configuration, at least one.
        predicted: seconds to convert and to fill, for what was not measured.
        sample_count: samples of the whole data set.
    """
    costs = [each.conversion for each in measurements if each.conversion is not None]
    fills = [each.cache_fill_seconds for each in measurements if each.cache_fill_seconds is not None]
    convert, fill = predicted
    if costs:
        convert = median([core_costs.conversion_seconds(cost, sample_count).value for cost in costs])
    if fills:
        fill = median(fills)
    return convert + fill + median([each.first_batch_seconds for each in measurements])


def peak_bytes(measurement: Measurement, cache_bytes: int | None) -> float | None:
    """Return the most memory that a training over all of the data takes, or None if that was not measured.

    Args:
        measurement: on a part of the data, whose cache holds no more than that.
        cache_bytes: of the whole cache.
    """
    peak = measurement.resources.peak_rss_bytes
    return None if peak is None else peak + (1 - measurement.data_share) * (cache_bytes or 0)


def taken(measurement: Measurement, cache_bytes: int | None) -> Resources:
    """Return what a training over all of the data takes; `cache_bytes` as in `peak_bytes`."""
    peak = peak_bytes(measurement, cache_bytes)
    return measurement.resources.model_copy(update={"peak_rss_bytes": None if peak is None else int(peak)})


def excesses(measurement: Measurement, limits: Limits, cache_bytes: int | None = None) -> dict[str, float]:
    """Return by how much each limit is exceeded, as Optuna's constraints: above zero is too much."""
    took, found = taken(measurement, cache_bytes), dict[str, float]()
    if limits.memory_bytes is not None and took.peak_rss_bytes is not None:
        found["memory_bytes"] = took.peak_rss_bytes - limits.memory_bytes
    if limits.cpu_percent is not None and took.cpu_percent is not None:
        found["cpu_percent"] = took.cpu_percent - limits.cpu_percent
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """All that was measured of one configuration."""

    config: PipelineConfig
    key: str
    measurements: tuple[Measurement, ...]  # oldest first, at least one
    estimate: Estimate  # images/s over all their windows
    value: float  # what the study maximises
    feasible: bool  # whether it is what the user allows, by its settings and by every measurement
