"""Whether a tuned configuration still fits: the drift of a training, and the rules of a check.

`shortfall` decides on a training, which an `EpochMonitor` watches; `judge` and `with_rates` on a machine and workload,
for which their caller measures.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any, Final, Self

import pydantic

from autopipe import again
from autopipe.artifact import pick
from autopipe.artifact.schema import Profile
from autopipe.errors import told
from autopipe.hardware import machine
from autopipe.measure import costs
from autopipe.measure.bottleneck import bottleneck
from autopipe.measure.facts import WorkloadDigest
from autopipe.measure.fingerprint import Hardware, MatchLevel, compare_hardware, compare_workload
from autopipe.measure.rows import Row
from autopipe.measure.stats import FEWEST_PAIRS, USUAL_NOISE, median, normal_point
from autopipe.values import Estimate, Value, figure_text

if TYPE_CHECKING:
    from autopipe.pipeline.devices.callbacks import EpochFigures, EpochMonitor


LEAST_SHARE: Final = 0.5  # of its promise: a training below is too slow, however wide the promise's interval is
WAIT_TOLERANCE: Final = 0.02  # the usual variation of a data-wait share between runs

# Other programs slow a training down if they use more of the cores; a machine's own services use less.
_OTHERS_CORES, _OTHERS_SHARE = 0.3, 0.15


class DriftWarning(UserWarning):
    """A training is slower than its pipeline was when it was tuned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The figures that a training is compared with."""

    profile: Profile  # its winner was measured when the pipeline was tuned
    artifact: Path = Path("autopipe.json")  # its file


def shortfall(promise: Promise, figures: EpochFigures, cores: int) -> str | None:
    """Say by how much a training falls short of its promise, why, and what to run; None if it does not."""
    winner, cores_then = promise.profile.winner, promise.profile.hardware.cores
    then = winner.images_per_second
    rate, waits = figures.images_per_second, figures.data_wait_share
    sways = (1 - math.exp(-normal_point(0.05) * noise(promise.profile))) * then.value
    if then.value - rate <= min(max(then.high - then.low, sways), LEAST_SHARE * then.value):
        return None
    said = (
        f"The training takes {figure_text(rate)} images/s, {1 - rate / then.value:.0%} less than the "
        f"{figure_text(then.value)} when its pipeline was tuned"
    )
    waited = f"{said}, and waits for data {waits:.0%} of the time ({winner.data_wait_share:.0%} then)"
    retune, check = (f"Run: {again.autopipe(each, str(promise.artifact))}" for each in ("retune", "check"))
    if cores < cores_then:
        return f"{said}: it may use {cores} of the {cores_then} cores that it had then. {retune}"
    if waits <= winner.data_wait_share + WAIT_TOLERANCE:
        model = f"{said}, but waits no longer for data ({waits:.0%} of the time)"
        return f"{model}: the model, its callbacks or the device are slower. {check}"
    if figures.cores_of_others > max(_OTHERS_CORES, _OTHERS_SHARE * cores):
        return f"{waited}: others on this machine keep {figures.cores_of_others:.1f} of its cores busy. {check}"
    return f"{waited}. {retune}"  # reads, files or versions of libraries have changed


def DriftMonitor() -> EpochMonitor:
    """Return a Keras callback that compares a training with the promise of its artifact.

    Each epoch's `images_per_second`, `data_wait_share`, `cores_of_others`, `lost_workers` and `loader_changes` (with
    `tune="live"`) go to the logs, and so to `TensorBoard`, and to the callbacks of MLflow and Weights & Biases, if
    these come later in the list. A `DriftWarning` is given once, with the cause and the command to run, when the
    training falls short by more than the interval of the recorded rate and the noise between trials.

    Examples:
        >>> tuned.make_trainer().fit(epochs=3, callbacks=[ap.DriftMonitor()])  # doctest: +SKIP
    """
    from autopipe.pipeline.devices.callbacks import EpochMonitor  # imports Keras

    warned = set[str]()  # "slow", "failed": once of each

    def judge(trainer: Any, epoch: int, figures: EpochFigures) -> None:
        promise = getattr(trainer, "promise", None)
        if not isinstance(promise, Promise):
            return
        kind = "slow"
        try:
            fills_a_cache = any(each.kept.in_memory for each in pick.readable([promise.profile.winner.config]))
            said = None if epoch == 0 and fills_a_cache else shortfall(promise, figures, machine.usable_cores())
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end the user's training
            kind, said = "failed", f"A training cannot be compared with its artifact: {told(error)}."
        if said is not None and kind not in warned:
            warned.add(kind)
            warnings.warn(said, DriftWarning, stacklevel=2)

    return EpochMonitor(judge)


# -------------------- check: machine, workload, age, and a short measurement


MAX_AGE_DAYS: Final = 180  # drivers, firmware and neighbours change without a comparable version
DRIFT_TOLERANCE: Final = 0.05  # two measurements of one pipeline on a quiet machine differ by less than this
_DEVIATION: Final = 1.4826  # median absolute deviations in a normal's standard deviation (Hampel, JASA 69, 1974)


class Verdict(enum.StrEnum):
    """The results of a check."""

    FITS = "fits"
    STALE = "stale"  # a condition of the measurement has changed, and nothing shows that it is slower
    DRIFTED = "drifted"  # it was measured again, and is slower than before, or than what it had beaten


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of a short measurement now."""

    images_per_second: Estimate
    model: Estimate | None = None  # alone; None if it was not measured
    share: Estimate | None = None  # of the model alone, by turns with it; above 1 if that was disturbed
    others: Mapping[str, Estimate] = dataclasses.field(default_factory=dict)  # of `pick.contenders`, over its own rate

    @classmethod
    def by_turns(
        cls,
        rounds: Sequence[tuple[Estimate, Estimate]],
        others: Mapping[str, Sequence[Estimate]] | None = None,
        noise: float = 0.0,
    ) -> Self:
        """Summarise rounds of (pipeline, model alone), and of `others` by name. Shares are of pairs, since a slow round
        slows both; `noise` is the standard deviation between measurements of one configuration, in log units.
        """
        rates, models = [rate for rate, _ in rounds], [alone for _, alone in rounds]
        ours, ones, paired = [rate.value for rate in rates], [1.0] * len(rounds), math.sqrt(2) * noise
        rate, alone = _over(rates, ones, noise), _over(models, ones, noise)
        share = _over(rates, [each.value for each in models], paired)
        return cls(
            images_per_second=rate,
            model=alone.mapped(lambda end: rate.value / share.value / alone.value * end),
            share=share,
            others={name: _over(ran, ours[: len(ran)], paired) for name, ran in (others or {}).items()},
        )

    def rows(self, profile: Profile) -> tuple[Row, ...]:
        winner, ceiling = pick.config_of(profile), profile.result.ceiling
        limit, rate = None, self.images_per_second
        if ceiling is not None and self.model is not None and self.share is not None:
            limits = costs.bounds(ceiling.model_copy(update={"model_images_per_second": self.model}), winner)
            limit = bottleneck(limits, rate.value, min(1.0, self.share.value)).sentence
        others = {name: over.mapped(lambda end: rate.value * end) for name, over in self.others.items()}
        ours = Row(name=winner.short(), model=self.model, together=rate, limit=limit)
        return ours, *(Row(name=name, together=together) for name, together in others.items())


class Result(Value):
    """The result of a check, as `autopipe check --json` prints it."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()  # why it is not "fits"; empty if it is
    age_days: int  # of the profile
    share: float | None = None  # of the ceiling, now and side by side, 0 to 1; None if nothing was measured
    recorded_share: float | None = None  # of the ceiling, when it was tuned, as the tune's summary says it
    rows: tuple[Row, ...] = ()  # the winner now, and what came next to it; empty if nothing was measured
    # for a retune only: the checked one, None if the machine has none; and whether it is of this machine and workload,
    # and only its age or versions of software may keep it from "fits"
    profile: Profile | None = pydantic.Field(default=None, exclude=True)
    is_comparable: bool = pydantic.Field(default=False, exclude=True)

    @property
    def holds(self) -> bool:
        """True if it was measured to be as fast as before, and no slower than what it had beaten."""
        return self.is_comparable and self.verdict is not Verdict.DRIFTED and bool(self.rows)

    @property
    def exit_code(self) -> int:
        return {Verdict.FITS: 0, Verdict.STALE: 4, Verdict.DRIFTED: 5}[self.verdict]


def judge(profile: Profile, here: Hardware, now: datetime.datetime, workload: WorkloadDigest | None = None) -> Result:
    """Decide whether a profile is of this machine and up to date, and of this workload unless that is None."""
    match = compare_hardware(profile.hardware, here)
    age_days = max(0, (now - profile.measured_at).days)  # clocks of machines differ
    reasons = [f"{found.field} was {found.known} and is {found.here} now" for found in match.software]
    if not (is_same := match.level is MatchLevel.SAME):
        reasons = [f"no profile is of this machine; the nearest differs in {'; '.join(map(str, match.differences))}"]
    others = [] if workload is None else compare_workload(profile.workload, workload)
    reasons += [each.words or f"the workload's {each.field} was {each.known} and is {each.here} now" for each in others]
    if age_days > MAX_AGE_DAYS:
        reasons.append(f"it was measured {age_days} days ago, more than {MAX_AGE_DAYS}")
    return Result(
        verdict=Verdict.STALE if reasons else Verdict.FITS,
        reasons=tuple(reasons),
        age_days=age_days,
        profile=profile if is_same else None,
        recorded_share=profile.winner.share_of_model,
        is_comparable=is_same and not others,
    )


def with_rates(result: Result, profile: Profile, rates: Rates) -> Result:
    """Add new rates, and decide whether they fall short of those in the profile, or of what the winner had beaten. The
    share of the ceiling is compared, or the plain rate without one: the upper end of the new interval with the lower
    end of the recorded one, less the tolerance. Of the recorded share side by side, which has no interval in the
    artifact, and that of the figures, which are of different moments, the lower one counts.
    """
    now, then = rates.images_per_second, profile.winner.images_per_second
    side_by_side, recorded, by_the_figures = rates.share, result.recorded_share, profile.result.share_by_figures
    share = None if side_by_side is None else min(1.0, side_by_side.value)
    result = result.model_copy(update={"share": share, "rows": rates.rows(profile)})
    least = max(then.low, LEAST_SHARE * then.value)
    if side_by_side is not None and recorded is not None and by_the_figures is not None:
        lowest, highest = min(recorded, by_the_figures) * least / max(then.value, 1e-9), side_by_side.high
        said = f"it reaches {share:.0%} of what the model can take, but {recorded:.0%} when it was tuned"
    else:
        lowest, highest = least, now.high
        said = f"it feeds {figure_text(now.value)} images/s, but {figure_text(then.value)} when it was tuned"
    reasons = [said] if highest < lowest * (1 - DRIFT_TOLERANCE) else []
    before = {config.short(): ratio for config, ratio in pick.contenders(profile)}
    reasons += [
        f"{name}, which it had beaten, makes {ratio.value:.2f} times its images/s"
        for name, ratio in rates.others.items()
        if min(ratio.low, ratio.value * (1 - DRIFT_TOLERANCE)) > before[name]
    ]
    if not reasons:
        return result
    return result.model_copy(update={"verdict": Verdict.DRIFTED, "reasons": (*result.reasons, *reasons)})


def noise(profile: Profile) -> float:
    """Return the standard deviation, in log units, between the trials of a profile's winner in its tune: the windows
    of one trial do not show how far the machine's speed differs from one trial to the next.
    """
    winner, ran = profile.winner.key, [(each.key, each.images_per_second) for each in profile.result.trials]
    logs = [math.log(rate.value) for key, rate in ran if key == winner and rate is not None and rate.value > 0]
    return stdev(logs) if len(logs) >= FEWEST_PAIRS else USUAL_NOISE


def _over(rates: Sequence[Estimate], others: Sequence[float], noise: float) -> Estimate:
    """Return the median of rates over others, in pairs, each with this `noise` in log units.

    Its interval is the widest of three: of the windows of a trial, of the spread of the pairs, of the noise. The first
    two are medians as well, so that no single disturbed round, nor one too short for an interval, hides the others.
    """
    pairs = [rate.value / other for rate, other in zip(rates, others, strict=True)]
    value = median(pairs)
    apart = _DEVIATION * median([abs(pair - value) for pair in pairs]) if len(pairs) >= FEWEST_PAIRS else 0.0
    reach = math.exp(normal_point(0.05) * noise / math.sqrt(len(pairs)))
    low = min(value * median([rate.low / rate.value for rate in rates]), value - apart, value / reach)
    high = max(value * median([rate.high / rate.value for rate in rates]), value + apart, value * reach)
    return Estimate(value=value, low=max(0.0, low), high=high)
