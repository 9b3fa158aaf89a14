"""What the form takes. Writing and reading are tested for all forms in tests/contract/test_storages.py."""

from __future__ import annotations

import numpy as np
import pytest

from autopipe.errors import StorageError
from autopipe.pipeline.storage.tfrecord import TFRecord
from autopipe.workload.sample import Field, FieldKind, SampleSpec

ENCODED = Field(FieldKind.ENCODED, None, None)


@pytest.mark.parametrize(
    ("dtype", "shape", "fits"),
    [
        ("int64", (), True),
        ("uint8", (), True),
        ("bool", (), True),
        ("float32", (), False),  # would lose what is behind the point
        ("int64", (4,), False),
    ],
)
def test_a_label_is_one_whole_number(dtype: str, shape: tuple[int, ...], fits: bool) -> None:
    label = Field(FieldKind.LABEL, shape, np.dtype(dtype), len(shape))
    assert TFRecord().can_hold(SampleSpec(ENCODED, label)) == fits


def test_an_unsigned_label_that_int64_does_not_hold_is_refused() -> None:
    spec = SampleSpec(ENCODED, Field(FieldKind.LABEL, (), np.dtype(np.uint64), 0))
    assert TFRecord().sample_bytes(spec, [(b"image", np.uint64(2**63 - 1))]) > 0
    with pytest.raises(StorageError, match=r"from -2\*\*63 to 2\*\*63 - 1, but got 9223372036854775808\."):
        TFRecord().sample_bytes(spec, [(b"image", np.uint64(2**63))])


def test_a_mask_or_nothing_fits_beside_an_image() -> None:
    assert TFRecord().can_hold(SampleSpec(ENCODED, ENCODED))
    assert TFRecord().can_hold(SampleSpec(ENCODED, None))
