"""A step's logs that are fetched from the device when somebody reads them.

Keras turns the logs of each step into numbers before it calls callbacks, and thereby waits for the device after each
step, even if nobody reads them. Then the host prepares nothing while the device works.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any

import numpy as np


class StepLogs(dict[str, Any]):
    """What Keras passes as `logs`: a dict of numbers. `np.asarray(logs)` waits until all of them are known."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(sorted(values.items()))  # the order of Keras's own

    def __getitem__(self, name: str) -> Any:
        return _number(super().__getitem__(name))

    def __iter__(self) -> Iterator[str]:  # without it, dict(logs) and {**logs} would copy what is stored
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        return _number(super().get(name, default))

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # a view that reads, like the other
        """As of a dict."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # a view that reads, like the other
        """As of a dict."""
        return ValuesView(self)

    def copy(self) -> dict[str, Any]:
        """As of a dict."""
        return dict(self.items())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array([value for value in self.values() if isinstance(value, float)], dtype)


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return StepLogs(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return value  # several numbers, or none: Keras passes them on, too
