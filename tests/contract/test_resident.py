"""The contract of loaders over samples on the device, here the CPU, on TensorFlow and JAX; by ops that move pixels."""

from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

import autopipe as ap
from tests.contract import test_loaders
from tests.contract.test_loaders import *  # noqa: F403  # the contract itself
from tests.fakes.commands import ROOT, python, succeeded

LOADERS = {f"resident-{n}": ap.Resident(workers=n) for n in (1, 3)}
ONE_OF_EACH = ["resident-3"]


def moves() -> list[ap.Op]:
    return [
        *(ap.Decode(), ap.Resize(40, 44), ap.RandomCrop(30, 36), ap.RandomFlip(vertical=True), ap.CenterCrop(28, 32)),
        *(ap.RandomFlip(), ap.RandomCrop(24, 32), ap.OneHot(23)),
        ap.Rescale(1 / 255),  # without an offset: with one, XLA rounds once where NumPy rounds twice
    ]


@pytest.fixture(scope="module", autouse=True)
def moves_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_loaders, "exact_ops", moves)
        test_loaders.exact_digest.cache_clear()
        yield
    test_loaders.exact_digest.cache_clear()


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.skipif(keras.backend.backend() == "jax", reason="this is it")
def test_all_of_this_holds_on_jax(tmp_path: Path) -> None:
    own = ROOT / "tests" / "unit" / "pipeline" / "loaders" / "test_resident.py"
    succeeded(python("-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, own, cwd=ROOT, backend="jax"))
