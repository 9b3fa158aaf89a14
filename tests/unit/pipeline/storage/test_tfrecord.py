"""What the form takes. Writing and reading are tested for all forms in tests/contract/test_storages.py."""

from __future__ import annotations

import numpy as np
import pytest

from autopipe.errors import StorageError
from autopipe.pipeline.storage.tfrecord import TFRecord
from autopipe.workload.sample import Field, FieldKind, SampleSpec

ENCODED = Field(FieldKind.ENCODED, None, None)


@pytest.mark.parametrize(
    ("target", "fits"),
    [
        (Field(FieldKind.LABEL, (), np.dtype("int64"), 0), True),
        (Field(FieldKind.LABEL, (), np.dtype("uint8"), 0), True),
        (Field(FieldKind.LABEL, (), np.dtype("bool"), 0), True),
        (Field(FieldKind.LABEL, (), np.dtype("float32"), 0), False),  # would lose what is behind the point
        (Field(FieldKind.LABEL, (4,), np.dtype("int64"), 1), False),
        (ENCODED, True),
        (None, True),
    ],
    ids=str,
)
def test_a_target_is_one_whole_number_or_a_mask_or_nothing(target: Field | None, fits: bool) -> None:
    assert TFRecord().can_hold(SampleSpec(ENCODED, target)) == fits


def test_an_unsigned_label_that_int64_does_not_hold_is_refused() -> None:
    spec = SampleSpec(ENCODED, Field(FieldKind.LABEL, (), np.dtype(np.uint64), 0))
    assert TFRecord().sample_bytes(spec, [(b"image", np.uint64(2**63 - 1))]) > 0
    with pytest.raises(StorageError, match=r"from -2\*\*63 to 2\*\*63 - 1, but got 9223372036854775808\."):
        TFRecord().sample_bytes(spec, [(b"image", np.uint64(2**63))])
