"""Recorded tables: what every configuration of a space reached on one machine, for searching without that machine.

A table is a file of JSON lines. The first is its `Header`: the machine and workload, as far as a search knows them, the
ceilings and the baselines. Each further line is one trial as the measuring gave it, a `Measurement` (with its raw
windows) or a `TrialFailure`; a configuration may come more than once. Gzipped if the name ends in `.gz`.

Searching a table is `replaying.search`'s part; running real trials for one is the measurer's.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

import numpy as np
import pydantic

from autopipe.errors import TrialError
from autopipe.hardware import disk
from autopipe.measure.facts import Ceiling, Description, Facts
from autopipe.measure.outcome import Measurement, TrialFailure, parse_outcome
from autopipe.measure.stats import median
from autopipe.pipeline.config import LOADERS, PipelineConfig
from autopipe.search.measurer import Measurer
from autopipe.values import JsonObject

_NEAR = 0.85  # of the best: more than what a measurement may be off


class Header(pydantic.BaseModel):
    """The first line of a table.

    `busy_cores` is the load average of the machine when the recording began: on one that is not idle a table is noise.
    `accelerator` is `Facts`'s: without one some settings have no effect.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    status: Literal["table"] = "table"
    schema_version: Literal[1] = 1
    name: str
    hardware: str
    space: str
    cores: int
    gpus: int = 0
    accelerator: bool = False
    batch_size: int
    sample_count: int
    prefix_bytes: int | None = None
    compact_bytes: int | None = None
    finished_bytes: int | None = None
    trial_seconds: float = 2.5
    ceilings: list[Ceiling] = []
    baselines: dict[str, JsonObject] = {}
    busy_cores: float | None = None

    def facts(self) -> Facts:
        """Return what a search knows beforehand."""
        workload = Description(
            samples=self.sample_count,
            batch_size=self.batch_size,
            fixed_bytes=self.prefix_bytes,
            compact_bytes=self.compact_bytes or 0,
            finished_bytes=self.finished_bytes or 0,
            backend="",
            mean_bytes=0.0,
            data_digest="",
            ops="",
        )
        return Facts(workload=workload, cores=self.cores, gpus=self.gpus, accelerator=self.accelerator)


@dataclass(frozen=True, slots=True)
class Entry:
    """Everything recorded of one configuration."""

    config: PipelineConfig
    runs: tuple[Measurement, ...]
    failure: TrialFailure | None

    @property
    def rate(self) -> float:
        """Return what it is worth: images/s over all its windows, 0 if it always failed."""
        rates = [window.images / window.seconds for run in self.runs for window in run.windows]
        return median(rates) if rates else 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """A recorded table."""

    header: Header
    entries: Mapping[str, Entry]

    def rates(self) -> dict[str, float]:
        """Return what each configuration is worth, by key."""
        return {key: entry.rate for key, entry in self.entries.items()}


def read(path: Path) -> Table:
    """Read a table.

    Configurations that run the same there, as those that differ in a setting without effect, share their measurements.

    Raises:
        TrialError: the file is no table, or a line of it is broken.
    """
    outcomes: dict[str, list[Measurement | TrialFailure]] = {}
    configs: dict[str, PipelineConfig] = {}
    lines = _whole_lines(path)
    try:
        header = Header.model_validate_json(lines[0] if lines else "")
    except pydantic.ValidationError as error:
        raise TrialError(f"{path}, line 1, is no header of a table: {error.errors()[0]['msg']}.") from None
    baselines = {name: config for name, config in header.baselines.items() if _is_known(config)}
    header = header.model_copy(update={"baselines": baselines})
    for number, line in enumerate(lines[1:], start=2):
        try:
            outcome = parse_outcome(line)
        except pydantic.ValidationError as error:
            raise TrialError(f"{path}, line {number}, is no trial: {error.errors()[0]['msg']}.") from None
        if outcome.config is not None and _is_known(outcome.config):
            config = PipelineConfig.model_validate(outcome.config)
            configs[config.key()] = config
            outcomes.setdefault(config.key(), []).append(outcome)
    same = {} if header.facts().accelerator else {"device_prefetch": 0}  # which has no effect without one
    runs_as = {key: config.model_copy(update=same).key() for key, config in configs.items()}
    shared: dict[str, list[Measurement | TrialFailure]] = {}
    for key, found in outcomes.items():
        shared.setdefault(runs_as[key], []).extend(found)
    return Table(header, {key: _entry(config, shared[runs_as[key]]) for key, config in configs.items()})


def _is_known(config: JsonObject) -> bool:
    """Tell whether there still is the loader that a configuration was recorded with."""
    return cast(JsonObject, config["loader"])["kind"] in {*LOADERS}


def _entry(config: PipelineConfig, outcomes: Iterable[Measurement | TrialFailure]) -> Entry:
    runs = tuple(outcome for outcome in outcomes if isinstance(outcome, Measurement))
    failures = [outcome for outcome in outcomes if isinstance(outcome, TrialFailure)]
    return Entry(config, runs, failures[-1] if failures and not runs else None)


def _whole_lines(path: Path) -> list[str]:
    """Return the lines, without one in whose middle the recorder died."""
    lines: list[str] = []
    with _open(path, "rt") as file, suppress(EOFError):
        lines.extend(file)
    return [line for line in lines if line.endswith("\n")]


def _mend(path: Path) -> None:
    """Cut off what the recorder left unfinished, so that the next line begins on a line of its own."""
    whole = "".join(_whole_lines(path)).encode()
    with disk.replacing(path) as stream:
        stream.write(gzip.compress(whole) if path.suffix == ".gz" else whole)


def _open(path: Path, mode: Literal["rt", "at"]) -> IO[str]:
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, mode, encoding="utf-8"))
    return path.open(mode, encoding="utf-8")


def record(  # noqa: PLR0913  what is recorded, and who is told
    path: Path,
    header: Header,
    candidates: Mapping[str, PipelineConfig],
    measurer: Measurer,
    *,
    rounds: int = 1,
    on_trial: Callable[[int, int], None] = lambda done, of: None,
    enough: Callable[[], bool] = lambda: False,
) -> Table:
    """Measure the candidates and the baselines in random order, appending to `path`; what is there is not measured
    again, and an existing table keeps its header.

    Those near the best are measured `rounds` times, each time all of them in another order: among them a search has to
    choose, so their rates have to be the truest. `on_trial` is told how many of how many are done in a round, `enough`
    whether to stop before the next trial.
    """
    if not path.exists():
        with _open(path, "at") as file:
            file.write(header.model_dump_json() + "\n")
    _mend(path)
    baselines = [PipelineConfig.model_validate(config) for config in header.baselines.values()]
    todo = {config.key(): config for config in [*baselines, *candidates.values()]}
    for number in range(rounds):
        entries = read(path).entries
        keys = [key for key in todo if key not in entries] if number == 0 else _short_of(number + 1, entries)
        np.random.default_rng(number).shuffle(keys)
        for done, key in enumerate(keys, start=1):
            if enough():
                return read(path)
            outcome = measurer.measure(entries[key].config if number else todo[key])
            with _open(path, "at") as file:
                file.write(outcome.model_dump_json() + "\n")
            on_trial(done, len(keys))
    return read(path)


def _short_of(runs: int, entries: Mapping[str, Entry]) -> list[str]:
    """Return the keys of those near the best that were measured less often than that."""
    best = max((entry.rate for entry in entries.values()), default=0.0)
    return [key for key, entry in entries.items() if 0 < len(entry.runs) < runs and entry.rate >= _NEAR * best]
