"""The ops' TensorFlow halves, put together for a tf.data pipeline, and the array operations of batchable ops.

What has no TensorFlow half runs its NumPy half inside the graph. Datasets are built in `autopipe.loaders.tfdata`, not
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.core.array_namespace import ArrayNamespace
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, Sample, SampleSpec


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


def apply_step(step: Step, sample: Sample, random: Any) -> Sample:
    """Return the tensors of one sample after an op, their shapes set as far as the plan knows them."""
    try:
        made = step.op.apply_tensorflow(sample, step.before, random)
    except NotImplementedError:
        made = _through_numpy(step, sample, random)
    return shaped(made, step.after)


def shaped(sample: Sample, spec: SampleSpec) -> Sample:
    """Set what is certain of the shapes of a sample's tensors, which TensorFlow forgets wherever Python made them.

    The height and width of images are only where an op of TensorFlow's has set them: the few that were looked at may
    have had one size by chance.
    """
    for tensor, field in zip(sample, spec.columns, strict=True):
        if field is not None:
            _set_shape(tensor, field)
    return tuple(None if field is None else tensor for tensor, field in zip(sample, spec.columns, strict=True))


def checked(sample: Sample, spec: SampleSpec) -> Sample:
    """Return a sample's tensors, each of which fails where it is not as `spec` has it."""
    import tensorflow as tf

    return tuple(
        part if field is None or field.shape is None else tf.ensure_shape(part, field.shape)
        for part, field in zip(sample, spec.columns, strict=True)
    )


def tensor_types(spec: SampleSpec) -> list[Any]:
    """Return the TensorFlow dtypes of a sample's fields."""
    import tensorflow as tf

    return [tf.string if field.dtype is None else tf.as_dtype(field.dtype) for field in spec.fields]


def _set_shape(tensor: Any, field: Field) -> None:
    if field.kind is FieldKind.ENCODED:
        tensor.set_shape(())
    elif field.shape is not None:
        tensor.set_shape([*[None] * len(field.shape[:2]), *field.shape[2:]])
    elif field.rank is not None:
        tensor.set_shape([None] * field.rank)


def _through_numpy(step: Step, sample: Sample, random: Any) -> Sample:
    import tensorflow as tf

    def numpy_half(random: NDArray[np.float64], *parts: Any) -> Any:
        made = step.op.apply(step.before.aligned(parts), step.before, random)
        return [part for part in made if part is not None]

    tensors = [tensor for tensor in sample if tensor is not None]
    return step.after.aligned(tf.numpy_function(numpy_half, [random, *tensors], tensor_types(step.after)))
