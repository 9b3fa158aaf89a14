"""The sampler: chooses the next configuration, as an Optuna sampler, so that a study stays a plain Optuna study.

It was compared with the samplers in `benchmarks/replaying/samplers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from autopipe.pipeline.config import Params, PipelineConfig, Value
from autopipe.pipeline.space import Parameter, Space, within
from autopipe.search.feasible import Candidate
from autopipe.search.surrogate import Array, Reading, Surrogate, expected_gain

# -------------------- suggest: from an Optuna trial to flat parameters, and the distributions in between


def distribution(parameter: Parameter) -> BaseDistribution:
    """Return the Optuna distribution of a parameter: whole numbers for a range, else one of its values."""
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
    """Give an enqueued trial its parameters, as far as they lie in the space."""
    for name in fitting(space, params):
        _ask(trial, space[name])


def fitting(space: Space, params: Mapping[str, Value]) -> Params:
    """Return those of `params` that lie in the space; a baseline may lie outside in part."""
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


# -------------------- samplers

_ALONE = 4  # trials before the surrogate learns anything
_FAILED_SPREAD = 0.15  # of the value of a failure, in log units
_FAR_BELOW = math.log(0.3)  # a prediction this far below the best measured is tried last


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerContext:
    """The parts of a search that a sampler may use."""

    space: Space
    candidates: Sequence[Candidate]  # in the order in which they are tried as long as nothing is learnt
    seed: int
    trend: Callable[[PipelineConfig], float]  # the logarithm of a prediction; 0 if there is none
    # the value of each tried configuration, by key; None if it failed or breaks a limit
    worth: Callable[[], Mapping[str, float | None]]
    busy: Callable[[], Collection[str]] = tuple  # keys of configurations that other processes sharing the study run now
    surrogate: Callable[[], Surrogate]  # over all candidates and all that was measured, once something was


class SurrogateSampler(BaseSampler):
    """Chooses the candidate with the largest expected gain, by the surrogate of the search."""

    def __init__(self, context: SamplerContext) -> None:
        self._context = context
        self._by_key = {candidate.key: candidate for candidate in context.candidates}
        self._trend = {candidate.key: context.trend(candidate.config) for candidate in context.candidates}
        self._any = RandomSampler(seed=context.seed)

    def choose(self, worth: Mapping[str, float | None], busy: Collection[str] = ()) -> Candidate | None:
        """Return the candidate to try next, or None if none is left.

        `worth` is as in `SamplerContext`, `busy` are the keys of configurations that run now.
        """
        free = [key for key in self._by_key if key not in worth and key not in busy]
        measured = {key: value for key in self._by_key if (value := worth.get(key)) is not None}
        if free and len(measured) >= _ALONE:
            free = self._within_reach(measured, free)
            gains = self._gains(measured, [key for key in self._by_key if worth.get(key, 0.0) is None], free)
            return self._by_key[free[int(np.argmax(gains))]]
        return self._by_key[free[0]] if free else None

    def _within_reach(self, measured: Mapping[str, float], free: list[str]) -> list[str]:
        """Return the free ones that are not predicted far below the best measured, or all if they all are."""
        off = float(np.median([math.log(value) - self._trend[key] for key, value in measured.items()]))
        enough = math.log(max(measured.values())) + _FAR_BELOW
        return [key for key in free if self._trend[key] + off >= enough] or free

    def _gains(self, measured: Mapping[str, float], failed: Sequence[str], free: Sequence[str]) -> Array:
        surrogate, lowest = self._context.surrogate(), math.log(min(measured.values()))
        if failed:  # configurations similar to a failure are likely to fail as well
            surrogate = surrogate.instead({key: Reading(lowest, _FAILED_SPREAD**2) for key in failed})
        best = float(surrogate.marginal(list(measured))[0].max())
        return expected_gain(*surrogate.marginal(free), best)

    # ------------------------------------------------------------ Optuna's interface

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return distributions(self._context.space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        chosen = self.choose(self._context.worth(), self._context.busy())
        return {} if chosen is None else dict(chosen.params)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Value:
        value: Value = self._any.sample_independent(study, trial, param_name, param_distribution)
        return value


class Sampler(NamedTuple):
    """A sampler, and its name in the origin of its trials."""

    name: str
    create: Callable[[SamplerContext], BaseSampler]


SURROGATE: Final = Sampler("surrogate", SurrogateSampler)
