"""The search from beginning to end: ceilings, trials with a reason of their own, the sampler, the confirmation run.

The first section lists the trials that have a reason: baselines first, then configurations known from elsewhere, then
converted forms as advice; the sampler chooses the others. Each yielded trial runs before the next is requested, so it
may depend on the earlier ones. The second runs them in order, and is resumable after any crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from optuna.samplers import RandomSampler

from autopipe.measure import costs
from autopipe.measure.facts import Facts
from autopipe.measure.outcome import TrialFailure
from autopipe.pipeline.config import PipelineConfig, from_config
from autopipe.pipeline.space import Space
from autopipe.search import conclusion, confirmation, feasible
from autopipe.search.budget import Budget
from autopipe.search.conclusion import Searched
from autopipe.search.confirmation import Finalist
from autopipe.search.feasible import Trimmed, trim
from autopipe.search.measurer import Baseline, Measurer
from autopipe.search.record import open_record
from autopipe.search.result import Reason, Stop
from autopipe.search.session import Session, measured_ceilings
from autopipe.search.settings import Settings
from autopipe.search.trials import (
    AskedBy,
    Asker,
    CeilingMeasured,
    OnEvent,
    SearchStopped,
    SpaceTrimmed,
    StorageLost,
    StudyOpened,
)

# -------------------- trials with a reason

_BASELINES_SHARE = 1 / 4  # of the time that is left, for baselines beyond the second
_MOST_CHEAPER = 3  # that are tried
_WORTH_TELLING = 1.15  # times the best that needs no conversion: less is not worth a trial of one


Asked: TypeAlias = tuple[PipelineConfig, AskedBy]
"""A trial and its reason."""


def _baselines(session: Session) -> Iterator[Asked]:
    """Yield each baseline that can run; if time is short only the required ones, or the first few."""
    in_turn = sorted((each for each in session.baselines if each.unable is None), key=lambda each: not each.required)
    began, most = session.seconds(), _BASELINES_SHARE * session.seconds_left()
    for number, baseline in enumerate(in_turn):
        late = session.is_short() or (number > 1 and session.seconds() - began > most)
        if number == 0 or baseline.required or not late:  # an untried configuration is worth more than a comparison
            yield (baseline.config, AskedBy(Asker.BASELINE, baseline.name))


def _on_more_devices(session: Session) -> list[Baseline]:
    """Return the baselines on as many devices as the best has; none if that is one.

    Together with those on one device they separate the gain of the loader from that of the devices.
    """
    best = session.best()
    if best is None or best.config.devices == 1:
        return []
    count, kind = best.config.devices, "virtual " if session.facts.workload.virtual_devices else ""
    return [
        Baseline(name=f"{each.name}, {count} {kind}devices", config=each.config.model_copy(update={"devices": count}))
        for each in session.baselines
        if each.config.devices == 1 and each.unable is None
    ]


def _early(session: Session) -> Iterator[Asked]:
    """Yield the trials before the sampler's: known configurations and advice."""
    for config in session.settings.known:
        # Predictions are worth more than old bests with more workers or reads at a time than are useful here.
        if feasible.why_not(config, replace(session.facts, pointless={})) is None:
            yield (config, AskedBy(Asker.KNOWN))
    yield from _advice(session)


def _advice(session: Session) -> Iterator[Asked]:
    """Yield the best configuration of each converted form that should be faster, though the user has to ask for it.

    The result shows its cost and pay-back. Nothing is converted if the user has refused that.
    """
    if session.settings.convert is False or session.facts.limits.convert or not session.can_predict:
        return
    could = feasible.convertible(session.trimmed.space, session.facts)
    by_form: dict[str, PipelineConfig] = {}
    for _, config in sorted(could.items(), key=lambda each: (-session.promise(each[1]), each[0])):
        by_form.setdefault(config.kept.form, config)
    promised = session.promise(next(iter(session.ranked().values())))
    for config in by_form.values():
        best = session.best()
        if session.promise(config) >= _WORTH_TELLING * max(promised, 0.0 if best is None else best.value):
            yield (config, AskedBy(Asker.ADVICE))


def _cheaper(session: Session) -> Iterator[Asked]:
    """Yield candidates that cost less than the best and may be as fast, the most similar first.

    The first configuration at the ceiling is seldom the cheapest there.
    """
    best = session.best()
    if best is None or not session.can_predict:
        return
    params, cost, enough = from_config(best.config), _planned_cost(session, best.config), session.settings.ceiling_share

    def unlike(config: PipelineConfig) -> tuple[object, ...]:
        return len(params.items() ^ from_config(config).items()), _planned_cost(session, config), config.key()

    less = (each for each in session.trimmed.candidates.values() if _planned_cost(session, each) < cost)
    near = [each for each in less if session.promise(each) >= enough * best.value]
    for config in sorted(near, key=unlike)[:_MOST_CHEAPER]:
        yield (config, AskedBy(Asker.SEED, "cheaper"))


def _planned_cost(session: Session, config: PipelineConfig) -> tuple[float, ...]:
    planned = costs.memory_bytes(config, session.facts.workload)
    return confirmation.cost(config, cores=session.facts.cores, memory_bytes=float(planned), baseline=False)


# -------------------- the order of a search

_REFUSED_IN_A_ROW = 200  # an Optuna sampler that finds nothing that can run has, to all purposes, nothing left


def _space_text(space: Space) -> str:
    """Return each parameter's values and condition as JSON: a study is only resumed with the same."""
    found = {}
    for each in space:
        values = ", ".join(map(str, each.values))
        when = " and ".join(f"{name} is {' or '.join(map(str, values))}" for name, values in each.when)
        found[each.name] = values + (f" if {when}" if when else "")
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
    `autopipe.search.trials`. Raises SpaceError if nothing in the space can run here, and TrialError if the study is of
    another workload, machine or space, or its storage cannot be used.
    """
    facts = replace(facts, limits=settings.limits)
    return search(trim(space, facts), measurer, facts, settings, on_event)


def search(
    trimmed: Trimmed,
    measurer: Measurer,
    facts: Facts,
    settings: Settings,
    on_event: OnEvent = lambda event: None,
) -> Searched:
    """Search as `run` does, on a space that has been trimmed already, by facts that include the limits."""
    on_event(SpaceTrimmed(candidates=trimmed.whole, left_out=trimmed.left_out))
    record = open_record(
        settings.storage,
        settings.study_name,
        sampler=RandomSampler(seed=settings.seed),  # until the ceilings are known
        digests={**settings.digests, "space": _space_text(trimmed.space)},
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


class _Search:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._settings = session.settings
        self._budget = Budget(session)
        self._entered: list[Finalist] = []

    def run(self) -> Searched:
        session = self._session
        try:
            session.baselines = tuple(session.measurer.baselines())
            stop = self._search()
            session.on_event(SearchStopped(stop=stop))
            self._confirm(stop)
        except KeyboardInterrupt:
            stop = self._interrupted()
            session.on_event(SearchStopped(stop=stop))
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
        session.run_each(_baselines(session))
        if (stop := budget.of_a_baseline()) is not None:
            return stop
        session.run_each(_early(session), budget.over)
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
            session.run_each(_cheaper(session), budget.used_up)
        return stop

    def _measure_ceilings(self) -> None:
        session = self._session
        setups = {each.model_setup for each in session.trimmed.candidates.values()}
        setups |= {each.config.model_setup for each in session.baselines}
        found = session.record.ceilings()
        if not found:
            found = measured_ceilings(session, setups)
            session.record.keep_ceilings(found)
        for ceiling in found:
            session.on_event(CeilingMeasured(ceiling=ceiling))
        session.know_ceilings(found)
        if (useful := session.facts.workers_at_once) is not None:
            fitted = (each.with_workers(useful) if each.with_workers else each for each in session.baselines)
            session.baselines = tuple(fitted)
        session.record.study.sampler = session.sampler.create(session)

    def _confirm(self, stop: Stop) -> None:
        session = self._session
        for each in _on_more_devices(session):
            if not session.is_short():
                session.run_each([(each.config, AskedBy(Asker.BASELINE, each.name))])
                session.baselines = (*session.baselines, each)
        if self._settings.blocks[1] > 0 and session.best() is not None and not self._budget.nothing_to_confirm(stop):
            self._entered = confirmation.entered(session)
            if self._entered:
                confirmation.run(session, self._entered)
        best = session.best()
        if best is not None and session.seconds_left() > session.trial_seconds():
            session.know(best.config)
