"""Frozen pydantic models: settings (`Strict`), values that survive JSON (`Value`), and figures as texts, both ways.

Errors are in this project's form. What a value means is decided by its own module.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Self

import pydantic

from autopipe.errors import ConfigError, near, shortened


class Strict(pydantic.BaseModel):
    """Settings that never change, of exactly their types; a ConfigError is one sentence."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _clear_errors(cls, value: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except pydantic.ValidationError as error:
            raise ConfigError(_sentence(cls, error)) from None


def _sentence(cls: type[pydantic.BaseModel], error: pydantic.ValidationError) -> str:
    found = error.errors(include_url=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])  # what is missing, misspelt
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = list(cls.model_fields)
        return f"`{cls.__name__}` has no key `{key}`; it takes {', '.join(known)}.{near(key, known)}"
    if first["type"] == "missing":
        return f"`{cls.__name__}` needs `{key}`, which was not given."
    if not key:
        return f"A `{cls.__name__}` must be an object of that class, but got {shortened(first['input'])}."
    return f"`{key}` of `{cls.__name__}` is wrong: {first['msg']}, but got {key}={shortened(first['input'])}."


# -------------------- value

Amount = Annotated[float, pydantic.Field(ge=0)]
Positive = Annotated[float, pydantic.Field(gt=0)]
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Count = Annotated[int, pydantic.Field(ge=0)]

JsonObject = dict[str, pydantic.JsonValue]
"""A `PipelineConfig` in its canonical form as JSON: readable without importing the loader it names."""


class Value(pydantic.BaseModel):
    """A frozen value whose figures are finite; `model_dump_json()` writes it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Estimate(Value):
    """A figure with its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of_one(cls, value: float) -> Self:
        """Return a figure that was read once: its spread is unknown, and `low` is 0."""
        return cls(value=value, low=0.0, high=2 * value)

    @property
    def has_interval(self) -> bool:
        return self.low > 0.0

    def mapped(self, function: Callable[[float], float]) -> Estimate:
        return Estimate(value=function(self.value), low=function(self.low), high=function(self.high))

    @pydantic.model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"`low` must not exceed `high`, but got low={self.low} and high={self.high}.")
        return self


def figure_text(value: float) -> str:
    """Return a figure with three digits or, from 100 on, as a whole number: a large model takes 8.25 images/s."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


UNSTEADY = 1.5
"""Times from the lower to the upper end of a rate that is not trusted; wider intervals than its square are not told."""


def span_text(low: float, high: float) -> str:
    """Write an interval of images/s, as `Estimate` has it: with one window, none is known."""
    if low <= 0:
        return "one window, no interval"
    return "too unsteady" if high > UNSTEADY**2 * low else f"{figure_text(low)} to {figure_text(high)}"


def milliseconds_text(seconds: float) -> str:
    """Return seconds as milliseconds, with two or three digits; as seconds from one on."""
    if seconds >= 1:
        return f"{figure_text(seconds)} s"
    return f"{seconds * 1e3:.2g} ms" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def capital(said: str) -> str:
    """Return a sentence with a capital at its beginning."""
    return said[:1].upper() + said[1:]


def listed(names: Sequence[str]) -> str:
    """Join names, at least one, to a list in a sentence."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def count_text(number: float, noun: str) -> str:
    """Write a number of things: "1 core", "2.5 cores"."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


# -------------------- durations, sizes and rates, as they are given on a command line, in a file and in Python

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)", re.IGNORECASE)
_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(B|bits?)/s", re.IGNORECASE)
_DECIMAL: Final = {"": 1e0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def seconds(given: object, name: str) -> float:
    """Return a duration in seconds, given as such or as `90s`, `3m`, `15ms`; raise ConfigError for another."""
    found = _number(given)
    if isinstance(given, str) and (match := _DURATION.fullmatch(given.strip())):
        found = float(match[1]) * _SECONDS[match[2].lower()]
    if found is None:
        raise _refused(name, "a duration such as 90s, 3m or 15ms", given, "ms", "s", "m")
    if not 0 < found < math.inf:
        raise ConfigError(f"`{name}` must be longer than 0 s and come to an end, but got {shortened(given)}.")
    return found


def size_bytes(given: object, name: str) -> int:
    """Return a size in bytes, given as a number of them or as a text: `8G`, `500MiB`. Raises as `seconds`."""
    found = _number(given)
    if isinstance(given, str) and (match := _SIZE.fullmatch(given.strip())):
        found = float(match[1]) * _UNITS[(match[2] or "").upper()]
    if found is None or not 0 <= found < math.inf:
        raise _refused(name, "a size such as 8G or 500M", given, "M", "G")
    return int(found)


def bytes_per_second(text: str) -> float | None:
    """Return a rate such as `12GB/s` or `25Gbit/s`; None if the text is none, or the rate is 0."""
    if (match := _RATE.fullmatch(text.strip())) is None:
        return None
    bits = 8 if match[3].lower().startswith("bit") else 1
    return float(match[1]) * _DECIMAL[match[2].upper()] / bits or None


def _number(given: object) -> float | None:
    return None if isinstance(given, bool) or not isinstance(given, numbers.Real) else float(given)


def _refused(name: str, wanted: str, given: object, *units: str) -> ConfigError:
    hint = None
    if isinstance(given, str) and re.fullmatch(r"\d+(?:\.\d+)?", given.strip()):
        hint = f"Write the unit: {' or '.join(f'{given.strip()}{unit}' for unit in units)}."
    return ConfigError(f"`{name}` must be {wanted}, but got {shortened(given)}.", hint=hint)
