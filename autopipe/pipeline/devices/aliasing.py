"""TensorFlow tensors over NumPy memory, without a copy.

A tensor made here refers to its array, so that the array outlives every use of the tensor. Only memory that kernels of
TensorFlow accept as it is gets aliased (aligned, contiguous, writable); everything else is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

_ALIGNMENT = 64  # EIGEN_MAX_ALIGN_BYTES with AVX-512; kernels abort the process on less


def tensor(array: Any) -> Any:
    """Return a tensor in host memory with the array's values; a tensor is returned as it is."""
    if not isinstance(array, np.ndarray):
        return array
    if _may_alias(array):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    with tf.device("CPU:0"):
        return tf.constant(array)


def _may_alias(array: np.ndarray[Any, Any]) -> bool:
    return (
        array.nbytes > 0
        and array.dtype.kind in "iuf"
        and array.flags.c_contiguous
        and array.flags.writeable  # DLPack cannot say "read only"
        and int(array.__array_interface__["data"][0]) % _ALIGNMENT == 0
    )
