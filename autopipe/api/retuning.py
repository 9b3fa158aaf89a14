"""Makes or renews this machine's profile in an artefact, starting from its known configurations; and checks one.

The profiles of other machines stay. The former configuration also stays unless another one is proved faster.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
import warnings
from collections.abc import Callable, Collection
from typing import Final

from autopipe.api.tuning import unfit
from autopipe.artifact import artifact, codegen, drift, factory, pick, schema
from autopipe.artifact.artifact import Stored
from autopipe.artifact.drift import Rates, Result, Verdict
from autopipe.errors import NothingMeasuredError
from autopipe.hardware import gpu, machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.measure.fingerprint import Hardware, MatchLevel
from autopipe.measure.stats import FEWEST_PAIRS
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import profile_report
from autopipe.search import lock, searching
from autopipe.search.conclusion import nothing_measured
from autopipe.search.lock import Queue
from autopipe.search.measurer import Baseline, succeeded
from autopipe.search.record import best_elsewhere
from autopipe.search.result import Result as SearchResult
from autopipe.search.searching import Watcher
from autopipe.search.settings import TRAINING, Settings, require_possible, retune_settings, simulation
from autopipe.search.trials import OnEvent
from autopipe.values import Estimate, JsonObject
from autopipe.workload import digests
from autopipe.workload.workload import Workload

FORMER: Final = "the former configuration"
TRIALS: Final = 15  # half of a tune's usual number: the known configurations come first
BUDGET_SECONDS: Final = 90.0  # if the time of the tune is not known
AS_BEFORE: Final = -1.0  # a budget that follows the tune's
KNOWN: Final = 3  # the most known configurations, of this machine and of others, that a retune tries before new ones


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The condition for a retune: always, unless one of the first two is set."""

    stale: bool = False  # if the profile does not fit this machine and workload any more, by fingerprints and age
    drifted: bool = False  # if the pipeline, measured again for some 30 s, is slower than it was
    dry_run: bool = False  # only report whether it would retune

    @property
    def always(self) -> bool:
        return not (self.stale or self.drifted)

    def measures(self, judged: Result) -> bool:
        """Return True if the pipeline is measured: if asked for, and if only versions of software have changed."""
        return self.drifted or (self.stale and judged.only_software and not self.dry_run)

    def asks_for(self, checked: Result) -> bool:
        return (self.stale and checked.verdict is not Verdict.FITS) or checked.verdict is Verdict.DRIFTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retuned:
    """The result of a retune."""

    checked: Result | None = None  # the check before, if requested; if it fits, nothing was done
    would: bool = False  # a search would have been run, but for a dry run
    result: SearchResult | None = None  # of the search; None if there was none
    profile: schema.Profile | None = None  # this machine's now; None if nothing was written
    kept: bool = False  # the former configuration stays, because no other was proved faster
    converted: bool = False  # the samples that the profile's configuration reads lie converted beside it


def retune(  # noqa: PLR0913  the entry point: what is asked for most, by keyword
    path: str | os.PathLike[str] = artifact.NAME,
    *,
    budget: float | None = AS_BEFORE,
    trials: int | None = None,
    if_stale: bool = False,
    if_drifted: bool = False,
    workload: Workload | str | None = None,
    allow_outside: bool = False,
) -> factory.Tuned:
    """Renew the profile of this machine in an artefact, or add it, and return the tuned pipeline.

    If nothing can be measured, the present profile is used, with a warning that gives the reason.

    Args:
        path: the artefact, which is written again, or its folder.
        budget: seconds, the confirmation run included; None for no limit. The default is three quarters of the tune's.
        trials: the most trials; the default is half of the tune's.
        if_stale: do nothing unless the profile does not fit this machine and workload any more.
        if_drifted: measure for some 30 s first, and do nothing unless the pipeline is slower than it was. With
            `if_stale`, one of both is enough.
        workload: the workload, in place of the one that the artefact names; or "train.py:workload", which the artefact
            names from then on.
        allow_outside: trust everything that the artefact names; see `ap.load`.

    Raises:
        ConfigError: `workload` is no workload.
        ArtifactError: the file is no artefact, or its workload cannot be found.
        WorkloadError: the workload cannot be imported or run.
        SearchInterruptedError: Ctrl-C ended the search before anything to use was measured.

    Example:
        >>> ap.retune("autopipe.json", if_stale=True).make_trainer().fit(epochs=3)  # doctest: +SKIP
    """
    passed: object = workload
    if not isinstance(passed, Workload | str | None):
        raise unfit("workload", passed, "an ap.Workload, the name of one, or None", 'Such as "train.py:workload".')
    stored = artifact.stored(artifact.located(path), workload=workload, allow_outside=allow_outside)
    told = {"budget_seconds": budget != AS_BEFORE, "trials": trials is not None}
    given = [name for name in told if told[name]]
    settings = Settings(
        trials=TRIALS if trials is None else trials, budget_seconds=BUDGET_SECONDS if budget == AS_BEFORE else budget
    )
    done = run(stored, settings, Watcher(), when=When(stale=if_stale, drifted=if_drifted), given=given)
    if done.profile is None and done.result is not None:
        error = nothing_measured(done.result)
        if done.result.interrupted:
            raise error
        said = f"The retune of `{stored.path}` failed, so the present profile is used: {error}"
        warnings.warn(said, factory.ProfileWarning, stacklevel=2)
    named = stored.workload if isinstance(stored.workload, Workload) else stored.workload.text
    return factory.load(stored.path, workload=named, shown=profile_report.piece)


def run(
    stored: Stored, settings: Settings, watcher: Watcher, *, when: When | None = None, given: Collection[str] = ()
) -> Retuned:
    """Run a retune if `when` asks for it (by default always), and write the artefact if there is anything new.

    The study's name and first configurations are set here. `given` names settings and limits to use as they are; the
    others come from the tune that made the profile of this machine, or of the nearest one. A `mode` or an accelerator
    to `simulate` that is given says which of a machine's profiles is renewed, the training's by default. Raises
    WorkloadError if the workload cannot be imported or run, and ArtifactError if the artefact cannot be written.
    """
    when = when or When()
    # Importing the workload is part of it, and waiting for another tune is not.
    began = time.monotonic() if settings.began is None else settings.began
    searching.refuse_in_trial()
    there = machine.detect()
    settings = _as_before(stored, settings, given, there)
    asked = settings.mode, settings.simulate
    require_possible(settings)
    watcher.on_request(settings)
    space = searching.read_space(settings, there)
    watcher.on_machine(there)
    with searching.runner_for(stored.workload, settings, watcher.on_trial, stored.path.parent) as runner:
        described = searching.description(runner)
        site = searching.Site(machine=there, described=described, space=space, folder=stored.path.parent)
        here, queue = site.hardware, searching.queue_of(watcher.on_search, settings.budget_seconds)
        former, match = pick.nearest(stored.artifact, here, asked)
        checked, is_for_this = None, former.request.asked == asked
        if is_for_this and not when.always:
            checked = check_with(runner, described, former, here, measures=when.measures, queue=queue)
        if checked is not None and not when.asks_for(checked):
            return Retuned(checked=checked)
        if when.dry_run:
            return Retuned(checked=checked, would=True)
        if checked is not None and checked.fits_but_for_software:  # the versions made no difference
            now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
            renewed = _written(stored, former.model_copy(update={"hardware": here, "measured_at": now}))
            return Retuned(checked=checked, profile=renewed, kept=True)
        # The study is named after the profile that it renews: a killed retune continues, one that ended does not.
        of = (here,) if asked == TRAINING else (here, asked)
        own, config, name = None, None, f"retune-{digests.digest(*map(digests.canonical, of))[:8]}"
        if is_for_this and match.level is MatchLevel.SAME:
            own, config = former.winner.key, next(pick.readable([former.winner.config]), None)
            name = f"retune-{former.measured_at:%Y-%m-%dT%H:%M:%S}"
        elsewhere = best_elsewhere(settings.storage, searching.workload_key(described))
        known = [each for each in pick.warm_start(stored.artifact, here, elsewhere) if each.key() != own][:KNOWN]
        settings = dataclasses.replace(settings, began=began + queue.seconds, study_name=name, known=known)
        rivals = [] if config is None else [Baseline(name=FORMER, config=config, required=True, incumbent=True)]
        found, settings = searching.search(runner, site, settings, watcher.on_search, rivals=rivals)
    profile = codegen.profile_of(found.result, described, here, settings, retune=True)
    kept = config is not None and (profile is None or profile.winner.key == config.key())
    converted = False
    if profile is not None:
        _written(stored, profile)
        converted = fingerprint.is_beside(stored.path.parent, described, pick.config_of(profile))
    return Retuned(checked=checked, result=found.result, profile=profile, kept=kept, converted=converted)


def _as_before(stored: Stored, settings: Settings, given: Collection[str], there: machine.Machine) -> Settings:
    """Return the settings of the tune that made the profile to renew, except for those that are given."""
    mode, simulate = TRAINING
    asked = settings.mode if "mode" in given else mode, settings.simulate if "simulate" in given else simulate
    here = fingerprint.of_machine(there, keras_backend=gpu.keras_backend())
    return retune_settings(pick.nearest(stored.artifact, here, asked)[0].request, settings, given, stored.path.parent)


def _written(stored: Stored, profile: schema.Profile) -> schema.Profile:
    artifact.renew(stored.artifact, profile, stored.path)
    if stored.given is not None:
        codegen.point(stored.path, stored.given)
    return profile


# -------------------- check: whether the profile still fits, by a short measurement

_DRIFT: JsonObject = {"min_seconds": 5.0, "max_seconds": 12.0}
_AGAIN: JsonObject = {"min_seconds": 3.0, "max_seconds": 6.0}  # in the rounds after the first
_ALONE: JsonObject = {"model_only": True, "again": True}
_LONG_SECONDS: Final = 45.0
"""No further round begins that would last longer; with slow steps the first round, the longest, has to be enough."""


def check(stored: Stored, *, quick: bool, on_search: OnEvent = lambda event: None) -> Result:
    """Check the profile that an artefact has for this machine; with `quick`, compare fingerprints and measure nothing.

    `on_search` hears of a wait for another process that measures on this machine. Raise WorkloadError if the workload
    cannot be imported, and NothingMeasuredError if the configuration no longer runs, or the longest wait has passed.
    """
    profile, _ = pick.nearest(stored.artifact, fingerprint.detect())
    beside = stored.path.parent if os.access(stored.path.parent, os.W_OK) else None  # it may be a share for reading
    with searching.runner_for(stored.workload, simulation(profile.request), folder=beside) as runner:
        described = searching.description(runner)
        here = searching.hardware_of(machine.detect(), described)
        queue = searching.queue_of(on_search)
        profile, _ = pick.nearest(stored.artifact, here)
        return check_with(runner, described, profile, here, measures=lambda judged: not quick, queue=queue)


def check_with(
    runner: TrialRunner,
    described: Description,
    profile: schema.Profile,
    here: Hardware,
    *,
    measures: Callable[[Result], bool] = lambda judged: True,
    queue: Queue | None = None,
) -> Result:
    """Check the profile for this machine, which is `here`, with an existing runner. `measures` decides by what the
    fingerprints say whether the pipeline is measured.
    """
    result = drift.judge(profile, here, datetime.datetime.now(datetime.UTC), searching.workload_digest(described))
    if result.profile is None or not measures(result):  # without a profile there is no figure to compare with
        return result
    config = pick.config_of(profile)
    with (queue or Queue(lambda who: None)).held(lock.MEASURING):
        return drift.with_rates(result, profile, _rates(runner, config))


def _rates(runner: TrialRunner, config: PipelineConfig) -> Rates:
    """Measure the model alone and the pipeline alternately, so that a change of the machine's speed affects both."""
    began = time.monotonic()
    rounds = [_round(runner, config, _DRIFT)]
    took = time.monotonic() - began
    while len(rounds) < FEWEST_PAIRS and time.monotonic() - began + took < _LONG_SECONDS:
        at = time.monotonic()
        try:
            rounds.append(_round(runner, config, _AGAIN))
        except NothingMeasuredError:  # after a temporary failure, the first round is still valid
            break
        took = time.monotonic() - at
    return Rates.by_turns(rounds)


def _round(runner: TrialRunner, config: PipelineConfig, seconds: JsonObject) -> tuple[Estimate, Estimate]:
    """Return images/s of the pipeline and of the model alone, which runs first."""
    alone = succeeded(runner.ceiling(config.model_setup, _ALONE))
    return succeeded(runner.measure(config, seconds)).images_per_second, alone.model_images_per_second
