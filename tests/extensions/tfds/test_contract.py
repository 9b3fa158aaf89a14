"""The contract of sources, on a data set of TensorFlow Datasets."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

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
