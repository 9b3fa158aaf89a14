"""Constants and functions that a user's functions look up in their modules.

The digest of ops covers a function's own code and captured values, not its module. Caches of an op's results ask here,
too, because an edited constant gives other pixels. Values that can change while a program runs (a list, an array, a
reassigned name) do not count.
"""

from __future__ import annotations

import dis
import functools
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any

from autopipe.workload.digests import digest, home, value_text
from autopipe.workload.op import Op

_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def looked_up(ops: Iterable[Op]) -> dict[str, str]:
    """Return the digest of each constant and function that the functions of some ops look up, by its full name."""
    found: dict[str, str] = {}
    given: set[str] = set()
    seen: set[types.FunctionType] = set()
    pending = list(_functions_in(ops))
    while pending:
        function = pending.pop()
        if function in seen:
            continue
        seen.add(function)
        module = home(function)
        given.update(f"{module}.{name}" for name in _names(function.__code__, "STORE_GLOBAL"))
        names = _names(function.__code__, "LOAD_GLOBAL") - {"__name__", "__file__"}  # which Python gives
        values = {name: function.__globals__.get(name, ...) for name in names}
        functions = {name: list(_functions_in([value])) for name, value in values.items()}
        for name, value in values.items():
            if functions[name] or _is_constant(value):
                found[f"{module}.{name}"] = digest(*map(value_text, functions[name] or [value]))
        pending += [each for several in functions.values() for each in several]
        pending += _functions_in(map(_content, function.__closure__ or ()))
    return {name: found[name] for name in sorted(found.keys() - given)}


def _functions_in(values: Iterable[Any]) -> Iterator[types.FunctionType]:
    """Yield the user's own functions among some values, or inside them."""
    for value in values:
        if isinstance(value, types.FunctionType):
            if not value.__code__.co_filename.startswith(_INSTALLED):
                yield value
        elif isinstance(value, Op):
            yield from _functions_in(vars(value).values())
        elif isinstance(value, types.MethodType):
            yield from _functions_in([value.__func__])
        elif isinstance(value, functools.partial):
            yield from _functions_in([value.func])
        elif callable(value) and isinstance(call := type(value).__call__, types.FunctionType):
            yield from _functions_in([call])


def _names(code: types.CodeType, operation: str) -> set[str]:
    """Return the module's names that a function, or one within it, looks up or stores, as `operation` says."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname == operation}
    return found.union(*(_names(each, operation) for each in code.co_consts if isinstance(each, types.CodeType)))


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, bool | int | float | complex | str | bytes)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
