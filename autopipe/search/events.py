"""The events of a search. Values only; the reporter decides how to display them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.objective import AskedBy
from autopipe.search.result import LeftOut, Stop


class Event:
    """Base class of the events."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForMachine(Event):
    """Another tune is measuring; this one waits for it."""

    holder: str
    seconds: float  # that it is waited for at most


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTrimmed(Event):
    """The remaining space, and the configurations left out."""

    candidates: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOpened(Event):
    """The record is open, with `resumed` earlier trials; `lost` were interrupted and count as failed."""

    name: str
    resumed: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJoined(Event):
    """Shared studies of the same workload that are not joined, one reason each."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyJoined(Event):
    """The study is shared with `others`, the machines that measure in it just now."""

    name: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForOthers(Event):
    """Other processes that share the study run trials that the confirmation run may need."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGivenBack(Event):
    """The process of this trial died, possibly on another machine; another trial runs its configuration again."""

    number: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageWaited(Event):
    """The study's storage does not answer, for a reason that may pass; it is waited for."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLost(Event):
    """The study's storage cannot be written any more; the search goes on in memory."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingMeasured(Event):
    """The limits of every configuration were measured."""

    ceiling: Ceiling


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
    predicted: float | None
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
