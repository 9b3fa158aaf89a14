"""`Parquet`: an image column and a label column of Parquet files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import Any

from autopipe.core.script import located, located_pattern
from autopipe.data.columns import Names, read_as
from autopipe.data.hugging_face import HuggingFace
from autopipe.data.paths import PathList
from autopipe.data.records import cache_folder, not_unpacked
from autopipe.errors import DataError, MissingExtraError


class Parquet(HuggingFace):
    """Rows of Parquet files. It needs the extra `hf`.

    A row of a Parquet file cannot be read alone, so the files are written once as Arrow files, which can, into the
    user's cache folder; they take as much room as the columns uncompressed.

    Args:
        files: a glob such as "train-*.parquet", or a sequence of paths; relative ones start at the script's folder.
        image: the column of images: bytes of image files, or `{"bytes", "path"}` as Hugging Face writes them. For a
            model with several inputs: a dictionary of columns by what the model calls its inputs, or a list of them.
        label: the column of labels or targets, or several, as for `image`; None for images alone.
        sample_weight: the column that weights each sample in the loss, as in Keras's `fit`.

    Raises:
        DataError: no file matches, one is no Parquet file, or they lack a column.
        MissingExtraError: the library `datasets` is not installed.

    Example:
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
            super().__init__(_dataset(self._parquet.files()), image, label, sample_weight)

    def __repr__(self) -> str:
        return f"Parquet({self._parquet.text(0)!r}, ...: {len(self)} rows in {len(self._parquet)} files)"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the Parquet files, and what `HuggingFace` returns."""
        return [*self._parquet.files(), *super().files(indices)]

    def digest(self) -> str:
        """Describe the Parquet files (number, names, sizes, times) and their columns."""
        return f"rows={len(self)} columns={self._selection.text} {self._parquet.digest()}"


def _dataset(files: list[str]) -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError.of("hf", "datasets") from None
    folder = cache_folder().parent / "parquet"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_unpacked(files[0], folder, error) from error
    patterns = [glob.escape(file) for file in files]  # the library takes names for such
    return datasets.Dataset.from_parquet(patterns, cache_dir=str(folder))
