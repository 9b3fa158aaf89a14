"""Samplers that the race is compared with, by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import MappingProxyType

import optuna
from optuna.samplers import BaseSampler, RandomSampler

from autopipe.errors import ConfigError, MissingExtraError, near
from autopipe.search.record import TPE, Sampler

RACE = "race"
"""The name of what `autopipe tune` runs: a race, and no sampler."""


def _gp(seed: int) -> BaseSampler:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError.of("torch", "torch")
    return optuna.samplers.GPSampler(seed=seed)


SAMPLERS: Mapping[str, Sampler | None] = MappingProxyType(
    {RACE: None, "random": Sampler("random", RandomSampler), "tpe": TPE, "gp": Sampler("gp", _gp)}
)


def named(name: str) -> Sampler | None:
    """Return the sampler of that name, which goes on after the race; None of the race.

    Raises:
        ConfigError: there is no such sampler.
    """
    if name not in SAMPLERS:
        raise ConfigError(
            f"`--sampler` must be one of {', '.join(SAMPLERS)}, but got {name!r}.{near(name, SAMPLERS)}",
        )
    return SAMPLERS[name]
