"""What a user passes to an entry point: refused in one line, with its name and value, where it can be none of its.

What a value means, such as a budget that is no number of seconds, is checked by whom it is for.
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
    """Return the error for an argument that is no such thing as is `wanted`."""
    return ConfigError(f"`{name}` must be {wanted}, but got {shortened(value)}.", hint=hint)


def refusing_unknown(hint: str) -> Callable[[Callable[_Passed, _Made]], Callable[_Passed, _Made]]:
    """Have a function refuse a keyword that it does not have by a ConfigError, with what it takes and this hint."""

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
