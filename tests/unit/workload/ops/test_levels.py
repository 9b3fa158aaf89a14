"""Levels of pixels: what ops do to them on bytes is to the bit what 32-bit floats give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies

import autopipe as ap
from autopipe.workload.sample import Field, FieldKind, SampleSpec

PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
SPEC = SampleSpec(Field(FieldKind.IMAGE, PIXELS.shape, PIXELS.dtype, 3), None)
HALVES = [((level + 0.5) / 255 + 1) / 2 for level in range(-255, 255)]  # whose shift lies between two levels


@given(number=strategies.floats(0, 1, exclude_max=True) | strategies.sampled_from(HALVES))
def test_bytes_become_brighter_to_the_bit_as_32_bit_floats_do(number: float) -> None:
    levels = np.arange(256, dtype=np.float32).reshape(16, 16)
    shift, factor = np.float32(2 * number - 1) * np.float32(255), np.float32(3 * number)
    for op, wanted in (
        (ap.RandomBrightness(1.0), levels + shift),
        (ap.RandomBrightness(factor=(0, 3)), levels * factor),
    ):
        for shape in ((16, 16), (4, 64), (16, 16, 1), (1, 256, 1), (4, 4, 16)):
            found = op.pixels(levels.astype(np.uint8).reshape(shape), FieldKind.IMAGE, np.array([number]), None)
            np.testing.assert_array_equal(found, np.clip(np.rint(wanted), 0, 255).reshape(shape))


@pytest.mark.parametrize("step", [1, 2])  # rooms in one piece, and not
def test_normalised_channels_are_to_the_bit_what_each_is_alone(step: int) -> None:
    room = np.empty((6, 8 * step, 3), np.float32)[:, ::step]
    ap.Normalize((1.5, 20, 0.3), 7.7).apply((PIXELS, None), SPEC, np.empty(0), room)
    for channel, mean in enumerate((1.5, 20, 0.3)):
        alone = ap.Normalize(mean, 7.7).apply((PIXELS[..., channel], None), SPEC, np.empty(0))[0]
        np.testing.assert_array_equal(room[..., channel], alone)
