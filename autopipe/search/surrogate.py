"""A Gaussian process over the configurations that ran, which estimates each from all measurements so far.

The confirmation and the effects of settings use this one model. Rates are learnt as logarithms (a factor is a factor,
at any level). Two configurations are similar if their settings are; the weight of each setting is learnt from the
likelihood of the readings. Few measurements make everything here exact and quick: no gradients, no sampling.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe.measure.stats import Comparison, median, student_t_95
from autopipe.pipeline.config import PipelineConfig, Value, from_config

if TYPE_CHECKING:
    pass

Array = NDArray[np.floating[Any]]
Rows = NDArray[np.intp]

_WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0)  # decrease of similarity with a setting's distance
_TYPICAL_WEIGHT = 0.3
_AMPLITUDES = (0.05, 0.15, 0.4, 1.0)  # deviation of rates from the common level, in log units
_NOISES = (0.01, 0.03, 0.1)
_SHOWN_NOISES = (0.003, 0.006, 0.01, 0.017, 0.03, 0.055, 0.1, 0.17, 0.3)  # if repeats show the noise
_OWNS = (0.0, 0.01, 0.03, 0.1)  # of a configuration, apart from those like it
_DRIFTS = (0.003, 0.01, 0.03, 0.1, 0.3)  # of the machine, from block to block
_LEVEL_SPREAD = 3.0  # prior of the common level


class Reading(NamedTuple):
    """One measurement of a configuration."""

    log_value: float  # logarithm of the measured value
    variance: float  # of `log_value`, as far as the measurement itself can tell; nothing of one taken a minute later
    block: int | None = None  # measurements of several configurations in turn share this number; None: taken alone


@dataclass(frozen=True, slots=True)
class Learnt:
    """The weight of each setting, the noise, and the drift between blocks."""

    weights: tuple[float, ...]  # decrease of similarity with each setting's distance
    amplitude: float  # deviation of rates from the common level
    own: float  # deviation of a configuration from the similar ones
    noise: float  # error of a measurement beyond its own variance
    drift: float  # common error of all measurements of a block


class Features:
    """Configurations as points, one coordinate a setting (0 to 1 if it has an order).

    `configs` are by key, and `cores` the usable ones.
    """

    def __init__(self, configs: Mapping[str, PipelineConfig], cores: int) -> None:
        self.configs = dict(configs)
        self._row = {key: at for at, key in enumerate(self.configs)}
        rows = [_settings(config, cores) for config in self.configs.values()]
        self.names = sorted({name for row in rows for name in row})  # of the settings
        self._values = {name: sorted({row[name] for row in rows if name in row}, key=str) for name in self.names}
        self._ordered = {name: all(isinstance(value, float) for value in self._values[name]) for name in self.names}
        # One row a configuration; NaN if a setting does not count for it.
        self._points: Array = np.array([[self._place(name, row) for name in self.names] for row in rows], dtype=float)

    def rows(self, keys: Collection[str]) -> Rows:
        return np.array([self._row[key] for key in keys], dtype=np.intp)

    def distances(self, first: Rows, second: Rows) -> Array:
        """Return the distance of each of `first` from each of `second`, setting by setting: 0 to 1."""
        one, other = self._points[first], self._points[second]
        apart = np.abs(one[:, None, :] - other[None, :, :])
        unordered = np.array([not self._ordered[name] for name in self.names])
        apart[..., unordered] = apart[..., unordered] > 0
        # A setting that counts for one of two only. Half the width is the least that leaves every covariance positive.
        missing = np.isnan(one)[:, None, :] != np.isnan(other)[None, :, :]
        return np.where(missing, 0.5, np.nan_to_num(apart, nan=0.0))

    def _place(self, name: str, row: dict[str, float | str]) -> float:
        if name not in row:
            return math.nan
        values, value = self._values[name], row[name]
        if not self._ordered[name]:
            return float(values.index(value))
        numbers = [float(each) for each in values]
        width = max(numbers) - min(numbers)
        return (float(value) - min(numbers)) / width if width else 0.0


def _settings(config: PipelineConfig, cores: int) -> dict[str, float | str]:
    """Return settings by name: numbers as logarithms, the rest as words; workers and queue under one name for all."""
    params = from_config(config)
    del params["keep"]  # what it says counts one by one
    kept = config.kept
    params |= {"form": kept.form, "memory": "none" if not kept.in_memory else "encoded" if kept.encoded else "prepared"}
    params |= {"cut": kept.cut} if kept.converts else {}
    params |= {"part": kept.part} if kept.in_memory else {}
    settings = {name: _coordinate(value) for name, value in params.items()}
    workers, buffered = config.loader.worker_count(), config.loader.buffered_batches()
    settings["workers"] = _coordinate(cores if workers is None else workers)
    settings["queue"] = _coordinate(cores + 2 if buffered is None else max(0, buffered - (workers or 0)))
    return settings


def _coordinate(value: Value) -> float | str:
    if isinstance(value, str | bool) or not 0 <= value < math.inf:
        return str(value)  # a number below 0, such as tf.data.AUTOTUNE, is a symbol, and not less than the others
    return math.log2(1.0 + value)


class Surrogate:
    """The distribution of configurations' log values after some measurements: normal, with covariances.

    Every measurement has its own variance, so that a steady one counts for more than a shaky one and several of one
    configuration for more than one. The machine's disturbance comes on top: some of it to each measurement, and some to
    all of a block together, as in any analysis of blocked experiments (Montgomery, Design and Analysis of Experiments,
    ch. 4); its size is learnt. The rest is a Gaussian process with known noise (Rasmussen and Williams, Gaussian
    Processes for Machine Learning, ch. 2 and 5).

    `readings` are the measurements, at least one, with the keys of their configurations. Learning begins with the
    surrogate `before`, some measurements ago. With `learnt` parameters nothing is learnt.
    """

    def __init__(
        self,
        features: Features,
        readings: Sequence[tuple[str, Reading]],
        before: Surrogate | None = None,
        *,
        learnt: Learnt | None = None,
    ) -> None:
        self.features, self.readings = features, readings
        self.measured = tuple(dict.fromkeys(key for key, _ in readings))
        self._seen = features.rows(self.measured)
        place = {key: at for at, key in enumerate(self.measured)}
        self._at = np.array([place[key] for key, _ in readings], dtype=np.intp)
        self._variances = np.array([reading.variance for _, reading in readings])
        self._together = _together([reading.block for _, reading in readings])
        values = np.array([reading.log_value for _, reading in readings])
        self._centre = float(np.mean(values))
        self._target = values - self._centre
        self._distances = features.distances(self._seen, self._seen)
        self._alike: tuple[tuple[float, ...], Array] | None = None
        self.learnt = learnt or self._learn(before)
        self._root = np.linalg.cholesky(self._covariance(self.learnt))
        self._solved = np.linalg.solve(self._root.T, np.linalg.solve(self._root, self._target))

    # ------------------------------------------------------------ queries

    @property
    def noise(self) -> float:
        """The standard deviation between measurements of one configuration in the same block, in log units."""
        return math.hypot(self.learnt.noise, math.sqrt(median(self._variances.tolist())))

    @property
    def freedom(self) -> int:
        """The number of repeats behind noise and drift, at least 1."""
        blocks = {reading.block for _, reading in self.readings if reading.block is not None}
        return max(1, len(self.readings) - len(self.measured) - len(blocks) - 1)

    def value(self, key: str) -> float:
        return math.exp(float(self._mean(self.features.rows([key]))[0][0]))

    def best(self, keys: Collection[str]) -> str:
        return max(keys, key=lambda key: (self.value(key), key))

    def ahead(self, first: str, second: str) -> tuple[float, float]:
        """Return the lead of `first` over `second` in log units, with its standard deviation."""
        rows = self.features.rows([first, second])
        mean, half = self._mean(rows)
        left = self._prior(rows, rows) - half.T @ half
        variance = float(left[0, 0] + left[1, 1] - 2.0 * left[0, 1])
        return float(mean[0] - mean[1]), math.sqrt(max(variance, 0.0))

    def compared(self, first: str, second: str, pairs: int) -> Comparison:
        """Return the ratio of the values of `first` and `second`, which ran in this many `pairs`."""
        ahead, spread = self.ahead(first, second)
        reach = student_t_95(self.freedom) * spread
        low, ratio, high = (math.exp(at) for at in (ahead - reach, ahead, ahead + reach))
        return Comparison(ratio=ratio, low=low, high=high, pairs=pairs)

    # ------------------------------------------------------------ covariances

    def _mean(self, rows: Rows) -> tuple[Array, Array]:
        """Return the means of log values, and the root of the reduction of their covariance by the readings."""
        across = self._prior(rows, self._seen)[:, self._at]
        mean: Array = self._centre + across @ self._solved
        return mean, np.linalg.solve(self._root, across.T)

    def _prior(self, first: Rows, second: Rows) -> Array:
        learnt = self.learnt
        alike = np.exp(-(self.features.distances(first, second) @ np.asarray(learnt.weights)))
        same = first[:, None] == second[None, :]
        prior: Array = learnt.amplitude**2 * alike + learnt.own**2 * same + _LEVEL_SPREAD**2
        return prior

    def _covariance(self, learnt: Learnt) -> Array:
        if self._alike is None or self._alike[0] != learnt.weights:  # most models that are tried in turn have the same
            self._alike = learnt.weights, np.exp(-(self._distances @ np.asarray(learnt.weights)))
        prior = learnt.amplitude**2 * self._alike[1] + _LEVEL_SPREAD**2
        prior.flat[:: len(prior) + 1] += learnt.own**2
        covariance: Array = prior[np.ix_(self._at, self._at)] + learnt.drift**2 * self._together
        covariance.flat[:: len(covariance) + 1] += self._variances + learnt.noise**2
        return covariance

    # ------------------------------------------------------------ learning

    def _likelihood(self, learnt: Learnt) -> float:
        root = np.linalg.cholesky(self._covariance(learnt))
        fit = float(np.sum(np.linalg.solve(root, self._target) ** 2))
        # A weak prior that settings matter a little, so that two or three points do not decide.
        belief = sum(math.log(weight / _TYPICAL_WEIGHT) ** 2 for weight in learnt.weights) / 8.0
        return -0.5 * fit - float(np.sum(np.log(np.diag(root)))) - belief

    @property
    def _repeated(self) -> bool:
        return len(self.measured) < len(self.readings)

    def _learn(self, before: Surrogate | None) -> Learnt:
        """Climb the likelihood, one setting at a time over a short list of values; two rounds from scratch.

        Parameters learnt without repeats are a poor start for the noise once there are repeats.
        """
        repeated = self._repeated
        goes_on = before is not None and before.features.names == self.features.names and before._repeated == repeated
        in_blocks = bool((self._together.sum(axis=0) > 1).any())  # else drift and noise cannot be separated
        noises, drifts = _SHOWN_NOISES if repeated else _NOISES, _DRIFTS if in_blocks else ()
        typical = (_TYPICAL_WEIGHT,) * len(self.features.names)
        best = Learnt(typical, amplitude=0.4, own=0.0, noise=0.03, drift=drifts[0] if drifts else 0.0)
        if before is not None and goes_on:
            best = before.learnt
        height = self._likelihood(best)
        varied = [at for at in range(len(best.weights)) if self._distances[..., at].any()]
        for _ in range(1 if goes_on else 2):
            trials = [replace(best, amplitude=a, noise=n) for a in _AMPLITUDES for n in noises]
            best, height = self._better(trials, best, height)
            trials = [replace(best, noise=n, drift=d) for n in noises for d in drifts]
            best, height = self._better(trials, best, height)
            trials = [replace(best, own=o, noise=n) for o in (_OWNS if repeated else ()) for n in noises]
            best, height = self._better(trials, best, height)
            for at in varied:
                left, right = best.weights[:at], best.weights[at + 1 :]
                trials = [replace(best, weights=(*left, w, *right)) for w in _WEIGHTS]
                best, height = self._better(trials, best, height)
        return best

    def _better(self, trials: Sequence[Learnt], best: Learnt, height: float) -> tuple[Learnt, float]:
        for trial in trials:
            reached = self._likelihood(trial)
            if reached > height:
                best, height = trial, reached
        return best, height


def _together(blocks: Sequence[int | None]) -> Array:
    """Return 1 for pairs of measurements that share a block, else 0; each shares one with itself."""
    same = [[one is not None and one == other for other in blocks] for one in blocks]
    shared: Array = np.maximum(np.array(same, dtype=float), np.eye(len(blocks)))
    return shared
