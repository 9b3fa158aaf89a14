"""The few array operations that batchable ops are written in, so that one text runs in NumPy, TensorFlow and Keras.

Arithmetic operators are used as they are; only what is spelled differently is named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class ArrayNamespace(Protocol):
    """What a batchable op may call besides operators."""

    def cast(self, array: Any, dtype: str) -> Any:
        """Return the array in another dtype."""
        ...

    def constant(self, values: Any, dtype: str) -> Any:
        """Return an array of given values."""
        ...

    def one_hot(self, ids: Any, classes: int, dtype: str) -> Any:
        """Return a new last axis of length `classes` that is 1 at the id and 0 elsewhere."""
        ...

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        """Return the array with its axes in another order."""
        ...


class _NumPy:
    def cast(self, array: Any, dtype: str) -> Any:
        return np.asarray(array).astype(dtype, copy=False)

    def constant(self, values: Any, dtype: str) -> Any:
        return np.asarray(values, dtype)

    def one_hot(self, ids: Any, classes: int, dtype: str) -> Any:
        ids = np.asarray(ids)
        out = np.zeros((ids.size, classes), dtype)
        flat = ids.reshape(-1)
        inside = np.flatnonzero((flat >= 0) & (flat < classes))  # ids outside get all zeros, as in TensorFlow and Keras
        out[inside, flat[inside]] = 1
        return out.reshape(*ids.shape, classes)

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return np.transpose(array, axes)


NUMPY: ArrayNamespace = _NumPy()
