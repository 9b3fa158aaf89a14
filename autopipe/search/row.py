"""One trial of a study as a search reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from optuna.trial import FrozenTrial

from autopipe.measure.outcome import Measurement, Phase, TrialFailure, parse_outcome
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.origin import AskedBy

_ONCE = (Phase.START, Phase.IMPORT, Phase.BUILD, Phase.WARM_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished trial."""

    number: int  # the trial's number in the study
    origin: AskedBy  # who asked for it
    config: PipelineConfig  # what ran
    key: str  # of the configuration
    outcome: Measurement | TrialFailure | None  # what came of it; None if the trial was cut off
    value: float | None  # what the study holds as its value
    predicted: float | None  # the cost model's images/s
    feasible: bool  # whether it kept the user's limits, as measured, when it was told
    seconds: float  # how long it took, all in all

    @property
    def running_seconds(self) -> float:
        """How long it took without what comes before the first trial of a process: its start, and compiling."""
        phases = self.outcome.phase_seconds if isinstance(self.outcome, Measurement) else {}
        return max(0.0, self.seconds - sum(phases.get(each, 0.0) for each in _ONCE))

    @property
    def block(self) -> int | None:
        """The confirmation run's block it belongs to, or None."""
        return self.origin.block

    @classmethod
    def of(cls, trial: FrozenTrial) -> Self:
        """Return a trial that was described."""
        attributes = trial.user_attrs
        outcome = attributes.get("outcome")
        return cls(
            number=trial.number,
            origin=AskedBy.parse(attributes.get("origin", "")),
            config=PipelineConfig.model_validate(attributes["config"]),
            key=attributes["key"],
            outcome=None if outcome is None else parse_outcome(outcome["json"]),
            value=trial.value,
            predicted=attributes.get("predicted"),
            feasible=not any(excess > 0 for excess in trial.constraints.values()),
            seconds=0.0 if outcome is None else outcome["seconds"],
        )
