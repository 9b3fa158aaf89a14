from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import WorkloadError

DATA = Arrays(np.zeros((10, 4, 4, 3), np.uint8), np.arange(10))


def test_ops_become_a_tuple() -> None:
    assert Workload(data=DATA, ops=[], batch_size=2).ops == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "photos/"}, "`data` must have"),
        ({"ops": [abs]}, "ap.Map"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.0}, r"batch_size=2\.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": 11}, "there are 10 samples"),
        ({"on_bad_sample": "ignore"}, "ignore"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Workload(**{"data": DATA, "ops": [], "batch_size": 2, **changes})


def test_data_without_samples_are_refused() -> None:
    class Empty:
        def __len__(self) -> int:
            return 0

        def read(self, index: int) -> int:
            return index

    with pytest.raises(WorkloadError, match="at least one sample"):
        Workload(data=Empty(), ops=[], batch_size=1)
