"""The setups of the model that are worth a trial, by the model alone on batches that are there already. Pure.

A setup is a number of devices, an order of channels, steps per call, and the place where ops finish. If the model
alone is no faster in a setup, no loader can make it faster. `autopipe.search.model_ceilings` measures them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from autopipe.measure.facts import Ceiling
from autopipe.pipeline.config import ModelSetup, Value

Setting = tuple[str, Value]

_PAYS = 1.05  # times the rate of fewer (devices, say): a smaller gain is not worth their cost
_FASTER = 1.02  # times the rate of the usual value of a setting that is no number: less is noise
# The gain of the most is the largest, so that noise hides it last; if they do not pay, fewer do not either.
_MOST_FIRST = ("steps_per_execution",)
_NOT_JUDGED = ("finish",)  # the loader's work depends on it as well


def ordered(setups: Iterable[ModelSetup]) -> list[ModelSetup]:
    """Return setups in the order of measuring: the usual first, then few devices, and many steps.

    Those of equal devices and channels stay together, because they share a process.
    """

    def place(setup: ModelSetup) -> tuple[tuple[bool, int], ...]:
        places = []
        for name, value, usual in zip(ModelSetup._fields, setup, ModelSetup(), strict=True):
            number = value if isinstance(value, int) else 0
            places.append((value != usual, -number if name in _MOST_FIRST else number))
        return (*places[:2], *places[:1:-1])

    return sorted(set(setups), key=place)


def useless(
    ceilings: Sequence[Ceiling], setups: Sequence[ModelSetup], named: Collection[str] = ()
) -> dict[Setting, str]:
    """Return the settings that are not worth a trial, with the reason: they bring nothing, or were not measured.

    Several steps per call are tried only if they pay, and so only if they were measured. Of all possible `setups`,
    `ceilings` have the measured ones. `named` settings, which the user has asked for, are not judged.
    """
    found = pointless(ceilings, setups, named)
    if not ceilings or "steps_per_execution" in named:
        return found
    known = {each.setup.steps_per_execution for each in ceilings}
    wanted = {each.steps_per_execution for each in setups if each.steps_per_execution > 1}
    why = "there was no time to measure the model alone so"
    return {("steps_per_execution", count): why for count in sorted(wanted - known)} | found


def pointless(
    ceilings: Sequence[Ceiling], setups: Iterable[ModelSetup], named: Collection[str] = ()
) -> dict[Setting, str]:
    """Return the settings that bring nothing by the measurements, with the reason; arguments as in `useless`."""
    rates = {each.setup: each.model_images_per_second.value for each in ceilings}
    wanted, found = list(setups), dict[Setting, str]()
    for name in ModelSetup._fields:
        if name not in _NOT_JUDGED and name not in named:
            found |= _pointless(rates, name, {getattr(each, name) for each in wanted})
    return found


def _pointless(rates: Mapping[ModelSetup, float], name: str, values: set[Value]) -> dict[Setting, str]:
    """Return the values of one setting that bring nothing.

    If some devices do not pay over fewer, more do not either. Several steps per call are compared with one.
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


def _gain(rates: Mapping[ModelSetup, float], name: str, value: Value, other: Value) -> float | None:
    """Return the largest ratio of a value's rate to another's over all pairs; None if there is no pair."""
    change: dict[str, Any] = {name: other}
    pairs = [(rate, setup._replace(**change)) for setup, rate in rates.items() if getattr(setup, name) == value]
    return max((rate / rates[usual] for rate, usual in pairs if usual in rates), default=None)


def hopeless(setup: ModelSetup, known: Mapping[Setting, str]) -> bool:
    """Return True if a setup has a setting that brings nothing."""
    return not known.keys().isdisjoint(setup._asdict().items())


def rival(ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """Return the fastest of those that share a process with the last and differ from it in one setting, if any."""
    *others, last = ceilings
    alike = (each for each in others if each.setup[:2] == last.setup[:2])
    near = (each for each in alike if sum(map(lambda a, b: a != b, each.setup, last.setup)) == 1)
    return max(near, key=lambda each: each.model_images_per_second.value, default=None)
