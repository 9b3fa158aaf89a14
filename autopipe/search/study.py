"""The search from beginning to end: ceilings, baselines, seeds, sampler, confirmation; resumable after any crash.

This is the order of things and nothing else: what is tried, when it ends and who wins is decided in the modules beside.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from contextlib import nullcontext

from optuna.samplers import RandomSampler

from autopipe.core.facts import Facts
from autopipe.core.space import Space
from autopipe.search import budget, conclusion, confirmation, decision, lock, reasoned, stopping
from autopipe.search.arrival import Arrival
from autopipe.search.events import (
    CeilingMeasured,
    Event,
    OnEvent,
    SearchStopped,
    SpaceTrimmed,
    StorageLost,
    StudyOpened,
    WaitingForMachine,
)
from autopipe.search.feasible import Trimmed, trim
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.record import open_record
from autopipe.search.result import SearchResult
from autopipe.search.samplers import SamplerContext
from autopipe.search.session import Session
from autopipe.search.settings import Settings
from autopipe.search.stopping import Reason, Stop

__all__ = ["run", "search", "space_digest"]

_REFUSED_IN_A_ROW = 200  # an Optuna sampler that finds nothing that can run has, to all purposes, nothing left


def _ignore(event: Event) -> None:
    """Do nothing: nobody listens."""


def space_digest(space: Space) -> str:
    """Return a digest of what a space may try: a study goes on only with the same."""
    waits = f"{space.unmeasured}" if space.unmeasured else ""
    return hashlib.sha256(f"{space.parameters!r}{waits}".encode()).hexdigest()[:16]


def run(
    space: Space,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    on_event: OnEvent = _ignore,
) -> SearchResult:
    """Find the fastest configuration of a space, and prove it.

    A study that is there already is gone on with. Ctrl-C ends the search; what was found so far is returned.

    Args:
        space: what may be tried.
        measurer: runs the trials.
        facts: what is known about machine and workload.
        settings: how to search.
        on_event: is told what happens; see `autopipe.search.events`.

    Returns:
        The best configuration with its evidence. `best_config` is None if no configuration could be measured.

    Raises:
        SpaceError: nothing in the space can run here.
        TrialError: the study is of another workload, machine or space, or its storage cannot be used.
    """
    return search(trim(space, facts, settings.limits), measurer, facts, settings, on_event)


def search(
    trimmed: Trimmed,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    on_event: OnEvent = _ignore,
) -> SearchResult:
    """Do what `run` does, on a space that has been trimmed already."""
    on_event(SpaceTrimmed(candidates=len(trimmed.candidates), drops=trimmed.drops))
    queue = nullcontext() if settings.lock is None else lock.held(settings.lock, lambda who: on_event(_waits(who)))
    asked = settings.clock()
    with queue:
        if settings.began is not None:  # waiting for another tune is not held against the budget
            settings = dataclasses.replace(settings, began=settings.began + settings.clock() - asked)
        record, lost = open_record(
            settings.storage,
            settings.study_name,
            sampler=RandomSampler(seed=settings.seed),  # until the ceilings are known
            digests={**settings.digests, "space": space_digest(trimmed.space)},
            fresh=settings.fresh,
            patience=budget.patience(settings, on_event),
            on_lost=lambda reason: on_event(StorageLost(reason=reason)),
        )
        session = Session(trimmed, measurer, facts, settings, record, on_event)
        on_event(StudyOpened(name=settings.study_name, resumed=len(record.rows()), lost=lost))
        try:
            return _Search(session).run()
        finally:
            record.settle()


def _waits(who: str) -> Event:
    return WaitingForMachine(holder=who)


class _Search:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._baselines: tuple[Baseline, ...] = ()
        self._interrupted = False
        self._arrival = Arrival(session)
        self._most_for_confirmation = math.inf  # of the time; with less than it takes, it makes do with two blocks

    def run(self) -> SearchResult:
        entered: list[decision.Finalist] = []
        try:
            stop = self._search()
            self._session.on_event(SearchStopped(stop=stop))
            self._baselines += tuple(reasoned.run_baselines_on(self._session, self._baselines))
            if self._settings.blocks[1] > 0 and self._session.best() is not None and not self._nothing_to_confirm(stop):
                everybody = confirmation.finalists(self._session, self._baselines)
                entered = confirmation.affordable(self._session, everybody, self._baselines)
                if entered:
                    confirmation.run(self._session, entered)
        except KeyboardInterrupt:
            self._interrupted = True
            stop = Stop(reason=Reason.INTERRUPTED, message="Interrupted: this is the best so far.")
            self._session.on_event(SearchStopped(stop=stop))
        proved = confirmation.judge(self._session, entered) if entered else None
        return conclusion.result(self._session, self._baselines, stop, proved, interrupted=self._interrupted)

    def _search(self) -> Stop:
        self._arrival.baselines = self._baselines = tuple(self._session.measurer.baselines())
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
        ceilings = session.record.ceilings()
        if not ceilings:
            ceilings = budget.ceilings(session, session.wanted_setups(self._baselines))
            session.record.keep_ceilings(ceilings)
        for ceiling in ceilings:
            session.on_event(CeilingMeasured(ceiling=ceiling))
        session.know_ceilings(ceilings)
        session.record.study.sampler = self._settings.sampler.create(self._context())

    def _context(self) -> SamplerContext:
        session = self._session
        return SamplerContext(
            space=session.trimmed.space,
            candidates=session.trimmed.candidates,
            cores=session.facts.cores,
            predict=session.promise if session.can_predict and self._settings.seeding else None,
            # A study that is gone on with must not draw again what it drew before.
            seed=self._settings.seed + 1_000_003 * len(session.record.rows()),
        )

    # ------------------------------------------------------------ the end

    def _over(self) -> Stop | None:
        """Return why the search is over, or None.

        What seems to be at the ceiling is measured once more before that, and so is the ceiling.
        """
        return (
            self._arrival.of_the_best()
            or self._time_is_up()
            or stopping.no_gain_stop(self._session.standing(), patience=self._settings.patience)
        )

    def _time_is_up(self) -> Stop | None:
        stop = self._budget_stop(2 * self._trials_in_confirmation() * self._session.trial_seconds())
        if stop is not None and stop.reason is Reason.TIME:  # only near the end it pays to look closer
            stop = self._budget_stop(self._confirmation_seconds())
        if stop is not None and stop.reason is Reason.TIME and not self._session.beyond_baselines():
            return None  # a search that tried nothing would say nothing
        return stop

    def _budget_stop(self, confirmation_seconds: float) -> Stop | None:
        settings, trial = self._settings, self._session.trial_seconds()
        return stopping.budget_stop(
            self._session.standing(),
            trials=settings.trials,
            budget_seconds=settings.budget_seconds,
            reserve_seconds=trial + budget.reserve(trial, confirmation_seconds, self._most_for_confirmation),
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
        return (self._settings.finalists + len(self._baselines)) * self._settings.blocks[0]

    def _nothing_to_confirm(self, stop: Stop) -> bool:
        """Whether a baseline is at the ceiling: no gain is claimed then."""
        return stop.reason is Reason.CEILING and (
            self._arrival.theirs_is_there() or not self._session.beyond_baselines()
        )
