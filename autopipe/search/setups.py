"""Which setups of the model are worth a look: more devices, another channel order, several steps by one call, or
whatever else a setup has, as long as it pays. Pure.

What is judged is the model alone on batches that are there already: where that is no faster, no loader can make it so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import ModelSetup
from autopipe.core.params import Value

_PAYS = 1.05  # times the rate of fewer (devices, say): more cost more than such a gain is worth
_FASTER = 1.02  # times the rate of the usual value of what is no number: less is noise
_MOST_FIRST = (
    "steps_per_execution",
)  # what the most of them do not gain, fewer do not either, and it shows best there
_NOT_JUDGED = ("finish",)  # where it is done is a matter of the loader's work as well

Setting = tuple[str, Value]


def ordered(setups: Iterable[ModelSetup]) -> list[ModelSetup]:
    """Return setups in the order in which to measure them: what is usual first, then few devices, and many steps.

    Those of equal devices and channels stay together, because they share a process.
    """

    def place(setup: ModelSetup) -> tuple[tuple[bool, int], ...]:
        places = []
        for name, value, usual in zip(ModelSetup._fields, setup, ModelSetup(), strict=True):
            number = value if isinstance(value, int) else 0
            places.append((value != usual, -number if name in _MOST_FIRST else number))
        return (*places[:2], *places[:1:-1])

    return sorted(set(setups), key=place)


def useless(ceilings: Sequence[Ceiling], setups: Sequence[ModelSetup], named: Collection[str]) -> dict[Setting, str]:
    """Return which settings are not worth a trial: what is not known of them, and what is known to bring nothing."""
    return unmeasured(ceilings, setups, named) | pointless(ceilings, setups, named)


def pointless(
    ceilings: Sequence[Ceiling], setups: Iterable[ModelSetup], named: Collection[str] = ()
) -> dict[Setting, str]:
    """Return which settings bring nothing, with the reason, by what was measured so far.

    Args:
        ceilings: the model alone in the setups that were measured.
        setups: all that could be asked for.
        named: settings that the user has asked for, which are not judged.
    """
    rates = {each.setup: each.model_images_per_second.value for each in ceilings}
    wanted, found = list(setups), dict[Setting, str]()
    for name in ModelSetup._fields:
        if name not in _NOT_JUDGED and name not in named:
            found |= _pointless(rates, name, {getattr(each, name) for each in wanted})
    return found


def unmeasured(
    ceilings: Sequence[Ceiling], setups: Iterable[ModelSetup], named: Collection[str] = ()
) -> dict[Setting, str]:
    """Return how many steps by one call have not been looked at, and why: they are tried only where they pay."""
    known = {each.setup.steps_per_execution for each in ceilings}
    wanted = {each.steps_per_execution for each in setups}
    why, tried = "there was no time to measure the model alone so", ceilings and "steps_per_execution" not in named
    return {("steps_per_execution", count): why for count in sorted(wanted - known) if tried and count > 1}


def _pointless(rates: Mapping[ModelSetup, float], name: str, values: set[Value]) -> dict[Setting, str]:
    """Return which values of one setting bring nothing.

    Where some devices do not pay over fewer, more do not either. Several steps by one call are compared with one: the
    most first, whose gain is the largest, so that noise hides it last; where they do not pay, fewer do not either.
    """
    found: dict[Setting, str] = {}
    best, stop = getattr(ModelSetup(), name), ""
    most_first = name in _MOST_FIRST
    for value in sorted(values - {best}, reverse=most_first):
        gain, is_count = _gain(rates, name, value, best), isinstance(value, int)
        if not stop and gain is not None and gain < (_PAYS if is_count else _FASTER):
            stop = f"the model alone is no faster so: {gain:.2f} times the rate of {name} {best}"
        if stop:
            found[name, value] = stop
        elif gain is not None and not most_first:
            best = value
        stop = stop if is_count else ""
    return found


def rival(ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """Return the fastest of those that share a process with the last and differ from it in one setting, if any."""
    *others, last = ceilings
    alike = [each for each in others if each.setup[:2] == last.setup[:2] and _differences(each, last) == 1]
    return max(alike, key=lambda each: each.model_images_per_second.value, default=None)


def _differences(one: Ceiling, other: Ceiling) -> int:
    return sum(mine != theirs for mine, theirs in zip(one.setup, other.setup, strict=True))


def hopeless(setup: ModelSetup, known: Mapping[Setting, str]) -> bool:
    """Whether a setup has a setting that brings nothing."""
    return not known.keys().isdisjoint(setup._asdict().items())


def _gain(rates: Mapping[ModelSetup, float], name: str, value: Value, other: Value) -> float | None:
    """Return how many times faster a value is than another of the same setting, where it is most; None: no pair."""
    change: dict[str, Any] = {name: other}
    pairs = [(rate, setup._replace(**change)) for setup, rate in rates.items() if getattr(setup, name) == value]
    return max((rate / rates[usual] for rate, usual in pairs if usual in rates), default=None)
