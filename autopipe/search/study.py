"""The search from beginning to end: the model alone, a race, trials with a reason of their own, the confirmation run.

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

from optuna.samplers import RandomSampler

from autopipe.measure import costs
from autopipe.measure.facts import Facts
from autopipe.measure.outcome import TrialFailure
from autopipe.pipeline.config import Kept, ModelSetup, PipelineConfig
from autopipe.search import conclusion, confirmation, feasible
from autopipe.search.budget import Budget
from autopipe.search.conclusion import Searched
from autopipe.search.feasible import trim
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.race import Race
from autopipe.search.record import Point, open_record
from autopipe.search.result import AskedBy, Asker, OnEvent, Reason, SpaceTrimmed, Stop, StorageLost, StudyOpened
from autopipe.search.session import Session, devices_for, first_ceiling, setup_for
from autopipe.search.settings import Settings
from autopipe.search.space import Space
from autopipe.values import count_text

# -------------------- trials with a reason

_ENOUGH = 1.2  # times what the model takes: a loader that makes more is no better
_RACED: Final = ("default", "quick")  # spaces in which nothing is left to try after the race


Asked: TypeAlias = tuple[PipelineConfig, AskedBy]
"""A trial and its reason."""


def _baselines(session: Session, budget: Budget, devices: int) -> Iterator[Asked]:
    """Yield each baseline that can run, on as many devices as the best has unless it is the user's own; if time is
    short only the required ones, or else the first. Those beyond it have half of the time beside the confirmation run.
    """
    in_turn = sorted((each for each in session.baselines if each.unable is None), key=lambda each: not each.required)
    began, most = session.seconds(), (session.seconds_left() - budget.proof_seconds()) / 2
    for number, baseline in enumerate(in_turn):
        if session.is_out_of_time:
            return
        late = session.is_short() or budget.no_trial_left() or (number > 0 and session.seconds() - began > most)
        if number == 0 or baseline.required or not late:  # a proof is worth more than one more comparison
            there = _on(baseline, devices, session)
            yield (there.config, AskedBy(Asker.BASELINE, there.name))


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
    """Yield the best configuration in each converted form that should be 1.15 times as fast, though the user has to ask
    for it.

    The result shows its cost and pay-back. Nothing is converted if the user has refused that.
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


# -------------------- the order of a search


def _space_text(space: Space) -> str:
    """Return each parameter's values and condition as JSON: a study is only resumed with the same."""
    found = {}
    for each in space:
        values = ", ".join(map(str, each.values))
        when = " and ".join(f"{name} is {' or '.join(map(str, values))}" for name, values in each.when)
        found[each.name] = values + (f" if {when}" if when else "")
    return json.dumps(found)


def run(
    space: Space, measurer: Measurer, facts: Facts, settings: Settings, on_event: OnEvent = lambda event: None
) -> Searched:
    """Find the fastest configuration of a space, and prove it; `winner` is None if none could be measured.

    An existing study is resumed. Ctrl-C ends the search, with the result so far. `on_event` gets the events of
    `autopipe.search.result`. Raises SpaceError if nothing in the space can run here, and TrialError if the study is of
    another workload, machine or space, or its storage cannot be used.
    """
    facts = replace(facts, limits=settings.limits)
    trimmed = trim(space, facts)
    on_event(SpaceTrimmed(candidates=trimmed.space.count(), left_out=trimmed.left_out))
    record = open_record(
        settings.storage,
        settings.study_name,
        sampler=RandomSampler(seed=settings.seed),  # until the ceilings are known
        digests={**settings.digests, "space": _space_text(trimmed.asked)},
        fresh=settings.fresh,
        on_lost=lambda reason: on_event(StorageLost(reason=reason)),
    )
    session = Session(trimmed, measurer, facts, settings, record, on_event)
    tried = [row for row in record.rows() if row.origin.asker is not Asker.BASELINE]  # baselines that failed run again
    failed = sum(isinstance(row.outcome, TrialFailure) for row in tried)
    on_event(StudyOpened(name=settings.study_name, resumed=len(record.rows()), failed=failed))
    try:
        return _Search(session).run()
    finally:
        record.close()


def _compared(race: Race, said: str) -> Stop:
    """Return why a race ended: what it compares has all run, or its time was up."""
    if not race.is_cut:
        return Stop(reason=Reason.NO_GAIN, message=said)
    ran = count_text(len(race.table), "configuration")
    message = f"The time for comparing settings was up after {ran}; a longer `--budget` compares more."
    return Stop(reason=Reason.TIME, message=message)


class _Search:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._budget = Budget(session)
        self._entered: list[Point] = []

    def run(self) -> Searched:
        session = self._session
        try:
            session.baselines = tuple(session.measurer.baselines())
            stop = self._search()
            session.on_event(stop)
            self._confirm(stop)
            stop = self._budget.seen_again(stop)
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
        session, budget = self._session, self._budget
        self._measure_ceilings()
        if (plan := budget.plan()) is not None:
            session.on_event(plan)
        while session.record.waiting():  # enqueued by the user
            session.run_next()
        wrapped = session.facts.workload.wrapped is not None
        if wrapped:  # what there is comes before any change of it
            session.run_each(_baselines(session, budget, 1), budget.used_up)
        else:  # without what stays unless another is proved faster, all others would be measured for nothing
            former = [each for each in session.baselines if each.incumbent]
            session.run_each((each.config, AskedBy(Asker.BASELINE, each.name)) for each in former)
        session.run_each((each, AskedBy(Asker.KNOWN)) for each in session.settings.known if session.allowed(each))
        stop = self._race_loaders() if session.races_loaders else self._race_trainings()
        if not wrapped:
            best = session.best()
            devices = 1 if best is None else best.config.devices
            session.run_each(_baselines(session, budget, devices))
        if stop.reason is not Reason.TIME:
            session.run_each(_advice(session), budget.over)
        return self._beyond() or budget.over() or stop

    def _race(self, *, by_trial: bool) -> Race:
        session, budget = self._session, self._budget
        race = Race(
            space=session.trimmed.space,
            cores=session.facts.cores,
            reads=session.facts.reads_at_once,
            waits=(session.facts.workers_at_once or math.inf) > session.facts.cores,
            allowed=lambda config: session.why_not(config) is None,
            measure=session.raced_by_trial if by_trial else session.loader_alone,
            cost=lambda config: confirmation.cost(
                config, cores=session.facts.cores, memory_bytes=costs.memory_bytes(config, session.facts.workload)
            ),
            over=budget.race_over if by_trial else budget.race_of_loaders_over,
        )
        if not race.usuals():  # all that was asked for brings nothing: it is tried anyway
            session.facts = session.facts.with_pointless
        return race

    def _race_loaders(self) -> Stop:
        """Race loaders without the model, and try the best with it, on the fewest devices that take what it makes."""
        session, budget, race = self._session, self._budget, self._race(by_trial=False)
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
            if not budget.reads_again():
                break
        return budget.over() or _compared(
            race, f"{len(race.table)} loaders were compared without the model; no other was faster."
        )

    def _try(self, race: Race, setup: ModelSetup, taken: float) -> None:
        """Run trials of the best of a race of loaders: of one, if it makes all that the model has `taken` alone; else
        also of the best of another kind, or that keeps samples elsewhere, if it makes 0.9 of what the best does.
        """
        session, ranked = self._session, race.ranked()
        unlike = {(each.loader.kind, each.keep): (each, rate) for each, rate in reversed(ranked)}
        first, top = ranked[0]
        for config, rate in sorted(unlike.values(), key=lambda each: (each[0].key() != first.key(), -each[1])):
            near = top < taken and rate >= 0.9 * top
            if self._has_found() and not (near and self._budget.over() is None):
                break
            session.run_each([(config.model_copy(update=setup._asdict()), AskedBy(Asker.RACE))])

    def _has_found(self) -> bool:
        """Whether anything to use has run but for what an artifact knew before."""
        session = self._session
        former = {each.config.key() for each in session.baselines if each.incumbent}
        former |= {row.key for row in session.ended_rows() if row.origin.asker is Asker.KNOWN}
        return any(point.feasible and key not in former for key, point in session.points().items())

    def _race_trainings(self) -> Stop:
        """Race by trials of the model, as it shares the cores with the loader."""
        session, budget, race = self._session, self._budget, self._race(by_trial=True)
        known = session.best()
        usable = known is not None and not known.config.loader.is_foreign
        first = known.config if known is not None and usable else self._fastest_alone()
        race.of_trainings(first, self._fastest_alone)
        best = session.best()
        if best is not None and not best.config.loader.is_foreign and not race.is_cut:
            devices = devices_for(session, best.estimate.value) if best.config.devices == 1 else best.config.devices
            setup = setup_for(session, best.config.model_setup._replace(devices=devices))
            chosen = best.config.model_copy(update=setup._asdict())
            session.run_each([(chosen, AskedBy(Asker.RACE))], budget.used_up)
        stop = budget.over()
        if stop is not None and stop.reason is Reason.CEILING:
            session.run_each((each, AskedBy(Asker.RACE, "cheaper")) for each in race.cheaper())
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
        session, budget, refused = self._session, self._budget, 0
        if session.settings.space in _RACED and session.settings.sampler is None:
            return None
        while (stop := budget.over() or budget.no_gain()) is None:
            before = len(session.record.rows())
            session.run_next()
            refused = refused + 1 if len(session.record.rows()) == before else 0
            if refused >= 200:  # to all purposes, it has nothing left
                name = session.sampler.name
                message = f"`{name}` finds nothing more that can run: {refused} refusals in a row."
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
        session.record.study.sampler = session.sampler.create(session)

    def _confirm(self, stop: Stop) -> None:
        session = self._session
        if self._settings.blocks[1] > 0 and session.best() is not None:
            self._entered = confirmation.entered(session)
            if self._entered:
                confirmation.run(session, self._entered)
        best = session.best()
        if best is not None and session.ceilings and session.seconds_left() > session.trial_seconds():
            session.known_alone(best.config.model_setup)
