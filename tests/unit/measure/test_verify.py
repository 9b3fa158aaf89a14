from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.core.config import PipelineConfig
from autopipe.core.report import Report
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.loaders.threads import Threads
from autopipe.measure.verify import _compare, _Epoch, verify
from autopipe.reports import agreement

CONFIG = PipelineConfig(loader=Threads(workers=2), finish="host")


def test_values_that_lack_are_the_same_where_they_lack_everywhere() -> None:
    x = np.random.default_rng(0).random((12, 3, 3, 1), np.float32)
    x[3, 1, 1], x[5, 0, 0] = np.nan, np.inf
    y = np.where(np.arange(12) % 4 == 0, np.nan, np.arange(12.0))
    found = verify(
        Workload(data=Arrays(x, y), ops=[], batch_size=5), [CONFIG], samples=12, report=Mock(spec=Report)
    ).agreements
    assert [(each.message, each.largest_difference, each.samples) for each in found] == [(None, 0.0, 12)]
    assert 0.9 < found[0].largest_value < 1


def epoch(x: NDArray[np.float32]) -> _Epoch:
    return _Epoch((x,), (np.arange(len(x)),), np.arange(len(x)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("in_the_reference", [False, True])
def test_a_value_that_lacks_on_one_side_only_is_told(value: float, in_the_reference: bool) -> None:
    whole, broken = epoch(np.full((4, 2), 0.5, np.float32)), epoch(np.full((4, 2), 0.5, np.float32))
    broken.x[0][2, 1] = value
    found = _compare(CONFIG, *((broken, whole) if in_the_reference else (whole, broken)))
    assert found.message == "NaN or infinite values stand where others should"
    assert not agreement.agrees(Mock(agreements=[found]))
