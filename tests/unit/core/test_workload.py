from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autopipe.assembly import batch_order
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
        ({"seed": None}, "`seed` must be a whole number, but got seed=None"),
        ({"seed": 0.5}, r"seed=0\.5"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Workload(**{"data": DATA, "ops": [], "batch_size": 2, **changes})


def test_a_seed_of_numpy_is_the_same_as_one_of_python() -> None:
    seeds: list[Any] = [7, np.int64(7), np.uint8(7)]
    workloads = [Workload(data=DATA, ops=[], batch_size=2, seed=seed) for seed in seeds]
    assert [(each.seed, type(each.seed)) for each in workloads] == [(7, int)] * 3
    orders = [batch_order(each).epoch(3).tolist() for each in workloads]
    assert orders[0] == orders[1] == orders[2] != sorted(orders[0])


def test_data_without_samples_are_refused() -> None:
    class Empty:
        def __len__(self) -> int:
            return 0

        def read(self, index: int) -> int:
            return index

    with pytest.raises(WorkloadError, match="at least one sample"):
        Workload(data=Empty(), ops=[], batch_size=1)
