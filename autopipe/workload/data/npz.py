"""`NPZ`: samples that are rows of two arrays in a .npz archive, which is unpacked once."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

from autopipe.errors import DataError
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.columns import Names, Selection, missing_column, read_as
from autopipe.workload.data.records import cache_folder, not_unpacked
from autopipe.workload.sample import SampleSpec
from autopipe.workload.script import located
from autopipe.workload.structure import mapped


class NPZ(Arrays):
    """Rows of arrays in a .npz archive, as `numpy.savez` and `numpy.savez_compressed` write them.

    An archive cannot be mapped into memory, so its arrays are unpacked into the user's cache folder when they are first
    used, and are then what `Arrays` makes of .npy files.

    Args:
        path: the archive; a relative path starts at the folder of the script that writes it.
        x: the name of the array that holds the images or other samples. For a model with several inputs: a dictionary
            of such names by what the model calls its inputs, or a list of them.
        y: the same for the targets; None for x alone.
        sample_weight: the same for what weights each sample in the loss, as in Keras's `fit`.

    Raises:
        DataError: the file is missing or no .npz archive, or lacks an array.

    Example:
        >>> data = ap.NPZ("mnist.npz", x="x_train", y="y_train")   # doctest: +SKIP
    """

    def __init__(
        self, path: str | os.PathLike[str], x: Names = "x", y: Names | None = "y", sample_weight: Names | None = None
    ) -> None:
        self._archive = Path(located(path)).absolute()
        selection = Selection.of(x, y, sample_weight)
        files = _unpacked(self._archive, selection.columns)
        try:
            super().__init__(*(mapped(files.__getitem__, slot) for slot in selection.slots))
        except DataError as error:  # the user knows nothing of the files that it was unpacked to
            raise _of_archive(error, self._archive, files) from error

    def __repr__(self) -> str:
        return f"NPZ({str(self._archive)!r}: {len(self)} rows)"

    def name(self, index: int) -> str:
        """Return the number of a row, and the archive it is in."""
        return f"row {index} of {self._archive}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the archive, and the files that it was unpacked to."""
        return [str(self._archive), *super().files(indices)]

    def plain_numpy(self, spec: SampleSpec) -> None:
        """Return nothing: plain code would read the unpacked files, which may be gone."""

    def plain_tensorflow(self, spec: SampleSpec) -> None:
        """Return nothing, as `plain_numpy`."""

    def digest(self) -> str:
        """Describe shapes, dtypes and content as `Arrays` does, and the archive's time."""
        own = " ".join(part for part in super().digest().split() if "time=" not in part)
        return f"{own} time={self._archive.stat().st_mtime_ns}"


def _of_archive(error: DataError, archive: Path, files: dict[str, Path]) -> DataError:
    named = error.message
    for key, file in files.items():
        named = named.replace(f"`{file}` must be a .npy file", f"The array `{key}` of `{archive}` must be one")
    hint = error.hint if named == error.message else "Write it again without objects: numpy.asarray(...) of each."
    return DataError(named, hint=hint)


def _unpacked(archive: Path, keys: tuple[str, ...]) -> dict[str, Path]:
    """Return the .npy file of each of some arrays, unpacked unless it is there for this path, size and time."""
    if not archive.exists():
        raise DataError(f"The file `{archive}` does not exist.")
    with read_as(archive, "a .npz archive"):
        status = archive.stat()
        with zipfile.ZipFile(archive) as opened:
            known = [name.removesuffix(".npy") for name in opened.namelist() if name.endswith(".npy")]
            for key in keys:
                if key not in known:
                    hint = 'Name them: ap.NPZ(path, x="...", y="..." or None).'
                    raise missing_column(key, known, f"`{archive}`", "arrays", hint)
            stated = f"npz\0{archive}\0{status.st_size}\0{status.st_mtime_ns}"
            folder = (
                cache_folder().parent / "npz" / hashlib.sha256(stated.encode(errors="surrogateescape")).hexdigest()[:32]
            )
            try:
                return {key: _member(opened, key, folder) for key in keys}
            except OSError as error:
                raise not_unpacked(str(archive), folder, error) from error


def _member(opened: zipfile.ZipFile, key: str, folder: Path) -> Path:
    made = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = made.with_name(f"{made.name}.{os.getpid()}")
        try:
            with opened.open(f"{key}.npy") as source, open(part, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            part.replace(made)
        finally:
            part.unlink(missing_ok=True)
    return made
