"""What participants of one study do together: what is done once, who waits for whom, and what is told to whom.

The first of those that are there measures the model alone, ends the search for all, and runs the confirmation; the
others take part in the search, and wait for what it finds. Where it dies, the next takes its place. Alone, nothing
waits. Who is there is `autopipe.search.participants`'s.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Sequence

import pydantic

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import PipelineConfig
from autopipe.search.events import ConcludedElsewhere, StudyJoined, WaitingForOthers
from autopipe.search.measurer import Baseline
from autopipe.search.participants import Alone, State
from autopipe.search.result import SearchResult
from autopipe.search.session import Session
from autopipe.search.stopping import Reason, Stop

POLL_SECONDS = 0.5


class Conclusion(pydantic.BaseModel):
    """How a shared study ended: with the trials, all that its result is made of."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    host: str  # on which machine
    winner: str | None = None  # the key of the configuration to use; None if there is none
    # keys of those in the confirmation run that may win, by the limits and memory there
    allowed: tuple[str, ...] | None = None
    entered: tuple[str, ...]  # the keys of those in the confirmation run, in order; empty if there was none
    # names and configurations of those that were measured for the sake of the best
    baselines: tuple[tuple[str, PipelineConfig], ...]
    reason: Reason  # why the search ended
    message: str  # the same as a sentence
    seconds: float  # how long all of it took there
    measuring_seconds: float  # the part of it in trials, and on ceilings
    ended_at: datetime.datetime

    @property
    def stop(self) -> Stop:
        """Why the search ended."""
        return Stop(reason=self.reason, message=self.message)

    def extra_baselines(self) -> list[Baseline]:
        """Return the baselines that were measured for the sake of the best."""
        return [Baseline(name=name, config=config) for name, config in self.baselines]


def tell(session: Session) -> None:
    """Tell with whom the study is shared."""
    if session.others.me is not None:
        there = tuple(str(each) for each in session.others.others())
        session.on_event(StudyJoined(name=session.settings.study_name, others=there))


def told_to_stop(session: Session) -> Stop | None:
    """Return why the search is over for all, or None."""
    return None if session.others.me is None else session.record.stop()


def ceilings(session: Session, measure: Callable[[], list[Ceiling]]) -> list[Ceiling]:
    """Return the study's ceilings; the one that coordinates measures them if there are none yet."""
    _wait(session, lambda: bool(session.record.ceilings()), "measures the model alone")
    found = session.record.ceilings()
    if not found:
        found = measure()
        session.record.keep_ceilings(found)
    return found


def conclusion(session: Session, stop: Stop) -> Conclusion | None:
    """Return how another has ended the study, or None if that falls to this one; nobody searches any more then."""
    if isinstance(session.others, Alone):
        return None
    session.others.rest()
    _wait(session, lambda: session.record.conclusion() is not None, "searches, and runs the confirmation")
    kept = session.record.conclusion()
    if kept is None:
        session.record.keep_stop(stop)
        _wait_for_all(session)
        while session.record.waiting():  # what somebody was about to run, or died with
            session.run_next()
    level(session)
    if kept is None:
        return None
    found = Conclusion.model_validate_json(kept)
    name = session.settings.study_name
    session.on_event(ConcludedElsewhere(name=name, host=found.host, ended_at=found.ended_at))
    return found


def level(session: Session) -> None:
    """Let what a session knows of a shared study follow from the study alone, and not from when it looked at it."""
    if session.others.me is not None:
        session.know_ceilings(session.record.ceilings())
        session.believed = None


def interrupted(session: Session) -> Stop:
    """Return why the search is over that the user has interrupted."""
    found = session.best() is not None
    message = "Interrupted: this is the best so far." if found else "Interrupted before anything to use was measured."
    session.others.coordinates()  # looks at who is there by now
    if session.others.others():
        message += " The others who share the study go on; the same command fetches their result."
    return Stop(reason=Reason.INTERRUPTED, message=message)


def conclude(session: Session, result: SearchResult, entered: Sequence[str], extra: Sequence[Baseline]) -> SearchResult:
    """Tell the others how the study ended, and return the result as they will have it."""
    if isinstance(session.others, Alone) or result.interrupted:
        return result
    ended_at = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    kept = Conclusion(
        host=session.others.host,
        winner=None if result.best_config is None else result.best_config.key(),
        allowed=tuple(key for key in entered if session.points()[key].feasible),
        entered=tuple(entered),
        baselines=tuple((each.name, each.config) for each in extra),
        reason=result.stopped_because.reason,
        message=result.stopped_because.message,
        seconds=result.seconds,
        measuring_seconds=result.measuring_seconds,
        ended_at=ended_at,
    )
    session.record.keep_conclusion(kept.model_dump_json())
    return as_concluded(result, kept)


def as_concluded(result: SearchResult, found: Conclusion) -> SearchResult:
    """Return a result with what does not follow from the trials as it was where the study was concluded."""
    return dataclasses.replace(
        result, seconds=found.seconds, measuring_seconds=found.measuring_seconds, ended_at=found.ended_at
    )


def _wait(session: Session, until: Callable[[], bool], what: str) -> None:
    """Wait until something is there, or this one coordinates."""
    told = False
    while not until() and not session.others.coordinates():
        session.take_over()
        if not told:
            first = next(iter(session.others.others()), None)
            session.on_event(WaitingForOthers(what=f"{first or 'another participant'} {what}"))
            told = True
        time.sleep(POLL_SECONDS)


def _wait_for_all(session: Session) -> None:
    """Wait until nobody searches any more."""
    told = False
    while session.others.coordinates():
        searching = [each for each in session.others.others() if each.state is State.SEARCHES]
        if not searching:
            return
        session.take_over()
        if not told:
            whom = ", ".join(str(each) for each in searching)
            session.on_event(WaitingForOthers(what=f"the last trials of {whom}"))
            told = True
        time.sleep(POLL_SECONDS)
