"""Which setups of the model are worth a look: more devices, another channel order, several steps by one call, as long
as they pay. Pure.

What is judged is the model alone on batches that are there already: where that is no faster, no loader can make it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import ModelSetup
from autopipe.core.params import Value

_PAYS = 1.05  # times the rate of fewer devices: more cost more than such a gain is worth
_FASTER = 1.02  # times the rate of the usual channel order: less is noise

Setting = tuple[str, Value]


def ordered(setups: Iterable[ModelSetup]) -> list[ModelSetup]:
    """Return setups in the order in which to measure them: few devices and the usual channel order first.

    Those of equal devices and channels stay together, because they share a process.
    """
    usual = ModelSetup()
    return sorted(
        set(setups),
        key=lambda each: (
            each.devices,
            each.channels != usual.channels,
            each.steps_per_execution,
            each.finish != usual.finish,
        ),
    )


def pointless(ceilings: Sequence[Ceiling], setups: Iterable[ModelSetup]) -> dict[Setting, str]:
    """Return which settings bring nothing, with the reason, by what was measured so far.

    Args:
        ceilings: the model alone in the setups that were measured.
        setups: all that could be asked for. More devices than a number that does not pay do not pay either.
    """
    rates = {each.setup: each.model_images_per_second.value for each in ceilings}
    found: dict[Setting, str] = {}
    best, stop = 1, ""
    for count in sorted({each.devices for each in setups} - {1}):
        gain = _gain(rates, partial(_with_devices, count, best))
        if not stop and gain is not None and gain < _PAYS:
            here, there = _fastest(rates, count), _fastest(rates, best)
            stop = f"with batches that are there already, {count} train {here:,.0f} images/s and {best} {there:,.0f}"
        if stop:
            found["devices", count] = stop
        elif gain is not None:
            best = count
    gain = _gain(rates, lambda setup: setup._replace(channels="last") if setup.channels == "first" else None)
    if gain is not None and gain < _FASTER:
        found["channels", "first"] = f"the model alone is no faster so: {gain:.2f} times the rate of channels last"
    return found | _pointless_together(rates, setups)


def _pointless_together(rates: Mapping[ModelSetup, float], setups: Iterable[ModelSetup]) -> dict[Setting, str]:
    """Return how many steps by one call bring nothing; where some do not, more do not either."""
    found: dict[Setting, str] = {}
    best, stop = 1, ""
    for count in sorted({each.steps_per_execution for each in setups} - {1}):
        gain = _gain(rates, partial(_with_steps, count, best))
        if not stop and gain is not None and gain < _PAYS:
            stop = f"the model alone is no faster so: {gain:.2f} times the rate of {best}"
        if stop:
            found["steps_per_execution", count] = stop
        elif gain is not None:
            best = count
    return found


def unmeasured(ceilings: Sequence[Ceiling], setups: Iterable[ModelSetup]) -> dict[Setting, str]:
    """Return how many steps by one call have not been looked at, and why: they are tried only where they pay."""
    known = {each.setup.steps_per_execution for each in ceilings}
    wanted = {each.steps_per_execution for each in setups}
    why = "there was no time to measure the model alone so"
    return {("steps_per_execution", count): why for count in sorted(wanted - known) if ceilings and count > 1}


def _with_steps(count: int, other: int, setup: ModelSetup) -> ModelSetup | None:
    return setup._replace(steps_per_execution=other) if setup.steps_per_execution == count else None


def hopeless(setup: ModelSetup, known: Mapping[Setting, str]) -> bool:
    """Whether a setup has a setting that brings nothing."""
    return any((name, getattr(setup, name)) in known for name in ("devices", "channels", "steps_per_execution"))


def _gain(rates: Mapping[ModelSetup, float], usual: Callable[[ModelSetup], ModelSetup | None]) -> float | None:
    """Return how many times faster setups are than their `usual` counterparts, where one is most; None: no pair."""
    pairs = [(rate, usual(setup)) for setup, rate in rates.items()]
    return max((rate / rates[other] for rate, other in pairs if other is not None and other in rates), default=None)


def _with_devices(count: int, other: int, setup: ModelSetup) -> ModelSetup | None:
    return setup._replace(devices=other) if setup.devices == count else None


def _fastest(rates: Mapping[ModelSetup, float], devices: int) -> float:
    return max(rate for setup, rate in rates.items() if setup.devices == devices)
