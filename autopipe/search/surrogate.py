"""A Gaussian process over configurations: what the trials so far say about those not tried. NumPy only, no Optuna.

Rates are learnt as logarithms (a factor is a factor, whatever the level), on top of the cost model's prediction where
there is one. Two configurations are alike where their settings are; how much each setting matters is learnt with them,
from the likelihood of what was seen. Few points and a finite list of candidates make everything here exact and quick:
no gradients, no sampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.core.config import PipelineConfig
from autopipe.core.params import Value, from_config

Array = NDArray[np.floating[Any]]

_WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0)  # how fast likeness falls with a setting's distance
_TYPICAL_WEIGHT = 0.3
_AMPLITUDES = (0.05, 0.15, 0.4, 1.0)  # how far rates stray from the trend, in log units
_NOISES = (0.01, 0.03, 0.1)
_TREND_SPREAD, _LEVEL_SPREAD = 0.5, 3.0  # prior of the prediction's slope around 1, and of the common level


@dataclass(frozen=True, slots=True)
class Learnt:
    """How much each setting matters, how far rates stray, and how noisy a measurement is."""

    weights: tuple[float, ...]
    amplitude: float
    noise: float


class Features:
    """Configurations as points: one coordinate a setting, 0 to 1 where it has an order."""

    def __init__(self, configs: Sequence[PipelineConfig], cores: int) -> None:
        rows = [_settings(config, cores) for config in configs]
        self.names = sorted({name for row in rows for name in row})
        self._values = {name: sorted({row[name] for row in rows if name in row}, key=str) for name in self.names}
        self._ordered = {name: all(isinstance(value, float) for value in self._values[name]) for name in self.names}
        self._cores = cores

    def points(self, configs: Sequence[PipelineConfig]) -> Array:
        """Return one row a configuration; NaN where a setting does not count for it."""
        return np.array([[self._place(name, row) for name in self.names] for row in self._rows(configs)], dtype=float)

    def distances(self, first: Array, second: Array) -> Array:
        """Return, setting by setting, how far each of `first` is from each of `second`: 0 to 1."""
        apart = np.abs(first[:, None, :] - second[None, :, :])
        unordered = np.array([not self._ordered[name] for name in self.names])
        apart[..., unordered] = apart[..., unordered] > 0
        # A setting that counts for one of two only. Half the width is the least that leaves every covariance positive.
        missing = np.isnan(first)[:, None, :] != np.isnan(second)[None, :, :]
        return np.where(missing, 0.5, np.nan_to_num(apart, nan=0.0))

    def _rows(self, configs: Sequence[PipelineConfig]) -> list[dict[str, float | str]]:
        return [_settings(config, self._cores) for config in configs]

    def _place(self, name: str, row: dict[str, float | str]) -> float:
        if name not in row:
            return math.nan
        values, value = self._values[name], row[name]
        if not self._ordered[name]:
            return float(values.index(value)) if value in values else -1.0
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

    Args:
        distances: between the measured points, setting by setting.
        rates: their images/s.
        trend: their predictions' logarithms, or zeros.
        doubts: for each, how many times noisier than a plain measurement it is.
        start: where to begin learning, e.g. what was learnt one measurement ago.
    """

    def __init__(
        self, distances: Array, rates: Array, trend: Array, doubts: Array, start: Learnt | None = None
    ) -> None:
        self._distances, self._trend, self._doubts = distances, trend, doubts
        self._target = np.log(rates) - trend
        self._centre = float(np.mean(self._target))
        self._target = self._target - self._centre
        self._mean_trend = float(np.mean(trend))
        self.settings = self._learn(start)
        self._root = np.linalg.cholesky(self._covariance(self.settings))
        self._solved = _solve(self._root, self._target)

    def predict(self, distances: Array, trend: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the log rate, of points at `distances` from the measured ones."""
        settings = self.settings
        across = self._kernel(distances, trend, self._trend, settings)
        mean = trend + self._centre + across @ self._solved
        half = np.linalg.solve(self._root, across.T)
        own = settings.amplitude**2 + _LEVEL_SPREAD**2 + (_TREND_SPREAD * (trend - self._mean_trend)) ** 2
        return mean, np.sqrt(np.maximum(own - np.sum(half**2, axis=0), 1e-12))

    def _kernel(self, distances: Array, first: Array, second: Array, settings: Learnt) -> Array:
        alike = np.exp(-(distances @ np.asarray(settings.weights)))
        slope = _TREND_SPREAD**2 * np.outer(first - self._mean_trend, second - self._mean_trend)
        kernel: Array = settings.amplitude**2 * alike + slope + _LEVEL_SPREAD**2
        return kernel

    def _covariance(self, settings: Learnt) -> Array:
        kernel = self._kernel(self._distances, self._trend, self._trend, settings)
        noise = (settings.noise * self._doubts) ** 2 + 1e-9
        covariance: Array = kernel + np.diag(noise)
        return covariance

    def _likelihood(self, settings: Learnt) -> float:
        root = np.linalg.cholesky(self._covariance(settings))
        fit = float(self._target @ _solve(root, self._target))
        # A weak belief that settings matter a little keeps two or three points from settling the matter.
        belief = sum(math.log(weight / _TYPICAL_WEIGHT) ** 2 for weight in settings.weights) / 8.0
        return -0.5 * fit - float(np.sum(np.log(np.diag(root)))) - belief

    def _learn(self, start: Learnt | None) -> Learnt:
        """Climb the likelihood, one setting at a time over a short list of values; twice round from nothing."""
        best = start or Learnt((_TYPICAL_WEIGHT,) * self._distances.shape[2], 0.4, 0.03)
        height = self._likelihood(best)
        varied = [at for at in range(len(best.weights)) if self._distances[..., at].any()]
        for _ in range(2 if start is None else 1):
            trials = [Learnt(best.weights, amplitude, noise) for amplitude in _AMPLITUDES for noise in _NOISES]
            best, height = self._better(trials, best, height)
            for at in varied:
                before, after = best.weights[:at], best.weights[at + 1 :]
                trials = [Learnt((*before, w, *after), best.amplitude, best.noise) for w in _WEIGHTS]
                best, height = self._better(trials, best, height)
        return best

    def _better(self, trials: Sequence[Learnt], best: Learnt, height: float) -> tuple[Learnt, float]:
        for trial in trials:
            reached = self._likelihood(trial)
            if reached > height:
                best, height = trial, reached
        return best, height


def expected_gain(mean: Array, spread: Array, best: float) -> Array:
    """Return the expected improvement over `best`, point by point."""
    ahead = (mean - best) / spread
    density = np.exp(-0.5 * ahead**2) / math.sqrt(2.0 * math.pi)
    below = 0.5 * (1.0 + _erf(ahead / math.sqrt(2.0)))
    gain: Array = spread * (ahead * below + density)
    return gain


def _erf(x: Array) -> Array:
    """The error function to 1.5e-7 (Abramowitz and Stegun 7.1.26): NumPy has none."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    poly = ((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t + 0.254829592
    value: Array = np.sign(x) * (1.0 - poly * t * np.exp(-(x**2)))
    return value


def _solve(root: Array, right: Array) -> Array:
    solution: Array = np.linalg.solve(root.T, np.linalg.solve(root, right))
    return solution
