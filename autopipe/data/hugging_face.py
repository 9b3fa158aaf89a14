"""`HuggingFace`: an image column and a label column of a dataset of the library `datasets`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from autopipe.core.script import located
from autopipe.data.columns import Columns
from autopipe.data.paths import PathList, read_file, short_digest, spread
from autopipe.errors import BadSampleError, DataError, MissingExtraError, near, shortened

_PROBES = 64  # rows of which it is asked whether their images lie outside


class HuggingFace(Columns):
    """Rows of a Hugging Face dataset. It needs the extra `hf`.

    Images stay encoded until a worker decodes them, whether the dataset holds their bytes or their paths. The rows stay
    in the dataset's Arrow files, which each process maps for itself.

    Args:
        dataset: one split, such as `load_dataset("imagefolder", data_dir="photos", split="train")`, or the path of one
            that `save_to_disk` wrote.
        image: the column of images: of the feature `Image`, or of bytes of image files, or of arrays.
        label: the column of labels (whole numbers, `ClassLabel`) or targets (numbers, lists of numbers); None for
            images alone.

    Attributes:
        classes: the names of the classes where the labels are a `ClassLabel`, else None.

    Raises:
        DataError: it is no such dataset, or lacks a column.
        MissingExtraError: the library is not installed.

    Example:
        >>> data = ap.HuggingFace(load_dataset("beans", split="train"), label="labels")   # doctest: +SKIP
    """

    def __init__(self, dataset: Any, image: str = "image", label: str | None = "label") -> None:
        datasets = _library()
        if isinstance(dataset, str | os.PathLike):
            dataset = _loaded(datasets, located(dataset))
        if not isinstance(dataset, datasets.Dataset):
            raise DataError(
                f"`dataset` must be one split of a Hugging Face dataset, but got {shortened(dataset)}.",
                hint='Pass load_dataset(..., split="train"); a streamed dataset cannot be read by number.',
            )
        self._columns = [image] if label is None else [image, label]
        missing = [column for column in self._columns if column not in dataset.column_names]
        if missing or not len(dataset):
            known = ", ".join(f"`{name}`" for name in dataset.column_names)
            raise DataError(
                f"The dataset has no column `{missing[0]}`; its columns are {known}."
                f"{near(missing[0], dataset.column_names)}"
                if missing
                else "The dataset has no rows.",
                hint='Name them: ap.HuggingFace(dataset, image="...", label="..." or None).' if missing else None,
            )
        feature = dataset.features[label] if label is not None else None
        self.classes = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None
        self._stored = [os.fsdecode(each["filename"]) for each in dataset.cache_files]
        self._fingerprint = str(dataset._fingerprint)
        self._rows = dataset.select_columns(self._columns).with_format("arrow")
        self._dtype = _dtype(dataset.features[image])
        self._are_outside = any(self._path(row) for row in spread(len(dataset), _PROBES))
        self._find_kinds()

    def __repr__(self) -> str:
        return f"HuggingFace({len(self)} rows of {', '.join(self._columns)})"

    def name(self, index: int) -> str:
        """Return the number of a row, and the image's path where the dataset knows it."""
        path = self._path(index)
        return f"row {index} of the dataset" + (f" ({path})" if path else "")

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the Arrow files, and the images of some rows, or of all, that lie in files of their own."""
        rows = range(len(self)) if indices is None else indices
        return [*self._stored, *(path for path in map(self._path, rows if self._are_outside else ()) if path)]

    def digest(self) -> str:
        """Describe the dataset by its own fingerprint, and its files (number, names, sizes, times)."""
        stored = PathList(b"/", [os.path.split(os.fsencode(path)) for path in self._stored]).digest()
        columns = ",".join(self._columns).replace(" ", "_")
        return f"rows={len(self)} columns={columns} dataset={short_digest(self._fingerprint.encode())} {stored}"

    def _row(self, index: int) -> list[Any]:
        row = self._rows[index]
        image, *label = (row.column(number)[0].as_py() for number in range(row.num_columns))
        return [_image(image, index, self._dtype), *map(_target, label)]

    def _path(self, index: int) -> str | None:
        """Return the file of an image that the dataset does not hold itself."""
        image = self._rows[index].column(0)[0].as_py()
        is_outside = isinstance(image, dict) and image.get("bytes") is None
        return image["path"] if is_outside else None


def _dtype(feature: Any) -> np.dtype[Any] | None:
    """Return the dtype of a column of arrays; None where it holds something else."""
    while isinstance(feature, list) or hasattr(feature, "feature"):
        feature = feature[0] if isinstance(feature, list) else feature.feature
    try:
        found: np.dtype[Any] = np.dtype(feature.dtype)
    except (AttributeError, TypeError):
        return None
    return found


def _image(value: Any, index: int, dtype: np.dtype[Any] | None) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict) and {"bytes", "path"} >= set(value):
        if value.get("bytes") is not None:
            return value["bytes"]
        if value.get("path"):
            return read_file(os.fsencode(value["path"]))
    if value is None or isinstance(value, dict | str):
        raise BadSampleError(f"row {index} of the dataset must hold an image, but holds {shortened(value)}.")
    return np.asarray(value, dtype)


def _target(value: Any) -> Any:
    if isinstance(value, str) or value is None:
        raise DataError(
            f"labels must be numbers, but got {shortened(value)}.",
            hint='Number them: dataset.class_encode_column("label").',
        )
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError.of("hf", "datasets") from None
    return datasets


def _loaded(datasets: Any, path: Any) -> Any:
    try:
        found = datasets.load_from_disk(os.fspath(path))
    except (OSError, ValueError) as error:
        raise DataError(f"`{os.fspath(path)}` cannot be read as a Hugging Face dataset: {error}") from error
    if isinstance(found, datasets.DatasetDict):
        raise DataError(
            f"`{os.fspath(path)}` holds several splits: {', '.join(found)}.",
            hint=f'Pass the path of one: ap.HuggingFace("{os.fspath(path)}/{next(iter(found))}").',
        )
    return found
