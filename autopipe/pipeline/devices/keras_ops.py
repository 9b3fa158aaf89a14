"""The array operations of batchable ops in `keras.ops`: inside a compiled step, or eagerly on the backend's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from autopipe.workload.array_namespace import ArrayNamespace


class _KerasOps:
    def cast(self, array: Any, dtype: str) -> Any:
        return keras.ops.cast(array, dtype)

    def constant(self, values: Any, dtype: str) -> Any:
        return keras.ops.convert_to_tensor(values, dtype=dtype)

    def one_hot(self, ids: Any, classes: int, dtype: str) -> Any:
        return keras.ops.one_hot(ids, classes, dtype=dtype)

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return keras.ops.transpose(array, tuple(axes))


KERAS_OPS: ArrayNamespace = _KerasOps()
