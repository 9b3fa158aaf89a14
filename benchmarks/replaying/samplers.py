"""Samplers that the race is compared with, by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from types import MappingProxyType

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from autopipe.errors import ConfigError, MissingExtraError, near

Sampler = Callable[[int], BaseSampler]  # from a seed
RACE = "race"
"""The name of what `autopipe tune` runs: a race, and no sampler."""


def _gp(seed: int) -> BaseSampler:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError.of("torch", "torch")
    return optuna.samplers.GPSampler(seed=seed)


SAMPLERS: Mapping[str, Sampler | None] = MappingProxyType(
    {RACE: None, "random": RandomSampler, "tpe": lambda seed: TPESampler(multivariate=True, seed=seed), "gp": _gp}
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
