"""The interface between a search and its trials: real ones, recorded tables (`replay`) or arithmetic (`surface`).

A measurer measures; it neither chooses configurations nor remembers results.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig


class Effort(enum.StrEnum):
    """The precision of a measurement."""

    SEARCH = "search"  # as short as its interval allows; may end early when it cannot win
    PROOF = "proof"  # one block of the confirmation run: a fixed length, never cut short


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A configuration that the winner has to beat, with a name."""

    name: str
    config: PipelineConfig
    required: bool = False  # the result needs it, however short the time is
    incumbent: bool = False  # it stays the configuration to use unless another one is proved faster
    unable: TrialFailure | None = None  # the reason why it cannot run here, if any; it is not tried then
    # returns the same with this many workers, which help because reads wait; None: it has no number of workers
    with_workers: Callable[[int], Baseline] | None = None


class Measurer(Protocol):
    """Runs trials, one at a time."""

    def baselines(self) -> Sequence[Baseline]:
        """Return the baselines that the winner has to beat; they are measured like any configuration."""
        ...

    def ceilings(self, setups: Sequence[ModelSetup]) -> Sequence[Ceiling]:
        """Measure the ceiling of each setup of the model; the first is the usual one."""
        ...

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        """Measure the model alone in one setup; None if that failed.

        Without `again`, a reading that a trial in this setup has made will do.
        """
        ...

    def allow(self, seconds: float | None) -> None:
        """Limit the time of the next measurements; None: no limit.

        A training ends then, with what it has. A trial that has not begun to train is cut soon after, by a failure of
        the kind `INTERRUPTED`.
        """
        ...

    def measure(
        self, config: PipelineConfig, *, effort: Effort = Effort.SEARCH, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        """Run one trial, and return its measurement or failure. Only bugs and the user's Ctrl-C raise. Once the upper
        end of the interval is below `must_reach` images/s, the trial may end early.
        """
        ...
