"""Measures the model alone, in as many of its setups as the time allows, and again if a reading may be too low.

Which setups are worth a trial is told in `autopipe.search.feasible`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autopipe.measure.facts import Ceiling
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search import feasible
from autopipe.search.session import Session
from autopipe.search.trials import CeilingMeasured
from autopipe.values import Estimate

_OF_THE_MODEL = ("model_images_per_second", "model_core_seconds_per_image", "warnings")
_SHARE = 1 / 8  # of the time that is left, for the model alone in another setup
_SHARE_OF_ALL = 1 / 4  # of the time that is left after the first, for all other setups
_FIRST_SHARE = 1 / 3  # of the time that is left, for the first setup with the ops and the reads
_ROUNDS, _AS_FAST = 3, 1.1  # of two setups by turns, at most; times slower, on an idle machine
_ALONE_SECONDS, _ALONE_STEPS = 3.0, 15  # of a reading, before the first: the start, and steps
_ALONE_CALLS = 4  # of several steps each, at least


def measured(session: Session, asked: Iterable[ModelSetup]) -> list[Ceiling]:
    """Measure the usual setup of the model, and the others if that takes a small part of the time that is left.

    A model whose step takes seconds takes minutes to compile and run in each, which trials need more. What may gain the
    most comes first: the most devices, then fewer. All other settings are measured on the fastest number of devices.
    """
    clock, wanted = session.settings.clock, feasible.ordered(asked)
    began = clock()
    found = list(session.timed(lambda: session.measurer.ceilings(wanted[:1])))
    if not found:
        return []
    step, took = session.facts.workload.batch_size / found[0].model_images_per_second.value, clock() - began
    if took < _FIRST_SHARE * session.seconds_left():  # else it may have compiled for long, as it would for each setup
        took = min(took, _ALONE_SECONDS + _ALONE_STEPS * step)  # the first measured the ops and the reads, too
    all_end = clock() + _SHARE_OF_ALL * session.seconds_left()
    usual, ended = wanted[0], False

    def measure(setup: ModelSetup, share: float = _SHARE) -> None:
        nonlocal found, took, ended
        most = share * session.seconds_left()
        ended = ended or took > most or clock() + took > all_end
        if (
            ended
            or _is_hopeless(session, setup, found, wanted)
            or _ALONE_CALLS * setup.steps_per_execution * step > most
        ):
            return
        began = clock()
        other = _alone(session, setup)
        took = max(took, clock() - began)
        if other is not None:
            found = _by_turns(session, [*found, other.with_loader_of(found[0])], wanted, took)

    for setup in sorted((each for each in wanted[1:] if each[1:] == usual[1:]), key=lambda each: -each.devices):
        measure(setup, _FIRST_SHARE)
    pays = [each for each in found if not _is_hopeless(session, each.setup, found, wanted)]
    fastest = max(pays or found, key=lambda each: each.model_images_per_second.value).setup.devices
    for setup in wanted[1:]:
        if setup.devices == fastest and setup[1:] != usual[1:]:
            measure(setup)
    return found


def _is_hopeless(session: Session, setup: ModelSetup, found: list[Ceiling], wanted: Sequence[ModelSetup]) -> bool:
    facts = session.facts
    size = facts.workload.batch_size
    return feasible.hopeless(setup, feasible.useless(found, wanted, facts.limits.only, size, measuring=True))


def _by_turns(
    session: Session, found: list[Ceiling], wanted: Sequence[ModelSetup], reading_seconds: float
) -> list[Ceiling]:
    """Measure the last setup again if it seems to bring nothing, together with the one that it was compared with.

    Another process may have been busy during one of the two readings, and no trial will tell. If the machine is slower
    than before, there is another round; if it stays so, the last one gives the ratio of the two.
    """
    usual, last = feasible.rival(found), found[-1]
    if usual is None:
        return found
    known = usual.model_images_per_second.value
    for _ in range(_ROUNDS):
        too_long = 2 * reading_seconds > _SHARE * session.seconds_left()
        if too_long or not _is_hopeless(session, last.setup, found, wanted):
            break
        one, other = _alone(session, usual.setup), _alone(session, last.setup)
        if one is None or other is None:
            break
        slower = max(1.0, known / one.model_images_per_second.value)
        found = [*found[:-1], _higher(found[-1], _faster(other, slower))]
        if slower <= _AS_FAST:
            break
    return found


def _faster(ceiling: Ceiling, times: float) -> Ceiling:
    rate = ceiling.model_images_per_second
    values = {name: times * value for name, value in rate.model_dump().items()}
    return ceiling.model_copy(update={"model_images_per_second": Estimate(**values)})


def _higher(known: Ceiling, again: Ceiling) -> Ceiling:
    """Return a ceiling with another reading of the model in it, if that is higher."""
    if again.model_images_per_second.value <= known.model_images_per_second.value:
        return known
    return known.model_copy(update={name: getattr(again, name) for name in _OF_THE_MODEL})


def _alone(session: Session, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
    return session.timed(lambda: session.measurer.model_alone(setup, again=again))


def know(session: Session, config: PipelineConfig) -> None:
    """Measure the setup of a configuration that has just run, if there was no time for it at the start."""
    if session.ceilings and session.ceiling(config) is None:
        look_again(session, config, again=False)


def look_again(session: Session, config: PipelineConfig, *, again: bool = True) -> Ceiling | None:
    """Measure the model alone once more, in the setup of `config`, and return this reading.

    Other load can only lower a ceiling, so the search uses the highest reading.
    """
    reading = _alone(session, config.model_setup, again=again)
    if reading is None:
        return None
    known = session.ceiling(config)
    found = _higher(known, reading) if known is not None else reading
    if known is None and session.ceilings:
        found = reading.with_loader_of(session.ceilings[0])
    if found is known:
        return reading
    others = [each for each in session.ceilings if each is not known]
    at = len(others) if known is None else list(session.ceilings).index(known)
    all_of_them = [*others[:at], found, *others[at:]]
    session.record.keep_ceilings(all_of_them)
    session.know_ceilings(all_of_them)
    session.on_event(CeilingMeasured(ceiling=found))
    return reading
