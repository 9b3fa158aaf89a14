"""Array operations of batchable ops in TensorFlow, for pipelines that finish inside tf.data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autopipe.core.arrays import ArrayNamespace


class _TensorFlow:
    def cast(self, array: Any, dtype: str) -> Any:
        import tensorflow as tf

        return tf.cast(array, dtype)

    def constant(self, values: Any, dtype: str) -> Any:
        import tensorflow as tf

        return tf.constant(values, dtype)

    def one_hot(self, ids: Any, classes: int, dtype: str) -> Any:
        import tensorflow as tf

        return tf.one_hot(tf.cast(ids, tf.int32), classes, dtype=dtype)

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        import tensorflow as tf

        return tf.transpose(array, axes)


TENSORFLOW: ArrayNamespace = _TensorFlow()
