"""The search from beginning to end: the model alone, a race, trials with a reason of their own, the confirmation run;
and the rules that end it.

The race (`autopipe.search.race`) finds the configuration to use; the rest proves it, against the baselines and beside
the model alone. A sampler of Optuna's is asked beyond the race where a space has more to try. Each trial runs before
the next is requested, so it may depend on the earlier ones, and a study is resumable after any crash.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from optuna.samplers import TPESampler

from autopipe.measure import costs
from autopipe.measure.bottleneck import MODEL_SHARE
from autopipe.measure.facts import Ceiling, Facts
from autopipe.measure.outcome import FEWEST_STEPS, StopRule, TrialFailure
from autopipe.measure.stats import EQUAL, REPEATABILITY, log_variance
from autopipe.pipeline.config import Kept, ModelSetup, PipelineConfig
from autopipe.search import conclusion, confirmation, feasible, result
from autopipe.search.conclusion import Searched
from autopipe.search.measurer import MOST_OF_OTHERS, Measurer
from autopipe.search.race import Race
from autopipe.search.record import Point, open_record
from autopipe.search.result import AskedBy, Asker, BudgetPlanned, OnEvent, Reason, Stop
from autopipe.search.session import Session, devices_for, first_ceiling, setup_for, values_of
from autopipe.search.settings import Settings
from autopipe.search.space import Space
from autopipe.values import Estimate, count_text

_ENOUGH = 1.2  # times what the model takes: a loader that makes more is no better
_RACED: Final = ("default", "quick")  # spaces in which nothing is left to try after the race


def run(
    space: Space, measurer: Measurer, facts: Facts, settings: Settings, on_event: OnEvent = lambda event: None
) -> Searched:
    """Find the fastest configuration of a space, and prove it; `winner` is None if none could be measured. An existing
    study is resumed. Ctrl-C ends the search, with the result so far. `on_event` gets the events of
    `autopipe.search.result`. Raises SpaceError if nothing in the space can run here, and TrialError if the study is of
    another workload, machine or space, or its storage cannot be used.
    """
    facts = replace(facts, limits=settings.limits)
    trimmed = feasible.trim(space, facts)
    on_event(result.SpaceTrimmed(candidates=trimmed.space.count(), left_out=trimmed.left_out))
    described = {}  # a study is only resumed with the same values and conditions
    for each in trimmed.asked:
        when = " and ".join(f"{name} is {' or '.join(map(str, values))}" for name, values in each.when)
        described[each.name] = ", ".join(map(str, each.values)) + (f" if {when}" if when else "")
    record = open_record(
        settings.storage,
        settings.study_name,
        digests={**settings.digests, "space": json.dumps(described)},
        fresh=settings.fresh,
        on_lost=lambda reason: on_event(result.StorageLost(reason=reason)),
    )
    tried = [row for row in record.rows() if row.origin.asker is not Asker.BASELINE]  # baselines that failed run again
    failed = sum(isinstance(row.outcome, TrialFailure) for row in tried)
    on_event(result.StudyOpened(name=settings.study_name, resumed=len(record.rows()), failed=failed))
    try:
        return Search(trimmed, measurer, facts, settings, record, on_event).run()
    finally:
        record.close()


class Search(Session):
    """One search: what it tries in order, and the rules that end it."""

    _entered: Sequence[Point] = ()  # the finalists of the confirmation run
    _most_for_confirmation = _race_ends = math.inf  # seconds
    _read_again = 0  # times that the model alone was, because a training was faster

    def run(self) -> Searched:
        try:
            self.baselines = tuple(self.measurer.baselines())
            stop = self._search()
            self.on_event(stop)
            if self.settings.blocks[1] > 0 and self.best() is not None:
                entered = self._entered = confirmation.entered(self)
                if entered:
                    confirmation.run(self, entered)
            best = self.best()
            if best is not None and self.ceilings and self.seconds_left() > self.trial_seconds():
                self.known_alone(best.config.model_setup)
            stop = self._seen_again(stop)
        except KeyboardInterrupt:
            message = "Interrupted: this is the best so far."
            if self.best() is None:
                message = "Interrupted before anything to use was measured."
            stop = Stop(reason=Reason.INTERRUPTED, message=message)
            self.on_event(stop)
        proved = confirmation.judge(self, self._entered) if self._entered else None
        return conclusion.result(self, stop, proved)

    def _search(self) -> Stop:
        self._measure_ceilings()
        if (plan := self._plan()) is not None:
            self.on_event(plan)
        while self.record.waiting():  # enqueued by the user
            self.run_next()
        wrapped = self.facts.workload.wrapped is not None
        if wrapped:  # what there is comes before any change of it
            self.run_each(self._baselines(1), self._used_up)
        else:  # without what stays unless another is proved faster, all others would be measured for nothing
            former = [each for each in self.baselines if each.incumbent]
            self.run_each((each.config, AskedBy(Asker.BASELINE, each.name)) for each in former)
        self.run_each((each, AskedBy(Asker.KNOWN)) for each in self.settings.known if self.allowed(each))
        stop = self._race_loaders() if self.races_loaders else self._race_trainings()
        if not wrapped:
            best = self.best()
            self.run_each(self._baselines(1 if best is None else best.config.devices))
        if stop.reason is not Reason.TIME:
            self.run_each(self._advice(), self._over)
        return self._beyond() or self._over() or stop

    def _baselines(self, devices: int) -> Iterator[tuple[PipelineConfig, AskedBy]]:
        """Yield baselines on as many devices as the best has, unless it is the user's own: the user's first, then those
        that keep samples where the best does. If time is short only the required ones, or the first; others have half
        of the time beside the proof.
        """
        able = [each for each in self.baselines if each.unable is None]
        kept = None if (best := self.best()) is None else best.config.kept.in_memory
        proof = 3 * self.trial_seconds() * self.settings.blocks[0]  # of ours, a rival, and one for safety, at least
        began, most = self.seconds(), (self.seconds_left() - proof) / 2
        able.sort(key=lambda each: (not each.required, each.config.kept.in_memory is not kept))
        for number, baseline in enumerate(able):
            if self.is_out_of_time:
                return
            used_up = len(self.ended_rows()) >= self.settings.trials
            late = self.is_short() or used_up or (number > 0 and self.seconds() - began > most)
            if number == 0 or baseline.required or not late:  # a proof is worth more than one more comparison
                there = baseline
                if not baseline.required and not baseline.incumbent and baseline.config.devices != devices:
                    config = baseline.config.model_copy(update={"devices": devices})
                    kind = "virtual " if self.facts.workload.virtual_devices else ""
                    there = replace(baseline, name=f"{baseline.name}, {devices} {kind}devices", config=config)
                    self.baselines = tuple(there if each is baseline else each for each in self.baselines)
                yield (there.config, AskedBy(Asker.BASELINE, there.name))

    def _advice(self) -> Iterator[tuple[PipelineConfig, AskedBy]]:
        """Yield the best in each converted form that should be 1.15 times as fast, unless the user refused that."""
        best, costs_known = self.best(), any(each.op_costs for each in self.ceilings)
        if self.settings.convert is False or self.facts.limits.convert or not costs_known or best is None:
            return
        ceiling = self.ceiling(best.config.model_setup) or self.ceilings[0]

        def allows(config: PipelineConfig) -> float:
            return costs.bounds(ceiling, config, self.facts).images_per_second

        places = next((each.values for each in self.trimmed.asked if each.name == "keep"), ())
        for form in dict.fromkeys(Kept.of(str(each)).form for each in places if Kept.of(str(each)).converts):
            config = best.config.keeping(form=form, in_memory=False)
            fits = feasible.why_not(config, self.facts.converting) is None
            if fits and allows(config) >= 1.15 * max(allows(best.config), best.estimate.value):
                yield (config, AskedBy(Asker.ADVICE))

    def _race(self, *, by_trial: bool) -> Race:
        race = Race(
            space=self.trimmed.space,
            cores=self.facts.cores,
            reads=self.facts.reads_at_once,
            workers=self.facts.workers_at_once,
            allowed=lambda config: self.why_not(config) is None,
            measure=self.raced_by_trial if by_trial else self.loader_alone,
            cost=lambda config: confirmation.cost(
                config, cores=self.facts.cores, memory_bytes=costs.memory_bytes(config, self.facts.workload)
            ),
            over=self._race_over if by_trial else lambda: self.seconds() >= self._race_ends,
        )
        if not race.usuals():  # all that was asked for brings nothing: it is tried anyway
            self.facts = self.facts.with_pointless
        return race

    def _race_loaders(self) -> Stop:
        """Race loaders without the model, and try the best with it, on the fewest devices that take what it makes."""
        race = self._race(by_trial=False)
        for _ in range(2):  # once more if the model alone was read too low at first
            one = self.ceilings[0]
            most = max([one.setup.devices, *(each for each in values_of(self, "devices") if isinstance(each, int))])
            race.enough = _ENOUGH * one.model_images_per_second.value * most / one.setup.devices
            race.of_loaders()
            if (best := race.best()) is None:  # the trials of the model will say why
                return self._race_trainings()
            setup = one.setup._replace(devices=devices_for(self, best[1]))
            if best[1] >= (self.known_alone(setup) or 0.0):
                setup = setup_for(self, setup)
            taken = self.known_alone(setup) or one.model_images_per_second.value
            race.enough = _ENOUGH * taken
            race.fewer()
            self._try(race, setup, taken)
            if not self._reads_again():
                break
        said = f"{len(race.table)} loaders were compared without the model; no other was faster."
        return self._over() or _compared(race, said)

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
        less = [config]
        while less:
            self.run_each([(less[0], AskedBy(Asker.RACE))])
            if less[0].key() not in self.points() or self._has_found() or self._used_up() is not None:
                return
            less = [each for each in race.cheaper(less[0]) if each.key() not in self.tried()]

    def _has_found(self) -> bool:
        former = {each.config.key() for each in self.baselines if each.incumbent}
        former |= {row.key for row in self.ended_rows() if row.origin.asker is Asker.KNOWN}
        return any(point.feasible and key not in former for key, point in self.points().items())

    def _race_trainings(self) -> Stop:
        """Race by trials of the model, as it shares the cores with the loader."""
        race = self._race(by_trial=True)
        known = self.best()
        usable = known is not None and not known.config.loader.is_foreign
        first = known.config if known is not None and usable else self._fastest_alone()
        race.of_trainings(first, self._fastest_alone)
        for each in [] if race.table else race.usuals():
            if each.key() in self.points() and self.best() is None:  # it broke a limit
                self._run_within_limits(race, each)
        best = self.best()
        if best is not None and not race.table:
            race.of_trainings(best.config)
            best = self.best()
        if best is not None and not best.config.loader.is_foreign and not race.is_cut:
            devices = devices_for(self, best.estimate.value) if best.config.devices == 1 else best.config.devices
            setup = setup_for(self, best.config.model_setup._replace(devices=devices))
            chosen = best.config.model_copy(update=setup._asdict())
            self.run_each([(chosen, AskedBy(Asker.RACE))], self._used_up)
        stop = self._over()
        if stop is not None and stop.reason is Reason.CEILING and (top := race.best()) is not None:
            self.run_each((each, AskedBy(Asker.RACE, "cheaper")) for each in race.cheaper(top[0]))
        return stop or _compared(race, "Each setting was compared, one after the other; no other value was faster.")

    def _fastest_alone(self) -> PipelineConfig | None:
        """Return the best of a race of loaders if a training leaves most of the cores idle and none has been run."""
        if self.raced or not self.waits():
            return None
        race = self._race(by_trial=False)
        race.enough = _ENOUGH * self.highest_ceiling().model_images_per_second.value
        race.of_workers()
        race.fewer()
        best = race.best()
        return None if best is None else best[0]

    def _beyond(self) -> Stop | None:
        """Ask Optuna's sampler for what the race left open, in a space that has more to try."""
        refused = 0
        if self.settings.space in _RACED and self.settings.sampler is None:
            return None
        while (stop := self._over() or self.no_gain()) is None:
            before = len(self.record.rows())
            self.run_next()
            refused = refused + 1 if len(self.record.rows()) == before else 0
            if refused >= 200:  # to all purposes, it has nothing left
                message = f"`tpe` finds nothing more that can run: {refused} refusals in a row."
                return Stop(reason=Reason.EXHAUSTED, message=message)
        return stop

    def _measure_ceilings(self) -> None:
        found = self.record.ceilings()
        if not found:
            found = [first_ceiling(self)]
            self.record.keep_ceilings(found)
        for ceiling in found:
            self.tell(ceiling)
        self.know_ceilings(found)
        if (useful := self.facts.workers_at_once) is not None:
            fitted = (each.with_workers(useful) if each.with_workers else each for each in self.baselines)
            self.baselines = tuple(fitted)
        # Optuna's own (Bergstra et al., Algorithms for Hyper-Parameter Optimization, NIPS 2011): all that ran is its
        # start, and a resumed study must not draw again what it drew before.
        seed = self.settings.seed + 1_000_003 * len(self.record.rows())
        make = self.settings.sampler or (lambda seed: TPESampler(multivariate=True, seed=seed))
        self.record.study.sampler = make(seed)

    # ------------------------------------------------------------ the budget, and what ends a search

    def _plan(self) -> BudgetPlanned | None:
        """Divide the remaining time, and return the plan; None without a budget, or if it is used up already."""
        budget = self.settings.budget_seconds
        race = 0.3 if self.races_loaders else 0.5  # of the time that is left; a race of loaders alone needs less
        spent, left = self.seconds(), self.seconds_left()
        self._most_for_confirmation, self._race_ends = left / 2, spent + race * left
        if budget is None or (self.record.rows() and self.is_short()):
            return None
        usual = self.ceilings[0] if self.ceilings else None
        rates = [] if usual is None else [usual.model_images_per_second, usual.loader_images_per_second]
        step = max((self.facts.workload.batch_size / each.value for each in rates if each is not None), default=0.0)
        trial = self.trial_seconds() or max(StopRule().most_seconds, FEWEST_STEPS * step)
        # The first baseline has a process of its own, which takes no longer to start.
        starting = 0.0 if self.trial_seconds() else self.starting_seconds
        return BudgetPlanned(
            budget_seconds=budget,
            spent_seconds=spent,
            trial_seconds=trial,
            trials=int(max(0.0, left - starting) / trial),
            needed_seconds=spent + starting + 2 * trial + self.settings.end_seconds,
            advised_seconds=spent + starting + self._trials_in_confirmation() * trial / (1.0 - race),
        )

    def _race_over(self) -> bool:
        """True if a race by trials ends: its time or trials are used up, or a training reaches the model alone."""
        if self.is_out_of_time or self._over() is not None:
            return True
        tried = self.tried()
        baselines = sum(each.unable is None and each.config.key() not in tried for each in self.baselines)
        used_up = len(self.ended_rows()) + baselines >= self.settings.trials
        best = self.best()
        ends = self._race_ends  # without anything better than what there is, nothing waits for a proof
        if best is not None and best.key in self.names:
            ends = self.seconds() + self.seconds_left()
        late = self.seconds() + self.trial_seconds() >= ends
        return (used_up or late) and self.beyond_baselines()

    def _over(self) -> Stop | None:
        return self._of_the_best() or self._used_up()

    def no_gain(self) -> Stop | None:
        patience = self.settings.patience
        earlier = {row.key for row in self.ended_rows()[:-patience]}
        known = [each for each in self.points().values() if each.feasible and each.key in earlier]
        ends = max(known, key=lambda each: each.value, default=None), self.best()
        parts = [(each.estimate, each.config, each.measurements) for each in ends if each is not None]
        scored = [rate.mapped(functools.partial(self.score, config, ran)) for rate, config, ran in parts]
        return no_gain_stop(*scored, patience=patience) if len(scored) == 2 else None

    def _of_the_best(self) -> Stop | None:
        """Return a stop if the best reaches the model alone; never where one-time costs count, which may be less."""
        best = self.best()
        reads_alone = self.facts.workload.reads_alone
        if best is None or not self.ceilings or self.settings.epochs is not None or reads_alone:
            return None
        self._reads_again()
        ceiling, rate = self.highest_ceiling(), best.estimate
        share = needed_share(rate, ceiling, self.settings.reached_share)
        return None if ceiling.is_overtaken_by(rate) else ceiling_stop(rate, ceiling, share=share)

    def _seen_again(self, stop: Stop) -> Stop:
        """Return the stop as it looks after the confirmation run, in which the model alone may have made far more."""
        best = self.best()
        if stop.reason is not Reason.CEILING or best is None:
            return stop
        if best.estimate.high >= MODEL_SHARE * self.highest_ceiling().model_images_per_second.value:
            return stop
        said = "The best reached the rate of the model alone, which has made more since: something slowed it down then."
        return Stop(reason=Reason.NO_GAIN, message=f"{said} Tune again on a quiet machine.")

    def _reads_again(self) -> bool:
        """Measure the model alone again if a training was faster, as other load slows it down; True if it was."""
        best, before = self.best(), self._read_again
        while best is not None and self.ceilings and self._read_again < 3:
            if not self.highest_ceiling().is_overtaken_by(best.estimate):
                break
            self._read_again += 1
            self.look_again(best.config.model_setup)
        return self._read_again > before

    def _used_up(self) -> Stop | None:
        """Return a stop if there is no trial left, or no time for one more and the proof, once anything but the
        baselines ran; if trials are used up, a usable baseline is enough.
        """
        allowed, beyond, ran = self.settings.trials, self.beyond_baselines(), len(self.ended_rows())
        if ran >= allowed and (beyond or self.best() is not None):
            used = "and has been used" if allowed == 1 else "and have been used"
            used = f", and {ran} have run, the baselines among them" if ran > allowed else f" {used}"
            said = f"{allowed} {'trial was' if allowed == 1 else 'trials were'} allowed{used}."
            return Stop(reason=Reason.TRIALS, message=said)
        return self._time_up() if beyond else None

    def _time_up(self) -> Stop | None:
        settings, most = self.settings, self._most_for_confirmation
        if settings.budget_seconds is None:
            return None
        trial, spent = self.trial_seconds(), self.seconds()
        most = min(most, self.seconds_left(proving=True))  # too little for a confirmation run does for trials
        kept = 0.0 if most < 2 * confirmation.ENOUGH_BLOCKS * trial else min(self._confirmation_seconds(), most)
        needed = trial + kept + settings.end_seconds
        if spent + needed < settings.budget_seconds:
            return None
        tried, proof = len(self.tried()), self._confirmation_seconds()
        proof_text = f"; a proof needs {max(1.0, proof):.0f} s" if proof else ""
        return Stop(
            reason=Reason.TIME,
            message=f"The time for trials was up after {spent:.0f} s of {settings.budget_seconds:.0f} s: {tried:,} "
            f"{'configuration was' if tried == 1 else 'configurations were'} tried{proof_text}.",
        )

    def _confirmation_seconds(self) -> float:
        if self.settings.blocks[1] == 0:
            return 0.0
        most = self._trials_in_confirmation() * self.trial_seconds()
        return most if self.best() is None else confirmation.expected_seconds(self)

    def _trials_in_confirmation(self) -> int:
        theirs = sum(each.config.loader.is_foreign and not each.required for each in self.baselines)
        others = min(theirs, MOST_OF_OTHERS) + len(self.baselines) - theirs
        return self.settings.blocks[0] * (self.settings.finalists + others)


def _compared(race: Race, said: str) -> Stop:
    """Return why a race ended: what it compares has all run, or its time was up."""
    if not race.is_cut:
        return Stop(reason=Reason.NO_GAIN, message=said)
    ran = count_text(len(race.table), "configuration")
    message = f"The time for comparing settings was up after {ran}; a longer `--budget` compares more."
    return Stop(reason=Reason.TIME, message=message)


# -------------------- what ends a search: time or trials, the model as the limit, and no more gain


def no_gain_stop(before: Estimate, now: Estimate, *, patience: int) -> Stop | None:
    """Return a stop if the best `now` is within the interval, if any, of that before the last `patience` trials."""
    if not before.has_interval or now.value > before.high:
        return None
    message = f"The last {patience} trials were not significantly faster than the best."
    return Stop(reason=Reason.NO_GAIN, message=message)


def needed_share(rate: Estimate, ceiling: Ceiling, share: float) -> float:
    """Return the share of the ceiling that is enough: `share`, or up to 2 % less if the readings vary as much."""
    variance = max(map(log_variance, (rate, ceiling.model_images_per_second)))
    return max(share - (1.0 - EQUAL), min(share, 1.0 - REPEATABILITY * math.sqrt(variance)))


def ceiling_stop(rate: Estimate, ceiling: Ceiling, *, share: float) -> Stop | None:
    """Return a stop if the best, at `rate` images/s, leaves nothing to gain below the model alone."""
    if rate.value < share * ceiling.model_images_per_second.value:
        return None
    # Without figures: the confirmation run measures them again.
    message = "The best reaches the rate of the model alone: the model is the limit, and no loader can be faster."
    return Stop(reason=Reason.CEILING, message=message)
