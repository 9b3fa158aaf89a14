"""Statistics of a few noisy rates: the median, its interval, and whether one is faster than another. Pure functions.

Decisions that follow from a result are made elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.values import Estimate, Value

FEWEST_PAIRS = 3  # with fewer, an interval also rests on other knowledge of the noise
USUAL_NOISE = 0.03  # between measurements of one configuration, in log units, as long as nothing was repeated
REPEATABILITY = 2.8
"""Standard deviations of one figure by which two of them differ at most in 95 % of cases (ISO 5725-6)."""
CLEAR = 3.0
"""Times that limit: one pair decides."""
EQUAL = 0.98
"""Of a rate: what reaches so much is as good, and a difference below it is not worth having."""


class Ratio(Value):
    """A ratio of two rates, with its 95 % interval."""

    ratio: float = pydantic.Field(gt=0)
    low: float = pydantic.Field(ge=0)
    high: float | None = None  # None: open

    @property
    def faster(self) -> bool:
        return self.low > 1.0

    @property
    def slower(self) -> bool:
        return self.high is not None and self.high < 1.0

    @property
    def decided(self) -> bool:
        return self.faster or self.slower


class Comparison(Ratio):
    """The ratio of two rates, from measurements in pairs: the geometric mean of the pairs' ratios.

    The interval is open with fewer than two pairs and nothing else to go by.
    """

    pairs: int = pydantic.Field(ge=0)  # their number

    @property
    def few(self) -> bool:
        """True if there are too few pairs for their own spread to give the interval, which displays must mention."""
        return self.pairs < FEWEST_PAIRS


def median(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the median; raises ValueError without values."""
    if len(values) == 0:
        raise ValueError("`median` needs at least one value, but got none.")
    return float(np.median(values))


def bootstrap_interval(values: Sequence[float] | NDArray[np.float64], *, resamples: int = 1000) -> tuple[float, float]:
    """Return the percentile-bootstrap interval of the median of `values`, drawn anew `resamples` times.

    The same input gives the same interval. That of one value, which has no spread, is endless.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        return (-math.inf, math.inf) if data.size else (math.nan, math.nan)
    picks = np.random.default_rng(0).integers(data.size, size=(resamples, data.size))
    low, high = np.quantile(np.median(data[picks], axis=1), [0.025, 0.975])
    return float(low), float(high)


def estimate(rates: Sequence[float], *, resamples: int = 1000) -> Estimate:
    """Return the median of rates with its bootstrap interval; of one alone no interval is known."""
    value, (low, high) = median(rates), bootstrap_interval(rates, resamples=resamples)
    if len(rates) < 2:
        return Estimate.of_one(value)
    return Estimate(value=value, low=min(low, value), high=max(high, value))


def log_variance(rate: Estimate) -> float:
    """Return the variance of the logarithm of a rate, from its 95 % interval; a lower end of 0 is ignored."""
    reach = max(abs(math.log(end / rate.value)) for end in (rate.low, rate.high) if end > 0.0)
    return (reach / normal_point(0.05)) ** 2


def compare_pairs(ratios: Sequence[float]) -> Comparison:
    """Compare measurements taken in pairs, each in the same block, by the ratio of each pair.

    The interval is Student's, on the logarithms. A bootstrap over four to eight pairs is too sure of itself: its "95 %"
    intervals hold the truth in 80 % of cases with four pairs, Student's in 95 %. Raises ValueError without a ratio, or
    for one that is not positive.
    """
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"`compare_pairs` needs ratios of rates, which are above zero, but got {list(ratios)}.")
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    mean, count = float(logs.mean()), len(logs)
    if count < 2:
        return Comparison(ratio=math.exp(mean), low=0.0, pairs=count)
    reach = student_t(count - 1) * float(logs.std(ddof=1)) / math.sqrt(count)
    return Comparison(ratio=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach), pairs=count)


def student_t(freedom: int, alpha: float = 0.05) -> float:
    """Return the value that |t| of Student's t with this freedom exceeds on either side with probability `alpha`."""
    low, high = 0.0, 1.0
    while _beyond(high, freedom) > alpha:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _beyond(middle, freedom) > alpha else (low, middle)
    return high


def normal_point(alpha: float) -> float:
    """Return the value that a standard normal exceeds on either side with probability `alpha`."""
    return NormalDist().inv_cdf(1.0 - alpha / 2.0)


def _beyond(t: float, freedom: int) -> float:
    """Return the probability that |T| > t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd, angle = freedom % 2, math.atan(t / math.sqrt(freedom))
    term, total = math.cos(angle) ** odd, 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * power / (power + 1)
    within = math.sin(angle) * total
    return 1.0 - (2.0 / math.pi * (angle + within) if odd else within)
