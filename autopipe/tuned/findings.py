"""What a search found beside its winner, as the artefact keeps it: all that a report shows, so that it needs no study.

Values only. `autopipe.reports.gathering` fills them in at the end of a search; nothing decides anything by them.
"""

from __future__ import annotations

import enum
from typing import Annotated

import pydantic

from autopipe.core.facts import Ceiling
from autopipe.core.outcome import StepTime
from autopipe.core.value import Estimate, Value

Amount = Annotated[float, pydantic.Field(ge=0)]


class Origin(enum.StrEnum):
    """Who asked for a trial."""

    BASELINE = "baseline"
    PREDICTION = "prediction"
    SAMPLER = "sampler"
    PROOF = "proof"
    OTHER = "other"


class Attempt(Value):
    """One trial of the search.

    Attributes:
        origin: who asked for it.
        config: what ran, in a few words.
        images_per_second: what came of it; None if it failed.
        failure: why it failed.
        block: of the confirmation run, where it belongs to one.
    """

    origin: Origin
    config: str
    images_per_second: Estimate | None = None
    failure: str | None = None
    block: int | None = None


class Contest(Value):
    """The winner against another, in the blocks of the confirmation run.

    Attributes:
        name: the other's: a baseline's, or its configuration in a few words.
        baseline: whether it is one.
        ratio: how many times faster the winner ran.
        low: the lower end of its 95 % interval.
        high: the upper end; None where it is open.
        pairs: in how many blocks both ran.
        blocks: the ratio in each of them.
    """

    name: str
    baseline: bool
    ratio: float = pydantic.Field(gt=0)
    low: Amount
    high: float | None = None
    pairs: int = pydantic.Field(ge=0)
    blocks: tuple[float, ...] = ()


class Worth(Value):
    """What one setting is worth, all others held at the winner's.

    Attributes:
        setting: its name, such as "threads.workers".
        value: as the winner has it.
        other: another value that it may have.
        ratio: how many times faster the winner's value is.
        low: the lower end of its 95 % interval.
        high: the upper end.
        measured: whether the other value ran; else the model of the search speaks for it.
        paired: the same ratio from blocks of the confirmation run in which both ran; None where they did not.
    """

    setting: str
    value: str
    other: str
    ratio: float = pydantic.Field(gt=0)
    low: Amount
    high: float = pydantic.Field(gt=0)
    measured: bool
    paired: Estimate | None = None

    @property
    def matters(self) -> bool:
        """Whether it is told from no difference."""
        return not self.low <= 1.0 <= self.high


class Way(Value):
    """One way to keep the samples: what it costs once, and how fast it is from then on.

    Attributes:
        name: of the way.
        config: the fastest configuration that keeps them so, in a few words.
        images_per_second: its steady rate.
        once_seconds: conversion, filling of the cache, and the wait for the first batch.
        plain: whether samples are read as they are, and nothing of them is kept.
    """

    name: str
    config: str
    images_per_second: float = pydantic.Field(gt=0)
    once_seconds: Amount
    plain: bool = False


class LeftOut(Value):
    """Configurations that were not tried, for one reason."""

    reason: str
    configs: int = pydantic.Field(ge=0)


class Asked(Value):
    """What was asked for.

    Attributes:
        command: the line that repeats it.
        seed: of everything random in the search.
        space: the search space.
        budget_seconds: how long it might take; None: as long as the trials took.
        epochs: over which one-time costs were charged; None where that is not known.
        data: a digest of the data.
    """

    command: str
    seed: int
    space: str
    budget_seconds: Amount | None = None
    epochs: int | None = None
    data: str | None = None


class Findings(Value):
    """All that a search found.

    Attributes:
        ceiling: what the model, the ops and the storage were measured to do, each on its own.
        contests: the winner against each other one in the confirmation run.
        effects: what single settings are worth.
        ways: to keep the samples.
        trials: what ran, in order.
        left_out: what did not, and why.
        limit: what keeps the winner from being faster, in a sentence.
        share_of_model: of what the model alone takes, 0 to 1.
        proved: whether a confirmation run ran to its end.
        trust: how far the figures can be believed, and why.
        stopped: why the search ended.
        notes: what the reader can do something about.
        seconds: how long all of it took.
        asked: what was asked for.
        simulated: the seconds of a step, where an accelerator stood in the model's place.
        cache_bytes: what a cache of all samples holds; None where they differ in size.
        step_times: the model's own time of a step by mode, where `autopipe measure --mode ... --keep` has added it.
    """

    ceiling: Ceiling | None = None
    contests: tuple[Contest, ...] = ()
    effects: tuple[Worth, ...] = ()
    ways: tuple[Way, ...] = ()
    trials: tuple[Attempt, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    limit: str | None = None
    share_of_model: float | None = pydantic.Field(default=None, ge=0, le=1)
    proved: bool = False
    trust: str = ""
    stopped: str = ""
    notes: tuple[str, ...] = ()
    seconds: Amount = 0.0
    asked: Asked | None = None
    simulated: Amount | None = None
    cache_bytes: int | None = pydantic.Field(default=None, ge=0)
    step_times: tuple[StepTime, ...] = ()

    @property
    def failed(self) -> int:
        """How many trials gave no measurement."""
        return sum(each.images_per_second is None for each in self.trials)
