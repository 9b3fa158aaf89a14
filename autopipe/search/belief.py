"""What everything that was measured says of each configuration: trials, repeats, confirmation blocks, and predictions.

Pure. Who enters the `confirmation` and who wins it (`decision`) follow from it; nothing is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autopipe.core.config import PipelineConfig
from autopipe.core.stats import Comparison, Interval, median, student_t_95
from autopipe.search.surrogate import Array, Features, Learnt, Reading, Surrogate


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of one configuration."""

    config: PipelineConfig
    trend: float  # the logarithm of its prediction, or 0 where none has one
    readings: Sequence[Reading]  # its measurements; without one, what is like it speaks for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What configurations are worth, all evidence weighed: normal in the logarithm, not independent of each other."""

    keys: tuple[str, ...]  # of the configurations
    mean: Array  # of their log values
    covariance: Array  # of their log values
    noise: float  # by how much a measurement strays from one of the same configuration in the same block, in log units
    drift: float  # by how much a block strays from the next, or a trial from one at another time, beside that
    freedom: int  # how many repeats these two rest on, at least 1
    settings: tuple[str, ...] = ()  # names of the settings by which configurations are told apart
    learnt: Learnt | None = None  # how much each of them matters, among others

    def value(self, key: str) -> float:
        """Return what a configuration is worth, most likely."""
        return math.exp(float(self.mean[self.keys.index(key)]))

    def best(self, keys: Collection[str]) -> str:
        """Return which of `keys`, at least one, is worth most."""
        return max(keys, key=lambda key: (self.value(key), key))

    def ahead(self, first: str, second: str) -> tuple[float, float]:
        """Return by how much `first` is ahead of `second`, in log units, with the standard deviation of that."""
        one, other = self.keys.index(first), self.keys.index(second)
        variance = self.covariance[one, one] + self.covariance[other, other] - 2.0 * self.covariance[one, other]
        return float(self.mean[one] - self.mean[other]), math.sqrt(max(float(variance), 0.0))

    def compared(self, first: str, second: str, pairs: int) -> Comparison:
        """Return how many times `first` is worth what `second` is, which ran in so many `pairs`."""
        ahead, spread = self.ahead(first, second)
        reach = student_t_95(self.freedom) * spread
        interval = Interval(math.exp(ahead - reach), math.exp(ahead + reach))
        return Comparison(ratio=math.exp(ahead), interval=interval, pairs=pairs)


def believe(known: Mapping[str, Known], cores: int, before: Belief | None = None) -> Belief:
    """Return what to believe of configurations, by key; those that are alike speak for each other.

    Args:
        known: what is known of each; one at least was measured.
        cores: usable ones.
        before: what was believed some measurements ago, to begin learning with.
    """
    features = Features([each.config for each in known.values()], cores)
    trend = np.array([each.trend for each in known.values()])
    readings = [(at, reading) for at, each in enumerate(known.values()) for reading in each.readings]
    names = tuple(features.names)
    start = before.learnt if before is not None and before.settings == names and before.freedom > 1 else None
    surrogate = Surrogate(features.distances(features.points, features.points), trend, readings, start)
    mean, covariance = surrogate.known()
    typical = median([reading.variance for _, reading in readings])
    blocks = {reading.block for _, reading in readings if reading.block is not None}
    return Belief(
        keys=tuple(known),
        mean=mean,
        covariance=covariance,
        noise=math.sqrt(surrogate.settings.noise**2 + typical),
        drift=surrogate.settings.drift,
        freedom=max(1, len(readings) - sum(bool(each.readings) for each in known.values()) - len(blocks) - 1),
        settings=names,
        learnt=surrogate.settings,
    )
