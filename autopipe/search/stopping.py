"""The three rules that end a search: its budget is used up, the model is the limit, or trials bring no gain any more.

Pure: the state of a search in, a reason with its sentence or None out.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autopipe.core.ceiling import Ceiling
from autopipe.core.stats import REPEATABILITY, log_variance
from autopipe.core.value import Estimate, rate_text

_GIVEN_AWAY = 0.02


class Reason(enum.StrEnum):
    """Why a search ended."""

    CEILING = "ceiling"
    NO_GAIN = "no_gain"
    TIME = "time"
    TRIALS = "trials"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a search ended, for a program and as a sentence."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a search."""

    trials: int  # finished ones, failures included
    seconds: float  # spent so far
    # the best estimate of the objective so far: one entry a trial, as they ended; None before the first success
    best: Sequence[Estimate | None]
    untried: int  # candidates that were never measured


def budget_stop(
    standing: Standing,
    *,
    trials: int,
    budget_seconds: float | None,
    trial_seconds: float,
    confirmation_seconds: float,
    end_seconds: float = 0.0,
) -> Stop | None:
    """Return a stop if the budget has no further trial, or if nothing is left to try.

    Args:
        standing: the state of the search.
        trials: how many it may run.
        budget_seconds: how long it may take; None: as long as it takes.
        trial_seconds: that one more trial takes.
        confirmation_seconds: that are kept for the confirmation run; 0: there is no time for one.
        end_seconds: that are kept for the report and the exit.
    """
    if standing.untried == 0:
        return Stop(reason=Reason.EXHAUSTED, message="Every configuration that can run has been measured.")
    if standing.trials >= trials:
        return Stop(reason=Reason.TRIALS, message=_used_up(trials, standing.trials))
    needed = trial_seconds + confirmation_seconds + end_seconds
    if budget_seconds is not None and standing.seconds + needed >= budget_seconds:
        confirmed = ", with the confirmation run," if confirmation_seconds > 0 else ""
        return Stop(
            reason=Reason.TIME,
            message=f"The time is up: {standing.seconds:.0f} s of {budget_seconds:.0f} s are spent, "
            f"and one more trial{confirmed} takes about {needed:.0f} s.",
        )
    return None


def _used_up(allowed: int, ran: int) -> str:
    one = allowed == 1
    said = f"{allowed} {'trial was' if one else 'trials were'} allowed"
    if ran > allowed:
        return f"{said}, and {ran} have run, the baselines among them."
    return f"{said} and {'has' if one else 'have'} been used."


def needed_share(rate: Estimate, ceiling: Ceiling, share: float) -> float:
    """Return the share of the ceiling at which nothing is left to gain: `share`, or less on an unsteady machine.

    Two figures that are less than `REPEATABILITY` standard deviations of one apart are taken for the same, but no more
    than 2 % are given away for it.
    """
    variance = max(map(log_variance, (rate, ceiling.model_images_per_second)))
    return max(share - _GIVEN_AWAY, min(share, 1.0 - REPEATABILITY * math.sqrt(variance)))


def ceiling_stop(rate: Estimate, ceiling: Ceiling, *, share: float, what: str) -> Stop | None:
    """Return a stop if `what`, at `rate` images/s, leaves nothing to gain below the model alone."""
    top = ceiling.model_images_per_second.value
    if rate.value < share * top:
        return None
    return Stop(
        reason=Reason.CEILING,
        message=f"{what} reaches {rate_text(rate.value)} images/s, {min(1.0, rate.value / top):.0%} of the "
        f"{rate_text(top)} that the model takes when data costs nothing: the model is the limit, and no loader can be "
        "faster.",
    )


def no_gain_stop(standing: Standing, *, patience: int) -> Stop | None:
    """Return a stop if none of the last `patience` trials is above the interval of the best before them.

    A best that was read in one window only has no interval, and rules out no gain.
    """
    if len(standing.best) <= patience:
        return None
    before, now = standing.best[-patience - 1], standing.best[-1]
    if before is None or now is None or not before.has_interval or now.value > before.high:
        return None
    return Stop(
        reason=Reason.NO_GAIN, message=f"The last {patience} trials were not significantly faster than the best."
    )
