"""Searches over recorded tables, without hardware: how good is a sampler after so many trials?

Replayed, a configuration's measurement is made of its recorded windows, drawn anew: the noise of a trial as it was.
What a configuration is really worth is the median over all its windows. What a table is, is `replaying.table`'s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from autopipe.errors import TrialError
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search import feasible, study
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import trim
from autopipe.search.measurer import Baseline
from autopipe.search.record import TrialRow
from autopipe.search.settings import Settings
from autopipe.search.space import Params, Space, from_config
from replaying.samplers import Sampler, named
from replaying.table import Table
from tests.fakes.facts import measurement


class Replay:
    """A measurer that hands out recorded measurements, their windows drawn anew.

    A configuration between recorded ones (an Optuna sampler may draw 5 workers where 4 and 6 were recorded) is given
    the nearest one's.
    """

    def __init__(self, table: Table, *, seed: int = 0) -> None:
        self._table = table
        self._rng = np.random.default_rng(seed)
        self._params = {key: from_config(entry.config) for key, entry in table.entries.items()}
        self.now = 0.0

    def clock(self) -> float:
        """Return the time that the recorded trials would have taken."""
        return self.now

    def baselines(self) -> Sequence[Baseline]:
        """Return the recorded baselines."""
        recorded = self._table.header.baselines.items()
        return [Baseline(name=name, config=PipelineConfig.model_validate(config)) for name, config in recorded]

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        """Return the first of the recorded ceilings."""
        return self._table.header.ceilings[0]

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        """Return the recorded ceiling."""
        return next((each for each in self._table.header.ceilings if each.setup == setup), None)

    def loader_alone(self, config: PipelineConfig) -> float | None:
        """Return None: no table holds loaders without a model."""
        return None

    def allow(self, seconds: float | None) -> None:
        """Recorded trials are as long as they were."""

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        """Return a recorded run of `config`, its windows drawn with replacement."""
        self.now += self._table.header.trial_seconds
        entry = self._table.entries.get(config.key()) or self._table.entries[self.nearest(config)]
        if not entry.runs:
            return entry.failure or TrialFailure(
                kind=FailureKind.UNSUPPORTED, phase=Phase.OPEN, message="`config` was not recorded"
            )
        run = entry.runs[int(self._rng.integers(len(entry.runs)))]
        rates = np.array([window.images / window.seconds for window in run.windows])
        drawn = rates[self._rng.integers(len(rates), size=len(rates))]
        return measurement(
            config,
            drawn.tolist(),
            batch_size=run.batch_size,
            first_batch_seconds=run.first_batch_seconds,
            resources=run.resources,
        )

    def nearest(self, config: PipelineConfig) -> str:
        """Return the key of the recorded configuration that is most like `config`."""
        wanted = from_config(config)
        return min(self._params, key=lambda key: (_distance(wanted, self._params[key]), key))


def _distance(one: Params, other: Params) -> float:
    away = 0.0
    for name in one.keys() | other.keys():
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs:
            continue
        numbers = isinstance(mine, int) and isinstance(theirs, int) and not isinstance(mine, bool)
        away += abs(math.log2((1 + cast(int, mine)) / (1 + cast(int, theirs)))) / 10 if numbers else 1.0
    return away


def best_rate(table: Table, space: Space) -> float:
    """Return the rate of the best recorded configuration that can run; raises TrialError if there is none."""
    rates, facts = table.rates(), table.header.facts()
    configs = {key: each.config for key, each in table.entries.items() if key in rates}
    known = {each.name: each.values for each in trim(space, facts).space}
    found = [
        rates[key]
        for key, config in configs.items()
        if feasible.why_not(config, facts) is None
        and all(value in known[name] for name, value in from_config(config).items() if name in known)
    ]
    if not found:
        raise TrialError(f"The table `{table.header.name}` holds no configuration of this space.")
    return max(found)


def settings_of(sampler: Sampler | None, *, seed: int, trials: int) -> Settings:
    """Return how a table is searched: to the last trial, and without a confirmation run."""
    return Settings(
        trials=trials,
        budget_seconds=None,
        seed=seed,
        sampler=sampler,
        patience=trials,
        reached_share=math.inf,
        blocks=(0, 0),
    )


def search(table: Table, space: Space, settings: Settings) -> Searched:
    """Search a table once."""
    replay = Replay(table, seed=settings.seed)
    return study.run(space, replay, table.header.facts(), replace(settings, clock=replay.clock))


def regret_curve(table: Table, space: Space, settings: Settings) -> list[float]:
    """Return, after each trial of one search, how far the best so far is below the table's best: 0.05 is 5 %.

    The best so far is the one that the search would have chosen then; its worth is the table's, not the trial's.
    """
    rates, best = table.rates(), best_rate(table, space)
    nearest = Replay(table).nearest
    found = search(table, space, settings)
    curve, values = [], dict[str, float]()
    worth = 0.0
    for row in found.rows:
        if row.value is not None:
            values[row.key] = row.value
            chosen = max(values, key=lambda key: values[key])
            worth = rates[chosen] if chosen in rates else rates[nearest(_config(found.rows, chosen))]
        curve.append(1.0 - worth / best)
    return (curve + curve[-1:] * settings.trials)[: settings.trials]


def winner_regrets(
    table: Table,
    space: Space,
    *,
    seeds: int,
    trials: int,
    on_search: Callable[[int, int], None] = lambda done, of: None,
) -> list[float]:
    """Return how far below the table's best the winner of each search is, whose confirmation run is run to its end and
    does not count as trials. `on_search` is told how many of how many searches have ended.
    """
    rates, best, nearest = table.rates(), best_rate(table, space), Replay(table).nearest
    regrets = []
    for seed in range(seeds):
        settings = settings_of(None, seed=seed, trials=trials)
        found = search(table, space, replace(settings, blocks=Settings().blocks)).best_config
        worth = 0.0 if found is None else rates.get(found.key()) or rates[nearest(found)]
        regrets.append(1.0 - worth / best)
        on_search(seed + 1, seeds)
    return regrets


def _config(rows: Sequence[TrialRow], key: str) -> PipelineConfig:
    return next(row.config for row in rows if row.key == key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How one sampler did on one table."""

    sampler: str  # its name
    median: tuple[float, ...]  # regret over seeds, after each trial
    worst: tuple[float, ...]  # the 90th percentile, after each trial


def compare(
    table: Table,
    space: Space,
    names: Sequence[str],
    *,
    seeds: int,
    trials: int = 25,
    on_search: Callable[[int, int], None] = lambda done, of: None,
) -> list[Comparison]:
    """Search the table, of this space, `seeds` times with each sampler.

    `race` is what `autopipe tune` runs. `on_search` is told how many of how many searches have ended. Raises
    ConfigError if there is no such sampler.
    """
    chosen = {name: named(name) for name in names}
    compared = []
    ended, total = itertools.count(1), len(chosen) * seeds
    on_search(0, total)
    for name, sampler in chosen.items():
        curves = []
        for seed in range(seeds):
            settings = settings_of(sampler, seed=seed, trials=trials)
            curves.append(regret_curve(table, space, settings))
            on_search(next(ended), total)
        middle, worst = np.median(curves, axis=0), np.quantile(curves, 0.9, axis=0)
        compared.append(Comparison(sampler=name, median=tuple(middle.tolist()), worst=tuple(worst.tolist())))
    return compared
