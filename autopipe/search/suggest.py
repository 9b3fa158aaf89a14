"""Between Optuna's trials and flat parameters, and the sampler that is asked beyond the race."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import optuna
from optuna.samplers import BaseSampler, TPESampler

from autopipe.pipeline.config import Kept, Params, Value
from autopipe.pipeline.space import Parameter, Space, among

if TYPE_CHECKING:
    from autopipe.search.session import Session


def suggest(space: Space, trial: optuna.Trial) -> Params:
    """Ask a trial for each parameter that counts, in order."""
    params: Params = {}
    for parameter in space:
        if parameter.counts(params):
            params[parameter.name] = _ask(trial, parameter)
    return params


def note(space: Space, trial: optuna.Trial, params: Mapping[str, Value]) -> None:
    """Give an enqueued trial its parameters, as far as they lie in the space."""
    for name in fitting(space, params):
        _ask(trial, space[name])


def fitting(space: Space, params: Mapping[str, Value]) -> Params:
    """Return those of `params` that lie in the space; a baseline may lie outside in part."""
    fit: Params = {}
    for parameter in space:
        name = parameter.name
        if name in params and parameter.counts(fit):
            written = {str(Kept.of(str(each))): each for each in parameter.values} if name == "keep" else {}
            value = written.get(str(params[name]), params[name])
            if among(value, parameter.values):
                fit[name] = value
    return fit


def _ask(trial: optuna.Trial, parameter: Parameter) -> Value:
    value = trial.suggest_categorical(parameter.name, parameter.values)
    assert value is not None  # no parameter has None among its values
    return value


class Sampler(NamedTuple):
    """A sampler, and its name in the origin of its trials."""

    name: str
    create: Callable[[Session], BaseSampler]


TPE: Final = Sampler("tpe", lambda session: TPESampler(multivariate=True, seed=session.seed))
"""Optuna's own (Bergstra et al., Algorithms for Hyper-Parameter Optimization, NIPS 2011); all that ran is its start."""
