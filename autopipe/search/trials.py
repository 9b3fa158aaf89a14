"""The trials of a search as values: their origins, their rows in the study, the objective over all trials of a
configuration, and the events of a search. What to try, and how to show it, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from optuna.trial import FrozenTrial

from autopipe.measure import costs as core_costs
from autopipe.measure.facts import Ceiling, Description, Limits
from autopipe.measure.outcome import Measurement, Phase, Resources, TrialFailure, parse_outcome
from autopipe.measure.stats import estimate, median
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.result import Asker as Asker
from autopipe.search.result import Stop
from autopipe.values import Estimate


def merged(measurements: Sequence[Measurement]) -> Estimate:
    """Return images/s over all measurements of one configuration: their median, with the interval of all windows.

    A measurement's own rate counts the pauses between epochs, which the median of windows would leave out.
    """
    if len(measurements) == 1:
        return measurements[0].images_per_second
    value = median([each.images_per_second.value for each in measurements])
    windows = estimate([window.images / window.seconds for each in measurements for window in each.windows])
    return windows.mapped(lambda rate: rate / windows.value * value)


def score(images_per_second: float, one_time_seconds: float, images: int) -> float:
    """Return the rate over a whole training of so many images: a study's objective if the length is known.
    `one_time_seconds` are conversion, cache fill and start, which the steady rate leaves out.
    """
    return images / (one_time_seconds + images / images_per_second)


def one_time_seconds(measurements: Sequence[Measurement], predicted: tuple[float, float], sample_count: int) -> float:
    """Return the one-time costs: conversion, filling the cache, and the wait for the first batch; by `measurements` of
    one configuration, else by the `predicted` seconds to convert and to fill.
    """
    costs = [each.conversion for each in measurements if each.conversion is not None]
    fills = [each.cache_fill_seconds for each in measurements if each.cache_fill_seconds is not None]
    convert, fill = predicted
    if costs:
        convert = median([core_costs.conversion_seconds(cost, sample_count).value for cost in costs])
    if fills:
        fill = median(fills)
    return convert + fill + (median([each.first_batch_seconds for each in measurements]) if measurements else 0.0)


def taken(measurement: Measurement, config: PipelineConfig, workload: Description) -> Resources:
    """Return the resources of a whole training by `config`, with its whole cache and validation's loader; a trial has
    no validation, and may be of a part of the data, whose cache holds no more than that.
    """
    took = measurement.resources
    if took.peak_rss_bytes is None:
        return took
    more = (1 - measurement.data_share) * (core_costs.cache_bytes(config, workload) or 0)
    more += core_costs.validation_bytes(config, workload, took.workers_bytes)
    return took.model_copy(update={"peak_rss_bytes": int(took.peak_rss_bytes + more)})


def excesses(took: Resources, limits: Limits) -> dict[str, float]:
    """Return the excess over each limit, as Optuna's constraints: above zero is too much."""
    found: dict[str, float] = {}
    if limits.memory_bytes is not None and took.peak_rss_bytes is not None:
        found["memory_bytes"] = took.peak_rss_bytes - limits.memory_bytes
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """All measurements of one configuration."""

    config: PipelineConfig
    key: str
    measurements: tuple[Measurement, ...]  # oldest first, at least one
    estimate: Estimate  # images/s over all their windows
    value: float  # the objective
    # within the user's limits, by its settings and by every measurement: else it is only compared with
    feasible: bool
    # in a confirmation run
    cost: tuple[float, ...] = ()  # beside its rate; the lower wins a tie
    baseline: str | None = None  # its name if it is a baseline
    required: bool = False  # a baseline that the result needs, however slow it is


# -------------------- origin: the reason of a trial, which a study holds as a word


@dataclass(frozen=True, slots=True)
class AskedBy:
    """The origin of a trial."""

    asker: Asker
    detail: str = ""  # see `Asker`

    @classmethod
    def parse(cls, word: str) -> Self:
        """Parse a study's word; an unknown one is a sampler's name."""
        kind, _, detail = word.partition(":")
        if kind in (each.value for each in Asker if each is not Asker.SAMPLER):
            return cls(Asker(kind), detail)
        return cls(Asker.SAMPLER, word)

    def __str__(self) -> str:
        if self.asker is Asker.SAMPLER:
            return self.detail
        return f"{self.asker}:{self.detail}" if self.detail else str(self.asker)

    @property
    def block(self) -> int | None:
        """The confirmation run's block, from 0; None of any other trial."""
        return int(self.detail) if self.asker is Asker.PROOF else None


# -------------------- row: one trial of a study as a search reads it

_ONCE = (Phase.START, Phase.IMPORT, Phase.BUILD, Phase.WARM_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished trial."""

    number: int  # the trial's number in the study
    origin: AskedBy  # who asked for it
    config: PipelineConfig  # what ran
    key: str  # of the configuration
    outcome: Measurement | TrialFailure | None  # None if the trial was interrupted
    value: float | None  # the study's value
    feasible: bool  # within the user's limits at that time, as measured
    seconds: float  # in total

    @property
    def running_seconds(self) -> float:
        """Its duration without the first start of a process and compilation."""
        phases = self.outcome.phase_seconds if isinstance(self.outcome, Measurement) else {}
        return max(0.0, self.seconds - sum(phases.get(each, 0.0) for each in _ONCE))

    @property
    def block(self) -> int | None:
        return self.origin.block

    @classmethod
    def of(cls, trial: FrozenTrial) -> Self:
        attributes = trial.user_attrs
        outcome = attributes.get("outcome")
        return cls(
            number=trial.number,
            origin=AskedBy.parse(attributes.get("origin", "")),
            config=PipelineConfig.model_validate(attributes["config"]),
            key=attributes["key"],
            outcome=None if outcome is None else parse_outcome(outcome["json"]),
            value=trial.value,
            feasible=not any(excess > 0 for excess in trial.constraints.values()),
            seconds=0.0 if outcome is None else outcome["seconds"],
        )


# -------------------- events


class Event:
    """Base class of the events."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """The search waits, because another process measures on this machine."""

    why: str  # the process
    seconds: float  # the longest wait


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTrimmed(Event):
    """The remaining space, and the configurations left out."""

    candidates: int  # that can run
    left_out: Mapping[str, int]  # by the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOpened(Event):
    """The record is open."""

    name: str
    resumed: int  # earlier trials
    failed: int = 0  # of them, without baselines: they are not tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLost(Event):
    """The study's storage cannot be written any more; the search goes on in memory."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingMeasured(Event):
    """The limits of every configuration were measured."""

    ceiling: Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRaced(Event):
    """A loader ran without a model."""

    config: PipelineConfig
    images_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlanned(Event):
    """The plan of the budget, as far as it is known before the first trial."""

    budget_seconds: float  # of the whole search
    spent_seconds: float  # on importing and building the workload, and on measuring the model alone
    trial_seconds: float  # that one trial will take, about
    trials: int  # that fit, about, those of a confirmation run included
    needed_seconds: float  # for the least that says something: a baseline and one other configuration
    advised_seconds: float  # for a search of some trials, and its confirmation run


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted(Event):
    """A trial begins; `origin` is the reason."""

    number: int
    origin: AskedBy
    config: PipelineConfig
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished(Event):
    """A trial ended."""

    number: int
    origin: AskedBy  # who asked for it
    config: PipelineConfig  # what ran
    outcome: Measurement | TrialFailure  # what came of it
    value: float | None  # the objective over all measurements of this configuration; None if it failed
    best: float | None  # the best value so far


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStopped(Event):
    """The search is over; the confirmation run follows unless `stop` was an interruption."""

    stop: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationStarted(Event):
    """The best few and the baselines run against each other."""

    configs: tuple[PipelineConfig, ...]
    blocks: tuple[int, int]


OnEvent: TypeAlias = Callable[[Event], None]
