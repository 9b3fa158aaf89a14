"""Lines of the plain code, run by themselves. Whole files of it are run in tests/integration/test_tuned_eject.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import fsspec
import numpy as np
import pytest

from autopipe.core.config import LoaderConfig, PipelineConfig
from autopipe.core.op import Op
from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.core.workload import Workload
from autopipe.data.image_folder import ImageFolder
from autopipe.data.image_pairs import ImagePairs
from autopipe.loaders.keras import Keras
from autopipe.loaders.tfdata import TfData
from autopipe.ops.decode import Decode
from autopipe.ops.mask import MaskToClass
from autopipe.ops.onehot import OneHot
from autopipe.ops.resize import Resize
from autopipe.tuned.eject import listing
from autopipe.tuned.eject import numpy as plain_numpy
from autopipe.tuned.eject.module import eject

LOADERS = [TfData(num_parallel_calls=2), Keras(workers=2)]
LABELLED = SampleSpec(Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("u1"), 3), Field(FieldKind.LABEL, (), np.dtype("i8")))


def write_images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / name), np.zeros((8, 8, 3), np.uint8))
    return folder


@pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: str(loader.kind))
def test_channels_come_first_in_every_part_that_has_some(tmp_path: Path, loader: LoaderConfig) -> None:
    config = PipelineConfig(loader=loader, channels="first")
    pairs = ImagePairs(*(write_images(tmp_path / name, "1.png", "2.png") for name in ("images", "masks")))
    masked = eject(Workload(data=pairs, ops=[Decode(), MaskToClass(((0, 0, 0),)), OneHot(2)], batch_size=2), config)
    photos = ImageFolder(write_images(tmp_path / "photos", "cat/1.png", "cat/2.png"))
    labelled = eject(Workload(data=photos, ops=[Decode(), Resize(4, 4), OneHot(2)], batch_size=2), config)
    assert [part for part in "xy" if f"transpose({part}, (0, 3, 1, 2))" in masked] == ["x", "y"]
    assert [part for part in "xy" if f"transpose({part}, (0, 3, 1, 2))" in labelled] == ["x"]


@pytest.mark.parametrize("y", [1, 7, np.array([0, 3, -1]), np.array([[2, 255]], np.uint8)])
def test_a_number_of_no_class_is_all_zeros(y: Any) -> None:
    op = OneHot(3)
    expected = op.apply((None, y), LABELLED, np.empty(0))[1]
    found = run(op, y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def run(op: Op, y: Any) -> Any:
    scope = {"np": np, "y": y}
    exec("\n".join(plain_numpy.lines(Step(op, 0, LABELLED, LABELLED))), scope)
    return scope["y"]


def test_hidden_files_and_folders_are_left_out_as_autopipe_does(tmp_path: Path) -> None:
    seen = ("cat/1.png", "cat/2.PNG", "cat/more/3.jpg", "dog/4.png", "dog/5.png")
    hidden = ("cat/.6.png", "cat/.thumbnails/7.png", "dog/more/.trash/8/9.png")
    data = ImageFolder(write_images(tmp_path / ".data", *seen, *hidden))
    constants, functions = listing.lines(data)
    scope: dict[str, Any] = {"Path": Path}
    exec(f"{constants}\n{functions}", scope)
    paths, labels = scope["samples"]()
    assert paths == data.files()
    assert labels == [data.read(index)[1] for index in range(len(data))]


def test_samples_behind_a_url_are_not_listed_in_plain_code() -> None:
    for name in ("cat/1.jpg", "cat/2.jpg"):
        fsspec.filesystem("memory").pipe_file(f"memory://ejected/{name}", b"image")
    assert "behind a URL (memory://)" in str(listing.reason_against(ImageFolder("memory://ejected")))
