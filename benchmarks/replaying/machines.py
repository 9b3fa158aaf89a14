"""What a warm start is worth: a recorded table is made to play another machine, and searched there with and without it.

What is known is what an artefact would hold: the best configurations of a search over the table as it was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from replaying import search
from replaying.search import Comparison
from replaying.synthetic import measurement
from replaying.table import Entry, Table

from autopipe.pipeline.config import PipelineConfig, Value, from_config
from autopipe.pipeline.space import Space
from autopipe.search.feasible import Trimmed
from autopipe.search.surrogate import SURROGATE
from autopipe.workload import digests

SPREAD: Final = 0.15
"""By how much a setting is worth more or less on another machine: half of all factors lie within 10 %."""
_OWN_SPREAD = 0.02  # what is peculiar to one configuration there


def other_machine(table: Table, *, seed: int, spread: float = SPREAD) -> Table:
    """Return the table as another machine might have given it.

    Each value of a setting is worth a factor of its own there, each doubling of a number another one, and each
    configuration a little more or less. Windows keep their noise.
    """

    def drawn(*what: object) -> float:
        return float(np.random.default_rng([seed, int(digests.digest(*what), 16)]).normal())

    def log_factor(name: str, value: Value) -> float:
        if isinstance(value, int) and not isinstance(value, bool):
            return spread / 3 * drawn(name) * math.log2(1 + value)
        return spread * drawn(name, value)

    def there(key: str, entry: Entry) -> Entry:
        settings = from_config(entry.config).items()
        factor = math.exp(_OWN_SPREAD * drawn(key) + sum(log_factor(name, value) for name, value in settings))
        runs = (
            measurement(
                entry.config,
                [factor * window.images / window.seconds for window in run.windows],
                batch_size=run.batch_size,
                resources=run.resources,
            )
            for run in entry.runs
        )
        return replace(entry, runs=tuple(runs))

    return replace(table, entries={key: there(key, entry) for key, entry in table.entries.items()})


def known_after(table: Table, trimmed: Trimmed, *, seed: int, trials: int, count: int) -> list[PipelineConfig]:
    """Return the best configurations that a search of the table finds, the best one first."""
    result = search.search(table, trimmed, search.settings_of(SURROGATE, seed=seed, trials=trials, seeding=True))
    values = {row.key: (row.value, row.config) for row in result.rows if row.value is not None}
    best = sorted(values.values(), key=lambda pair: -pair[0])
    return [config for _, config in best[:count]]


def compare(
    table: Table,
    space: Space,
    *,
    machines: int,
    trials: int,
    count: int,
    on_search: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[Comparison, Comparison]:
    """Tune from nothing, and retune from what is known of the table's machine, on several others.

    Args:
        table: of the machine that is known.
        space: the one that the table was recorded over.
        machines: how many others are played.
        trials: a search.
        count: how many configurations a retune knows.
        on_search: is told how many of how many machines are done.

    Returns:
        The regret of both, by trial.
    """
    trimmed = search.recorded(table, space)
    cold, warm = [], []
    on_search(0, machines)
    for seed in range(machines):
        known = known_after(table, trimmed, seed=seed, trials=trials, count=count)
        there = other_machine(table, seed=seed)
        settings = search.settings_of(SURROGATE, seed=seed, trials=trials, seeding=True)
        cold.append(search.regret_curve(there, trimmed, settings))
        warm.append(search.regret_curve(there, trimmed, replace(settings, known=known)))
        on_search(seed + 1, machines)
    return search.comparison("tune from nothing", cold), search.comparison("retune", warm)


def between(
    known: Table, there: Table, space: Space, *, seeds: int, trials: int, count: int
) -> tuple[Comparison, Comparison]:
    """Tune one recorded machine from nothing, and retune it from what is known of another.

    Args:
        known: the table of the other.
        there: the table that is searched.
        space: the one that both were recorded over, with the bounds of the one that is searched.
        seeds: how many searches.
        trials: a search.
        count: how many configurations a retune knows.

    Returns:
        The regret of both, by trial.
    """
    before, trimmed = search.recorded(known, space), search.recorded(there, space)
    cold, warm = [], []
    for seed in range(seeds):
        best = known_after(known, before, seed=seed, trials=trials, count=count)
        settings = search.settings_of(SURROGATE, seed=seed, trials=trials, seeding=True)
        cold.append(search.regret_curve(there, trimmed, settings))
        warm.append(search.regret_curve(there, trimmed, replace(settings, known=best)))
    return search.comparison("tune from nothing", cold), search.comparison("retune", warm)


def trials_to_match(cold: Comparison, warm: Comparison) -> int | None:
    """Return after how many trials a retune is as near to the best as a tune from nothing in the end; None if never."""
    return next((number for number, regret in enumerate(warm.median, 1) if regret <= cold.median[-1]), None)
