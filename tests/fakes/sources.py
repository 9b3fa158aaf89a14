"""A source of whatever samples a test makes up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Made:
    """So many samples, each made from its index when it is read."""

    def __init__(self, count: int, make: Callable[[int], Any]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        return self._make(index)
