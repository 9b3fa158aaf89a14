"""The small arithmetic in which a search space names its bounds: `cores`, `2*cores`, `max(1, gpus)`.

Parsed as Python and computed on whole numbers node by node; never evaluated as code. Where the numbers behind the names
come from, and what the result bounds, is no business of this module.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Final

from autopipe.errors import near

_FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = {"min": min, "max": max}
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_GRAMMAR: Final = "whole numbers, names, `+`, `-`, `*`, `//`, brackets, `min(a, b)` and `max(a, b)`"
_LONGEST = 80


class BoundError(ValueError):
    """A bound that does not follow the grammar, or uses a name that is not known."""


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the whole number that `text` stands for: whole numbers, `names`, `+ - * //`, brackets, `min` and `max`.

    Example:
        >>> evaluate("min(16, 2*cores)", {"cores": 4})
        8

    Raises:
        BoundError: with what is wrong and, for an unknown name, the near one.
    """
    if len(text) > _LONGEST:
        raise BoundError(f"a bound takes at most {_LONGEST} characters, but this one has {len(text)}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, RecursionError) as error:
        if isinstance(error, BoundError):
            raise
        raise BoundError(f"a bound is made of {_GRAMMAR}, but this one is `{text}`") from None
    except ZeroDivisionError:
        raise BoundError(f"`{text}` divides by zero") from None


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(node.left, names), _value(node.right, names))
        case ast.Call(func=ast.Name(id=name), args=[first, second], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(first, names), _value(second, names))
        case ast.Name(id=name):
            known = ", ".join(f"`{each}`" for each in names)
            raise BoundError(f"`{name}` is no number and none of {known}.{near(name, names)}")
    raise BoundError(f"a bound is made of {_GRAMMAR}, but `{ast.unparse(node)}` is none of them")
