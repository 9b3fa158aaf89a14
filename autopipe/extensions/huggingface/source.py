"""`HuggingFace` and `Parquet`: columns of datasets of the library `datasets`, and of Parquet files."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from autopipe.errors import BadSampleError, DataError, extra_module, shortened
from autopipe.workload.data import paths
from autopipe.workload.data.columns import Columns, Names, Selection, missing_column, read_as
from autopipe.workload.data.paths import PathList, located, located_pattern, read_file, short_digest, spread
from autopipe.workload.sample import leaves

_PROBES = 64  # rows of which it is asked whether their images lie outside


class HuggingFace(Columns):
    """Rows of a Hugging Face dataset. It needs the extra `hf`.

    Images stay encoded until a worker decodes them, whether the dataset holds their bytes or their paths. The rows stay
    in the dataset's Arrow files, which each process maps for itself.

    Args:
        dataset: one split, such as `load_dataset("imagefolder", data_dir="photos", split="train")`, or the path of one
            that `save_to_disk` wrote.
        image: the column of images: of the feature `Image`, or of bytes of image files, or of arrays. For a model with
            several inputs: a dictionary of columns by the names of the model's inputs, or a list of them.
        label: the column of labels (whole numbers, `ClassLabel`), targets (numbers, lists of numbers) or masks (of the
            feature `Image`), or several, as for `image`; None for images alone.
        sample_weight: the column that weights each sample in the loss, as in Keras's `fit`.

    Attributes:
        classes: the names of the classes if the labels are a `ClassLabel`, else None.

    Raises:
        DataError: it is no such dataset, or lacks a column.
        MissingExtraError: the library is not installed.

    Examples:
        >>> data = ap.HuggingFace(load_dataset("beans", split="train"), label="labels")   # doctest: +SKIP
    """

    _call: ClassVar[str] = "ap.HuggingFace(dataset"
    _owner = "The dataset"  # of the columns, in messages

    def __init__(
        self, dataset: Any, image: Names = "image", label: Names | None = "label", sample_weight: Names | None = None
    ) -> None:
        datasets = extra_module("hf", "datasets")
        if isinstance(dataset, str | os.PathLike):
            dataset = _loaded(datasets, located(dataset))
        if not isinstance(dataset, datasets.Dataset):
            raise DataError(
                f"`dataset` must be one split of a Hugging Face dataset, but got {shortened(dataset)}.",
                hint='Pass load_dataset(..., split="train"); a streamed dataset cannot be read by number.',
            )
        self._selection = Selection.of(image, label, sample_weight, ("image", "label"))
        columns = self._selection.columns
        for column in columns:
            if column not in dataset.column_names:
                hint = f'Name them: {self._call}, image="...", label="..." or None).'
                raise missing_column(column, dataset.column_names, self._owner, "columns", hint)
        if not len(dataset):
            raise DataError(f"{self._owner} has no rows.")
        feature = dataset.features[label] if isinstance(label, str) else None
        self.classes = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None
        self.class_numbers = {name: number for number, name in enumerate(self.classes or ())}
        self._stored = [os.fsdecode(each["filename"]) for each in dataset.cache_files]
        self._fingerprint = str(dataset._fingerprint)
        self._rows = dataset.select_columns(list(columns)).with_format("arrow")
        pictures = {column for column in columns if isinstance(dataset.features[column], datasets.Image | dict)}
        self._pictures = [number for number, column in enumerate(columns) if column in pictures]
        inputs = pictures.union(leaves(self._selection.slots[0]))
        self._inputs = {column: _dtype(dataset.features[column]) for column in inputs}
        self._are_outside = any(self._outside(row) for row in spread(len(dataset), _PROBES))
        self._find_kinds()

    def __repr__(self) -> str:
        return f"HuggingFace({len(self)} rows of {', '.join(self._selection.columns)})"

    def name(self, index: int) -> str:
        paths = self._outside(index)
        return f"row {index} of the dataset" + (f" ({', '.join(paths)})" if paths else "")

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the Arrow files, and separate image files of some rows, or of all."""
        rows = range(len(self)) if indices is None else indices
        return [*self._stored, *(path for row in (rows if self._are_outside else ()) for path in self._outside(row))]

    def digest(self) -> str:
        """Describe the dataset by its own fingerprint, and its files (number, names, sizes, times)."""
        stored = PathList(b"/", [os.path.split(os.fsencode(path)) for path in self._stored]).digest()
        dataset = short_digest(self._fingerprint.encode())
        return f"rows={len(self)} columns={self._selection.text} dataset={dataset} {stored}"

    def _row(self, index: int) -> list[Any]:
        row = self._rows[index]
        values = (row.column(number)[0].as_py() for number in range(row.num_columns))
        return [
            _input(value, index, self._inputs[column]) if column in self._inputs else _target(value, index)
            for column, value in zip(self._selection.columns, values, strict=True)
        ]

    def _outside(self, index: int) -> list[str]:
        row = self._rows[index]
        images = [row.column(number)[0].as_py() for number in self._pictures]
        return [image["path"] for image in images if image and image.get("bytes") is None and image.get("path")]


class Parquet(HuggingFace):
    """Rows of Parquet files. It needs the extra `hf`.

    A row of a Parquet file cannot be read alone, so the files are written once as Arrow files, which can, into the
    user's cache folder; they take as much room as the columns uncompressed.

    Args:
        files: a glob such as "train-*.parquet", or a sequence of paths; relative ones start at the script's folder.
        image: the column of images: bytes of image files, or `{"bytes", "path"}` as Hugging Face writes them; or
            several columns, as of `HuggingFace`.
        label: the column of labels or targets, or several; None for images alone.
        sample_weight: the column that weights each sample in the loss, as in Keras's `fit`.

    Raises:
        DataError: no file matches, one is no Parquet file, or they lack a column.
        MissingExtraError: the library `datasets` is not installed.

    Examples:
        >>> data = ap.Parquet("beans/train-*.parquet", label="labels")   # doctest: +SKIP
    """

    _call = "ap.Parquet(files"

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        image: Names = "image",
        label: Names | None = "label",
        sample_weight: Names | None = None,
    ) -> None:
        if isinstance(files, str | os.PathLike):
            matches = glob.glob(located_pattern(files), recursive=True)  # noqa: PTH207  absolute patterns too
            found = sorted(filter(os.path.isfile, matches))
        else:
            found = [os.fspath(located(each)) for each in files]
        if not found:
            raise DataError(f"No file matches {files!r}.", hint="A relative pattern starts at the script's folder.")
        self._parquet = PathList(b"/", [os.path.split(os.path.abspath(os.fsencode(path))) for path in found])  # noqa: PTH100  bytes
        self._owner = f"`{self._parquet.text(0)}`"
        with read_as(found[0], "Parquet"):
            super().__init__(_unpacked(self._parquet.files()), image, label, sample_weight)

    def __repr__(self) -> str:
        return f"Parquet({self._parquet.text(0)!r}, ...: {len(self)} rows in {len(self._parquet)} files)"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return [*self._parquet.files(), *super().files(indices)]

    def digest(self) -> str:
        return f"rows={len(self)} columns={self._selection.text} {self._parquet.digest()}"


def _dtype(feature: Any) -> np.dtype[Any] | None:
    while isinstance(feature, list) or hasattr(feature, "feature"):
        feature = feature[0] if isinstance(feature, list) else feature.feature
    found: np.dtype[Any] | None = None
    with contextlib.suppress(AttributeError, TypeError):
        found = np.dtype(feature.dtype)
    return found


def _input(value: Any, index: int, dtype: np.dtype[Any] | None) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict) and {"bytes", "path"} >= set(value):
        if value.get("bytes") is not None:
            return value["bytes"]
        if value.get("path"):
            return read_file(os.fsencode(value["path"]))
    if value is None or isinstance(value, dict | str):
        said = f"row {index} of the dataset must hold an image or numbers, but holds {shortened(value)}."
        paths = "Paths of images belong in a CSV file, for ap.Table: dataset.to_csv(...), or DataFrame.to_csv(...)."
        raise BadSampleError(said, hint=paths if isinstance(value, str) else None)
    array = np.asarray(value, dtype)
    if array.dtype.kind == "f" and np.isnan(array).any() and _holds_nothing(value):
        raise BadSampleError(f"row {index} of the dataset must hold numbers, but one of them is null.")
    return array


def _holds_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_holds_nothing, value)))


def _target(value: Any, index: int) -> Any:
    if isinstance(value, str):
        raise DataError(
            f"labels must be numbers, but got {shortened(value)}.",
            hint='Number them: dataset.class_encode_column("label").',
        )
    array = np.asarray(value)
    if array.dtype.hasobject:  # a batch would take a null for NaN
        raise BadSampleError(f"row {index} of the dataset must hold numbers, but holds {shortened(value)}.")
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _loaded(datasets: Any, path: Any) -> Any:
    path = os.fspath(path)
    try:
        found = datasets.load_from_disk(path)
    except (OSError, ValueError) as error:
        hint = 'Images and metadata are read by datasets.load_dataset("imagefolder", data_dir=..., split="train").'
        raise DataError(f"`{path}` cannot be read as a Hugging Face dataset: {error}", hint=hint) from error
    if isinstance(found, datasets.DatasetDict):
        hint = f'Pass the path of one: ap.HuggingFace("{path}/{next(iter(found))}").'
        raise DataError(f"`{path}` holds several splits: {', '.join(found)}.", hint=hint)
    return found


def _unpacked(files: list[str]) -> Any:
    datasets = extra_module("hf", "datasets")
    folder = paths.cache_folder().parent / "parquet"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise paths.not_unpacked(files[0], folder, error) from error
    patterns = [glob.escape(file) for file in files]  # the library takes names for such
    return datasets.Dataset.from_parquet(patterns, cache_dir=str(folder))
