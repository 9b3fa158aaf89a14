"""A source of whatever samples a test makes up, and a function that fails at first."""

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


class Failing:
    """Fails at some of its calls, as `np.load` does in CPython 3.11 while another thread loads a file, too."""

    def __init__(self, function: Any, calls: int = 1, said: str = "AST constructor recursion depth") -> None:
        self.calls, self._function, self._said = calls, function, said

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls -= 1
        if self.calls >= 0:
            raise SystemError(f"{self._said} mismatch (before=72, after=68)")
        return self._function(*arguments, **options)
