"""Tunes a workload; makes or renews this machine's profile in an artifact, from known configurations; and checks one.

For a check, the winner, what came next to it and the model alone are measured by turns. A retune ends there if that
order holds. Otherwise it searches, and the former configuration stays unless another is proved faster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, Unpack

from autopipe.api import request
from autopipe.artifact import artifact, codegen, converting, drift, factory, pick, reference, schema
from autopipe.artifact.artifact import Stored
from autopipe.artifact.drift import Rates, Result, Verdict
from autopipe.errors import ArtifactError, NothingMeasuredError
from autopipe.hardware import gpu, machine
from autopipe.measure import fingerprint
from autopipe.measure.facts import Description
from autopipe.measure.fingerprint import Hardware, MatchLevel
from autopipe.measure.outcome import TrialFailure
from autopipe.measure.stats import FEWEST_PAIRS
from autopipe.measure.trial import workload_import
from autopipe.measure.trial.child import Log
from autopipe.measure.trial.forkserver import ForkServer
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.reports import notebook, profile_report, tables
from autopipe.reports.answer import Answer
from autopipe.search import lock, searching
from autopipe.search import settings as asking
from autopipe.search.lock import Queue
from autopipe.search.measurer import PROOF, Baseline, succeeded
from autopipe.search.record import best_elsewhere
from autopipe.search.result import OnEvent, nothing_measured
from autopipe.search.result import Result as SearchResult
from autopipe.search.searching import Watcher
from autopipe.search.settings import TRAINING, Settings, retune_settings, simulation
from autopipe.values import Estimate, JsonObject
from autopipe.workload import digests
from autopipe.workload.workload import Workload


@request.refusing_unknown(request.usual)
def tune(
    workload: Workload | str, *, on_event: OnEvent | None = None, **search: Unpack[request.Search]
) -> factory.Tuned:
    """Search for the fastest way to feed a workload on this machine, and return it with its evidence.

    The trials run in child processes, to which a workload object travels by cloudpickle: everything that its functions
    use must be importable or picklable. A script that calls this needs no main guard if it passes the object; one that
    passes its own file as "train.py:workload" does.

    Args:
        workload: a `Workload`, or its name: "train.py:workload" or "package.module:workload". Or a dataset of batches,
            or a function that makes one, as `ap.wrap` takes it.
        on_event: gets the events of `autopipe.search.result`. In a notebook, the default shows a picture of all trials
            so far.
        budget: seconds, or "2m", with the confirmation run; None for no limit. The default is two minutes.
        baseline: your own pipeline, which the winner has to beat: "FILE.py:function", or a function in a file, which
            returns a tf.data.Dataset, a keras.utils.PyDataset or a pair of arrays (x, y).
        epochs: spread one-time costs over so many epochs; None: over none.
        only: allowed values of parameters, e.g. `{"loader": ("threads",)}`, or one value: `{"keep": "none"}`.
        mode: "train"; "evaluate" and "predict" tune for serving: the model evaluates or predicts the samples once, in
            order and without chance, as `make_trainer().predict(samples)` does.
        space: the name of a shipped search space, or a YAML file.
        trials: the most trials; 30.
        max_memory: the most memory that the training may take: bytes, or "8G".
        max_workers: the most workers that the loader may have.
        convert: try other storage forms; None: they can win if `epochs` is given.
        simulate_step: an accelerator in place of the model, by its time a step: "15ms".
        virtual_devices: split the CPU into so many devices.
        page_cache: "warm", "cold" or "auto": whether trials read files from memory or from disk.
        storage: an Optuna storage URL such as "sqlite:///study.db"; None keeps the study in memory.
        seed: of everything random in the search.
        fresh: begin a new study instead of continuing one in the storage.

    Returns:
        The tuned pipeline; `.study` is the Optuna study.

    Raises:
        ConfigError: an argument is impossible.
        WorkloadError: the workload cannot be imported or run.
        NothingMeasuredError: no configuration could be measured. If Ctrl-C was the reason, it is a
            SearchInterruptedError. Later, Ctrl-C ends the search with the best so far.
        TrialError: this is called inside a trial, or the study is another workload's.
        SpaceError: the search space cannot be read, or holds nothing that can run here.

    Examples:
        >>> tuned = ap.tune(workload, budget=120)       # doctest: +SKIP
        >>> tuned.save("autopipe.json")                 # doctest: +SKIP
    """
    passed: object = workload
    if (made := request.wrapped(passed)) is not None:
        passed = workload = made
    if not isinstance(passed, Workload | str):
        hint = 'Pass the object, or its name: "train.py:workload".'
        raise request.unfit("workload", workload, "an ap.Workload or the name of one", hint)
    listener: object = on_event
    if not (listener is None or callable(listener)):
        hint = "It is called with each event, as by on_event=print."
        raise request.unfit("on_event", on_event, "a function, or None", hint)
    told = [f"{name}={value!r}" for name, value in search.items() if name != "storage"]  # which may hold a password
    called = ", ".join([repr(workload) if isinstance(workload, str) else "workload", *told])
    settings = request.settings_of(search, command=f"ap.tune({called})")
    on_event = on_event or notebook.progress(settings.budget_seconds)
    result, tuned = run(workload, settings, Watcher() if on_event is None else Watcher(on_search=on_event))
    if tuned is None:
        raise nothing_measured(result)
    return tuned


def run(
    workload: Workload | str,
    settings: Settings,
    watcher: Watcher,
    *,
    named: schema.Reference | None = None,
    folder: Path | None = None,
) -> tuple[SearchResult, factory.Tuned | None]:
    """Run a tune. `named` is the source of a workload that a command made; `folder` is for converted samples."""
    if settings.began is None:  # importing the workload is part of it
        settings = dataclasses.replace(settings, began=settings.clock())
    searching.refuse_in_trial()
    folder = folder or Path.cwd()
    here = machine.detect()
    space = searching.read_space(settings, here)
    watcher.on_machine(here)
    with ForkServer() as server, searching.runner_for(workload, settings, watcher.on_trial, folder, server) as runner:
        site = searching.Site.of(runner, here, space, folder, watcher)
        if not isinstance(workload, Workload):  # before anything is measured: an artifact may not be able to name it
            named = reference.parse(workload)
        found, asked = searching.search(runner, site, settings, watcher.on_search)
    if (profile := codegen.profile_of(found.result, site.described, site.hardware, asked)) is None:
        return found.result, None
    source = workload if isinstance(workload, Workload) else functools.partial(workload_import.load_workload, workload)
    return found.result, factory.of_profile(profile, source, named=named, study=found.study, shown=profile_report.piece)


# -------------------- retune

FORMER: Final = "the former configuration"
TRIALS: Final = 15  # half of a tune's usual number: the known configurations come first
BUDGET_SECONDS: Final = 90.0  # if the time of the tune is not known
_FIRST: Final = "It first measures the winner again, by turns with what came next to it, for some 20 s."
KNOWN: Final = 3  # the most known configurations, of this machine and of others, that a retune tries before new ones


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The condition for a retune: always, unless one of the first two is set."""

    stale: bool = False  # if the profile does not fit this machine and workload any more, by fingerprints and age
    drifted: bool = False  # if the pipeline, measured again for some 20 s, is slower than it was
    dry_run: bool = False  # only report whether it would retune

    @property
    def always(self) -> bool:
        return not (self.stale or self.drifted)

    def measures(self, judged: Result) -> bool:
        may_hold = judged.is_comparable and (self.always or judged.verdict is not Verdict.FITS)
        return self.drifted or (may_hold and not self.dry_run)

    def asks_for(self, checked: Result) -> bool:
        is_stale = self.stale and checked.verdict is not Verdict.FITS
        return self.always or is_stale or checked.verdict is Verdict.DRIFTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retuned:
    """The result of a retune."""

    checked: Result | None = None  # the check before, if requested; if it fits, nothing was done
    would: bool = False  # a search would have been run, but for a dry run
    result: SearchResult | None = None  # of the search; None if there was none
    profile: schema.Profile | None = None  # this machine's now; None if nothing was written
    kept: bool = False  # the former configuration stays, because no other was proved faster
    converted: bool = False  # the samples that the profile's configuration reads lie converted beside it


@request.refusing_unknown(lambda name: request.AS_TUNED)
def retune(
    path: str | os.PathLike[str] | None = None,
    *,
    if_stale: bool = False,
    if_drifted: bool = False,
    workload: Workload | str | None = None,
    allow_outside: bool = False,
    **search: Unpack[request.Search],
) -> factory.Tuned:
    """Renew the profile of this machine in an artifact, or add it, and return the tuned pipeline.

    If the profile is of this machine and workload, its winner is first measured again by turns with what came next to
    it, for some 20 s; it stays, and nothing is searched, if it is as fast as it was and still ahead. If nothing can be
    measured, the present profile is used, with a warning that gives the reason.

    Args:
        path: the artifact, which is written again, or its folder; None: that of `tuned/`.
        if_stale: do nothing unless the profile does not fit this machine and workload any more.
        if_drifted: measure for some 20 s first, and do nothing unless the pipeline is slower than it was. With
            `if_stale`, one of both is enough.
        workload: the workload, in place of the one that the artifact names; or "train.py:workload", which the artifact
            names from then on.
        allow_outside: trust everything that the artifact names; see `ap.load`.
        search: options of the search, as `ap.tune` takes them. What is left out is as it was in the tune, but for half
            of its trials and three quarters of its time.

    Raises:
        ConfigError: an argument is impossible.
        ArtifactError: the file is no artifact, its workload cannot be found, or its folder cannot be written to.
        WorkloadError: the workload cannot be imported or run.
        SearchInterruptedError: Ctrl-C ended the search before anything to use was measured.

    Examples:
        >>> ap.retune("autopipe.json", if_stale=True).make_trainer().fit(epochs=3)  # doctest: +SKIP
    """
    stored = artifact.stored(artifact.located(path), workload=_named(workload), allow_outside=allow_outside)
    settings = request.settings_of(request.Search(**{"trials": TRIALS, "budget": BUDGET_SECONDS, **search}))
    given = request.fields_of(search)
    done = rerun(stored, settings, Watcher(), when=When(stale=if_stale, drifted=if_drifted), given=given)
    if done.profile is None and done.result is not None:
        error = nothing_measured(done.result)
        if done.result.interrupted:
            raise error
        said = f"The retune of `{stored.path}` failed, so the present profile is used: {error}"
        warnings.warn(said, factory.ProfileWarning, stacklevel=2)
    named = stored.workload if isinstance(stored.workload, Workload) else stored.workload.text
    return factory.load(stored.path, workload=named, shown=profile_report.piece)


def _named(workload: object) -> Workload | str | None:
    if not isinstance(workload, Workload | str | None):
        hint = 'Such as "train.py:workload".'
        raise request.unfit("workload", workload, "an ap.Workload, the name of one, or None", hint)
    return workload


def rerun(
    stored: Stored, settings: Settings, watcher: Watcher, *, when: When | None = None, given: Collection[str] = ()
) -> Retuned:
    """Run a retune if `when` asks for it, and write the artifact if there is anything new. `given` names settings and
    limits to use as they are; the others come from the tune that made this machine's profile, or the nearest one. A
    `mode` or an accelerator that is given says which profile is renewed. Raises WorkloadError and ArtifactError.
    """
    when = when or When()
    # Importing the workload is part of it, and waiting for another tune is not.
    began = settings.clock() if settings.began is None else settings.began
    searching.refuse_in_trial()
    there = machine.detect()
    told = settings.mode if "mode" in given else TRAINING[0], settings.simulate if "simulate" in given else None
    settings = retune_settings(_nearest(stored, there, told).request, settings, given, stored.path.parent)
    asked = settings.mode, settings.simulate
    if when.always and not when.dry_run:
        _require_writable(stored.path.parent)
    watcher.on_request(settings)
    space = searching.read_space(settings, there)
    watcher.on_machine(there)
    guess = _nearest(stored, there, asked)
    repeats = when.drifted or (when.always and not when.dry_run and not _asks_for_more(guess.request, settings))
    with (
        ForkServer() as server,
        searching.runner_for(stored.workload, settings, watcher.on_trial, stored.path.parent, server) as runner,
        Processes(runner) as processes,
    ):
        if repeats:
            watcher.on_trial(Log(text=_FIRST))
            processes.begin(guess)
        site = searching.Site.of(runner, there, space, stored.path.parent, watcher)
        here, queue = site.hardware, searching.queue_of(watcher.on_search, settings.budget_seconds)
        former, match = pick.nearest(stored.artifact, here, asked)
        checked, is_for_this = None, former.request.asked == asked
        if is_for_this and not (when.always and _asks_for_more(former.request, settings)):
            with contextlib.suppress(*([NothingMeasuredError] if when.always else [])):  # it runs no more: others may
                checked = check_with(processes, site.described, former, here, measures=when.measures, queue=queue)
        processes.close()
        if checked is not None and not when.asks_for(checked):
            return Retuned(checked=checked)
        if when.dry_run:
            return Retuned(checked=checked, would=True)
        if checked is not None and checked.holds:
            now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
            renewed = former.model_copy(update={"hardware": here, "measured_at": now})
            return Retuned(checked=checked, profile=_written(stored, renewed), kept=True)
        _require_writable(stored.path.parent)
        if checked is not None and checked.rows:  # it has measured
            watcher.on_trial(Log(text=f"It searches, because {'; '.join(checked.reasons)}."))
        same = is_for_this and match.level is MatchLevel.SAME
        config = next(pick.readable([former.winner.config]), None) if same else None
        settings = _study(stored, former, site, dataclasses.replace(settings, began=began + queue.seconds), same=same)
        rivals = [] if config is None else [Baseline(name=FORMER, config=config, required=True, incumbent=True)]
        found, settings = searching.search(runner, site, settings, watcher.on_search, rivals=rivals)
    return _concluded(stored, site, settings, found.result, config, checked)


def _concluded(
    stored: Stored,
    site: searching.Site,
    settings: Settings,
    result: SearchResult,
    former: PipelineConfig | None,
    checked: Result | None,
) -> Retuned:
    profile = codegen.profile_of(result, site.described, site.hardware, settings, retune=True)
    kept = former is not None and (profile is None or profile.winner.key == former.key())
    if profile is None:
        return Retuned(checked=checked, result=result, kept=kept)
    _written(stored, profile)
    converted = converting.is_beside(stored.path.parent, site.described, pick.config_of(profile))
    return Retuned(checked=checked, result=result, profile=profile, kept=kept, converted=converted)


def _require_writable(folder: Path) -> None:
    """Raise ArtifactError if a search would be for nothing, as its profile could not be written."""
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "Make it writable, or retune a copy of the artifact elsewhere."
        raise ArtifactError(f"The artifact's folder must be writable, but {str(folder)!r} is not.", hint=hint)


def _study(stored: Stored, former: schema.Profile, site: searching.Site, settings: Settings, *, same: bool) -> Settings:
    """Return settings with the study's name, so that a killed retune continues, and what is tried first."""
    asked, here, own = (settings.mode, settings.simulate), site.hardware, former.winner.key
    of = (here,) if asked == TRAINING else (here, asked)
    name = f"{former.measured_at:%Y-%m-%dT%H:%M:%S}" if same else digests.digest(*map(digests.canonical, of))[:8]
    elsewhere = best_elsewhere(settings.storage, searching.workload_key(site.described))
    known = [each for each in pick.warm_start(stored.artifact, here, elsewhere) if not same or each.key() != own]
    return dataclasses.replace(settings, study_name=f"retune-{name}", known=known[:KNOWN])


def _nearest(stored: Stored, there: machine.Machine, asked: asking.Asked) -> schema.Profile:
    here = fingerprint.of_machine(there, keras_backend=gpu.keras_backend())
    return pick.nearest(stored.artifact, here, asked)[0]


def _asks_for_more(before: asking.Request, settings: Settings) -> bool:
    limits = {"trials": before.trials, "budget_seconds": before.budget_seconds}
    return asking.request_of(settings, retune=True).model_copy(update=limits) != before


def _written(stored: Stored, profile: schema.Profile) -> schema.Profile:
    artifact.renew(stored.artifact, profile, stored.path)
    if stored.given is not None:
        codegen.point(stored.path, reference.parse(stored.given))
    return profile


# -------------------- check: whether the profile still fits, by a short measurement

_ALONE: JsonObject = {"model_only": True, "again": True}
_BEHIND: Final = 0.9  # of the winner's rate: what makes less in a round does not run again
_LONG_SECONDS: Final = 20.0  # no further round begins that would last longer; with slow steps one has to be enough
# The same, as long as what was measured speaks against the profile: other programs may have disturbed a round.
_DOUBTFUL_SECONDS: Final = 60.0


def check(
    path: str | os.PathLike[str] | None = None,
    *,
    quick: bool = False,
    workload: Workload | str | None = None,
    allow_outside: bool = False,
    on_event: OnEvent = lambda event: None,
) -> Answer[Result]:
    """Check whether the profile that an artifact has for this machine still fits.

    Args:
        path: the artifact, or its folder; None: that of `tuned/`.
        quick: compare fingerprints, and measure nothing.
        workload: the workload, or "train.py:workload", in place of the one that the artifact names.
        allow_outside: trust everything that the artifact names; see `ap.load`.
        on_event: hears of a wait for another process that measures on this machine.

    Raises:
        ArtifactError: the file is no artifact, or its workload cannot be found.
        WorkloadError: the workload cannot be imported or run.

    Examples:
        >>> ap.check("tuned", quick=True).figures.verdict       # doctest: +SKIP
    """
    stored = artifact.stored(artifact.located(path), workload=_named(workload), allow_outside=allow_outside)
    profile, _ = pick.nearest(stored.artifact, fingerprint.detect())
    beside = stored.path.parent if os.access(stored.path.parent, os.W_OK) else None  # it may be a share for reading
    with (
        searching.runner_for(stored.workload, simulation(profile.request), folder=beside) as runner,
        Processes(runner) as processes,
    ):
        if not quick:
            processes.begin(profile)
        described = searching.description(runner)
        here = searching.hardware_of(machine.detect(), described)
        queue = searching.queue_of(on_event)
        profile, _ = pick.nearest(stored.artifact, here)
        result = check_with(processes, described, profile, here, measures=lambda judged: not quick, queue=queue)
    return Answer(result, tables.fitness(result))


class Processes(contextlib.ExitStack):
    """The process of a workload, whose owner ends it, and those of foreign code beside it, which end here."""

    def __init__(self, runner: TrialRunner) -> None:
        super().__init__()
        self.runner = runner
        self._theirs: dict[str, TrialRunner] = {}

    def begin(self, profile: schema.Profile) -> None:
        """Start all that a check of the profile needs, side by side: importing a framework takes seconds."""
        self.runner.begin()
        for config, _ in pick.contenders(profile):
            self.of(config)

    def of(self, config: PipelineConfig) -> TrialRunner:
        if not config.loader.is_foreign:
            return self.runner
        if (code := str(config.loader.model_dump()["code"])) not in self._theirs:
            self._theirs[code] = self.enter_context(searching.foreign_runner(self.runner, code))
            self._theirs[code].begin()
        return self._theirs[code]


def check_with(
    processes: Processes,
    described: Description,
    profile: schema.Profile,
    here: Hardware,
    *,
    measures: Callable[[Result], bool] = lambda judged: True,
    queue: Queue | None = None,
) -> Result:
    """Check a profile for this machine, `here`; `measures` says by fingerprints whether to measure."""
    result = drift.judge(profile, here, datetime.datetime.now(datetime.UTC), described.digest)
    if result.profile is None or not measures(result):  # without a profile there is no figure to compare with
        return result
    with (queue or Queue(lambda who: None)).held(lock.MEASURING):
        configs = [pick.config_of(profile), *(config for config, _ in pick.contenders(profile))]
        runners = [processes.of(each) for each in configs]
        for each in runners[1:]:
            each.start()  # nothing is measured beside an import; a failure happens again in its trial
        judged, noise = result, drift.noise(profile)
        for rounds, rivals, seconds in _rounds(configs, runners, profile):
            judged, doubtful = (
                drift.with_rates(result, profile, Rates.by_turns(rounds, rivals, each)) for each in (noise, noise / 2)
            )
            if seconds >= (_DOUBTFUL_SECONDS if doubtful.verdict is Verdict.DRIFTED else _LONG_SECONDS):
                break
        return judged


_Rounds: TypeAlias = list[tuple[Estimate, Estimate]]  # images/s of the pipeline and of the model alone in each round


def _rounds(
    configs: Sequence[PipelineConfig], runners: Sequence[TrialRunner], profile: schema.Profile
) -> Iterator[tuple[_Rounds, Mapping[str, list[Estimate]], float]]:
    """Measure the model alone and all configurations by turns. Yield after each round all rounds, the rates of all but
    the first by name, and the seconds once another has run.
    """
    began, rounds = time.monotonic(), _Rounds()
    rivals: dict[str, list[Estimate]] = {}
    running = list(zip(configs[1:], runners[1:], strict=True))
    options, ceiling = dict[str, JsonObject](), profile.result.ceiling
    for config in configs:  # trials as long as the proof's, whose noise is known
        options[config.key()] = PROOF
        if ceiling is not None and ceiling.loader_images_per_second is not None:  # measured by the tune, and not again
            made = ceiling.made_in_time(config, profile.hardware.cores)
            options[config.key()] = {**PROOF, "makes_images_per_second": made}
    while len(rounds) < FEWEST_PAIRS:
        at = time.monotonic()
        try:
            alone = succeeded(runners[0].ceiling(configs[0].model_setup, _ALONE)).model_images_per_second
            both = succeeded(runners[0].measure(configs[0], options[configs[0].key()])).images_per_second
            rounds.append((both, alone))
        except NothingMeasuredError:  # after a temporary failure, the first round is still valid
            if not rounds:
                raise
            return
        for pair in list(running):
            answer = pair[1].measure(pair[0], options[pair[0].key()])
            rate = None if isinstance(answer, TrialFailure) else answer.images_per_second
            if rate is not None:
                rivals.setdefault(pair[0].short(), []).append(rate)
            if rate is None or rate.high < _BEHIND * rounds[-1][0].value:
                running.remove(pair)
        now = time.monotonic()
        yield rounds, rivals, now - began + now - at
