from __future__ import annotations

import tracemalloc

import numpy as np

from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.measure.bench import any_batch


def test_a_batch_for_the_model_alone_is_made_in_little_more_memory_than_it_takes() -> None:
    spec = SampleSpec(Field(FieldKind.ARRAY, (1 << 18,), np.dtype("uint8")), None)
    tracemalloc.start()
    try:
        x = any_batch(spec, 8)[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert x.dtype == np.uint8
    assert set(np.unique(x)) == {0, 1}
    assert peak < 3 * x.nbytes
