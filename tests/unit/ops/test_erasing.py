from __future__ import annotations

import numpy as np
import pytest

from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import OpError
from autopipe.ops.geometry import RandomErasing
from autopipe.ops.planner import make_plan

IMAGES = np.zeros((4, 6, 8, 3), np.uint8)


@pytest.mark.parametrize("value", [300, -5, (0, 0, 256)])
def test_a_level_that_images_cannot_hold_is_refused_whether_or_not_chance_has_it_painted(value: object) -> None:
    op = RandomErasing(probability=1e-9, value=value)  # type: ignore[arg-type]
    workload = Workload(data=Arrays(IMAGES), ops=[op], batch_size=2)
    with pytest.raises(OpError, match=r"cannot paint value=.* on images of uint8: they hold 0 to 255"):
        make_plan(workload)


@pytest.mark.parametrize(("dtype", "value"), [("float32", 300), ("uint8", 255), ("uint8", 127.5), ("int16", -5)])
def test_a_level_that_they_can_hold_is_painted(dtype: str, value: float) -> None:
    images = IMAGES.astype(dtype)
    spec = SampleSpec(Field(FieldKind.IMAGE, images.shape[1:], images.dtype, 3), None)
    op = RandomErasing(probability=1, value=value)
    made = op.apply((images[0], None), spec, np.full(op.draws, 0.5))[0]
    assert isinstance(made, np.ndarray)
    assert set(np.unique(made)) == {0, np.dtype(dtype).type(value)}
