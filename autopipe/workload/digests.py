"""Digests of values and ops, to compare for equality; that of ops covers a user's function with its own code and
captured values, and not what it looks up in its module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe.workload.op import Op

_LONGEST = 120  # characters of a setting that are kept for people
_DEEPEST = 5  # objects within objects that count


def digest(*parts: object) -> str:
    """Return a short hexadecimal digest of the parts' texts, in order."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


def canonical(value: object) -> str:
    """Return values as JSON with sorted names, without fields at their defaults or with `repr=False`."""

    def set_fields(value: Any) -> dict[str, Any]:
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump(mode="json", exclude_defaults=True)
        fields = (each for each in dataclasses.fields(value) if each.repr)
        return {each.name: getattr(value, each.name) for each in fields if getattr(value, each.name) != each.default}

    return json.dumps(value, sort_keys=True, default=set_fields)


def ops_digest(ops: Sequence[Op]) -> str:
    """Return the digest of an op list: the ops' names and settings, and the code of mapped functions."""

    def text(op: Op) -> str:
        settings = (f"{name}={value_text(value)}" for name, value in _fields(op).items())
        return f"{type(op).__name__}({', '.join(settings)}){_revision(op)}"

    return digest(*map(text, ops))


def op_settings(op: Op) -> dict[str, str]:
    """Return an op's settings as short texts that differ if the settings do; functions include their code."""
    texts = {name: value_text(value) for name, value in _fields(op).items()}
    return {
        name: text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…({digest(text)})" for name, text in texts.items()
    }


def _revision(value: Any) -> str:
    return f" v{value.revision}" if isinstance(value, Op) and value.revision > 1 else ""


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _array_of(value: Any) -> NDArray[Any] | None:
    if isinstance(value, np.ndarray):
        return value
    with contextlib.suppress(Exception):  # one that lies on a device, say
        if hasattr(type(value), "__array__") and ("..." in (text := repr(value)) or "array(" in text):
            return None if (array := np.asarray(value)).dtype.hasobject else array
    return None


def _holds_set(value: Any, depth: int = _DEEPEST) -> bool:
    """Return True for a set or what holds one, whose order differs from process to process."""
    parts = list(value) if isinstance(value, list | tuple | dict) else []
    parts += value.values() if isinstance(value, dict) else ()
    parts += _fields(value).values() if dataclasses.is_dataclass(value) and not isinstance(value, type) else ()
    return isinstance(value, set | frozenset) or (depth > 0 and any(_holds_set(each, depth - 1) for each in parts))


def value_text(value: Any, inside: tuple[int, ...] = ()) -> str:
    """Describe a value by its content, without addresses in memory; `inside` are the objects around it."""
    if id(value) in inside or len(inside) > _DEEPEST:
        return type(value).__qualname__
    inside = (*inside, id(value))
    if (array := _array_of(value)) is not None:
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return f"array({array.dtype}, {array.shape}, {content})"
    if isinstance(value, types.ModuleType | type):
        return value.__name__
    if callable(value):
        return _function_text(value, inside)
    if isinstance(value, set | frozenset):
        shown = f"{{{', '.join(sorted(value_text(each, inside) for each in value))}}}"
        return shown if isinstance(value, set) else f"frozenset({shown})"
    text = repr(value)
    is_whole = " at 0x" not in text and "array(" not in text and not _holds_set(value)
    if isinstance(value, str | bytes) or is_whole:
        return text + _revision(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(each, inside) for each in value)}]"
    if isinstance(value, dict):
        return _named_text(value, inside)
    named = _fields(value) if dataclasses.is_dataclass(value) else getattr(value, "__dict__", {})
    return f"{type(value).__qualname__}{_named_text(named, inside)}"


def _named_text(values: Mapping[Any, Any], inside: tuple[int, ...]) -> str:
    named = sorted((str(name), value_text(each, inside)) for name, each in values.items())
    return f"({', '.join(f'{name}={text}' for name, text in named)})"


def _function_text(function: Callable[..., Any], inside: tuple[int, ...]) -> str:
    if isinstance(function, functools.partial):
        bound = value_text(list(function.args), inside), _named_text(function.keywords, inside)
        return f"partial({value_text(function.func, inside)}, {', '.join(bound)})"
    name = f"{home(function)}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    code = getattr(function, "__code__", None)
    if code is None:  # an object that can be called, or a function that is not written in Python
        call = getattr(type(function).__call__, "__code__", None)
        if call is None:
            return name
        held = _named_text(vars(function), inside) if vars(function) else ""
        return f"{name}{digest(call.co_code.hex(), _constants(call), call.co_names)}{held}"
    cells = dict[int, Any]()
    for number, cell in enumerate(function.__closure__ or ()):
        cells[number] = None
        with contextlib.suppress(ValueError):  # not filled yet
            cells[number] = cell.cell_contents
    defaults = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
    own = getattr(getattr(function, "__self__", None), "__dict__", {})  # of a method's object
    captured = "".join(_named_text(each, inside) for each in (cells, defaults, own) if each)
    return f"{name}:{digest(code.co_code.hex(), _constants(code), code.co_names)}{captured}"


def home(function: Callable[..., Any]) -> str:
    """Return the module of a function as others import it; a script that is run as `__main__` has its file's name."""
    if function.__module__ != "__main__":
        return function.__module__
    code = function if hasattr(function, "__code__") else type(function).__call__
    known = getattr(code, "__globals__", {})  # in a process that it was sent to, of the script that it came from
    file = known.get("__file__") or getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file is not None else function.__module__


def _constants(code: Any) -> list[str]:
    return [digest(c.co_code.hex(), _constants(c)) if hasattr(c, "co_code") else value_text(c) for c in code.co_consts]
