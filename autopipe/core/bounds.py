"""The small arithmetic in which a search space names its bounds: `cores`, `2*cores`, `max(1, gpus)`.

Parsed by hand and computed on whole numbers; never evaluated as code. Where the numbers behind the names come from,
and what the result bounds, is no business of this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from autopipe.errors import near

FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = {"min": min, "max": max}
_LONGEST = 80
_TOKEN = re.compile(r"\s*(?:(\d{1,9})|([A-Za-z_]+)|(//|[-+*(),]))")


class BoundError(ValueError):
    """A bound that does not follow the grammar, or uses a name that is not known."""


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the whole number that `text` stands for.

    The grammar: whole numbers, `names`, `+`, `-`, `*`, `//`, brackets, `min(a, b)` and `max(a, b)`.

    Example:
        >>> evaluate("min(16, 2*cores)", {"cores": 4})
        8

    Raises:
        BoundError: with the place and, for an unknown name, the near one.
    """
    if len(text) > _LONGEST:
        raise BoundError(f"a bound takes at most {_LONGEST} characters, but this one has {len(text)}")
    return _Parser(text, names).whole()


class _Parser:
    def __init__(self, text: str, names: Mapping[str, int]) -> None:
        self._text = text
        self._names = names
        self._tokens = _split(text)
        self._at = 0

    def whole(self) -> int:
        value = self._sum()
        if self._peek():
            raise BoundError(f"`{self._text}` has `{self._peek()}` where it should end")
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            found = f"`{token}`" if token else "its end"
            raise BoundError(f"`{self._text}` has {found} where {expected or 'a number or name'} should be")
        self._at += 1
        return token

    def _sum(self) -> int:
        value = self._product()
        while self._peek() in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> int:
        value = self._factor()
        while self._peek() in ("*", "//"):
            if self._take() == "*":
                value *= self._factor()
                continue
            divisor = self._factor()
            if divisor == 0:
                raise BoundError(f"`{self._text}` divides by zero")
            value //= divisor
        return value

    def _factor(self) -> int:
        word = self._take()
        if word == "(":
            value = self._sum()
            self._take(")")
            return value
        if word.isdecimal():
            return int(word)
        if word in FUNCTIONS and self._peek() == "(":
            self._take("(")
            first = self._sum()
            self._take(",")
            value = FUNCTIONS[word](first, self._sum())
            self._take(")")
            return value
        if word in self._names:
            return self._names[word]
        known = ", ".join(f"`{name}`" for name in self._names)
        raise BoundError(f"`{word}` is no number and none of {known}.{near(word, self._names)}")


def _split(text: str) -> list[str]:
    words, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BoundError(f"`{text}` has {text[at:].lstrip()[:1]!r}, which is no part of a bound")
        words.append(match.group(match.lastindex or 0))
        at = match.end()
    return words
