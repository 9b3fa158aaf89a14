"""Ejected pipelines run where autopipe is not, and give the same samples as autopipe's own loaders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe import assembly
from autopipe.core.config import LoaderConfig, PipelineConfig
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.data.image_folder import ImageFolder
from autopipe.data.image_pairs import ImagePairs
from autopipe.errors import ConfigError
from autopipe.loaders.keras import Keras
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads
from autopipe.ops.color import RandomBrightness, RandomContrast
from autopipe.ops.crop import CenterCrop, RandomCrop
from autopipe.ops.custom import Map
from autopipe.ops.decode import Decode
from autopipe.ops.flip import RandomFlip
from autopipe.ops.mask import MaskToClass
from autopipe.ops.onehot import OneHot
from autopipe.ops.pad import Pad
from autopipe.ops.resize import Resize
from autopipe.ops.scale import Cast, Normalize, Rescale
from autopipe.tuned.eject.module import eject

LOADERS = [TfData(num_parallel_calls=2, prefetch=1), Keras(workers=2, max_queue_size=2)]
PALETTE = ((0, 0, 0), (255, 0, 0), (0, 255, 0), (10, 20, 30))

RUN = """
import sys
sys.modules["autopipe"] = None  # any import of it fails
import numpy as np, plain
if hasattr(plain, "make_dataset"):
    epoch = list(plain.make_dataset().as_numpy_iterator())
else:
    made = plain.Batches()
    epoch = [made[number] for number in range(len(made))]
np.savez({out!r}, x=np.concatenate([x for x, y in epoch]), y=np.concatenate([y for x, y in epoch]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    random = np.random.default_rng(0)
    for number in range(6):
        path = tmp_path / "data" / "photos" / f"class {number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), random.integers(0, 256, (20 + number, 30, 3), np.uint8))
    return ImageFolder(tmp_path / "data" / "photos")


@pytest.fixture
def pairs(tmp_path: Path) -> ImagePairs:
    random = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    for number in range(5):
        cv2.imwrite(str(tmp_path / f"data/images/{number}.png"), random.integers(0, 256, (24, 32, 3), np.uint8))
        mask = np.asarray(PALETTE, np.uint8)[random.integers(0, 4, (24, 32))]
        cv2.imwrite(str(tmp_path / f"data/masks/{number}_L.png"), cv2.cvtColor(mask, cv2.COLOR_RGB2BGR))
    return ImagePairs(tmp_path / "data" / "images", tmp_path / "data" / "masks", mask_suffix="_L")


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    def run(source: str) -> dict[str, Any]:
        (tmp_path / "plain.py").write_text(source)
        code = RUN.format(out=str(tmp_path / "out.npz"))
        environment = {
            **os.environ,
            "KERAS_BACKEND": "jax",
        }  # starts sooner; batches are NumPy arrays anyway
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return dict(np.load(tmp_path / "out.npz"))

    return run


def _expected(workload: Workload) -> dict[str, Any]:
    with assembly.build_loader(workload, PipelineConfig(loader=Threads(workers=1), finish="host")) as loader:
        batches = [(x.copy(), y.copy()) for x, y in loader.epoch(0)]
    return {"x": np.concatenate([x for x, _ in batches]), "y": np.concatenate([y for _, y in batches])}


def _assert_alike(expected: dict[str, Any], found: dict[str, Any], tolerance: float) -> None:
    assert {part: (value.shape, value.dtype) for part, value in expected.items()} == {
        part: (value.shape, value.dtype if part == "x" else expected[part].dtype) for part, value in found.items()
    }
    np.testing.assert_array_equal(expected["y"], found["y"])
    np.testing.assert_allclose(expected["x"], found["x"], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_deterministic_ops_on_photos_give_what_autopipe_gives(
    folder: ImageFolder, run: Callable[[str], dict[str, Any]], loader: LoaderConfig
) -> None:
    ops = [Decode(), Pad(24, 24, value=7.0), Resize(26, 28), CenterCrop(21, 20), Normalize((1.0, 2.0, 3.0), 60.0)]
    workload = Workload(data=folder, ops=[*ops, Cast("int32", on="mask")], batch_size=4, shuffle=False)
    found = run(eject(workload, PipelineConfig(loader=loader, cache="memory")))
    _assert_alike(_expected(workload), found, tolerance=1.01 / 60)


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_deterministic_ops_on_pairs_give_what_autopipe_gives(
    pairs: ImagePairs, run: Callable[[str], dict[str, Any]], loader: LoaderConfig
) -> None:
    ops = [
        Decode(),
        MaskToClass(PALETTE),
        Pad(30, 34, mask_value=3),
        Resize(13, 15, interpolation="nearest"),  # here OpenCV and TensorFlow take other pixels
        OneHot(4),
    ]
    workload = Workload(data=pairs, ops=[*ops, Rescale(1 / 255, 0.5)], batch_size=2, drop_remainder=True, shuffle=False)
    found = run(eject(workload, PipelineConfig(loader=loader)))
    _assert_alike(_expected(workload), found, tolerance=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_random_ops_give_batches_of_the_right_kind(
    pairs: ImagePairs, run: Callable[[str], dict[str, Any]], loader: LoaderConfig
) -> None:
    colours = [RandomBrightness(), RandomContrast()]
    ops = [Decode(), MaskToClass(PALETTE), RandomCrop(16, 16), RandomFlip(vertical=True), *colours]
    found = run(eject(Workload(data=pairs, ops=ops, batch_size=2), PipelineConfig(loader=loader, channels="first")))
    assert (found["x"].shape, found["x"].dtype, found["y"].shape) == ((5, 3, 16, 16), np.uint8, (5, 16, 16))


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_random_geometry_keeps_image_and_mask_together(
    pairs: ImagePairs, run: Callable[[str], dict[str, Any]], loader: LoaderConfig
) -> None:
    images = Path(pairs.files()[0]).parent
    twins = ImagePairs(images, shutil.copytree(images, images.parent / "copy"))
    ops = [Decode(), RandomCrop(16, 16), RandomFlip(vertical=True)]
    found = run(eject(Workload(data=twins, ops=ops, batch_size=2), PipelineConfig(loader=loader)))
    np.testing.assert_array_equal(found["x"], found["y"])
    assert len(np.unique(found["x"].reshape(5, -1), axis=0)) == 5


def test_every_reason_against_it_is_said(folder: ImageFolder) -> None:
    workload = Workload(
        data=folder, ops=[Decode(), Resize(8, 8, interpolation="area"), Map(abs)], batch_size=2, on_bad_sample="skip"
    )
    with pytest.raises(ConfigError) as error:
        eject(workload, PipelineConfig(loader=TfData(), storage="array"))
    for reason in ("`Map` runs code of your own", "interpolation='area'", "storage='array'", "bad samples"):
        assert reason in error.value.message


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (PipelineConfig(loader=Threads(workers=2)), "the `threads` loader is autopipe's own"),
        (PipelineConfig(loader=Keras(workers=2, use_multiprocessing=True), cache="memory"), "cache in memory"),
        (PipelineConfig(loader=TfData()), "`Arrays` has no counterpart"),
    ],
)
def test_what_plain_code_cannot_express_is_refused(config: PipelineConfig, reason: str) -> None:
    workload = Workload(data=Arrays(np.zeros((4, 2)), np.zeros(4)), ops=[], batch_size=2)
    with pytest.raises(ConfigError, match=reason):
        eject(workload, config)
