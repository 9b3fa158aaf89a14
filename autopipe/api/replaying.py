"""Replaying: searches over a recorded table, without its hardware. `autopipe replay`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autopipe.api.retuning import KNOWN
from autopipe.core.params import Value
from autopipe.core.space import Space
from autopipe.errors import ConfigError, near
from autopipe.search import library, replay, samplers, table, transfer
from autopipe.search.replay import Comparison
from autopipe.search.table import Table


def read(path: Path) -> Table:
    """Return a recorded table.

    Raises:
        ConfigError: there is no such file.
        TrialError: it is no table.
    """
    if not path.is_file():
        beside = [entry.name for entry in path.parent.glob("*.jsonl*")] if path.parent.is_dir() else []
        raise ConfigError(f"There is no table `{path}`.{near(path.name, beside)}")
    return table.read(path)


def space_of(recorded: Table, name: str | None = None, only: Mapping[str, Sequence[Value]] | None = None) -> Space:
    """Return what of a table is searched.

    Args:
        recorded: the table.
        name: its search space, if not the one that it names.
        only: parameters, with the values that they are held to.

    Raises:
        SpaceError: the space cannot be read, or does not have what `only` names.
    """
    header = recorded.header
    space = library.load(name or header.space, {"cores": header.cores, "gpus": header.gpus})
    for parameter, values in (only or {}).items():
        space = space.only(parameter, values)
    return space


def compare(
    recorded: Table,
    space: Space,
    names: Sequence[str],
    *,
    seeds: int,
    trials: int = 25,
    on_search: Callable[[int, int], None] = lambda done, of: None,
) -> list[Comparison]:
    """Search a table with each sampler, again and again.

    Args:
        recorded: the table.
        space: what of it is searched.
        names: samplers; `tpe` starts from nothing, `tpe+seeds` from baselines and predictions, as the default one does.
        seeds: searches a sampler.
        trials: a search.
        on_search: told how many of how many searches are done.

    Raises:
        ConfigError: there is no such sampler.
    """
    for name in names:
        plain = name.removesuffix("+seeds")
        if plain not in samplers.SAMPLERS:
            known = ", ".join(samplers.SAMPLERS)
            raise ConfigError(
                f"`--sampler` must be one of {known}, but got {name!r}.{near(plain, samplers.SAMPLERS)}",
                hint="With +seeds at its end it starts from baselines and predictions: tpe+seeds",
            )
    done = 0

    def ended(sampler: str, seed: int) -> None:
        nonlocal done
        done += 1
        on_search(done, len(names) * seeds)

    on_search(0, len(names) * seeds)
    return replay.compare(recorded, space, names, seeds=seeds, trials=trials, on_search=ended)


def retune(
    recorded: Table,
    space: Space,
    *,
    machines: int,
    trials: int = 25,
    on_search: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[Comparison, Comparison]:
    """Let the table play other machines, and search each from nothing, and from what is known of the recorded one.

    Args:
        recorded: the table.
        space: what of it is searched.
        machines: how many are played.
        trials: a search.
        on_search: told how many of how many machines are done.
    """
    ended = itertools.count(1)
    on_search(0, machines)
    return transfer.compare(
        recorded,
        space,
        machines=machines,
        trials=trials,
        count=KNOWN,
        on_search=lambda: on_search(next(ended), machines),
    )
