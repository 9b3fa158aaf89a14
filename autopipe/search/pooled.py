"""What all measurements of a search tell together: the rate of each configuration, and the machine's noise.

Rates are taken as logarithms (a factor is a factor, at any level). All measurements of a configuration have the median
of their variances. A steady configuration counts for more than a shaky one, but a steady measurement does not: a pause
makes a measurement both shaky and slow, and the rate would leave pauses out. The machine adds two
errors: one to each measurement (noise), and one to all of a block together (drift), which differences within a block
are free of. Their sizes are those of the largest restricted likelihood on a grid, and levels follow by
generalised least squares (Montgomery, Design and Analysis of Experiments, ch. 4, on randomised blocks; Patterson and
Thompson, Biometrika 58, 1971, on the likelihood). Configurations do not speak for each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe.measure.stats import USUAL_NOISE, Comparison, median, student_t

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
    """Estimates from `readings`, at least one, each with the key of its configuration."""

    def __init__(self, readings: Sequence[tuple[str, Reading]]) -> None:
        self.keys = tuple(dict.fromkeys(key for key, _ in readings))
        self._place = {key: at for at, key in enumerate(self.keys)}
        self._blocks = [reading.block for _, reading in readings]
        self._values: Array = np.array([reading.log_value for _, reading in readings])
        self._own = {key: median([each.variance for one, each in readings if one == key]) for key in self.keys}
        self._variances: Array = np.array([self._own[key] for key, _ in readings])
        self._of: Array = np.array([[float(key == one) for one in self.keys] for key, _ in readings])
        self._together = _together(self._blocks)
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
        blocks = {each for each in self._blocks if each is not None}
        return max(1, len(self._blocks) - len(self.keys) - len(blocks) - 1)

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


def _together(blocks: Sequence[int | None]) -> Array:
    """Return 1 for pairs of measurements that share a block, else 0; each shares one with itself."""
    same = [[one is not None and one == other for other in blocks] for one in blocks]
    shared: Array = np.maximum(np.array(same, dtype=float), np.eye(len(blocks)))
    return shared
