"""What a warm start is worth: a recorded table is made to play another machine, and searched there with and without it.

What is known is what an artefact would hold: the best configurations of a search over the table as it was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from autopipe.pipeline.config import PipelineConfig, Value, from_config
from autopipe.pipeline.space import Space
from autopipe.search.feasible import Trimmed
from autopipe.search.surrogate import SURROGATE
from autopipe.workload import digests
from replaying import search
from replaying.search import Comparison
from replaying.table import Entry, Table
from tests.fakes.measurements import measurement

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
    """Tune so many machines that play the table's from nothing, and retune them from what is known of the table's.

    A retune knows `count` configurations; `on_search` is told how many of how many machines are done. Returns the
    regret of both, by trial.
    """
    others = [other_machine(table, seed=seed) for seed in range(machines)]
    return _compared(table, others, space, trials=trials, count=count, on_search=on_search)


def between(
    known: Table, there: Table, space: Space, *, seeds: int, trials: int, count: int
) -> tuple[Comparison, Comparison]:
    """Tune one recorded machine, `seeds` times, as `compare` does, and retune it from what is known of another; `space`
    is the one that both were recorded over, with the bounds of the one that is searched.
    """
    return _compared(known, [there] * seeds, space, trials=trials, count=count)


def _compared(
    known: Table,
    theirs: Sequence[Table],
    space: Space,
    *,
    trials: int,
    count: int,
    on_search: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[Comparison, Comparison]:
    before, cold, warm = search.recorded(known, space), list[list[float]](), list[list[float]]()
    on_search(0, len(theirs))
    for seed, there in enumerate(theirs):
        best = known_after(known, before, seed=seed, trials=trials, count=count)
        trimmed = search.recorded(there, space)
        settings = search.settings_of(SURROGATE, seed=seed, trials=trials, seeding=True)
        cold.append(search.regret_curve(there, trimmed, settings))
        warm.append(search.regret_curve(there, trimmed, replace(settings, known=best)))
        on_search(seed + 1, len(theirs))
    return search.comparison("tune from nothing", cold), search.comparison("retune", warm)


def trials_to_match(cold: Comparison, warm: Comparison) -> int | None:
    """Return after how many trials a retune is as near to the best as a tune from nothing in the end; None if never."""
    return next((number for number, regret in enumerate(warm.median, 1) if regret <= cold.median[-1]), None)
