"""The search from beginning to end: ceilings, baselines, seeds, sampler, confirmation; resumable after any crash.

This is the order of things and nothing else: what is tried, when it ends and who wins is decided in the modules beside.
"""

from __future__ import annotations

import dataclasses
import json
import math

from optuna.samplers import RandomSampler

from autopipe.core import digests
from autopipe.core.facts import Facts
from autopipe.core.space import Space
from autopipe.search import (
    budget,
    conclusion,
    confirmation,
    decision,
    participants,
    reasoned,
    stopping,
    together,
)
from autopipe.search.arrival import Arrival
from autopipe.search.events import (
    CeilingMeasured,
    OnEvent,
    SearchStopped,
    SpaceTrimmed,
    StorageLost,
    StudyOpened,
)
from autopipe.search.feasible import Trimmed, trim
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.opening import open_record
from autopipe.search.result import SearchResult
from autopipe.search.samplers import SamplerContext
from autopipe.search.session import Session
from autopipe.search.settings import Settings
from autopipe.search.stopping import Reason, Stop

__all__ = ["run", "search", "space_digest"]

_REFUSED_IN_A_ROW = 200  # an Optuna sampler that finds nothing that can run has, to all purposes, nothing left


def space_digest(space: Space) -> str:
    """Return the digest of what a space may try: a study is only resumed with the same."""
    return digests.digest(digests.canonical(space.parameters))


def _words(settings: Settings, space: Space) -> str:
    """Return a space as `open_record` takes it for messages: its name, and what each parameter may be, and when."""
    found = {"name": settings.space}
    for each in space:
        when = " and ".join(f"{name} is {' or '.join(map(str, values))}" for name, values in each.when)
        found[each.name] = ", ".join(map(str, each.values)) + (f" where {when}" if when else "")
    return json.dumps(found)


def run(
    space: Space,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    on_event: OnEvent = lambda event: None,
) -> SearchResult:
    """Find the fastest configuration of a space, and prove it.

    A study that is there already is gone on with. Ctrl-C ends the search; what was found so far is returned. Of what
    happens, `on_event` is told; see `autopipe.search.events`.

    Returns:
        The best configuration with its evidence. `best_config` is None if no configuration could be measured.

    Raises:
        SpaceError: nothing in the space can run here.
        TrialError: the study is of another workload, machine or space, or its storage cannot be used.
    """
    facts = dataclasses.replace(facts, limits=settings.limits)
    return search(trim(space, facts), measurer, facts, settings, on_event)


def search(
    trimmed: Trimmed,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    on_event: OnEvent = lambda event: None,
) -> SearchResult:
    """Do what `run` does, on a space that has been trimmed already, by facts that know the limits."""
    on_event(SpaceTrimmed(candidates=len(trimmed.candidates), drops=trimmed.drops))
    patience = budget.patience(settings, on_event)
    record, lost = open_record(
        settings.storage,
        settings.study_name,
        sampler=RandomSampler(seed=settings.seed),  # until the ceilings are known
        digests={**settings.digests, "space": space_digest(trimmed.space)},
        words={"space": _words(settings, trimmed.space)},
        fresh=settings.fresh,
        patience=patience,
        on_lost=lambda reason: on_event(StorageLost(reason=reason)),
    )
    shared = settings.storage if settings.join else None
    with participants.joined(shared, settings.study_name, patience) as others:
        session = Session(trimmed, measurer, facts, settings, record, on_event, others=others)
        on_event(StudyOpened(name=settings.study_name, resumed=len(record.rows()), lost=lost))
        together.tell(session)
        try:
            return _Search(session).run()
        finally:
            record.settle()


class _Search:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._baselines: tuple[Baseline, ...] = ()
        self._arrival = Arrival(session)
        self._entered: list[decision.Finalist] = []
        self._most_for_confirmation = math.inf  # of the time; with less than it takes, it makes do with two blocks

    def run(self) -> SearchResult:
        session, interrupted = self._session, False
        told: together.Conclusion | None = None
        extra: list[Baseline] = []
        try:
            self._arrival.baselines = self._baselines = tuple(session.measurer.baselines())
            stop = together.told_to_stop(session) or self._search()
            session.on_event(SearchStopped(stop=stop))
            told = together.conclusion(session, stop)
            if told is None:
                extra = self._confirm(stop)
            else:
                stop, extra = told.stop, told.extra_baselines()
                self._baselines += tuple(extra)
                self._entered = confirmation.named(session, told.entered, self._baselines)
        except KeyboardInterrupt:
            interrupted = True
            stop = together.interrupted(session)
            session.on_event(SearchStopped(stop=stop))
        together.level(session)
        winner, allowed = (None, None) if told is None else (told.winner, told.allowed)
        proved = confirmation.judge(session, self._entered, allowed) if self._entered else None
        result = conclusion.result(session, self._baselines, stop, proved, interrupted=interrupted, winner=winner)
        if told is not None:
            return together.as_concluded(result, told)
        return together.conclude(session, result, [each.key for each in self._entered], extra)

    def _confirm(self, stop: Stop) -> list[Baseline]:
        """Run the confirmation, and return the baselines that were measured for the sake of the best."""
        session = self._session
        extra = reasoned.run_baselines_on(session, self._baselines)
        self._baselines += tuple(extra)
        if self._settings.blocks[1] > 0 and session.best() is not None and not self._nothing_to_confirm(stop):
            everybody = confirmation.finalists(session, self._baselines)
            self._entered = confirmation.affordable(session, everybody, self._baselines)
            if len(self._entered) < len(everybody):
                self._entered = confirmation.proved_before(session, self._baselines) or self._entered
            if self._entered:
                confirmation.run(session, self._entered)
        best = session.best()
        if best is not None and session.seconds_left() > session.trial_seconds():
            budget.know_ceiling(session, best.config)
        return extra

    def _search(self) -> Stop:
        self._measure_ceilings()
        self._most_for_confirmation = budget.for_confirmation(self._session)
        if (plan := budget.planned(self._session, self._trials_in_confirmation())) is not None:
            self._session.on_event(plan)
        while self._session.record.waiting():  # left by a process that died, or enqueued by the user
            self._session.run_next()
        reasoned.run_baselines(self._session, self._baselines)
        if (stop := self._arrival.of_a_baseline()) is not None:
            return stop
        if self._arrival.theirs_is_there():
            reasoned.run_simplest(self._session, self._over)
        reasoned.run_known(self._session, self._over)
        reasoned.run_seeds(self._session, self._over)
        reasoned.run_advice(self._session, self._over)
        refused = 0
        while (stop := self._over()) is None:
            before = len(self._session.record.rows())
            self._session.run_next()
            refused = refused + 1 if len(self._session.record.rows()) == before else 0
            if refused >= _REFUSED_IN_A_ROW:
                name = self._settings.sampler.name
                return Stop(
                    reason=Reason.EXHAUSTED,
                    message=f"`{name}` finds nothing more that can run: {refused} refusals in a row.",
                )
        if stop.reason is Reason.CEILING:
            reasoned.run_cheaper(self._session, self._time_is_up)
        return stop

    # ------------------------------------------------------------ before the sampler

    def _measure_ceilings(self) -> None:
        session = self._session
        wanted = budget.wanted_setups(session, self._baselines)
        ceilings = together.ceilings(session, lambda: budget.ceilings(session, wanted))
        for ceiling in ceilings:
            session.on_event(CeilingMeasured(ceiling=ceiling))
        session.know_ceilings(ceilings)
        if (useful := session.facts.workers_at_once) is not None:
            fitted = (each.with_workers(useful) if each.with_workers else each for each in self._baselines)
            self._arrival.baselines = self._baselines = tuple(fitted)
        context = SamplerContext(
            space=session.trimmed.space,
            candidates=session.trimmed.candidates,
            cores=session.facts.cores,
            predict=session.promise if session.can_predict and self._settings.seeding else None,
            # A study that is gone on with must not draw again what it drew before.
            seed=self._settings.seed + 1_000_003 * len(session.record.rows()),
            worth=lambda: {key: each.value if each.feasible else None for key, each in session.points().items()},
        )
        session.record.study.sampler = self._settings.sampler.create(context)

    # ------------------------------------------------------------ the end

    def _over(self) -> Stop | None:
        """Return why the search is over, or None."""
        return (
            together.told_to_stop(self._session)
            or self._arrival.of_the_best()
            or self._time_is_up()
            or stopping.no_gain_stop(budget.standing(self._session), patience=self._settings.patience)
        )

    def _time_is_up(self) -> Stop | None:
        stop = self._budget_stop(2 * self._trials_in_confirmation() * self._session.trial_seconds())
        if stop is not None and stop.reason is Reason.TIME:  # only near the end it pays to look closer
            stop = self._budget_stop(self._confirmation_seconds())
        return None if stop is None or self._tried_nothing(stop) else stop

    def _tried_nothing(self, stop: Stop) -> bool:
        """Whether a search would say nothing if it ended: it goes on until something beside the baselines has run.

        Where trials are used up a baseline may do that can be used; other people's code cannot.
        """
        used_up = stop.reason is Reason.TIME or (stop.reason is Reason.TRIALS and self._session.best() is None)
        return used_up and not budget.beyond_baselines(self._session)

    def _budget_stop(self, confirmation_seconds: float) -> Stop | None:
        settings, trial = self._settings, self._session.trial_seconds()
        return stopping.budget_stop(
            budget.standing(self._session),
            trials=settings.trials,
            budget_seconds=settings.budget_seconds,
            end_seconds=settings.end_seconds,
            trial_seconds=trial,
            confirmation_seconds=budget.reserve(trial, confirmation_seconds, self._most_for_confirmation),
        )

    def _confirmation_seconds(self) -> float:
        """Return what the shortest confirmation run takes, by what is known: the rest of the time is the search's."""
        session, blocks = self._session, self._settings.blocks
        seconds = self._trials_in_confirmation() * session.trial_seconds()
        if blocks[1] == 0 or session.best() is None:
            return seconds
        entered, points = confirmation.finalists(session, self._baselines), session.points()
        values = {each.key: points[each.key].value for each in entered}
        took = {row.key: row.running_seconds for row in session.search_rows() if row.outcome is not None}
        for key, expected in decision.expected_blocks(entered, values, confirmation.belief(session), blocks).items():
            seconds += expected * took.get(key, 0.0) - blocks[0] * session.trial_seconds()
        return seconds

    def _trials_in_confirmation(self) -> int:
        theirs = sum(each.config.loader.is_foreign and not each.required for each in self._baselines)
        left_out = max(0, theirs - confirmation.MOST_OF_OTHERS)
        return (self._settings.finalists + len(self._baselines) - left_out) * self._settings.blocks[0]

    def _nothing_to_confirm(self, stop: Stop) -> bool:
        """Whether a baseline is at the ceiling: no gain is claimed then, but over one that has to be beaten."""
        if stop.reason is not Reason.CEILING:
            return False
        return self._arrival.theirs_is_as_fast() or not budget.beyond_baselines(self._session)
