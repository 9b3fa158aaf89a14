"""From an Optuna trial to flat parameters, and the distributions in between."""

from __future__ import annotations

from collections.abc import Mapping

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autopipe.pipeline.params import Params, Value
from autopipe.search.space import Parameter, Space, within


def distribution(parameter: Parameter) -> BaseDistribution:
    """Return what Optuna draws the parameter from: whole numbers for a range, else one of its values."""
    numbers = [value for value in parameter.values if isinstance(value, int) and not isinstance(value, bool)]
    if not parameter.is_range or len(numbers) < len(parameter.values):
        return CategoricalDistribution(parameter.values)
    low, high = min(numbers), max(numbers)
    step = 1 if parameter.log or len(numbers) < 2 else numbers[1] - numbers[0]
    return IntDistribution(low, high, log=parameter.log, step=step)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the distribution of every parameter."""
    return {parameter.name: distribution(parameter) for parameter in space}


def suggest(space: Space, trial: optuna.Trial) -> Params:
    """Ask a trial for each parameter that counts, in order."""
    params: Params = {}
    for parameter in space:
        if parameter.counts(params):
            params[parameter.name] = _ask(trial, parameter)
    return params


def note(space: Space, trial: optuna.Trial, params: Mapping[str, Value]) -> None:
    """Give an enqueued trial the parameters it was enqueued with, as far as they lie in the space."""
    for name in fitting(space, params):
        _ask(trial, space[name])


def fitting(space: Space, params: Mapping[str, Value]) -> Params:
    """Return those of `params` that lie in the space; a baseline need not lie in it altogether."""
    fit: Params = {}
    for parameter in space:
        name = parameter.name
        if name in params and parameter.counts(fit) and within(parameter, params[name]):
            fit[name] = params[name]
    return fit


def _ask(trial: optuna.Trial, parameter: Parameter) -> Value:
    drawn_from = distribution(parameter)
    if isinstance(drawn_from, IntDistribution):
        return trial.suggest_int(
            parameter.name, drawn_from.low, drawn_from.high, log=drawn_from.log, step=drawn_from.step
        )
    value = trial.suggest_categorical(parameter.name, parameter.values)
    assert value is not None  # no parameter has None among its values
    return value
