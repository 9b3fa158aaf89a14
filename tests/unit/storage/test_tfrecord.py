"""What the form takes. Writing and reading are tested for all forms in tests/contract/test_storages.py."""

from __future__ import annotations

import numpy as np
import pytest

from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.storage.tfrecord import TFRecord

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


def test_a_mask_or_nothing_fits_beside_an_image() -> None:
    assert TFRecord().can_hold(SampleSpec(ENCODED, ENCODED))
    assert TFRecord().can_hold(SampleSpec(ENCODED, None))
