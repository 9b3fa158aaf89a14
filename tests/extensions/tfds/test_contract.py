"""The contract of sources, on a data set of TensorFlow Datasets."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from autopipe.extensions.tfds import TFDS
from autopipe.workload.sample import Source
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import Case, image

del test_every_source_of_the_core_is_here  # noqa: F821


def tfds(root: Path, count: int) -> Source:
    import tensorflow_datasets as library

    features = library.features.FeaturesDict(
        {"image": library.features.Image(), "label": library.features.ClassLabel(num_classes=3)}
    )
    library.dataset_builders.store_as_tfds_dataset(
        "toy",
        version="1.0.0",
        features=features,
        split_datasets={"train": [(n, {"image": image(n), "label": n % 3}) for n in range(count)]},
        data_dir=root,
        file_format="array_record",
        disable_shuffling=True,
    )
    tracemalloc.clear_traces()  # what its writer keeps is none of the source's
    return TFDS("toy", "train", data_dir=root)


CASES = {
    "TFDS": Case(
        tfds, lambda number: (image(number), number % 3), "toy/1.0.0/toy-train.array_record-00000-of-00001", None
    )
}
