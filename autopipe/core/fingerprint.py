"""Digests that tell whether two things are the same; what counts as the same is what each function reads, no more."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from autopipe.core.op import Op


def digest(*parts: object) -> str:
    """Return a short hexadecimal digest of the parts' texts, in order."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


def ops_digest(ops: Sequence[Op]) -> str:
    """Return the digest of an op list: the ops' names and settings, and the code of mapped functions."""
    return digest(*(_op_text(op) for op in ops))


def _op_text(op: Op) -> str:
    settings = (f"{field.name}={_value_text(getattr(op, field.name))}" for field in dataclasses.fields(op))
    return f"{type(op).__name__}({', '.join(settings)})"


def _value_text(value: Any) -> str:
    return _function_text(value) if callable(value) else repr(value)


def _function_text(function: Callable[..., Any]) -> str:
    """Name a function by its code, so that an edited one differs and an address in memory does not count."""
    if isinstance(function, functools.partial):
        return f"partial({_function_text(function.func)}, {function.args!r}, {sorted(function.keywords.items())!r})"
    code = getattr(function, "__code__", None)
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    return name if code is None else f"{name}:{digest(code.co_code.hex(), _constants(code), code.co_names)}"


def _constants(code: Any) -> list[str]:
    """Return the constants of a code object; nested functions by their own code."""
    return [digest(c.co_code.hex(), _constants(c)) if hasattr(c, "co_code") else repr(c) for c in code.co_consts]
