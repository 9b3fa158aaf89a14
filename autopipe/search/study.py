"""The search from beginning to end: the model alone, a race, trials with a reason of their own, the confirmation run;
and the rules that end it.

The race (`autopipe.search.race`) finds the configuration to use; the rest proves it, against the baselines and beside
the model alone. A sampler of Optuna's is asked beyond the race where a space has more to try. Each trial runs before
the next is requested, so it may depend on the earlier ones, and a study is resumable after any crash.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from optuna.samplers import TPESampler

from autopipe.measure import costs
from autopipe.measure.bottleneck import MODEL_SHARE
from autopipe.measure.facts import Ceiling, Facts
from autopipe.measure.outcome import FEWEST_STEPS, StopRule, TrialFailure
from autopipe.measure.stats import EQUAL, REPEATABILITY, log_variance
from autopipe.pipeline.config import Kept, ModelSetup, PipelineConfig
from autopipe.search import conclusion, confirmation, feasible, result
from autopipe.search.conclusion import Searched
from autopipe.search.measurer import MOST_OF_OTHERS, Baseline, Measurer
from autopipe.search.race import Race
from autopipe.search.record import Point, open_record
from autopipe.search.result import AskedBy, Asker, BudgetPlanned, OnEvent, Reason, Stop
from autopipe.search.session import Session, devices_for, first_ceiling, setup_for
from autopipe.search.settings import Settings
from autopipe.search.space import Space
from autopipe.values import Estimate, count_text

_ENOUGH = 1.2  # times what the model takes: a loader that makes more is no better
_RACED: Final = ("default", "quick")  # spaces in which nothing is left to try after the race

Asked: TypeAlias = tuple[PipelineConfig, AskedBy]
"""A trial and its reason."""


# -------------------- the order of a search


def run(
    space: Space, measurer: Measurer, facts: Facts, settings: Settings, on_event: OnEvent = lambda event: None
) -> Searched:
    """Find the fastest configuration of a space, and prove it; `winner` is None if none could be measured.

    An existing study is resumed. Ctrl-C ends the search, with the result so far. `on_event` gets the events of
    `autopipe.search.result`. Raises SpaceError if nothing in the space can run here, and TrialError if the study is of
    another workload, machine or space, or its storage cannot be used.
    """
    facts = replace(facts, limits=settings.limits)
    trimmed = feasible.trim(space, facts)
    on_event(result.SpaceTrimmed(candidates=trimmed.space.count(), left_out=trimmed.left_out))
    record = open_record(
        settings.storage,
        settings.study_name,
        digests={**settings.digests, "space": _space_text(trimmed.asked)},
        fresh=settings.fresh,
        on_lost=lambda reason: on_event(result.StorageLost(reason=reason)),
    )
    session = Session(trimmed, measurer, facts, settings, record, on_event)
    tried = [row for row in record.rows() if row.origin.asker is not Asker.BASELINE]  # baselines that failed run again
    failed = sum(isinstance(row.outcome, TrialFailure) for row in tried)
    on_event(result.StudyOpened(name=settings.study_name, resumed=len(record.rows()), failed=failed))
    try:
        return Search(session).run()
    finally:
        record.close()


class Search:
    """One search: what it tries in order, and the rules that end it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._entered: list[Point] = []
        self._most_for_confirmation = self._race_ends = math.inf  # seconds
        self._read_again = 0  # times that the model alone was, because a training was faster

    def run(self) -> Searched:
        session = self._session
        try:
            session.baselines = tuple(session.measurer.baselines())
            stop = self._search()
            session.on_event(stop)
            self._confirm(stop)
            stop = self._seen_again(stop)
        except KeyboardInterrupt:
            stop = self._interrupted()
            session.on_event(stop)
        proved = confirmation.judge(session, self._entered) if self._entered else None
        return conclusion.result(session, stop, proved)

    def _interrupted(self) -> Stop:
        message = "Interrupted: this is the best so far."
        if self._session.best() is None:
            message = "Interrupted before anything to use was measured."
        return Stop(reason=Reason.INTERRUPTED, message=message)

    def _search(self) -> Stop:
        session = self._session
        self._measure_ceilings()
        if (plan := self._plan()) is not None:
            session.on_event(plan)
        while session.record.waiting():  # enqueued by the user
            session.run_next()
        wrapped = session.facts.workload.wrapped is not None
        if wrapped:  # what there is comes before any change of it
            session.run_each(self._baselines(1), self._used_up)
        else:  # without what stays unless another is proved faster, all others would be measured for nothing
            former = [each for each in session.baselines if each.incumbent]
            session.run_each((each.config, AskedBy(Asker.BASELINE, each.name)) for each in former)
        session.run_each((each, AskedBy(Asker.KNOWN)) for each in session.settings.known if session.allowed(each))
        stop = self._race_loaders() if session.races_loaders else self._race_trainings()
        if not wrapped:
            best = session.best()
            devices = 1 if best is None else best.config.devices
            session.run_each(self._baselines(devices))
        if stop.reason is not Reason.TIME:
            session.run_each(_advice(session), self._over)
        return self._beyond() or self._over() or stop

    def _baselines(self, devices: int) -> Iterator[Asked]:
        """Yield each baseline that can run, on as many devices as the best has unless it is the user's own: the user's,
        then those that keep samples where the best does. If time is short only the required ones, or else the first.
        Those beyond it have half of the time beside the confirmation run.
        """
        session, able = self._session, [each for each in self._session.baselines if each.unable is None]
        kept = None if (best := session.best()) is None else best.config.kept.in_memory
        proof = 3 * session.trial_seconds() * self._settings.blocks[0]  # of ours, a rival, and one for safety, at least
        began, most = session.seconds(), (session.seconds_left() - proof) / 2
        able.sort(key=lambda each: (not each.required, each.config.kept.in_memory is not kept))
        for number, baseline in enumerate(able):
            if session.is_out_of_time:
                return
            used_up = len(session.ended_rows()) >= self._settings.trials
            late = session.is_short() or used_up or (number > 0 and session.seconds() - began > most)
            if number == 0 or baseline.required or not late:  # a proof is worth more than one more comparison
                there = _on(baseline, devices, session)
                yield (there.config, AskedBy(Asker.BASELINE, there.name))

    def _race(self, *, by_trial: bool) -> Race:
        session = self._session
        race = Race(
            space=session.trimmed.space,
            cores=session.facts.cores,
            reads=session.facts.reads_at_once,
            workers=session.facts.workers_at_once,
            allowed=lambda config: session.why_not(config) is None,
            measure=session.raced_by_trial if by_trial else session.loader_alone,
            cost=lambda config: confirmation.cost(
                config, cores=session.facts.cores, memory_bytes=costs.memory_bytes(config, session.facts.workload)
            ),
            over=self._race_over if by_trial else lambda: session.seconds() >= self._race_ends,
        )
        if not race.usuals():  # all that was asked for brings nothing: it is tried anyway
            session.facts = session.facts.with_pointless
        return race

    def _race_loaders(self) -> Stop:
        """Race loaders without the model, and try the best with it, on the fewest devices that take what it makes."""
        session, race = self._session, self._race(by_trial=False)
        for _ in range(2):  # once more if the model alone was read too low at first
            one = session.ceilings[0]
            most = max([one.setup.devices, *(each for each in session.counts if isinstance(each, int))])
            race.enough = _ENOUGH * one.model_images_per_second.value * most / one.setup.devices
            race.of_loaders()
            if (best := race.best()) is None:  # the trials of the model will say why
                return self._race_trainings()
            setup = one.setup._replace(devices=devices_for(session, best[1]))
            if best[1] >= (session.known_alone(setup) or 0.0):
                setup = setup_for(session, setup)
            taken = session.known_alone(setup) or one.model_images_per_second.value
            race.enough = _ENOUGH * taken
            race.fewer()
            self._try(race, setup, taken)
            if not self._reads_again():
                break
        return self._over() or _compared(
            race, f"{len(race.table)} loaders were compared without the model; no other was faster."
        )

    def _try(self, race: Race, setup: ModelSetup, taken: float) -> None:
        """Run trials of the best loader of a race and, if it makes less than the model has `taken`, of near ones."""
        ranked = race.ranked()
        unlike = {(each.loader.kind, each.keep): (each, rate) for each, rate in reversed(ranked)}
        first, top = ranked[0]
        for config, rate in sorted(unlike.values(), key=lambda each: (each[0].key() != first.key(), -each[1])):
            near = top < taken and rate >= 0.9 * top
            if self._has_found() and not (near and self._over() is None):
                break
            self._run_within_limits(race, config.model_copy(update=setup._asdict()))

    def _run_within_limits(self, race: Race, config: PipelineConfig) -> None:
        """Run a trial of a configuration and, while that breaks a limit and nothing else can be used, of less."""
        session, less = self._session, [config]
        while less:
            session.run_each([(less[0], AskedBy(Asker.RACE))])
            if less[0].key() not in session.points() or self._has_found() or self._used_up() is not None:
                return
            less = [each for each in race.cheaper(less[0]) if each.key() not in session.tried()]

    def _has_found(self) -> bool:
        """Whether anything to use has run but for what an artifact knew before."""
        session = self._session
        former = {each.config.key() for each in session.baselines if each.incumbent}
        former |= {row.key for row in session.ended_rows() if row.origin.asker is Asker.KNOWN}
        return any(point.feasible and key not in former for key, point in session.points().items())

    def _race_trainings(self) -> Stop:
        """Race by trials of the model, as it shares the cores with the loader."""
        session, race = self._session, self._race(by_trial=True)
        known = session.best()
        usable = known is not None and not known.config.loader.is_foreign
        first = known.config if known is not None and usable else self._fastest_alone()
        race.of_trainings(first, self._fastest_alone)
        for each in [] if race.table else race.usuals():
            if each.key() in session.points() and session.best() is None:  # it broke a limit
                self._run_within_limits(race, each)
        best = session.best()
        if best is not None and not race.table:
            race.of_trainings(best.config)
            best = session.best()
        if best is not None and not best.config.loader.is_foreign and not race.is_cut:
            devices = devices_for(session, best.estimate.value) if best.config.devices == 1 else best.config.devices
            setup = setup_for(session, best.config.model_setup._replace(devices=devices))
            chosen = best.config.model_copy(update=setup._asdict())
            session.run_each([(chosen, AskedBy(Asker.RACE))], self._used_up)
        stop = self._over()
        if stop is not None and stop.reason is Reason.CEILING and (top := race.best()) is not None:
            session.run_each((each, AskedBy(Asker.RACE, "cheaper")) for each in race.cheaper(top[0]))
        return stop or _compared(race, "Each setting was compared, one after the other; no other value was faster.")

    def _fastest_alone(self) -> PipelineConfig | None:
        """Return the best of a race of loaders if a training leaves most of the cores idle and none has been run."""
        session = self._session
        if session.raced or not session.waits():
            return None
        race = self._race(by_trial=False)
        race.enough = _ENOUGH * session.highest_ceiling().model_images_per_second.value
        race.of_workers()
        race.fewer()
        best = race.best()
        return None if best is None else best[0]

    def _beyond(self) -> Stop | None:
        """Ask Optuna's sampler for what the race left open, in a space that has more to try."""
        session, refused = self._session, 0
        if session.settings.space in _RACED:
            return None
        while (stop := self._over() or self.no_gain()) is None:
            before = len(session.record.rows())
            session.run_next()
            refused = refused + 1 if len(session.record.rows()) == before else 0
            if refused >= 200:  # to all purposes, it has nothing left
                message = f"`tpe` finds nothing more that can run: {refused} refusals in a row."
                return Stop(reason=Reason.EXHAUSTED, message=message)
        return stop

    def _measure_ceilings(self) -> None:
        session = self._session
        found = session.record.ceilings()
        if not found:
            found = [first_ceiling(session)]
            session.record.keep_ceilings(found)
        for ceiling in found:
            session.tell(ceiling)
        session.know_ceilings(found)
        if (useful := session.facts.workers_at_once) is not None:
            fitted = (each.with_workers(useful) if each.with_workers else each for each in session.baselines)
            session.baselines = tuple(fitted)
        # Optuna's own (Bergstra et al., Algorithms for Hyper-Parameter Optimization, NIPS 2011): all that ran is its
        # start, and a resumed study must not draw again what it drew before.
        seed = self._settings.seed + 1_000_003 * len(session.record.rows())
        session.record.study.sampler = TPESampler(multivariate=True, seed=seed)

    def _confirm(self, stop: Stop) -> None:
        session = self._session
        if self._settings.blocks[1] > 0 and session.best() is not None:
            self._entered = confirmation.entered(session)
            if self._entered:
                confirmation.run(session, self._entered)
        best = session.best()
        if best is not None and session.ceilings and session.seconds_left() > session.trial_seconds():
            session.known_alone(best.config.model_setup)

    # ------------------------------------------------------------ the budget, and what ends a search

    def _plan(self) -> BudgetPlanned | None:
        """Divide the remaining time, and return the plan; None without a budget, or if it is used up already."""
        session, budget = self._session, self._settings.budget_seconds
        race = 0.3 if session.races_loaders else 0.5  # of the time that is left; a race of loaders alone needs less
        spent, left = session.seconds(), session.seconds_left()
        self._most_for_confirmation, self._race_ends = left / 2, spent + race * left
        if budget is None or (session.record.rows() and session.is_short()):
            return None
        usual = session.ceilings[0] if session.ceilings else None
        rates = [] if usual is None else [usual.model_images_per_second, usual.loader_images_per_second]
        step = max((session.facts.workload.batch_size / each.value for each in rates if each is not None), default=0.0)
        trial = session.trial_seconds() or max(StopRule().most_seconds, FEWEST_STEPS * step)
        # The first baseline has a process of its own, which takes no longer to start.
        starting = 0.0 if session.trial_seconds() else session.starting_seconds
        return BudgetPlanned(
            budget_seconds=budget,
            spent_seconds=spent,
            trial_seconds=trial,
            trials=int(max(0.0, left - starting) / trial),
            needed_seconds=spent + starting + 2 * trial + self._settings.end_seconds,
            advised_seconds=spent + starting + self._trials_in_confirmation() * trial / (1.0 - race),
        )

    def _race_over(self) -> bool:
        """True if a race by trials ends: its time or trials are used up, or a training reaches the model alone."""
        session = self._session
        if session.is_out_of_time or self._over() is not None:
            return True
        tried = session.tried()
        baselines = sum(each.unable is None and each.config.key() not in tried for each in session.baselines)
        used_up = len(session.ended_rows()) + baselines >= self._settings.trials
        best = session.best()
        ends = self._race_ends  # without anything better than what there is, nothing waits for a proof
        if best is not None and best.key in session.names:
            ends = session.seconds() + session.seconds_left()
        late = session.seconds() + session.trial_seconds() >= ends
        return (used_up or late) and session.beyond_baselines()

    def _over(self) -> Stop | None:
        return self._of_the_best() or self._used_up()

    def no_gain(self) -> Stop | None:
        session, patience = self._session, self._settings.patience
        earlier = {row.key for row in session.ended_rows()[:-patience]}
        known = [each for each in session.points().values() if each.feasible and each.key in earlier]
        before = max(known, key=lambda each: each.value, default=None)
        now = session.best()
        if before is None or now is None:
            return None
        return no_gain_stop(_scored(session, before), _scored(session, now), patience=patience)

    def _of_the_best(self) -> Stop | None:
        """Return a stop if the best reaches the model alone; never where one-time costs count, which may be less."""
        session, best = self._session, self._session.best()
        reads_alone = session.facts.workload.reads_alone
        if best is None or not session.ceilings or session.settings.epochs is not None or reads_alone:
            return None
        self._reads_again()
        if session.highest_ceiling().is_overtaken_by(best.estimate):
            return None
        ceiling, rate = session.highest_ceiling(), best.estimate
        share = needed_share(rate, ceiling, self._settings.reached_share)
        return ceiling_stop(rate, ceiling, share=share)

    def _seen_again(self, stop: Stop) -> Stop:
        """Return the stop as it looks after the confirmation run, in which the model alone may have made far more."""
        session, best = self._session, self._session.best()
        if stop.reason is not Reason.CEILING or best is None:
            return stop
        if best.estimate.value >= MODEL_SHARE * session.highest_ceiling().model_images_per_second.value:
            return stop
        message = (
            "The best reached the rate of the model alone, which has made more since: something slowed it down then."
        )
        return Stop(reason=Reason.NO_GAIN, message=f"{message} Tune again on a quiet machine.")

    def _reads_again(self) -> bool:
        """Measure the model alone again if a training was faster, as other load slows it down; True if it was."""
        session, best, before = self._session, self._session.best(), self._read_again
        while (
            best is not None
            and session.ceilings
            and session.highest_ceiling().is_overtaken_by(best.estimate)
            and self._read_again < 3
        ):
            self._read_again += 1
            session.look_again(best.config.model_setup)
        return self._read_again > before

    def _used_up(self) -> Stop | None:
        """Return a stop if there is no trial left, or no time for one more and the proof, once anything but the
        baselines ran; if trials are used up, a usable baseline is enough.
        """
        session, settings = self._session, self._settings
        beyond, ran = session.beyond_baselines(), len(session.ended_rows())
        if ran >= settings.trials and (beyond or session.best() is not None):
            return Stop(reason=Reason.TRIALS, message=_trials_used(settings.trials, ran))
        return self._time_up() if beyond else None

    def _time_up(self) -> Stop | None:
        session, settings, most = self._session, self._settings, self._most_for_confirmation
        if settings.budget_seconds is None:
            return None
        trial, spent = session.trial_seconds(), session.seconds()
        most = min(most, session.seconds_left(proving=True))  # too little for a confirmation run does for trials
        kept = 0.0 if most < 2 * confirmation.ENOUGH_BLOCKS * trial else min(self._confirmation_seconds(), most)
        needed = trial + kept + settings.end_seconds
        if spent + needed < settings.budget_seconds:
            return None
        tried, proof = len(session.tried()), self._confirmation_seconds()
        proof_text = f"; a proof needs {max(1.0, proof):.0f} s" if proof else ""
        return Stop(
            reason=Reason.TIME,
            message=f"The time for trials was up after {spent:.0f} s of {settings.budget_seconds:.0f} s: {tried:,} "
            f"{'configuration was' if tried == 1 else 'configurations were'} tried{proof_text}.",
        )

    def _confirmation_seconds(self) -> float:
        if self._settings.blocks[1] == 0:
            return 0.0
        if self._session.best() is None:
            return self._trials_in_confirmation() * self._session.trial_seconds()
        return confirmation.expected_seconds(self._session)

    def _trials_in_confirmation(self) -> int:
        theirs = sum(each.config.loader.is_foreign and not each.required for each in self._session.baselines)
        others = min(theirs, MOST_OF_OTHERS) + len(self._session.baselines) - theirs
        return self._settings.blocks[0] * (self._settings.finalists + others)


def _compared(race: Race, said: str) -> Stop:
    """Return why a race ended: what it compares has all run, or its time was up."""
    if not race.is_cut:
        return Stop(reason=Reason.NO_GAIN, message=said)
    ran = count_text(len(race.table), "configuration")
    message = f"The time for comparing settings was up after {ran}; a longer `--budget` compares more."
    return Stop(reason=Reason.TIME, message=message)


def _space_text(space: Space) -> str:
    """Return each parameter's values and condition as JSON: a study is only resumed with the same."""
    found = {}
    for each in space:
        values = ", ".join(map(str, each.values))
        when = " and ".join(f"{name} is {' or '.join(map(str, values))}" for name, values in each.when)
        found[each.name] = values + (f" if {when}" if when else "")
    return json.dumps(found)


# -------------------- trials with a reason


def _on(baseline: Baseline, devices: int, session: Session) -> Baseline:
    """Return a baseline on so many devices, and put it in the place of the one on another number."""
    config = baseline.config.model_copy(update={"devices": devices})
    if baseline.required or baseline.incumbent or baseline.config.devices == devices:
        return baseline
    kind = "virtual " if session.facts.workload.virtual_devices else ""
    there = replace(baseline, name=f"{baseline.name}, {devices} {kind}devices", config=config)
    session.baselines = tuple(there if each is baseline else each for each in session.baselines)
    return there


def _advice(session: Session) -> Iterator[Asked]:
    """Yield the best in each converted form that should be 1.15 times as fast, though the user has to ask for it; none
    if that was refused.
    """
    best, costs_known = session.best(), any(each.op_costs for each in session.ceilings)
    if session.settings.convert is False or session.facts.limits.convert or not costs_known or best is None:
        return
    ceiling = session.ceiling(best.config.model_setup) or session.ceilings[0]

    def allows(config: PipelineConfig) -> float:
        return costs.bounds(ceiling, config, session.facts).images_per_second

    places = next((each.values for each in session.trimmed.asked if each.name == "keep"), ())
    for form in dict.fromkeys(Kept.of(str(each)).form for each in places if Kept.of(str(each)).converts):
        config = best.config.keeping(form=form, in_memory=False)
        fits = feasible.why_not(config, session.facts.converting) is None
        if fits and allows(config) >= 1.15 * max(allows(best.config), best.estimate.value):
            yield (config, AskedBy(Asker.ADVICE))


# -------------------- what ends a search: time or trials, the model as the limit, and no more gain


def no_gain_stop(before: Estimate, now: Estimate, *, patience: int) -> Stop | None:
    """Return a stop if the best `now` is not above the interval of the best `before` the last `patience` trials.

    A best with one window has no interval, and rules out no gain.
    """
    if not before.has_interval or now.value > before.high:
        return None
    message = f"The last {patience} trials were not significantly faster than the best."
    return Stop(reason=Reason.NO_GAIN, message=message)


def needed_share(rate: Estimate, ceiling: Ceiling, share: float) -> float:
    """Return the share of the ceiling at which nothing is left to gain: `share`, or less on an unsteady machine.

    Two figures within `REPEATABILITY` standard deviations of one count as the same, but at most 2 % are given away.
    """
    variance = max(map(log_variance, (rate, ceiling.model_images_per_second)))
    return max(share - (1.0 - EQUAL), min(share, 1.0 - REPEATABILITY * math.sqrt(variance)))


def ceiling_stop(rate: Estimate, ceiling: Ceiling, *, share: float) -> Stop | None:
    """Return a stop if the best, at `rate` images/s, leaves nothing to gain below the model alone."""
    if rate.value < share * ceiling.model_images_per_second.value:
        return None
    # Without figures: the confirmation run measures them again.
    message = "The best reaches the rate of the model alone: the model is the limit, and no loader can be faster."
    return Stop(reason=Reason.CEILING, message=message)


def _scored(session: Session, point: Point) -> Estimate:
    return point.estimate.mapped(lambda rate: session.score(point.config, point.measurements, rate))


def _trials_used(allowed: int, ran: int) -> str:
    one = allowed == 1
    said = f"{allowed} {'trial was' if one else 'trials were'} allowed"
    if ran > allowed:
        return f"{said}, and {ran} have run, the baselines among them."
    return f"{said} and {'has' if one else 'have'} been used."
