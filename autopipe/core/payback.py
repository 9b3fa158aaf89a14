"""Whether it pays to keep the samples in another form: what that costs once, and what it saves in each epoch.

Pure arithmetic on what trials measured. What is shown, and which configuration is chosen, is decided elsewhere.
"""

from __future__ import annotations

import dataclasses
import math

from autopipe.core.outcome import ConversionCost
from autopipe.core.stats import student_t_95
from autopipe.core.value import Estimate


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CostProfile:
    """What feeding a training costs in one way."""

    images_per_second: float  # its steady rate
    once_seconds: float = 0.0  # spent before or in the first epoch, beyond that rate: conversion, filling a cache

    def seconds(self, epochs: float, samples: int) -> float:
        """Return how long a training of so many epochs takes."""
        return self.once_seconds + epochs * samples / self.images_per_second


def conversion_seconds(cost: ConversionCost, samples: int) -> Estimate:
    """Return how long converting `samples` samples takes, extrapolated from a part.

    The figure is the part's seconds a sample over all its shards, times the samples, and once the time that the part
    took beyond its shards. The interval is Student's 95 % of that ratio, from how much the shards differ; a disk that
    slows down after the part is not in it.
    """
    seconds, counts = cost.shard_seconds, cost.shard_samples
    per_sample = sum(seconds) / sum(counts)
    side_by_side = min(cost.workers, len(seconds))
    besides = max(0.0, cost.seconds - sum(seconds) / side_by_side)
    whole = per_sample * samples / side_by_side
    shards = len(seconds)
    if shards < 2:
        return Estimate(value=besides + whole, low=besides + whole, high=besides + whole)
    strays = [took - per_sample * count for took, count in zip(seconds, counts, strict=True)]
    spread = math.sqrt(sum(stray**2 for stray in strays) / (shards - 1))
    reach = student_t_95(shards - 1) * spread / math.sqrt(shards) / (sum(counts) / shards)
    reach = min(whole, reach * samples / side_by_side)
    return Estimate(value=besides + whole, low=besides + whole - reach, high=besides + whole + reach)


def conversion_bytes(cost: ConversionCost, samples: int) -> int:
    """Return what `samples` converted samples take on disk, extrapolated from a part."""
    return round(cost.bytes / cost.samples * samples)


def epochs_to_pay(kept: CostProfile, rival: CostProfile, samples: int) -> float | None:
    """Return after how many epochs `kept` has caught up with `rival`; 0 if at once, None if never."""
    saved = saved_seconds(kept, rival, samples)
    owed = kept.once_seconds - rival.once_seconds
    if saved <= 0:
        return None
    return max(0.0, owed / saved)


def saved_seconds(kept: CostProfile, rival: CostProfile, samples: int) -> float:
    """Return what each epoch takes less; below zero if it takes more."""
    return samples / rival.images_per_second - samples / kept.images_per_second
