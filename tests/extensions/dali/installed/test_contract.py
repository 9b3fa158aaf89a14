"""The contract of loaders over DALI on the CPU: each test of it that decodes files, with `Dali` for other loaders.

DALI passes over damage inside a JPEG, so `Decode` here does, too. Where DALI decodes alone its pixels are those of
`Decode`; where it also resizes, test_loader.py says how near they come. Samples that are no files, which `Dali`
refuses, are left out by name.
"""

import functools
from collections.abc import Iterator

import pytest

import autopipe as ap
from autopipe.extensions.dali.loader import Dali
from tests.contract import test_loaders as contract
from tests.contract.test_loaders import *  # noqa: F403  # the contract itself

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
