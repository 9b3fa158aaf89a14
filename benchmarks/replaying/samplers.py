"""Samplers that the search's own is compared with, by name."""

from __future__ import annotations

import importlib.util
import random
import warnings
from collections.abc import Mapping
from types import MappingProxyType

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from autopipe.errors import ConfigError, MissingExtraError, near
from autopipe.pipeline.config import PipelineConfig, Value, from_config
from autopipe.search.session import Session
from autopipe.search.surrogate import SURROGATE, Sampler, SurrogateSampler


class CoordinateSampler(SurrogateSampler):
    """One setting at a time: from the best so far to the untried candidate that differs in the fewest settings."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._rng = random.Random(session.seed)

    def choose(self, worth: Mapping[str, float | None]) -> PipelineConfig | None:
        """Return a nearest neighbour of the best."""
        by_key = self._session.ranked()
        free = [each for key, each in by_key.items() if key not in worth]
        measured = {key: value for key in by_key if (value := worth.get(key)) is not None}
        if not free or not measured:
            return self._rng.choice(free) if free else None
        best = from_config(by_key[max(measured, key=lambda key: measured[key])])
        away = [_differing(best, from_config(each)) for each in free]
        return self._rng.choice([each for each, number in zip(free, away, strict=True) if number == min(away)])


def _differing(params: Mapping[str, Value], other: Mapping[str, Value]) -> int:
    names = [name for name in params.keys() | other.keys() if "." not in name]
    away = sum(params.get(name) != other.get(name) for name in names)
    if params["loader"] == other["loader"]:
        away += sum(params[name] != other.get(name) for name in params if "." in name)
    return away


def _random(session: Session) -> BaseSampler:
    return RandomSampler(seed=session.seed)


def _tpe(session: Session) -> BaseSampler:
    return TPESampler(seed=session.seed, multivariate=True)


def _tpe_group(session: Session) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `group` has been so since 2020
        return TPESampler(seed=session.seed, multivariate=True, group=True)


def _gp(session: Session) -> BaseSampler:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError.of("torch", "torch")
    return optuna.samplers.GPSampler(seed=session.seed)


SAMPLERS: Mapping[str, Sampler] = MappingProxyType(
    {
        each.name: each
        for each in (
            SURROGATE,
            Sampler("random", _random),
            Sampler("tpe", _tpe),
            Sampler("tpe-group", _tpe_group),
            Sampler("gp", _gp),
            Sampler("coordinate", CoordinateSampler),
        )
    }
)


def named(name: str) -> Sampler:
    """Return the sampler of that name.

    Raises:
        ConfigError: there is no such sampler.
    """
    if name not in SAMPLERS:
        raise ConfigError(
            f"`--sampler` must be one of {', '.join(SAMPLERS)}, but got {name!r}.{near(name, SAMPLERS)}",
        )
    return SAMPLERS[name]
