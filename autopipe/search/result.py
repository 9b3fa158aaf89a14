"""The result of a search: one value, made at its end, kept in the artifact, and shown as text, as HTML and as JSON.

Facts only: figures, configurations and enums. `autopipe.reports` makes the sentences, but for the error of a search
without a result, at the end. Configurations are kept as JSON, so that a result can be read without the package of a
loader. What a search tells meanwhile, its events, is of the same values.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, TypeAlias

import pydantic

from autopipe.errors import NothingMeasuredError, SearchInterruptedError
from autopipe.hardware.machine import size_text
from autopipe.measure.costs import CostProfile, Kind
from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import EpochTime, Measurement, Resources, TrialFailure
from autopipe.measure.rows import Row
from autopipe.measure.stats import Comparison, Ratio
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Amount, Count, Estimate, JsonObject, Positive, Share, Value, count_text, figure_text
from autopipe.workload.mode import Mode

WORTH: Final = 1.05  # times as fast: a smaller difference is no gain, even if it can be measured

MOST_CHANGES: Final = 100  # the last changes of a training that tunes itself, which are kept


class Reason(enum.StrEnum):
    """The reason why a search ended."""

    CEILING = "ceiling"
    NO_GAIN = "no_gain"
    TIME = "time"
    TRIALS = "trials"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"


class Stop(Value):
    """The reason why a search ended, for a program and as a sentence."""

    reason: Reason
    message: str


class Asker(enum.StrEnum):
    """The origins of trials, each with a detail in the study."""

    BASELINE = "baseline"  # a usual pipeline of today; the detail is its name
    KNOWN = "known"  # a configuration that did well elsewhere or before
    RACE = "race"  # a trial of the race, or of what has won it
    ADVICE = "advice"  # a converted form, measured as advice
    SAMPLER = "sampler"  # the detail is its name
    PROOF = "proof"  # the detail is the number of its block


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


class Trial(Value):
    """One trial of a search. Without a rate and without a failure, it was interrupted."""

    origin: Asker
    key: str  # of the configuration
    config: JsonObject
    images_per_second: Estimate | None = None
    failure: TrialFailure | None = None
    block: int | None = None  # of the confirmation run
    seconds: Amount = 0.0  # that it took


class Winner(Value):
    """The configuration to use, and its measurement."""

    config: JsonObject
    key: str
    images_per_second: Estimate  # in the confirmation run if there was one
    whole_images_per_second: Amount | None = None  # with what is paid once, if that changes the ratios
    data_wait_share: Share
    first_batch_seconds: Amount | None = None
    hand_over_seconds: Amount | None = None  # of a batch from a worker on another machine
    peak_rss_bytes: int | None = pydantic.Field(default=None, ge=0, le=2**62)
    cpu_percent: Amount | None = None
    stable: bool = True
    page_cache: Literal["warm", "cold"] = "warm"
    share_of_model: Share | None = None  # of the model alone, side by side with it if that was measured
    limit: str | None = None  # its bottleneck, in words
    limit_kind: Kind | None = None  # None if nothing that was measured comes near its rate
    limit_op: str | None = None  # the op that takes most of it
    epoch: EpochTime | None = None  # with validation; None if the workload names none, or there was no time


class BaselineResult(Value):
    """A configuration that the winner is compared with."""

    name: str
    key: str
    config: JsonObject
    images_per_second: Estimate | None = None  # in the winner's rounds if it ran in some: by the ratio of their pairs
    whole_images_per_second: Amount | None = None  # as the winner's
    failure: TrialFailure | None = None  # why not, if it failed
    incumbent: bool = False  # it stays unless another one is proved faster
    files_ready: bool = True  # all files were in memory, or out of it, when its trial began
    epoch: EpochTime | None = None  # with its own validation; None if that was not measured


class Contest(Comparison):
    """The winner against another configuration, in pairs that are rounds of the confirmation run."""

    key: str
    config: JsonObject
    baseline: str | None = None  # the name of the other, if it is a baseline
    blocks: tuple[float, ...] = ()  # the ratio in each round


class Effect(Ratio):
    """The winner's value of one setting against another that ran, with the other settings as the winner has them."""

    setting: str
    value: bool | int | float | str
    other: bool | int | float | str
    paired: Estimate | None = None  # the ratio in rounds of the confirmation run in which both ran


class Way(CostProfile):
    """The fastest configuration that keeps the samples in one way, and the costs of that way."""

    config: JsonObject


class Payback(Value):
    """A storage form after a number of ops: the fastest configuration that reads it, and its pay-back."""

    config: JsonObject
    storage: str
    cut: Count  # ops done before samples are kept
    rate: Estimate
    convert_seconds: Estimate  # for the whole set, extrapolated from the trial's part
    bytes: Count  # of the whole set on disk
    free_bytes: int | None = None
    saved_seconds: float  # in each epoch, against the best configuration that needs no conversion
    epochs: float | None = None  # after which it has paid: 0 at once, None never
    overruled: bool  # it is faster than the winner and pays only after the training's epochs
    advice: bool  # only the user's permission to convert is missing


class DeviceCount(Value):
    """The results with one number of devices."""

    devices: int
    model_images_per_second: float | None = None  # the model alone, in its fastest setup
    images_per_second: float | None = None  # the best configuration
    exchange_seconds: Amount | None = None  # of the gradients between them; None on one


class Raced(Value):
    """A loader that ran without a model."""

    config: JsonObject
    images_per_second: Amount


def raced_rate(raced: Iterable[Raced], config: JsonObject) -> float | None:
    """Return what the loader of a configuration made without the model, in images/s, if that was measured."""

    def loader(of: JsonObject) -> list[object]:
        return [of.get(name) for name in ("loader", "keep", "finish", "arguments")]

    return next((each.images_per_second for each in raced if loader(each.config) == loader(config)), None)


class Result(Value):
    """The whole outcome of a search."""

    winner: Winner | None = None  # None if none could be measured, or none proved faster than one that was not
    proved: bool = False  # a confirmation run had enough rounds of the winner and those that it is compared with
    ceiling: Ceiling | None = None  # the rates of the model, the ops and the storage alone, for the winner's setup
    doubled_images_per_second: Amount | None = None  # the model alone, at twice the batch size; None: no device or time
    baselines: tuple[BaselineResult, ...] = ()  # that the winner is compared with
    contests: tuple[Contest, ...] = ()  # the winner against each other finalist, the largest ratio first
    whole_training: bool = False  # ratios include one-time costs, and that makes a difference
    effects: tuple[Effect, ...] = ()  # of single settings of the winner
    ways: tuple[Way, ...] = ()  # to keep the samples, the fastest first
    paybacks: tuple[Payback, ...] = ()  # of storage forms that were tried, the fastest first
    devices: tuple[DeviceCount, ...] = ()
    virtual_devices: bool = False  # devices are parts of the CPU
    # of a simulated accelerator, 0 to 1, for "best" and each baseline; empty for a real model
    utilisation: dict[str, float] = pydantic.Field(default_factory=dict)
    trials: tuple[Trial, ...] = ()  # all that ran, in order
    raced: tuple[Raced, ...] = ()  # loaders without a model, in order; empty if the model shares the cores with them
    left_out: dict[str, int] = pydantic.Field(default_factory=dict)  # configurations that were not tried, by the reason
    over_limits: tuple[Resources, ...] = ()  # over all of the data, of trials that broke a limit of the user's
    stop: Stop
    seconds: Amount = 0.0  # all of the search, earlier sessions of the study included
    measuring_seconds: Amount = 0.0  # the part of it in trials and on ceilings
    ended_at: pydantic.AwareDatetime
    others_cores: Amount = 0.0  # that other programs kept busy
    drift: float | None = None  # of a baseline from the beginning to the confirmation run: 0.06 is 6 % faster
    resident_share: Share | None = None  # of the files, in memory when the tune began
    progressive_share: Share | None = None  # of the images that are read, which are progressive JPEG
    unsaved: str | None = None  # why the last trials are in memory only; None if the storage has them all
    study: str | None = None  # its name
    study_url: str | None = None  # its storage, without a password; None if it was in memory
    command: str = ""  # the line that repeats the search
    seed: int = 0
    space: str = ""
    budget_seconds: Amount | None = None
    epochs: int | None = None  # over which one-time costs were charged
    mode: Annotated[Mode, pydantic.Field(strict=False)] = Mode.TRAIN  # of the steps that were measured
    batch_size: int = pydantic.Field(default=1, ge=1)
    counted: str | None = None  # the parts of x that make a sample, which counts as one image; None: it is an image
    cache_bytes: Count | None = None  # of a cache of all samples; None if they differ
    data: str | None = None  # a digest of the data
    reads_alone: bool = False  # a dataset without a model, beside steps that take no time

    @property
    def images_per_second(self) -> Estimate | None:
        return None if self.winner is None else self.winner.images_per_second

    @property
    def interrupted(self) -> bool:
        return self.stop.reason is Reason.INTERRUPTED

    @property
    def failed(self) -> int:
        return sum(each.failure is not None for each in self.trials)

    @property
    def cut(self) -> int:
        """How many trials the budget or Ctrl-C ended early, which says nothing of their configurations."""
        return sum(each.images_per_second is None and each.failure is None for each in self.trials)

    @property
    def overtaken(self) -> bool:
        """True if the winner is faster than the model alone, which was then measured under other load."""
        rate = self.images_per_second
        return rate is not None and self.ceiling is not None and self.ceiling.is_overtaken_by(rate)

    @property
    def share_by_figures(self) -> float | None:
        """The winner's rate over that of the model alone, measured at another moment; None if not known."""
        if self.ceiling is None or self.winner is None or self.overtaken:
            return None
        top = self.ceiling.model_images_per_second.value
        return self.winner.images_per_second.value / top if top > 0 else None

    @property
    def rows(self) -> tuple[Row, ...]:
        """The winner and the baselines, as `autopipe measure` has them."""
        others = tuple(
            Row(name=each.name, together=each.images_per_second, failure=each.failure) for each in self.baselines
        )
        if (best := self.winner) is None:
            return others
        alone = raced_rate(self.raced, best.config)
        ours = Row(
            name="the winner",
            model=None if self.ceiling is None else self.ceiling.model_images_per_second,
            loader=None if alone is None else Estimate.of_one(alone),
            together=best.images_per_second,
            limit=best.limit,
        )
        return ours, *others

    def measured(self) -> list[tuple[JsonObject, float]]:
        """Return each measured configuration with its last rate, the fastest first."""
        ran = [(each, each.images_per_second) for each in self.trials if each.images_per_second is not None]
        rates = {each.key: (each.config, rate.value) for each, rate in ran}
        return sorted(rates.values(), key=lambda pair: -pair[1])

    def contest(self, baseline: BaselineResult) -> Contest | None:
        """Return the confirmation run's comparison with a baseline; None if the baseline was not in it."""
        return next((each for each in self.contests if each.key == baseline.key), None)

    def times_faster(self, baseline: BaselineResult) -> float | None:
        """Return the winner's rate over a baseline's: in rounds of both, else by their rates."""
        if (contest := self.contest(baseline)) is not None:
            return contest.ratio
        rate, best = baseline.images_per_second, self.winner
        if best is None or rate is None or rate.value <= 0:
            return None
        if best.whole_images_per_second and baseline.whole_images_per_second:
            return best.whole_images_per_second / baseline.whole_images_per_second
        return best.images_per_second.value / rate.value


class Change(Value):
    """A configuration that was tried in a running training."""

    epoch: Count
    before: str  # configurations, in short
    after: str
    ratio: Positive | None = None  # of the rates, after over before; None if it failed
    kept: bool
    failure: str | None = None


class Learnt(Value):
    """What a training with `tune="live"` has learnt. No confirmation run has proved it."""

    config: JsonObject  # with which the training went on
    images_per_second: Estimate  # in the training, with its callbacks
    data_wait_share: Share
    trained_at: pydantic.AwareDatetime
    changes: tuple[Change, ...] = pydantic.Field(default=(), max_length=MOST_CHANGES)


# -------------------- events, while a search runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The search waits, because another process measures on this machine."""

    why: str  # the process
    seconds: float  # the longest wait


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceTrimmed:
    """The remaining space, and the configurations left out."""

    candidates: int  # that can run
    left_out: Mapping[str, int]  # by the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOpened:
    """The record is open."""

    name: str
    resumed: int  # earlier trials
    failed: int = 0  # of them, without baselines: they are not tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLost:
    """The study's storage cannot be written any more; the search goes on in memory."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPlanned:
    """The plan of the budget, as far as it is known before the first trial."""

    budget_seconds: float  # of the whole search
    spent_seconds: float  # on importing and building the workload, and on measuring the model alone
    trial_seconds: float  # that one trial will take, about
    trials: int  # that fit, about, those of a confirmation run included
    needed_seconds: float  # for the least that says something: a baseline and one other configuration
    advised_seconds: float  # for a search of some trials, and its confirmation run


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial begins; `origin` is the reason."""

    number: int
    origin: AskedBy
    config: PipelineConfig
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished:
    """A trial ended."""

    number: int
    origin: AskedBy  # who asked for it
    config: PipelineConfig  # what ran
    outcome: Measurement | TrialFailure  # what came of it
    value: float | None  # the objective over all measurements of this configuration; None if it failed
    best: float | None  # the best value so far


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationStarted:
    """The best few and the baselines run against each other."""

    configs: tuple[PipelineConfig, ...]
    blocks: tuple[int, int]


Event: TypeAlias = (
    Waiting
    | SpaceTrimmed
    | StudyOpened
    | StorageLost
    | Ceiling
    | Raced
    | BudgetPlanned
    | TrialStarted
    | TrialFinished
    | Stop
    | ConfirmationStarted
)
"""What a search tells of while it runs: each `Ceiling`, each loader that has `Raced`, and the `Stop`, which
a confirmation run follows unless it is an interruption.
"""

OnEvent: TypeAlias = Callable[[Event], None]


def nothing_measured(result: Result) -> NothingMeasuredError:
    """Return the error of a search without a winner: why its trials failed, or why none was run."""
    failures = [each.failure for each in result.trials if each.failure is not None]
    former = next((each for each in result.baselines if each.incumbent), None)
    measured = sum(each.images_per_second is not None for each in result.trials) > len(result.over_limits)
    if measured and former is not None and former.images_per_second is None and former.failure is None:
        kind = SearchInterruptedError if result.interrupted else NothingMeasuredError
        return kind(
            "The former configuration was not measured before the search ended, so nothing is proved to be faster.",
            hint="It stays; give the search more time with --budget.",
        )
    if result.interrupted:
        return _interrupted(failures, len(result.over_limits))
    if failures:
        count = "the one trial" if len(failures) == 1 else f"all of {len(failures)} trials"
        last = "" if len(failures) == 1 else " of the last"
        return NothingMeasuredError(
            f"No configuration could be measured: {count} failed. The reason{last}: {failures[-1].message}",
            hint=failures[-1].hint,
        )
    if over := result.over_limits:
        return NothingMeasuredError(
            f"No configuration keeps the limits: {len(over)} were measured and took more than is allowed, "
            f"the least {size_text(min(each.peak_rss_bytes or 0 for each in over))} of memory.",
            hint="Allow more with --max-memory.",
        )
    if result.cut:
        budget, ran = result.budget_seconds or result.seconds, count_text(result.cut, "trial")
        return NothingMeasuredError(
            f"No configuration could be measured within {budget:.0f} s: {ran} had no time to begin."
            f"{_feeds(result.ceiling)}",
            hint="Give the search more time with --budget, or end what else runs on this machine.",
        )
    reasons = [reason for reason, configs in result.left_out.items() if configs]
    said = f": {'; '.join(reasons[:3])}." if reasons else f". {result.stop.message}"
    return NothingMeasuredError(
        f"No configuration could be measured, because none could be tried{said}",
        hint="Change what the reasons name, or allow more with another --space, --only or --max-*.",
    )


def _feeds(ceiling: Ceiling | None) -> str:
    """Say that a loader makes five times what the model takes, if both were measured alone."""
    made = None if ceiling is None else ceiling.loader_images_per_second
    if ceiling is None or made is None or made.value < 5.0 * ceiling.model_images_per_second.value:
        return ""
    taken = f" The model alone takes {figure_text(ceiling.model_images_per_second.value)} images/s"
    return f"{taken}, and a loader alone makes {figure_text(made.value)}: the model is the limit."


def _interrupted(failures: Sequence[TrialFailure], over: int) -> SearchInterruptedError:
    """Return the error of a search that the user ended before a trial succeeded within the limits."""
    message = "The search was interrupted before any configuration could be measured"
    message += f" that keeps the limits; {over} took more than is allowed." if over else "."
    if not failures:
        return SearchInterruptedError(message)
    return SearchInterruptedError(
        f"{message} Trials that failed: {len(failures)}. The reason of the last: {failures[-1].message}",
        hint=failures[-1].hint,
    )
