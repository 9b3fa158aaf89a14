"""The contract of loaders over DALI on the CPU: each test of it that decodes files, with `Dali` for other loaders.

DALI passes over damage inside a JPEG, so `Decode` here does, too. Where DALI decodes alone its pixels are those of
`Decode`; where it also resizes, they may be `LEVELS` off, which a test here says. Samples that are no files, which
`Dali` refuses, are left out by name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autopipe as ap
from autopipe.extensions.dali.loader import Dali
from tests.contract import test_loaders as contract
from tests.contract.test_loaders import *  # noqa: F403  # the contract itself

LEVELS = 1
"""By how much DALI's bilinear resize was seen to differ from OpenCV's, of 256 levels."""
LOADERS = {f"dali-{n}": Dali(num_threads=n, prefetch_queue_depth=n) for n in (1, 2, 5)}
ONE_OF_EACH = ["dali-2"]
SETTINGS = {
    name: chosen
    for name, chosen in contract.SETTINGS.items()
    if name.startswith("files") and chosen.get("keep") != "encoded"
}

del test_small_samples_that_are_batched_at_once_are_the_same  # noqa: F821
del test_samples_without_targets_and_single_numbers_will_do  # noqa: F821
del test_samples_of_several_parts_are_the_same_from_every_loader_and_storage  # noqa: F821
del test_each_damaged_file_is_named_in_every_configuration  # noqa: F821  # of two of them DALI tells nothing
del test_images_of_sixteen_bits_and_of_floats_lose_none  # noqa: F821  # DALI is given no such images, and says so


@pytest.fixture(scope="module", autouse=True)
def _decoding_what_dali_decodes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ap, "Decode", functools.partial(ap.Decode, strict=False))
        yield


@pytest.mark.parametrize("number", LOADERS)
def test_images_that_are_resized_at_first_differ_by_so_many_levels_at_most(photos: Path, number: str) -> None:
    ops = [ap.Decode(), ap.Resize(24, 32), ap.RandomFlip(), ap.Normalize((128, 120, 110), 255)]
    workload = contract.exact_workload(photos, ops=ops)
    with contract.opened(workload, LOADERS[number]) as made:
        for epoch in (0, 1):
            expected, found = contract.expected_batches(workload, epoch), made.batches(epoch)
            for (x, y), (found_x, found_y) in zip(expected, contract.finished(made, found), strict=True):
                assert np.abs(x - found_x).max() <= LEVELS * 1.001 / 255
                np.testing.assert_array_equal(y, found_y)
