"""A Gaussian process over configurations: what the trials so far say about those not tried. NumPy only, no Optuna.

Rates are learnt as logarithms (a factor is a factor, whatever the level), on top of the cost model's prediction where
there is one. Two configurations are alike where their settings are; how much each setting matters is learnt with them,
from the likelihood of what was seen. Few points and a finite list of candidates make everything here exact and quick:
no gradients, no sampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe.core.config import PipelineConfig
from autopipe.core.params import Value, from_config

Array = NDArray[np.floating[Any]]

_WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0)  # how fast likeness falls with a setting's distance
_TYPICAL_WEIGHT = 0.3
_AMPLITUDES = (0.05, 0.15, 0.4, 1.0)  # how far rates stray from the trend, in log units
_NOISES = (0.01, 0.03, 0.1)
_SHOWN_NOISES = (0.003, 0.006, 0.01, 0.017, 0.03, 0.055, 0.1, 0.17, 0.3)  # where repeats show what it is
_OWNS = (0.0, 0.01, 0.03, 0.1)  # of a configuration, apart from those like it
_DRIFTS = (0.003, 0.01, 0.03, 0.1, 0.3)  # of the machine, from block to block
_TREND_SPREAD, _LEVEL_SPREAD = 0.5, 3.0  # prior of the prediction's slope around 1, and of the common level


class Reading(NamedTuple):
    """One measurement of a configuration."""

    log_value: float  # logarithm of what was measured
    variance: float  # of `log_value`, as far as the measurement itself can tell; nothing of one taken a minute later
    # measurements that were taken in turns, of several configurations, share its number; None: taken alone
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Learnt:
    """How much each setting matters, how far rates stray, and how far two measurements of one configuration may."""

    weights: tuple[float, ...]  # how fast likeness falls with each setting's distance
    amplitude: float  # how far rates stray from the trend
    own: float  # by how much a configuration differs from what those that are alike say
    noise: float  # what a measurement is off beyond its own variance
    drift: float  # what all measurements of a block are off together


class Features:
    """Configurations as points: one coordinate a setting, 0 to 1 where it has an order."""

    def __init__(self, configs: Sequence[PipelineConfig], cores: int) -> None:
        rows = [_settings(config, cores) for config in configs]
        self.names = sorted({name for row in rows for name in row})  # of the settings
        self._values = {name: sorted({row[name] for row in rows if name in row}, key=str) for name in self.names}
        self._ordered = {name: all(isinstance(value, float) for value in self._values[name]) for name in self.names}
        # One row a configuration; NaN where a setting does not count for it.
        self.points: Array = np.array([[self._place(name, row) for name in self.names] for row in rows], dtype=float)

    def distances(self, first: Array, second: Array) -> Array:
        """Return, setting by setting, how far each of `first` is from each of `second`: 0 to 1."""
        apart = np.abs(first[:, None, :] - second[None, :, :])
        unordered = np.array([not self._ordered[name] for name in self.names])
        apart[..., unordered] = apart[..., unordered] > 0
        # A setting that counts for one of two only. Half the width is the least that leaves every covariance positive.
        missing = np.isnan(first)[:, None, :] != np.isnan(second)[None, :, :]
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
    settings = {name: _coordinate(value) for name, value in from_config(config).items()}
    workers, buffered = config.loader.worker_count(), config.loader.buffered_batches()
    settings["workers"] = _coordinate(cores if workers is None else workers)
    settings["queue"] = _coordinate(cores + 2 if buffered is None else max(0, buffered - (workers or 0)))
    return settings


def _coordinate(value: Value) -> float | str:
    if isinstance(value, str | bool) or not 0 <= value < math.inf:
        return str(value)  # a number below 0 is a sign, such as tf.data.AUTOTUNE: it is not less than the others
    return math.log2(1.0 + value)


class Surrogate:
    """What is known after some measurements.

    Every measurement has its own variance, so that a steady one counts for more than a shaky one and several of one
    configuration for more than one. What a machine does meanwhile comes on top: some of it to each measurement, and
    some to all of a block together, as in any analysis of blocked experiments (Montgomery, Design and Analysis of
    Experiments, ch. 4). How much, is learnt. The rest is a Gaussian process with known noise (Rasmussen and Williams,
    Gaussian Processes for Machine Learning, ch. 2 and 5).

    Args:
        distances: between the configurations that were measured, setting by setting.
        trend: the logarithms of their predictions, or zeros.
        readings: what was measured: which of these configurations, and what.
        start: where to begin learning, e.g. what was learnt one measurement ago.
    """

    def __init__(
        self, distances: Array, trend: Array, readings: Sequence[tuple[int, Reading]], start: Learnt | None = None
    ) -> None:
        self._distances, self._trend = distances, trend
        self._rows = np.array([at for at, _ in readings], dtype=np.intp)
        self._variances = np.array([reading.variance for _, reading in readings])
        self._together = _together([reading.block for _, reading in readings])
        values = np.array([reading.log_value for _, reading in readings]) - trend[self._rows]
        self._centre, self._mean_trend = float(np.mean(values)), float(np.mean(trend))
        self._target = values - self._centre
        self._common = self._shared(trend, trend)
        self._alike: tuple[tuple[float, ...], Array] | None = None
        self.settings = self._learn(start)
        self._root = np.linalg.cholesky(self._covariance(self.settings))
        self._solved = _solve(self._root, self._target)

    def predict(self, distances: Array, trend: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the log value, of points at `distances` from the measured ones."""
        settings = self.settings
        across = self._kernel(distances, trend, self._trend, settings)[:, self._rows]
        mean = trend + self._centre + across @ self._solved
        half = np.linalg.solve(self._root, across.T)
        alone = settings.amplitude**2 + settings.own**2 + _LEVEL_SPREAD**2
        before = alone + (_TREND_SPREAD * (trend - self._mean_trend)) ** 2
        return mean, np.sqrt(np.maximum(before - np.sum(half**2, axis=0), 1e-12))

    def known(self) -> tuple[Array, Array]:
        """Return mean and covariance of the log values of the configurations that were measured."""
        prior = self._prior(self.settings)
        across = prior[:, self._rows]
        mean = self._trend + self._centre + across @ self._solved
        half = np.linalg.solve(self._root, across.T)
        return mean, prior - half.T @ half

    def _kernel(self, distances: Array, first: Array, second: Array, settings: Learnt) -> Array:
        alike = np.exp(-(distances @ np.asarray(settings.weights)))
        kernel: Array = settings.amplitude**2 * alike + self._shared(first, second)
        return kernel

    def _shared(self, first: Array, second: Array) -> Array:
        """Return the covariance that all configurations have: the slope of the trend, and the common level."""
        shared: Array = _TREND_SPREAD**2 * np.outer(first - self._mean_trend, second - self._mean_trend)
        return shared + _LEVEL_SPREAD**2

    def _prior(self, settings: Learnt) -> Array:
        """Return the covariance of the configurations that were measured, before that."""
        if self._alike is None or self._alike[0] != settings.weights:  # most of what is tried in turn has the same
            self._alike = settings.weights, np.exp(-(self._distances @ np.asarray(settings.weights)))
        prior: Array = settings.amplitude**2 * self._alike[1] + self._common
        prior.flat[:: len(prior) + 1] += settings.own**2
        return prior

    def _covariance(self, settings: Learnt) -> Array:
        kernel = self._prior(settings)[np.ix_(self._rows, self._rows)]
        alone = np.diag(self._variances + settings.noise**2)
        covariance: Array = kernel + alone + settings.drift**2 * self._together
        return covariance

    def _likelihood(self, settings: Learnt) -> float:
        root = np.linalg.cholesky(self._covariance(settings))
        fit = float(self._target @ _solve(root, self._target))
        # A weak belief that settings matter a little keeps two or three points from settling the matter.
        belief = sum(math.log(weight / _TYPICAL_WEIGHT) ** 2 for weight in settings.weights) / 8.0
        return -0.5 * fit - float(np.sum(np.log(np.diag(root)))) - belief

    def _learn(self, start: Learnt | None) -> Learnt:
        """Climb the likelihood, one setting at a time over a short list of values; twice round from nothing."""
        repeated = len(set(self._rows.tolist())) < len(self._rows)
        in_blocks = bool((self._together.sum(axis=0) > 1).any())  # else drift and noise cannot be told apart
        noises, drifts = _SHOWN_NOISES if repeated else _NOISES, _DRIFTS if in_blocks else ()
        typical = (_TYPICAL_WEIGHT,) * self._distances.shape[2]
        best = start or Learnt(typical, amplitude=0.4, own=0.0, noise=0.03, drift=drifts[0] if drifts else 0.0)
        height = self._likelihood(best)
        varied = [at for at in range(len(best.weights)) if self._distances[..., at].any()]
        for _ in range(2 if start is None else 1):
            trials = [replace(best, amplitude=a, noise=n) for a in _AMPLITUDES for n in noises]
            best, height = self._better(trials, best, height)
            trials = [replace(best, noise=n, drift=d) for n in noises for d in drifts]
            best, height = self._better(trials, best, height)
            trials = [replace(best, own=o, noise=n) for o in (_OWNS if repeated else ()) for n in noises]
            best, height = self._better(trials, best, height)
            for at in varied:
                before, after = best.weights[:at], best.weights[at + 1 :]
                trials = [replace(best, weights=(*before, w, *after)) for w in _WEIGHTS]
                best, height = self._better(trials, best, height)
        return best

    def _better(self, trials: Sequence[Learnt], best: Learnt, height: float) -> tuple[Learnt, float]:
        for trial in trials:
            reached = self._likelihood(trial)
            if reached > height:
                best, height = trial, reached
        return best, height


def _together(blocks: Sequence[int | None]) -> Array:
    """Return which measurements share a block: 1 or 0; each shares one with itself."""
    same = [[one is not None and one == other for other in blocks] for one in blocks]
    shared: Array = np.maximum(np.array(same, dtype=float), np.eye(len(blocks)))
    return shared


def expected_gain(mean: Array, spread: Array, best: float) -> Array:
    """Return the expected improvement over `best`, point by point."""
    ahead = (mean - best) / spread
    density = np.exp(-0.5 * ahead**2) / math.sqrt(2.0 * math.pi)
    below = np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in ahead])
    gain: Array = spread * (ahead * below + density)
    return gain


def _solve(root: Array, right: Array) -> Array:
    solution: Array = np.linalg.solve(root.T, np.linalg.solve(root, right))
    return solution
