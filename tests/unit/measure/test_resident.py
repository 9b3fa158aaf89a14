from __future__ import annotations

import itertools

import numpy as np

from autopipe.core.finish import Finish
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.devices import several_steps
from autopipe.measure.resident import ResidentLoader

SPEC = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype("uint8")), None)


def test_the_batches_of_a_call_need_not_be_stacked() -> None:
    batch = np.arange(8, dtype=np.uint8).reshape(4, 2)
    loader = ResidentLoader((batch, None), SPEC, Finish(), 4, together=3)
    taken = [x for x, _ in itertools.islice(loader.batches(0), 6)]
    for x in taken:
        np.testing.assert_array_equal(x, batch)
    assert np.shares_memory(several_steps.stack(taken[:3]), taken[0])
    assert all(y is None for _, y in itertools.islice(loader.batches(0), 4))
