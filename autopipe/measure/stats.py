"""Statistics of a few noisy rates: the median, its interval, and whether one is faster than another; and what all
measurements of a search tell together. Pure; decisions that follow from a result are made elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from statistics import NormalDist
from statistics import median as median
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe.values import Amount, Count, Estimate, Positive, Value

FEWEST_PAIRS = 3  # with fewer, an interval also rests on other knowledge of the noise
USUAL_NOISE = 0.03  # between measurements of one configuration, in log units, as long as nothing was repeated
REPEATABILITY = 2.8
"""Standard deviations of one figure by which two of them differ at most in 95 % of cases (ISO 5725-6)."""
CLEAR = 3.0  # times that limit: one pair decides
EQUAL = 0.98  # of a rate: what reaches so much is as good, and a difference below it is not worth having


class Ratio(Value):
    """A ratio of two rates, with its 95 % interval."""

    ratio: Positive
    low: Amount
    high: float | None = None  # None: open

    @property
    def faster(self) -> bool:
        return self.low > 1.0

    @property
    def decided(self) -> bool:
        return self.faster or (self.high is not None and self.high < 1.0)


class Comparison(Ratio):
    """The geometric mean of the ratios of pairs of measurements; its interval is open with fewer than two pairs."""

    pairs: Count  # their number

    @property
    def few(self) -> bool:
        """True if there are too few pairs for their own spread to give the interval, which displays must mention."""
        return self.pairs < FEWEST_PAIRS


def bootstrap_interval(values: Sequence[float] | NDArray[np.float64], *, resamples: int = 1000) -> tuple[float, float]:
    """Return the percentile-bootstrap interval of the median, the same for the same input; endless for one value."""
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
    """Compare measurements taken in pairs, each in the same block, by the ratio of each pair. The interval is
    Student's, on the logarithms. A bootstrap over four to eight pairs is too sure of itself: its "95 %" intervals hold
    the truth in 80 % of cases with four pairs, Student's in 95 %. Raises ValueError without a ratio, or for one that is
    not positive.
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


# -------------------- what all measurements of a search tell together

Array = NDArray[np.floating[Any]]

_NOISES: Final = (0.003, 0.006, 0.01, 0.017, 0.03, 0.055, 0.1, 0.17, 0.3)
_DRIFTS: Final = (0.003, 0.01, 0.03, 0.1, 0.3)
_FINER: Final = (1.35, 1.15)  # steps from the best of these, and from the best of those


class Reading(NamedTuple):
    """One measurement of a configuration."""

    log_value: float  # logarithm of the measured value
    variance: float  # of `log_value`, as far as the measurement itself can tell; nothing of one taken a minute later
    block: int | None = None  # measurements of several configurations in turn share this number; None: taken alone


class Pooled:
    """Estimates from `readings`, at least one, each with the key of its configuration. Rates are taken as logarithms (a
    factor is a factor, at any level). All measurements of a configuration have the median of their variances. A steady
    configuration counts for more than a shaky one, but a steady measurement does not: a pause makes a measurement both
    shaky and slow, and the rate would leave pauses out. The machine adds two errors: one to each measurement (noise),
    and one to all of a block together (drift), which differences within a block are free of. Their sizes are those of
    the largest restricted likelihood on a grid, and levels follow by generalised least squares (Montgomery, Design and
    Analysis of Experiments, ch. 4, on randomised blocks; Patterson and Thompson, Biometrika 58, 1971, on the
    likelihood). Configurations do not speak for each other.
    """

    def __init__(self, readings: Sequence[tuple[str, Reading]]) -> None:
        self.keys = tuple(dict.fromkeys(key for key, _ in readings))
        self._place = {key: at for at, key in enumerate(self.keys)}
        self._blocks = [reading.block for _, reading in readings]
        self._values: Array = np.array([reading.log_value for _, reading in readings])
        self._own = {key: median([each.variance for one, each in readings if one == key]) for key in self.keys}
        self._variances: Array = np.array([self._own[key] for key, _ in readings])
        self._of: Array = np.array([[float(key == one) for one in self.keys] for key, _ in readings])
        same = [[one is not None and one == other for other in self._blocks] for one in self._blocks]
        # 1 for pairs of measurements that share a block; each shares one with itself.
        self._together: Array = np.maximum(np.array(same, dtype=float), np.eye(len(same)))
        self._noise, self.drift = self._learnt()
        self._levels, self._spread, _ = self._fitted(self._noise, self.drift)

    @property
    def noise(self) -> float:
        """The standard deviation between measurements of one configuration in the same block, in log units."""
        return math.hypot(self._noise, math.sqrt(median(self._variances.tolist())))

    def noise_of(self, key: str) -> float:
        """Return the same for one configuration, whose own pauses may make it sway more than the others."""
        return math.hypot(self._noise, math.sqrt(self._own[key]))

    @property
    def freedom(self) -> int:
        """The number of repeats behind noise and drift, at least 1."""
        return max(1, len(self._blocks) - len(self.keys) - len({*self._blocks} - {None}) - 1)

    def value(self, key: str) -> float:
        return math.exp(float(self._levels[self._place[key]]))

    def best(self, keys: Collection[str]) -> str:
        return max(keys, key=lambda key: (self.value(key), key))

    def ahead(self, first: str, second: str) -> tuple[float, float]:
        """Return the lead of `first` over `second` in log units, with its standard deviation."""
        one, other, spread = self._place[first], self._place[second], self._spread
        variance = float(spread[one, one] + spread[other, other] - 2.0 * spread[one, other])
        return float(self._levels[one] - self._levels[other]), math.sqrt(max(variance, 0.0))

    def compared(self, first: str, second: str, pairs: int) -> Comparison:
        """Return the ratio of the values of `first` and `second`, which ran in this many `pairs`."""
        ahead, spread = self.ahead(first, second)
        reach = student_t(self.freedom) * spread
        low, ratio, high = (math.exp(at) for at in (ahead - reach, ahead, ahead + reach))
        return Comparison(ratio=ratio, low=low, high=high, pairs=pairs)

    def _learnt(self) -> tuple[float, float]:
        """Return noise and drift, of the usual size as far as nothing has been repeated that would tell."""
        if len(self.keys) == len(self._blocks):
            return USUAL_NOISE, 0.0
        in_blocks = bool((self._together.sum(axis=0) > 1).any())  # else the two cannot be separated
        grid: Iterable[tuple[float, float]] = itertools.product(_NOISES, _DRIFTS if in_blocks else (0.0,))
        for finer in _FINER:
            noise, drift = max(grid, key=lambda each: self._fitted(*each)[2])
            grid = [(noise * one, drift * other) for one, other in itertools.product((1 / finer, 1, finer), repeat=2)]
        return max(grid, key=lambda each: self._fitted(*each)[2])

    def _fitted(self, noise: float, drift: float) -> tuple[Array, Array, float]:
        """Return the level of each configuration, their covariances, and the restricted log-likelihood."""
        errors = np.diag(self._variances + noise**2) + drift**2 * self._together
        weighted = np.linalg.solve(errors, self._of)
        spread = np.linalg.inv(self._of.T @ weighted)
        levels = spread @ (weighted.T @ self._values)
        left = self._values - self._of @ levels
        fit = float(left @ np.linalg.solve(errors, left))
        size = np.linalg.slogdet(errors)[1] - np.linalg.slogdet(spread)[1]
        return levels, spread, -0.5 * (fit + float(size))
