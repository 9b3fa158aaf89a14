"""What `TFDS` refuses, and what its features become. Its contract is in test_contract.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.errors import DataError, MissingExtraError
from autopipe.extensions.tfds import TFDS


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(MissingExtraError, match="`tensorflow_datasets` is not installed; the extra `tfds` brings it"):
        TFDS("beans", "train")


def test_a_data_set_that_is_unknown_is_named() -> None:
    with pytest.raises(DataError, match=r"`nowhere, train` cannot be opened: Dataset nowhere not found\.$"):
        TFDS("nowhere", "train")


def stored(folder: Path, row: dict[str, Any], **features: Any) -> None:
    """Store the data set "toy" of one row."""
    import tensorflow_datasets as library

    library.dataset_builders.store_as_tfds_dataset(
        "toy",
        version="1.0.0",
        features=library.features.FeaturesDict({"image": library.features.Image(), **features}),
        split_datasets={"train": [(0, {"image": b"image", **row})]},
        data_dir=folder,
        file_format="array_record",
        disable_shuffling=True,
    )


def test_features_of_tensorflow_datasets_become_parts(tmp_path: Path) -> None:
    from tensorflow_datasets import features

    row = {"mask": b"mask", "numbers": np.array([1, 2], np.float32)}
    stored(
        tmp_path, row, mask=features.Image(shape=(None, None, 1)), numbers=features.Tensor(shape=(2,), dtype=np.float32)
    )
    data = TFDS("toy", "train", image={"image": "image", "numbers": "numbers"}, label="mask", data_dir=tmp_path)
    x, y = data.read(0)
    assert (x["image"], x["numbers"].tolist(), y) == (b"image", [1, 2], b"mask")
    with pytest.raises(DataError, match=r"no feature `masks`; its features are .*Did you mean `mask`"):
        TFDS("toy", "train", label="masks", data_dir=tmp_path)


def test_a_feature_of_text_is_no_target(tmp_path: Path) -> None:
    from tensorflow_datasets import features

    stored(tmp_path, {"label": "cat"}, label=features.Text())
    each: tuple[dict[str, Any], ...] = ({}, {"label": ["label"]}, {"label": "image", "sample_weight": "label"})
    for targets in each:
        with pytest.raises(DataError, match=r"must hold numbers, but the feature `label` of `toy, train` holds text\."):
            TFDS("toy", "train", data_dir=tmp_path, **targets)
    assert TFDS("toy", "train", label=None, data_dir=tmp_path).read(0) == b"image"
