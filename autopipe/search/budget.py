"""What the time that a search has is spent on: ceilings beyond the usual one, a confirmation, waiting for the storage.

What a search can do in its time is decided here, and whether it is over in `autopipe.search.stopping`.
"""

from __future__ import annotations

from collections.abc import Sequence

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import ModelSetup, PipelineConfig
from autopipe.core.outcome import Measurement
from autopipe.core.value import Estimate
from autopipe.search import setups
from autopipe.search.events import BudgetPlanned, CeilingMeasured, OnEvent, StorageWaited
from autopipe.search.measurer import Baseline
from autopipe.search.origin import Asker
from autopipe.search.row import Row
from autopipe.search.session import Session
from autopipe.search.settings import Settings
from autopipe.search.stopping import Standing
from autopipe.search.storage import Patience

_OF_THE_MODEL = ("model_images_per_second", "model_core_seconds_per_image", "warnings")
_CEILING_SHARE = 1 / 8  # of the time that is left, for the model alone in another setup
_FIRST_SHARE = 1 / 3  # of the time that is left, for the first setup with the ops and the reads
_ROUNDS, _AS_FAST = 3, 1.1  # of two setups by turns, at most; times slower, while nobody else is busy
_ALONE_SECONDS, _ALONE_STEPS = 3.0, 15  # that it takes at first sight: the start, and steps
_ALONE_CALLS = 4  # of several steps each, at least
_CONFIRMATION_SHARE = 1 / 2  # of the time for trials, for the confirmation run
_FEWEST_TRIALS = 4  # of a confirmation run: two blocks of two
_PATIENCE_SHARE = 1 / 4  # of the budget, for a storage that is locked
_MOST_PATIENCE_SECONDS = 60.0
_TRIAL_SECONDS = 3.0  # of an ordinary trial, before the first has run
_TRIAL_STEPS = 4  # the fewest steps that a trial makes do with, and its start
_ADVISED_TRIALS = 10


def planned(session: Session, trials_in_confirmation: int) -> BudgetPlanned | None:
    """Return what the budget holds; None if there is none, or if a study that is gone on with has used it up."""
    budget = session.settings.budget_seconds
    if budget is None or (session.record.rows() and is_short(session)):
        return None
    usual = session.ceilings[0] if session.ceilings else None
    rates = [] if usual is None else [usual.model_images_per_second, usual.loader_images_per_second]
    step = max((session.facts.workload.batch_size / each.value for each in rates if each is not None), default=0.0)
    known = session.trial_seconds()
    trial = known or max(_TRIAL_SECONDS, _TRIAL_STEPS * step)
    starting = 0.0 if known else session.starting_seconds  # a baseline has a process of its own, which starts as slowly
    spent = session.seconds()
    return BudgetPlanned(
        budget_seconds=budget,
        spent_seconds=spent,
        trial_seconds=trial,
        trials=int(max(0.0, session.seconds_left() - starting) / trial),
        needed_seconds=spent + starting + 2 * trial + session.settings.end_seconds,
        advised_seconds=spent + starting + (_ADVISED_TRIALS + trials_in_confirmation) * trial,
    )


def is_short(session: Session) -> bool:
    """Whether there is no time for two more trials."""
    return session.seconds_left() < 2 * session.trial_seconds()


def for_confirmation(session: Session) -> float:
    """Return how many seconds a confirmation may keep from the search; with less than it takes, two blocks must do."""
    return _CONFIRMATION_SHARE * session.seconds_left()


def reserve(trial_seconds: float, confirmation_seconds: float, most_seconds: float) -> float:
    """Return how many seconds are kept for a confirmation run; 0 where not even the smallest is to be had."""
    return 0.0 if most_seconds < _FEWEST_TRIALS * trial_seconds else min(confirmation_seconds, most_seconds)


def patience(settings: Settings, on_event: OnEvent) -> Patience:
    """Return how long a locked storage is waited for: a part of the budget, so that the search still has the rest."""
    seconds = _MOST_PATIENCE_SECONDS
    if settings.budget_seconds is not None:
        seconds = min(seconds, settings.budget_seconds * _PATIENCE_SHARE)
    return Patience(seconds=seconds, on_wait=lambda reason: on_event(StorageWaited(reason=reason, seconds=seconds)))


def ceilings(session: Session, wanted: Sequence[ModelSetup]) -> list[Ceiling]:
    """Measure the usual setup of the model, and the others where that takes a small part of the time that is left.

    A model whose step takes seconds takes minutes to compile and run in each, which trials need more. More devices and
    another channel order are measured on as long as they pay.
    """
    clock = session.settings.clock
    began = clock()
    found = list(session.timed(lambda: session.measurer.ceilings(wanted[:1])))
    if not found:
        return []
    step, took = session.facts.workload.batch_size / found[0].model_images_per_second.value, clock() - began
    if took < _FIRST_SHARE * session.seconds_left():  # else it may have compiled for long, as it would for each setup
        took = min(took, _ALONE_SECONDS + _ALONE_STEPS * step)  # the first measured the ops and the reads, too
    for setup in wanted[1:]:
        if took > _CEILING_SHARE * session.seconds_left():
            break
        if setups.hopeless(setup, setups.pointless(found, wanted, session.facts.limits.only)):
            continue
        if _ALONE_CALLS * setup.steps_per_execution * step > _CEILING_SHARE * session.seconds_left():
            continue
        began = clock()
        other = _alone(session, setup)
        took = max(took, clock() - began)
        if other is not None:
            found = _by_turns(session, [*found, other.with_loader_of(found[0])], wanted, took)
    return found


def _by_turns(
    session: Session, found: list[Ceiling], wanted: Sequence[ModelSetup], reading_seconds: float
) -> list[Ceiling]:
    """Measure the last setup again if it seems to bring nothing, beside the one that it was compared with.

    Somebody else may have been busy during one of the two readings, and no trial will tell. Where the machine is not as
    fast as it was, there is another round; and if it stays so, the last one tells how much faster than the other it is.
    """
    usual, last = setups.rival(found), found[-1]
    if usual is None:
        return found
    known = usual.model_images_per_second.value
    for _ in range(_ROUNDS):
        hopeless = setups.hopeless(last.setup, setups.pointless(found, wanted, session.facts.limits.only))
        if not hopeless or 2 * reading_seconds > _CEILING_SHARE * session.seconds_left():
            break
        one, other = _alone(session, usual.setup), _alone(session, last.setup)
        if one is None or other is None:
            break
        slower = max(1.0, known / one.model_images_per_second.value)
        found = [*found[:-1], _taken(found[-1], _faster(other, slower))]
        if slower <= _AS_FAST:
            break
    return found


def _faster(ceiling: Ceiling, times: float) -> Ceiling:
    rate = ceiling.model_images_per_second
    values = {name: times * value for name, value in rate.model_dump().items()}
    return ceiling.model_copy(update={"model_images_per_second": Estimate(**values)})


def _taken(known: Ceiling, again: Ceiling) -> Ceiling:
    """Return a ceiling with another reading of the model in it, if that is higher."""
    if again.model_images_per_second.value <= known.model_images_per_second.value:
        return known
    return known.model_copy(update={name: getattr(again, name) for name in _OF_THE_MODEL})


def know_ceiling(session: Session, config: PipelineConfig) -> None:
    """See that the setup of `config`, which a trial has just run in, has its ceiling: there may have been no time."""
    if session.ceilings and session.ceiling(config) is None:
        look_again_at_ceiling(session, config, again=False)


def look_again_at_ceiling(session: Session, config: PipelineConfig, *, again: bool = True) -> Ceiling | None:
    """Measure the model alone once more, in the setup of `config`, and return what it took this time.

    What else a machine does can only lower a ceiling, so the highest that was measured counts for the search. A setup
    that there was no time for at the start is known from then on.
    """
    reading = _alone(session, config.model_setup, again=again)
    if reading is None:
        return None
    if session.others.me is not None:  # who shares the study may have found another higher meanwhile
        session.know_ceilings(session.record.ceilings() or session.ceilings)
    known = session.ceiling(config)
    if known is None:
        found = reading.with_loader_of(session.ceilings[0]) if session.ceilings else reading
        all_of_them = [*session.ceilings, found]
    elif (found := _taken(known, reading)) is not known:
        all_of_them = [found if each is known else each for each in session.ceilings]
    else:
        return reading
    session.record.keep_ceilings(all_of_them)
    session.know_ceilings(all_of_them)
    session.on_event(CeilingMeasured(ceiling=found))
    return reading


def _alone(session: Session, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
    return session.timed(lambda: session.measurer.model_alone(setup, again=again))


def wanted_setups(session: Session, baselines: Sequence[Baseline]) -> list[ModelSetup]:
    """Return the setups of the model that can occur in a search, in the order in which to measure them."""
    configs = [*(each.config for each in session.trimmed.candidates), *(each.config for each in baselines)]
    return setups.ordered(config.model_setup for config in configs)


def beyond_baselines(session: Session) -> bool:
    """Whether anything beside the baselines was tried."""
    ended = (row.origin.asker for row in session.search_rows() if row.outcome is not None)
    return any(asker not in (Asker.BASELINE, Asker.AGAIN) for asker in ended)


def standing(session: Session) -> Standing:
    """Return how the search stands."""
    rows = session.search_rows()
    best: list[Estimate | None] = []
    for row in rows:
        if row.outcome is None:  # cut off: it says nothing of what there is to gain
            continue
        here = _scored(session, row) if session.kept_limits(row) and session.allowed(row.config) else None
        last = best[-1] if best else None
        best.append(here if last is None or (here is not None and here.value > last.value) else last)
    tried = {row.key for row in rows if row.outcome is not None}
    if session.others.me is not None:
        tried |= session.record.under_way()
    untried = sum(candidate.key not in tried for candidate in session.trimmed.candidates)
    ended = sum(row.outcome is not None for row in rows)  # a trial that was cut off is not held against the budget
    return Standing(trials=ended, seconds=session.seconds(), best=best, untried=untried)


def _scored(session: Session, row: Row) -> Estimate | None:
    if not isinstance(row.outcome, Measurement):
        return None
    raw = row.outcome.images_per_second
    low, value, high = (session.score(row.config, [row.outcome], rate) for rate in (raw.low, raw.value, raw.high))
    return Estimate(value=value, low=low, high=high)
