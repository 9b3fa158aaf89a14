"""The contract of loaders over DALI on the CPU: each test of it that decodes files, with `Dali` for other loaders.

DALI passes over damage inside a JPEG, so `Decode` here does, too. Where DALI decodes alone its pixels are those of
`Decode`; where it also resizes, they may be `LEVELS` off, which a test here says. Samples that are no files, which
`Dali` refuses, are left out by name.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from autopipe.extensions.dali.loader import Dali
from autopipe.pipeline.config import LoaderConfig
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.ops.values import Normalize
from tests.contract import test_loaders as contract
from tests.fakes.contract import suite

LEVELS = 1
"""By how much DALI's bilinear resize was seen to differ from OpenCV's, of 256 levels."""
DALIS: dict[str, LoaderConfig] = {f"dali-{n}": Dali(num_threads=n, prefetch_queue_depth=n) for n in (1, 2, 5)}
NO_FILES = {
    "test_small_samples_that_are_batched_at_once_are_the_same",
    "test_small_samples_in_another_storage_form_are_the_same",
    "test_a_source_of_arrays_without_targets_will_do",
    "test_samples_that_are_single_numbers_will_do",
    "test_samples_of_several_parts_are_the_same_from_every_loader_and_storage",
}


globals().update(
    suite(
        DALIS,
        "dali-2",
        but=NO_FILES,
        settings="files",
        instead={"Decode": functools.partial(Decode, strict=False)},
    )
)


def test_all_of_the_contract_is_here_but_what_is_left_out_by_name() -> None:
    theirs = {name for name in vars(contract) if name.startswith("test_")}
    assert theirs - globals().keys() == NO_FILES


@pytest.mark.parametrize("loader", DALIS)
def test_images_that_are_resized_at_first_differ_by_so_many_levels_at_most(photos: Path, loader: str) -> None:
    ops = [Decode(strict=False), Resize(24, 32), RandomFlip(), Normalize((128, 120, 110), 255)]
    workload = contract.exact_workload(photos, ops=ops)
    with contract.opened(workload, loader) as made:
        for epoch in (0, 1):
            expected, found = contract.expected_batches(workload, epoch), made.batches(epoch)
            for (x, y), (found_x, found_y) in zip(expected, contract.finished(made, found), strict=True):
                assert np.abs(x - found_x).max() <= LEVELS * 1.001 / 255
                np.testing.assert_array_equal(y, found_y)
