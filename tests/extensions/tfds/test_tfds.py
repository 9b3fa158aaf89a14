"""The contract of sources on a data set of TensorFlow Datasets; what `TFDS` refuses, and what its features become."""

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.errors import DataError, MissingExtraError
from autopipe.extensions.tfds import TFDS
from autopipe.workload.sample import Source
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import Case, image

del test_every_source_of_the_core_is_here  # noqa: F821


def stored(folder: Path, rows: list[dict[str, Any]], **features: Any) -> None:
    """Store the data set "toy"."""
    import tensorflow_datasets as library

    library.dataset_builders.store_as_tfds_dataset(
        "toy",
        version="1.0.0",
        features=library.features.FeaturesDict(features),
        split_datasets={"train": list(enumerate(rows))},
        data_dir=folder,
        file_format="array_record",
        disable_shuffling=True,
    )
    tracemalloc.clear_traces()  # what its writer keeps is none of the source's


def tfds(root: Path, count: int) -> Source:
    from tensorflow_datasets import features

    rows = [{"image": image(number), "label": number % 3} for number in range(count)]
    stored(root, rows, image=features.Image(), label=features.ClassLabel(num_classes=3))
    return TFDS("toy", "train", data_dir=root)


FILE = "toy/1.0.0/toy-train.array_record-00000-of-00001"
CASES = {"TFDS": Case(tfds, lambda number: (image(number), number % 3), FILE, None)}


def test_features_of_tensorflow_datasets_become_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow_datasets import features as kinds

    row = {"image": b"image", "mask": b"mask", "numbers": np.array([1, 2], np.float32), "label": "cat"}
    mask, numbers = kinds.Image(shape=(None, None, 1)), kinds.Tensor(shape=(2,), dtype=np.float32)
    stored(tmp_path, [row], image=kinds.Image(), mask=mask, numbers=numbers, label=kinds.Text())
    data = TFDS("toy", "train", image={"image": "image", "numbers": "numbers"}, label="mask", data_dir=tmp_path)
    x, y = data.read(0)
    assert (x["image"], x["numbers"].tolist(), y) == (b"image", [1, 2], b"mask")
    images = TFDS("toy", "train", image=["image", "mask"], label=None, data_dir=tmp_path)
    assert images.read(0) == ((b"image", b"mask"),)
    text = r"must hold numbers, but the feature `label` of `toy, train` holds text\."
    refused: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("nowhere", {}, r"`nowhere, train` cannot be opened: Dataset nowhere not found\.$"),
        ("toy", {"label": "masks"}, r"no feature `masks`; its features are .*Did you mean `mask`"),
        ("toy", {}, text),
        ("toy", {"label": ["label"]}, text),
        ("toy", {"label": "image", "sample_weight": "label"}, text),
    )
    for name, targets, said in refused:
        with pytest.raises(DataError, match=said):
            TFDS(name, "train", data_dir=tmp_path, **targets)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(MissingExtraError, match="`tensorflow_datasets` is not installed; the extra `tfds` brings it"):
        TFDS("beans", "train")
