"""What chooses the next configuration: an Optuna sampler, so that a study stays a plain Optuna study.

Others that it was compared with are in `benchmarks/replaying/samplers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from autopipe.core.config import PipelineConfig
from autopipe.core.params import Value
from autopipe.core.space import Space
from autopipe.search.feasible import Candidate
from autopipe.search.suggest import distributions
from autopipe.search.surrogate import Array, Features, Learnt, Reading, Surrogate, expected_gain

_ALONE = 4  # trials before the surrogate learns anything
_FAILED_SPREAD = 0.15  # of what a failure stands for, in log units
_FAR_BELOW = math.log(0.3)  # what is predicted that far below the best measured is not tried before the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerContext:
    """What a sampler may know: the space, what of it can run, how many cores there are, and what is predicted."""

    space: Space
    candidates: Sequence[Candidate]
    cores: int
    predict: Callable[[PipelineConfig], float] | None
    seed: int
    # what each configuration that was measured is worth in this search, by key, and None where it breaks a limit; the
    # study's own values may be of other epochs and limits. Without it they count
    worth: Callable[[], Mapping[str, float | None]] | None = None


class ListSampler(BaseSampler):
    """Chooses among the candidates of a finite list; what it chooses is up to `choose`."""

    def __init__(self, context: SamplerContext) -> None:
        self._context = context
        self._by_key = {candidate.key: candidate for candidate in context.candidates}
        self._any = RandomSampler(seed=context.seed)
        self.busy: set[str] = set()
        """Keys of what others who share the study measure just now."""

    def choose(self, measured: Mapping[str, float], failed: set[str]) -> Candidate | None:
        """Return the candidate to try next, or None if none is left.

        Args:
            measured: the latest value of each configuration that was measured, by key.
            failed: keys of those that failed, or broke a limit.
        """
        raise NotImplementedError

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all parameters: the choice is made for all of them together."""
        return distributions(self._context.space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of the candidate to try next."""
        measured: dict[str, float] = {}
        failed: set[str] = set()
        worth = {} if self._context.worth is None else self._context.worth()
        running = study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
        self.busy = {str(other.user_attrs["key"]) for other in running if "key" in other.user_attrs}
        for past in study.get_trials(deepcopy=False, states=[TrialState.COMPLETE, TrialState.FAIL]):
            key = past.user_attrs.get("key")
            if key is None or "outcome" not in past.user_attrs:  # cut off is no verdict on a configuration
                continue
            told = past.state == TrialState.COMPLETE and all(excess <= 0 for excess in past.constraints.values())
            value = past.values[0] if told else None
            value = worth.get(key, value) if past.state == TrialState.COMPLETE else None
            if value is None:
                failed.add(key)
            else:
                measured[key] = value
        chosen = self.choose(measured, failed)
        return {} if chosen is None else dict(chosen.params)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Value:
        """Draw evenly: only for a parameter that the choice left open."""
        value: Value = self._any.sample_independent(study, trial, param_name, param_distribution)
        return value


class SurrogateSampler(ListSampler):
    """The candidate with the largest expected gain, by a Gaussian process on top of the cost model's predictions."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        configs = [candidate.config for candidate in context.candidates]
        self._features = Features(configs, context.cores)
        self._points = self._features.points
        self._index = {candidate.key: at for at, candidate in enumerate(context.candidates)}
        predict = context.predict
        self._trend = np.array([0.0 if predict is None else math.log(predict(config)) for config in configs])
        self._learnt: Learnt | None = None
        # Ties (no prediction, nothing learnt) are broken by the seed.
        self._tie = np.random.default_rng(context.seed).random(len(configs))

    def choose(self, measured: Mapping[str, float], failed: set[str]) -> Candidate | None:
        """Return the candidate with the largest expected gain."""
        known = {self._index[key]: value for key, value in measured.items() if key in self._index}
        lost = {self._index[key] for key in failed if key in self._index and key not in measured}
        taken = known.keys() | lost | {self._index[key] for key in self.busy if key in self._index}
        free = np.array([at for at in range(len(self._points)) if at not in taken], dtype=np.intp)
        if len(free) == 0:
            return None
        if len(known) < _ALONE:
            gains = self._trend[free]
        else:
            free = self._within_reach(known, free)
            gains = self._gains(known, lost, free)
        return self._context.candidates[int(free[np.lexsort((self._tie[free], gains))[-1]])]

    def _within_reach(self, known: Mapping[int, float], free: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the free ones that are not predicted far below the best measured, or all if they all are."""
        rates, trend = np.log(list(known.values())), self._trend[list(known)]
        predicted = self._trend[free] + float(np.median(rates - trend))
        near = free[predicted >= float(rates.max()) + _FAR_BELOW]
        return near if len(near) else free

    def _gains(self, known: Mapping[int, float], lost: set[int], free: NDArray[np.intp]) -> Array:
        # The learnt noise is all that is told of a measurement here. With the variance that its windows show, searches
        # of the recorded tables were no nearer to the best (benchmarks/RESULTS.md).
        readings = [Reading(math.log(value), 0.0) for value in known.values()]
        lowest = min(reading.log_value for reading in readings)  # like a failure is likely to fail as well
        readings += [Reading(lowest, _FAILED_SPREAD**2) for _ in lost]
        seen = np.array([*known, *lost], dtype=np.intp)
        points = self._points[seen]
        surrogate = Surrogate(
            self._features.distances(points, points), self._trend[seen], list(enumerate(readings)), start=self._learnt
        )
        self._learnt = surrogate.settings
        mean_seen, _ = surrogate.known()
        mean, spread = surrogate.predict(self._features.distances(self._points[free], points), self._trend[free])
        return expected_gain(mean, spread, float(mean_seen[: len(known)].max()))


class Sampler(NamedTuple):
    """What chooses the next configuration, and the name by which a study tells whose choice a trial was."""

    name: str
    create: Callable[[SamplerContext], BaseSampler]


SURROGATE: Final = Sampler("surrogate", SurrogateSampler)
