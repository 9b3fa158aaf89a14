"""The rules that decide whether a tuned configuration still fits: machine, workload, age, and speed.

`judge` decides over values. `check` requests them one after the other, the cheap ones first; its caller measures.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable, Sequence
from typing import Final, Self

from autopipe.artifact import pick
from autopipe.artifact.drift import LEAST_SHARE
from autopipe.artifact.schema import Artifact, Profile
from autopipe.measure.fingerprint import Hardware, MatchLevel, WorkloadDigest, compare_hardware, compare_workload
from autopipe.measure.stats import FEWEST_PAIRS, median
from autopipe.pipeline.config import PipelineConfig
from autopipe.values import Estimate, rate_text

MAX_AGE_DAYS: Final = 180
"""Drivers, firmware and neighbours change without a comparable version."""
DRIFT_TOLERANCE: Final = 0.05
"""Two measurements of one pipeline on a quiet machine differ by less than this."""
_DEVIATION: Final = 1.4826
"""Median absolute deviations in a standard deviation of the normal distribution (Hampel, JASA 69, 1974)."""


class Verdict(enum.StrEnum):
    """The results of a check."""

    FITS = "fits"
    STALE = "stale"
    """A condition of the measurement has changed; there is no sign that it is slower."""
    DRIFTED = "drifted"
    """It was measured again, and is slower than before."""


EXIT_CODES: Final = {Verdict.FITS: 0, Verdict.STALE: 4, Verdict.DRIFTED: 5}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of a short measurement now."""

    images_per_second: Estimate
    # of the model alone, measured alternately; above 1 if that was disturbed, and None if it was not measured
    share: Estimate | None = None

    @classmethod
    def by_turns(cls, rounds: Sequence[tuple[Estimate, Estimate]]) -> Self:
        """Summarise rounds of (pipeline, model alone).

        The share is of pairs, since a slow round slows both: a fast reading of one over a slow one of the other is no
        share.
        """
        rates = [rate for rate, _ in rounds]
        return cls(
            images_per_second=_over(rates, [1.0] * len(rates)), share=_over(rates, [alone.value for _, alone in rounds])
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a check."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()  # why it is not "fits"; empty if it is
    age_days: int  # of the profile
    profile: Profile | None  # the checked one; None if the machine has none
    recorded_share: float | None = None  # of the ceiling, when it was tuned, as the tune's summary says it
    share: float | None = None  # of the ceiling, now and side by side, 0 to 1; None if nothing was measured
    images_per_second: Estimate | None = None  # now; None if nothing was measured
    only_software: bool = False  # only other versions of software keep it from "fits"

    @property
    def fits_but_for_software(self) -> bool:
        """True if it was measured to be as fast as before, and only versions of software differ."""
        return self.only_software and self.verdict is Verdict.STALE and self.images_per_second is not None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def check(
    artifact: Artifact,
    here: Hardware,
    now: datetime.datetime,
    *,
    workload: Callable[[], WorkloadDigest] | None = None,
    measure: Callable[[PipelineConfig], Rates] | None = None,
) -> Result:
    """Check the profile of machine `here` at the time `now`, which has a time zone.

    `workload` returns the workload as it would be trained now, and `measure` measures a configuration for some seconds;
    None leaves that part unchecked. Without a profile, or with an unreadable configuration, nothing is measured: there
    is no figure to compare with. Raises ArtifactError if this release cannot read the configuration.
    """
    profile, _ = pick.nearest(artifact, here)
    digest = None if workload is None else workload()
    result = judge(profile, here, now, digest)
    if result.profile is None or measure is None:
        return result
    return with_rates(result, profile, measure(pick.config_of(profile)))


def judge(profile: Profile, here: Hardware, now: datetime.datetime, workload: WorkloadDigest | None = None) -> Result:
    """Decide whether a profile is of this machine and up to date."""
    match = compare_hardware(profile.hardware, here)
    age_days = (now - profile.measured_at).days
    reached = profile.winner.share_of_model
    if match.level is not MatchLevel.SAME:
        differences = "; ".join(map(str, match.differences))
        reasons = [f"no profile is of this machine; the nearest differs in {differences}"]
    else:
        reasons = [f"{found.field} was {found.known} and is {found.here} now" for found in match.software]
    if workload is not None:
        changes = compare_workload(profile.workload, workload)
        reasons += [
            found.words or f"the workload's {found.field} was {found.known} and is {found.here} now"
            for found in changes
        ]
    if age_days > MAX_AGE_DAYS:
        reasons.append(f"it was measured {age_days} days ago, more than {MAX_AGE_DAYS}")
    return Result(
        verdict=Verdict.STALE if reasons else Verdict.FITS,
        reasons=tuple(reasons),
        age_days=age_days,
        profile=profile if match.level is MatchLevel.SAME else None,
        recorded_share=reached,
        only_software=match.level is MatchLevel.SAME and 0 < len(match.software) == len(reasons),
    )


def with_rates(result: Result, profile: Profile, rates: Rates) -> Result:
    """Add new rates, and decide whether they fall short of the recorded ones.

    The share of the ceiling is compared, which a generally slower machine does not change; or the plain rate, if no
    ceiling was measured then or now. It falls short if even the upper end of the new interval lies below the lower end
    of the recorded one, by more than the tolerance.

    If the recorded share side by side and that of the figures differ, the lower one counts: the former has no
    interval in the artefact, and the latter is of the highest ceiling, measured at another moment.
    """
    now, then = rates.images_per_second, profile.winner.images_per_second
    side_by_side, recorded, by_the_figures = rates.share, result.recorded_share, profile.result.share_by_figures
    share = None if side_by_side is None else min(1.0, side_by_side.value)
    result = dataclasses.replace(result, share=share, images_per_second=now)
    least = max(then.low, LEAST_SHARE * then.value)
    if side_by_side is not None and recorded is not None and by_the_figures is not None:
        lowest, highest = min(recorded, by_the_figures) * least / max(then.value, 1e-9), side_by_side.high
        said = f"it reaches {share:.0%} of what the model can take, but {recorded:.0%} when it was tuned"
    else:
        lowest, highest = least, now.high
        said = f"it feeds {rate_text(now.value)} images/s, but {rate_text(then.value)} when it was tuned"
    if highest >= lowest * (1 - DRIFT_TOLERANCE):
        return result
    return dataclasses.replace(result, verdict=Verdict.DRIFTED, reasons=(*result.reasons, said))


def _over(rates: Sequence[Estimate], others: Sequence[float]) -> Estimate:
    """Return the median of rates over others, in pairs.

    Its interval is as wide as that of the windows of a trial, or as the spread of the pairs if that is more. Both are
    medians as well, so that no single disturbed round, nor one too short for an interval, hides the others.
    """
    pairs = [rate.value / other for rate, other in zip(rates, others, strict=True)]
    value = median(pairs)
    apart = _DEVIATION * median([abs(pair - value) for pair in pairs]) if len(pairs) >= FEWEST_PAIRS else 0.0
    low = min(value * median([rate.low / rate.value for rate in rates]), value - apart)
    high = max(value * median([rate.high / rate.value for rate in rates]), value + apart)
    return Estimate(value=value, low=max(0.0, low), high=high)
