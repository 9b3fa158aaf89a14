"""Refuses arguments of a wrong type at the entry points, in one line with their name and value.

The module that uses a value checks its meaning, for example whether a budget is a number of seconds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from autopipe.errors import ConfigError, near, shortened

_Passed = ParamSpec("_Passed")
_Made = TypeVar("_Made")


def unfit(name: str, value: object, wanted: str, hint: str) -> ConfigError:
    """Return the error for an argument that is not a `wanted`."""
    return ConfigError(f"`{name}` must be {wanted}, but got {shortened(value)}.", hint=hint)


def refusing_unknown(hint: str) -> Callable[[Callable[_Passed, _Made]], Callable[_Passed, _Made]]:
    """Decorate a function so that an unknown keyword is a ConfigError that names the known ones, with this hint."""

    def decorated(function: Callable[_Passed, _Made]) -> Callable[_Passed, _Made]:
        known = inspect.signature(function).parameters

        @functools.wraps(function)
        def called(*arguments: _Passed.args, **named: _Passed.kwargs) -> _Made:
            unknown = next((name for name in named if name not in known), None)
            if unknown is not None:
                raise ConfigError(
                    f"`ap.{function.__name__}` takes {', '.join(known)}, but got "
                    f"{unknown}={shortened(named[unknown])}.{near(unknown, known)}",
                    hint=hint,
                )
            return function(*arguments, **named)

        return called

    return decorated
