from __future__ import annotations

import numpy as np
import pytest

from autopipe.core.array_namespace import NUMPY
from autopipe.devices.keras_ops import KERAS_OPS


@pytest.mark.parametrize("ids", [np.array([0, 2, 1]), np.array([[0, 7], [1, 2]], np.uint8), np.array([-1, 2])])
def test_one_hot_is_numpys(ids: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    expected = NUMPY.one_hot(ids, 3, "float32")
    assert np.array_equal(np.asarray(KERAS_OPS.one_hot(ids, 3, "float32")), expected)


def test_the_other_operations_are_numpys() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(np.asarray(KERAS_OPS.cast(array, "float32")), array.astype(np.float32))
    assert np.array_equal(np.asarray(KERAS_OPS.transpose(array, [2, 0, 1])), array.transpose(2, 0, 1))
    constant = np.asarray(KERAS_OPS.constant((0.5, 2.0), "float32"))
    assert constant.dtype == np.float32
    assert constant.tolist() == [0.5, 2.0]
