"""What a handful of noisy rates says: the median, how far off it may be, and whether one thing is faster than another.

Pure functions of numbers. No clock, no file, no configuration: what is done about a result is decided elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom; beyond that the normal's 1.96 is within 4 %.
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Interval(NamedTuple):
    """Where a figure lies with 95 % confidence, unless said otherwise."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many times faster one thing ran than another, from measurements taken in pairs.

    Attributes:
        ratio: geometric mean of the pairs' ratios.
        interval: 95 % interval of `ratio`; endless with fewer than two pairs.
        pairs: how many pairs it rests on.
    """

    ratio: float
    interval: Interval
    pairs: int

    @property
    def faster(self) -> bool:
        """Whether the first is faster, beyond doubt."""
        return self.interval.low > 1.0

    @property
    def slower(self) -> bool:
        """Whether the first is slower, beyond doubt."""
        return self.interval.high < 1.0


def median(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the median.

    Raises:
        ValueError: there are no values.
    """
    if len(values) == 0:
        raise ValueError("`median` needs at least one value, but got none.")
    return float(np.median(values))


def bootstrap_interval(
    values: Sequence[float] | NDArray[np.float64],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Return the percentile-bootstrap interval of the median; the same input gives the same interval.

    One value alone says nothing of its spread: its interval is endless.

    Args:
        values: e.g. images/s of each window of a trial.
        confidence: the share of such intervals that hold the true median.
        resamples: how many times `values` are drawn anew.
        seed: of the generator that draws.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return Interval(-math.inf, math.inf) if data.size else Interval(math.nan, math.nan)
    picks = np.random.default_rng(seed).integers(data.size, size=(resamples, data.size))
    medians = np.median(data[picks], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


def compare_pairs(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare measurements taken in pairs, `first[i]` and `second[i]` in the same block.

    The interval is Student's, on the logarithms of the ratios. A bootstrap over the four to eight pairs of a proof is
    too sure of itself: its "95 %" intervals hold the truth in 80 % of cases with four pairs, Student's in 95 %.

    Raises:
        ValueError: the lengths differ, there are no pairs, or a value is not positive.
    """
    if len(first) != len(second) or not first:
        raise ValueError(
            f"`compare_pairs` needs as many values of each, at least one; got {len(first)}, {len(second)}."
        )
    if min(*first, *second) <= 0:
        raise ValueError("`compare_pairs` takes rates, which are above zero.")
    logs = np.log(np.asarray(first, dtype=np.float64) / np.asarray(second, dtype=np.float64))
    mean, count = float(logs.mean()), len(logs)
    if count < 2:
        interval = Interval(0.0, math.inf)
    else:
        reach = student_t_95(count - 1) * float(logs.std(ddof=1)) / math.sqrt(count)
        interval = Interval(math.exp(mean - reach), math.exp(mean + reach))
    return Comparison(ratio=math.exp(mean), interval=interval, pairs=count)


def student_t_95(freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t with that many degrees of freedom."""
    return _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96
