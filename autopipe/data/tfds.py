"""`TFDS`: an image and a label of a data source of TensorFlow Datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from autopipe.data.columns import Columns
from autopipe.data.paths import PathList
from autopipe.errors import DataError, MissingExtraError, near


class TFDS(Columns):
    """Examples of a dataset of TensorFlow Datasets, read by number as by `tfds.data_source`. It needs the extra `tfds`.

    Images stay encoded until a worker decodes them. The dataset has to be prepared in the form array_record, which
    `tfds.data_source` does; it downloads what is not there.

    Args:
        name: of the dataset, with its configuration and version where they matter, such as "beans" or "cifar10:3.0.2".
        split: such as "train" or "train[:80%]".
        image: the feature that holds the image.
        label: the feature that holds the label; None for images alone.
        data_dir: where prepared datasets lie; by default where TensorFlow Datasets has them.

    Attributes:
        classes: the names of the classes where the label is a `ClassLabel`, else None.

    Raises:
        DataError: there is no such dataset, split or feature.
        MissingExtraError: TensorFlow Datasets is not installed.

    Example:
        >>> data = ap.TFDS("beans", "train")   # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        split: str,
        *,
        image: str = "image",
        label: str | None = "label",
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        try:
            import tensorflow_datasets as tfds
        except ImportError:
            raise MissingExtraError.of("tfds", "tensorflow_datasets") from None
        self._columns = (image,) if label is None else (image, label)
        self._what = f"{name}, {split}"
        decoders = {image: tfds.decode.SkipDecoding()}
        try:
            builder = tfds.builder(name, data_dir=None if data_dir is None else os.fspath(data_dir))
            missing = [column for column in self._columns if column not in builder.info.features]
            if not missing:
                self._rows = builder.as_data_source(split, decoders=decoders)
        except (ValueError, OSError, NotImplementedError, AssertionError, tfds.core.DatasetNotFoundError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise DataError(f"The dataset `{self._what}` cannot be opened: {reason}.") from error
        if missing:
            known = list(builder.info.features)
            raise DataError(
                f"The dataset `{name}` has no feature `{missing[0]}`; its features are {', '.join(known)}."
                f"{near(missing[0], known)}",
                hint='Name them: ap.TFDS(name, split, image="...", label="..." or None).',
            )
        feature = None if label is None else builder.info.features[label]
        self.classes = tuple(feature.names) if isinstance(feature, tfds.features.ClassLabel) else None
        folder = os.fsencode(builder.data_path)
        self._files = PathList(folder, sorted((b"", os.fsencode(each)) for each in os.listdir(folder)))  # noqa: PTH208  bytes
        self._version = str(builder.info.full_name)
        self._find_kinds()

    def __repr__(self) -> str:
        return f"TFDS({self._what}: {len(self)} examples)"

    def name(self, index: int) -> str:
        """Return the number of an example, and its dataset."""
        return f"example {index} of {self._what}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the files of the prepared dataset, whichever examples are asked for."""
        return self._files.files()

    def digest(self) -> str:
        """Describe the dataset's name and version, the split, and its files (number, names, sizes, times)."""
        split = self._what.rpartition(", ")[2].replace(" ", "")
        columns = ",".join(self._columns).replace(" ", "_")
        return f"dataset={self._version} split={split} columns={columns} rows={len(self)} {self._files.digest()}"

    def _row(self, index: int) -> list[Any]:
        row = self._rows[index]
        values = (row[column] for column in self._columns)
        return [value if isinstance(value, bytes) else np.asarray(value) for value in values]
