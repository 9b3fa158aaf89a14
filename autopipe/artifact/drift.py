"""Whether a tuned configuration still fits: the drift of a training, its exports, and the rules of a check.

`shortfall` decides on a training, which an `EpochMonitor` watches; `judge` and `with_rates` on a machine and workload,
for which their caller measures. The exports write lines of JSON, Prometheus's text format, or call exporters of
extensions.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import pydantic

from autopipe import again, registry
from autopipe.artifact import pick
from autopipe.artifact.schema import Profile
from autopipe.errors import ConfigError, near
from autopipe.hardware import disk, machine
from autopipe.measure.facts import WorkloadDigest
from autopipe.measure.fingerprint import Hardware, MatchLevel, compare_hardware, compare_workload
from autopipe.measure.stats import FEWEST_PAIRS, median
from autopipe.values import Estimate, Value, rate_text

if TYPE_CHECKING:
    from autopipe.pipeline.devices.callbacks import EpochFigures, EpochMonitor


# -------------------- exports

GROUP: Final = "autopipe.exporters"
HELP: Final = {
    "images_per_second": "Samples trained a second in the last epoch.",
    "promised_images_per_second": "The same when the pipeline was tuned.",
    "data_wait_share": "Part of the time that the training waited for data, 0 to 1.",
    "cores_of_others": "Cores that others kept busy, of those that this process may use.",
    "lost_workers": "Workers of the loader that died in the last epoch, and were replaced.",
    "loader_changes": "Times that another loader has taken over in the last epoch, for good.",
}
DRIFTED: Final = "Whether training is slower than promised."

Export: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Takes the figures of an epoch: those of `HELP`, some of them None, and `cause`, None without a drift."""


def append_line(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Append a line of JSON with the time, in seconds since 1970, to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": round(time.time(), 3), **values}) + "\n")


def write_prometheus(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write the figures as gauges atomically, in place of those of the epoch before.

    The format is Prometheus's text exposition format, version 0.0.4.
    """
    lines = []
    for name, help_text in HELP.items():
        if values.get(name) is not None:
            metric = f"autopipe_{name}"
            lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge", f"{metric} {values[name]:.6g}"]
    cause = values.get("cause")
    labels = "" if cause is None else f'{{cause="{cause}"}}'
    lines += [f"# HELP autopipe_drifted {DRIFTED}", "# TYPE autopipe_drifted gauge"]
    lines.append(f"autopipe_drifted{labels} {int(cause is not None)}")
    with disk.replacing(Path(path)) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


# -------------------- drift

LEAST_SHARE: Final = 0.5
"""A training below this share of its promise is too slow, however wide the interval of the promise is."""

WAIT_TOLERANCE: Final = 0.02  # the usual variation of a data-wait share between runs

_OTHERS_CORES: Final = 0.3
_OTHERS_SHARE: Final = 0.15
"""Other programs slow a training down if they use more of the cores; a machine's own services use less."""


class DriftWarning(UserWarning):
    """A training is slower than its pipeline was when it was tuned."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The figures that a training is compared with."""

    profile: Profile  # its winner was measured when the pipeline was tuned
    artifact: Path = Path("autopipe.json")  # its file


class Cause(enum.StrEnum):
    """Why a training is slower than its pipeline was when it was tuned."""

    FEWER_CORES = "fewer cores"  # this process may use fewer of them than then
    NEIGHBOURS = "cores taken by others"  # it waits for data, and other programs keep cores busy
    # It waits for data without other programs' load: reads, files or versions of libraries have changed.
    DATA = "storage or loader"
    # It waits no longer for data: the model, its callbacks or the device are slower (heat, other versions).
    MODEL = "model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The shortfall of a training, and its cause."""

    cause: Cause
    sentence: str  # the same with figures and the command to run


def shortfall(promise: Promise, figures: EpochFigures, cores: int) -> Drift | None:
    """Return the drift of a training on this many `cores`; None unless it exceeds the interval, or half the rate."""
    winner, cores_then = promise.profile.winner, promise.profile.hardware.cores
    then = winner.images_per_second
    rate, waits = figures.images_per_second, figures.data_wait_share
    if then.value - rate <= min(then.high - then.low, LEAST_SHARE * then.value):
        return None
    said = (
        f"The training takes {rate:.0f} images/s, {1 - rate / then.value:.0%} less than the {then.value:.0f} when its "
        "pipeline was tuned"
    )
    waited = f"{said}, and waits for data {waits:.0%} of the time ({winner.data_wait_share:.0%} then)"
    retune, check = (f"Run: {again.autopipe(each, str(promise.artifact))}" for each in ("retune", "check"))
    if cores < cores_then:
        fewer = f"{said}: it may use {cores} of the {cores_then} cores that it had then. {retune}"
        return Drift(cause=Cause.FEWER_CORES, sentence=fewer)
    if waits <= winner.data_wait_share + WAIT_TOLERANCE:
        model = f"{said}, but waits no longer for data ({waits:.0%} of the time)"
        return Drift(cause=Cause.MODEL, sentence=f"{model}: the model, its callbacks or the device are slower. {check}")
    if figures.cores_of_others > max(_OTHERS_CORES, _OTHERS_SHARE * cores):
        others = f"others on this machine keep {figures.cores_of_others:.1f} of its cores busy"
        return Drift(cause=Cause.NEIGHBOURS, sentence=f"{waited}: {others}. {check}")
    return Drift(cause=Cause.DATA, sentence=f"{waited}. {retune}")


def DriftMonitor(
    *,
    jsonl: str | os.PathLike[str] | None = None,
    prometheus: str | os.PathLike[str] | None = None,
    **exporters: Any,
) -> EpochMonitor:
    """Return a Keras callback that compares a training with the promise of its artefact.

    Each epoch's `images_per_second`, `data_wait_share`, `cores_of_others`, `lost_workers` and `loader_changes` (with
    `tune="live"`) go to the logs, and so to `TensorBoard`, and to the callbacks of MLflow and Weights & Biases, if
    these come later in the list. A `DriftWarning` is given once, with the cause and the command to run, when the
    training falls short by more than the interval of the recorded rate.

    Args:
        jsonl: a file to which each epoch adds a line of JSON, for collectors of logs.
        prometheus: a file that holds the figures of the last epoch in Prometheus's text format, as node_exporter's
            textfile collector reads it.
        exporters: other places for the figures of each epoch, by the names of exporters of extensions. With
            `otel=True`, each epoch sets OpenTelemetry gauges, `autopipe.images_per_second` and so on, of the global
            meter provider; another provider may stand in place of True (extra `otel`).

    Raises:
        ConfigError: an exporter is unknown.
        MissingExtraError: an exporter needs a package that is not installed.

    Example:
        >>> tuned.make_trainer().fit(epochs=3, callbacks=[ap.DriftMonitor()])  # doctest: +SKIP
    """
    exports: list[Export] = []
    for name, value in exporters.items():
        made = registry.named(name, GROUP)
        if made is None:
            known = ["jsonl", "prometheus", *(entry.name for entry in registry.declared(GROUP))]
            raise ConfigError(f"`DriftMonitor` takes {', '.join(known)}, but got `{name}`.{near(name, known)}")
        if value is not False:
            exports.append(made(value, tuple(Cause)).set)
    if jsonl is not None:
        exports.append(functools.partial(append_line, jsonl))
    if prometheus is not None:
        exports.append(functools.partial(write_prometheus, prometheus))
    from autopipe.pipeline.devices.callbacks import EpochMonitor  # imports Keras

    return EpochMonitor(_Judge(exports))


class _Judge:
    """Compares every epoch, exports the figures, and warns once."""

    def __init__(self, exports: Sequence[Export]) -> None:
        self._exports = exports
        self._warned = self._unwritten = False

    def __call__(self, trainer: Any, epoch: int, figures: EpochFigures) -> None:
        promise = getattr(trainer, "promise", None)
        drift = promised = None
        if isinstance(promise, Promise):
            winner = promise.profile.winner
            promised = winner.images_per_second.value
            fills_a_cache = any(each.kept.in_memory for each in pick.readable([winner.config]))
            if epoch > 0 or not fills_a_cache:
                drift = shortfall(promise, figures, machine.usable_cores())
        values = {**dataclasses.asdict(figures), "cause": None if drift is None else drift.cause.value}
        values |= {"epoch": epoch, "promised_images_per_second": promised}
        for export in self._exports:
            try:
                export(values)
            except OSError as error:  # which does not end a training
                if not self._unwritten:
                    said = f"The figures of this training cannot be written: {error}."
                    warnings.warn(said, DriftWarning, stacklevel=2)
                self._unwritten = True
        if drift is not None and not self._warned:
            self._warned = True
            warnings.warn(drift.sentence, DriftWarning, stacklevel=2)


# -------------------- check: machine, workload, age, and a short measurement


MAX_AGE_DAYS: Final = 180  # drivers, firmware and neighbours change without a comparable version
DRIFT_TOLERANCE: Final = 0.05  # two measurements of one pipeline on a quiet machine differ by less than this
_DEVIATION: Final = 1.4826
"""Median absolute deviations in a standard deviation of the normal distribution (Hampel, JASA 69, 1974)."""


class Verdict(enum.StrEnum):
    """The results of a check."""

    FITS = "fits"
    STALE = "stale"  # a condition of the measurement has changed, and nothing shows that it is slower
    DRIFTED = "drifted"  # it was measured again, and is slower than before


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


class Result(Value):
    """The result of a check, as `autopipe check --json` prints it."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()  # why it is not "fits"; empty if it is
    age_days: int  # of the profile
    share: float | None = None  # of the ceiling, now and side by side, 0 to 1; None if nothing was measured
    recorded_share: float | None = None  # of the ceiling, when it was tuned, as the tune's summary says it
    images_per_second: Estimate | None = None  # now; None if nothing was measured
    # for a retune only: the checked one, None if the machine has none; only other versions keep it from "fits"
    profile: Profile | None = pydantic.Field(default=None, exclude=True)
    only_software: bool = pydantic.Field(default=False, exclude=True)

    @property
    def fits_but_for_software(self) -> bool:
        """True if it was measured to be as fast as before, and only versions of software differ."""
        return self.only_software and self.verdict is Verdict.STALE and self.images_per_second is not None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def judge(profile: Profile, here: Hardware, now: datetime.datetime, workload: WorkloadDigest | None = None) -> Result:
    """Decide whether a profile is of this machine and up to date. `now` has a time zone, and `workload` is the workload
    as it would be trained now; None leaves it unchecked.
    """
    match = compare_hardware(profile.hardware, here)
    age_days = (now - profile.measured_at).days
    reached = profile.winner.share_of_model
    if match.level is not MatchLevel.SAME:
        differences = "; ".join(map(str, match.differences))
        reasons = [f"no profile is of this machine; the nearest differs in {differences}"]
    else:
        reasons = [f"{found.field} was {found.known} and is {found.here} now" for found in match.software]
    if workload is not None:
        reasons += [
            found.words or f"the workload's {found.field} was {found.known} and is {found.here} now"
            for found in compare_workload(profile.workload, workload)
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
    """Add new rates, and decide whether they fall short of those in the profile.

    The share of the ceiling is compared, which a generally slower machine does not change; or the plain rate, if no
    ceiling was measured then or now. It falls short if even the upper end of the new interval lies below the lower end
    of the recorded one, by more than the tolerance.

    If the recorded share side by side and that of the figures differ, the lower one counts: the former has no
    interval in the artefact, and the latter is of the highest ceiling, measured at another moment.
    """
    now, then = rates.images_per_second, profile.winner.images_per_second
    side_by_side, recorded, by_the_figures = rates.share, result.recorded_share, profile.result.share_by_figures
    share = None if side_by_side is None else min(1.0, side_by_side.value)
    result = result.model_copy(update={"share": share, "images_per_second": now})
    least = max(then.low, LEAST_SHARE * then.value)
    if side_by_side is not None and recorded is not None and by_the_figures is not None:
        lowest, highest = min(recorded, by_the_figures) * least / max(then.value, 1e-9), side_by_side.high
        said = f"it reaches {share:.0%} of what the model can take, but {recorded:.0%} when it was tuned"
    else:
        lowest, highest = least, now.high
        said = f"it feeds {rate_text(now.value)} images/s, but {rate_text(then.value)} when it was tuned"
    if highest >= lowest * (1 - DRIFT_TOLERANCE):
        return result
    return result.model_copy(update={"verdict": Verdict.DRIFTED, "reasons": (*result.reasons, said)})


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
