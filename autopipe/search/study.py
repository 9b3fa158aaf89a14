"""The search from beginning to end: ceilings, baselines, seeds, sampler, confirmation; resumable after any crash.

Only the order of steps is here: other modules choose the trials, the end of a search and the winner.
"""

from __future__ import annotations

import dataclasses
import json
import time

from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial

from autopipe.measure.facts import Facts
from autopipe.pipeline.space import Space
from autopipe.search import conclusion, confirmation, model_ceilings, reasons
from autopipe.search.budget import Budget, patience
from autopipe.search.conclusion import Searched
from autopipe.search.confirmation import Finalist
from autopipe.search.events import (
    CeilingMeasured,
    OnEvent,
    SearchStopped,
    SpaceTrimmed,
    StorageLost,
    StudyJoined,
    StudyOpened,
    TrialGivenBack,
    WaitingForOthers,
)
from autopipe.search.feasible import Trimmed, trim
from autopipe.search.measurer import Measurer
from autopipe.search.objective import AskedBy, Asker
from autopipe.search.record import open_record
from autopipe.search.result import Reason, Stop
from autopipe.search.samplers import SamplerContext
from autopipe.search.session import Session
from autopipe.search.settings import Settings
from autopipe.workload import digests

__all__ = ["run", "search", "space_digest"]

_POLL_SECONDS = 0.5
_REFUSED_IN_A_ROW = 200  # an Optuna sampler that finds nothing that can run has, to all purposes, nothing left


def space_digest(space: Space) -> str:
    """Return the digest of a space's configurations: a study is only resumed with the same."""
    return digests.digest(digests.canonical(space.parameters))


def _words(settings: Settings, space: Space) -> str:
    """Describe a space for messages of `open_record`: its name, and each parameter's values and condition."""
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
) -> Searched:
    """Find the fastest configuration of a space, and prove it; `winner` is None if none could be measured.

    An existing study is resumed. Ctrl-C ends the search, with the result so far. `on_event` gets the events of
    `autopipe.search.events`. Raises SpaceError if nothing in the space can run here, and TrialError if the study is of
    another workload, machine or space, or its storage cannot be used.
    """
    facts = dataclasses.replace(facts, limits=settings.limits)
    return search(trim(space, facts), measurer, facts, settings, on_event)


def search(
    trimmed: Trimmed,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    on_event: OnEvent = lambda event: None,
) -> Searched:
    """Search as `run` does, on a space that has been trimmed already, by facts that include the limits."""
    on_event(SpaceTrimmed(candidates=len(trimmed.candidates), left_out=trimmed.left_out))

    def given_back(trial: FrozenTrial) -> None:
        host = str(trial.user_attrs.get("owner", {}).get("host", "another machine"))
        on_event(TrialGivenBack(number=trial.number, host=host))

    record, lost = open_record(
        settings.storage,
        settings.study_name,
        sampler=RandomSampler(seed=settings.seed),  # until the ceilings are known
        digests={**settings.digests, "space": space_digest(trimmed.space)},
        words={"space": _words(settings, trimmed.space)},
        fresh=settings.fresh,
        patience=patience(settings, on_event),
        on_lost=lambda reason: on_event(StorageLost(reason=reason)),
        shared=given_back if settings.join else None,
    )
    session = Session(trimmed, measurer, facts, settings, record, on_event)
    on_event(StudyOpened(name=settings.study_name, resumed=len(record.rows()), lost=lost))
    if settings.join:
        on_event(StudyJoined(name=settings.study_name, others=tuple(record.under_way().values())))
    try:
        return _Search(session).run()
    finally:
        record.settle()


class _Search:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._budget = Budget(session, ())
        self._entered: list[Finalist] = []

    def run(self) -> Searched:
        session = self._session
        try:
            self._budget.baselines = tuple(session.measurer.baselines())
            stop = self._search()
            session.on_event(SearchStopped(stop=stop))
            self._wait_for_others()
            self._confirm(stop)
            session.record.keep_end()
        except KeyboardInterrupt:
            stop = self._interrupted()
            session.on_event(SearchStopped(stop=stop))
        proved = confirmation.judge(session, self._entered) if self._entered else None
        return conclusion.result(session, self._budget.baselines, stop, proved)

    def _interrupted(self) -> Stop:
        message = "Interrupted: this is the best so far."
        if self._session.best() is None:
            message = "Interrupted before anything to use was measured."
        if self._settings.join:
            message += " Other processes may go on with the shared study; the same command joins it again."
        return Stop(reason=Reason.INTERRUPTED, message=message)

    def _wait_for_others(self) -> None:
        """Wait for the trials of others, and run those of processes that died: the proof may need them."""
        record = self._session.record
        awaited = record.under_way()
        if awaited:
            hosts = ", ".join(sorted(set(awaited.values())))
            self._session.on_event(WaitingForOthers(what=f"the last trials of {hosts}"))
        while awaited.keys() & record.under_way().keys():
            time.sleep(_POLL_SECONDS)
        while record.waiting():
            self._session.run_next()

    def _search(self) -> Stop:
        session, budget = self._session, self._budget
        self._measure_ceilings()
        if (plan := budget.plan()) is not None:
            session.on_event(plan)
        while session.record.waiting():  # left by a process that died, or enqueued by the user
            session.run_next()
        session.required = {each.config.key() for each in budget.baselines if each.required}
        session.run_each(reasons.baselines(session, budget.baselines))
        if (stop := budget.of_a_baseline()) is not None:
            return stop
        session.run_each(reasons.early(session, simplest=budget.theirs_is_there()), budget.over)
        refused = 0
        while (stop := budget.over()) is None:
            before = len(session.record.rows())
            session.run_next()
            refused = refused + 1 if len(session.record.rows()) == before else 0
            if refused >= _REFUSED_IN_A_ROW:
                name = session.sampler.name
                message = f"`{name}` finds nothing more that can run: {refused} refusals in a row."
                return Stop(reason=Reason.EXHAUSTED, message=message)
        if stop.reason is Reason.CEILING:
            session.run_each(reasons.cheaper(session), budget.used_up)
        return stop

    def _measure_ceilings(self) -> None:
        session = self._session
        setups = {each.config.model_setup for each in session.trimmed.candidates}
        setups |= {each.config.model_setup for each in self._budget.baselines}
        found = session.record.ceilings()
        if not found:
            found = model_ceilings.measured(session, setups)
            session.record.keep_ceilings(found)
        for ceiling in found:
            session.on_event(CeilingMeasured(ceiling=ceiling))
        session.know_ceilings(found)
        if (useful := session.facts.workers_at_once) is not None:
            fitted = (each.with_workers(useful) if each.with_workers else each for each in self._budget.baselines)
            self._budget.baselines = tuple(fitted)
        context = SamplerContext(
            space=session.trimmed.space,
            candidates=session.ranked(),
            # A resumed study must not draw again what it drew before.
            seed=self._settings.seed + 1_000_003 * len(session.record.rows()),
            trend=session.trend,
            worth=session.worth,
            busy=session.record.under_way,
            surrogate=session.surrogate,
        )
        session.record.study.sampler = session.sampler.create(context)

    def _confirm(self, stop: Stop) -> None:
        session = self._session
        for each in reasons.on_more_devices(session, self._budget.baselines):
            if not session.is_short():
                session.run_each([(each.config, AskedBy(Asker.BASELINE, each.name))])
                self._budget.baselines = (*self._budget.baselines, each)
        baselines = self._budget.baselines
        if self._settings.blocks[1] > 0 and session.best() is not None and not self._budget.nothing_to_confirm(stop):
            self._entered = confirmation.entered(session, baselines)
            if self._entered:
                confirmation.run(session, self._entered)
        best = session.best()
        if best is not None and session.seconds_left() > session.trial_seconds():
            model_ceilings.know(session, best.config)
