"""`TFDS`: an image and a label of a data source of TensorFlow Datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from autopipe.errors import DataError, extra_module
from autopipe.workload.data.columns import Columns, Names, Selection, missing_column
from autopipe.workload.data.paths import PathList


class TFDS(Columns):
    """Examples of a dataset of TensorFlow Datasets, read by number as by `tfds.data_source`. It needs the extra `tfds`.

    Images stay encoded until a worker decodes them. The dataset has to be prepared in the form array_record, which
    `tfds.data_source` does; it downloads missing files.

    Args:
        name: of the dataset, with its configuration and version where they matter, such as "beans" or "cifar10:3.0.2".
        split: such as "train" or "train[:80%]".
        image: the feature that holds the image. For a model with several inputs: a dictionary of features by what the
            model calls its inputs, or a list of them.
        label: the feature that holds the label or the mask, or several, as for `image`; None for images alone.
        sample_weight: the feature that weights each sample in the loss, as in Keras's `fit`.
        data_dir: the folder of prepared datasets; by default that of TensorFlow Datasets.

    Attributes:
        classes: the names of the classes if the label is a `ClassLabel`, else None.

    Raises:
        DataError: there is no such dataset, split or feature.
        MissingExtraError: TensorFlow Datasets is not installed.

    Examples:
        >>> data = ap.TFDS("beans", "train")   # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        split: str,
        *,
        image: Names = "image",
        label: Names | None = "label",
        sample_weight: Names | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        tfds = extra_module("tfds", "tensorflow_datasets")
        self._selection = Selection.of(image, label, sample_weight, ("image", "label"))
        self._what = f"{name}, {split}"
        try:
            builder = tfds.builder(name, data_dir=None if data_dir is None else os.fspath(data_dir))
            known = builder.info.features
            for column in self._selection.columns:
                if column not in known:
                    hint = 'Name them: ap.TFDS(name, split, image="...", label="..." or None).'
                    raise missing_column(column, known, f"The dataset `{name}`", "features", hint)
            for place, each in self._selection.places:
                is_text = isinstance(known[each], tfds.features.Text) and known[each].np_dtype == np.object_
                if is_text and not place.startswith("x"):  # its bytes would be taken for an encoded mask
                    raise DataError(
                        f"Labels and weights must hold numbers, but the feature `{each}` of `{self._what}` holds text.",
                        hint='Name a feature of numbers, such as a ClassLabel: ap.TFDS(name, split, label="...").',
                    )
            # Those that are not selected, too, which each read would decode.
            images = [each for each, feature in known.items() if isinstance(feature, tfds.features.Image)]
            self._rows = builder.as_data_source(split, decoders=dict.fromkeys(images, tfds.decode.SkipDecoding()))
        except (ValueError, OSError, NotImplementedError, AssertionError, tfds.core.DatasetNotFoundError) as error:
            lines = [line.strip("\t *") for line in str(error).splitlines()]
            reason = " ".join(lines[: 2 if lines[:1] and lines[0].endswith(":") else 1]).rstrip(".")
            raise DataError(f"The dataset `{self._what}` cannot be opened: {reason}.") from error
        feature = known[label] if isinstance(label, str) else None
        self.classes = tuple(feature.names) if isinstance(feature, tfds.features.ClassLabel) else None
        self.class_numbers = {name: number for number, name in enumerate(self.classes or ())}
        folder = os.fsencode(builder.data_path)
        self._files = PathList(folder, sorted((b"", os.fsencode(each)) for each in os.listdir(folder)))  # noqa: PTH208  bytes
        self._version = str(builder.info.full_name)
        self._find_kinds()

    def __repr__(self) -> str:
        return f"TFDS({self._what}: {len(self)} examples)"

    def name(self, index: int) -> str:
        return f"example {index} of {self._what}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return self._files.files()

    def digest(self) -> str:
        split = self._what.rpartition(", ")[2].replace(" ", "")
        columns, version = self._selection.text, self._version
        return f"dataset={version} split={split} columns={columns} rows={len(self)} {self._files.digest()}"

    def _row(self, index: int) -> list[Any]:
        row = self._rows[index]
        values = (row[column] for column in self._selection.columns)
        return [value if isinstance(value, bytes) else np.asarray(value) for value in values]
