"""The base of sources of columns, with the columns that make up x, y and the weights; and `NPZ`, archives of arrays.

How a row of another format is read is the business of the other sources, each over its own library.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from autopipe.errors import AutopipeError, BadSampleError, DataError, near, shortened, told
from autopipe.hardware import disk
from autopipe.workload.data.arrays import Arrays, part_kind
from autopipe.workload.data.paths import Place, cache_folder, located, not_unpacked, spread, unreadable
from autopipe.workload.data.source import sample_bytes
from autopipe.workload.plain_code import Library, PlainSource
from autopipe.workload.sample import SLOTS, FieldKind, SampleSpec, keyed, label, leaves, mapped

Names: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""A column; or several, for as many parts: a list of them, or a dictionary of what the model calls each."""

_PROBES = 64  # rows whose sizes are looked at


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Columns that make up x, y and the weights of samples."""

    slots: tuple[Any, ...]  # x, y and the weights, if any: each a column, or a tuple or dictionary of columns
    columns: tuple[str, ...]  # those columns, each once, those of x first

    @classmethod
    def of(
        cls, x: Names, y: Names | None, sample_weight: Names | None, called: tuple[str, str] = ("x", "y")
    ) -> Selection:
        if y is None and sample_weight is not None:
            raise DataError(f"`sample_weight` weights the loss of targets, but there is no `{called[1]}`.")
        given = zip((*called, "sample_weight"), (x, y, sample_weight), strict=True)
        slots = tuple(_slot(name, names) for name, names in given if names is not None or name == called[0])
        return cls(slots, tuple(dict.fromkeys(column for slot in slots for column in leaves(slot))))

    @property
    def places(self) -> list[tuple[str, str]]:
        """The name of each part in messages, such as "x" or "x.image", and its column."""
        slots = zip(SLOTS, self.slots, strict=False)
        return [(label((slot, key)), column) for slot, names in slots for key, column in keyed(names).items()]

    @property
    def text(self) -> str:
        is_plain = [place for place, _ in self.places] == list(SLOTS[: len(self.columns)]) and len(self.slots) < 3
        named = self.columns if is_plain else [f"{place}:{column}" for place, column in self.places]
        return ",".join(named).replace(" ", "_")

    def packed(self, values: Iterable[Any]) -> Any:
        of = dict(zip(self.columns, values, strict=True))
        slots = tuple([mapped(of.__getitem__, slot) for slot in self.slots])
        return slots if len(slots) > 1 or isinstance(slots[0], tuple) else slots[0]


_MOST_NAMES = 20  # that a message shows


def missing_column(column: str, known: Iterable[str], owner: str, kinds: str, hint: str) -> DataError:
    """Return the error of a column that `owner` lacks; `kinds` is the format's own word for columns."""
    names = list(known)
    more = f" and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
    known_ones = f"its {kinds} are {shown}{more}" if names else f"it has no {kinds}"
    no = f"{owner} has no {kinds.removesuffix('s')} `{column}`; {known_ones}."
    return DataError(f"{no}{near(column, names)}", hint=hint)


@contextlib.contextmanager
def read_as(path: Place, what: str) -> Iterator[None]:
    """Convert errors of a library to a DataError that names the file and says that it is no `what`."""
    try:
        yield
    except AutopipeError:
        raise
    except Exception as error:  # libraries raise many errors for damaged files
        raise DataError(
            f"`{os.fspath(path)}` cannot be read as {what}: {error.__cause__ or str(error) or type(error).__name__}"
        ) from error


class Columns(abc.ABC):
    """Rows of columns, some of which hold images, encoded or as arrays."""

    x_kind: Any  # a FieldKind, or a tuple or a dictionary of them
    y_kind: Any
    classes: tuple[str, ...] | None = None  # the names of the classes if the library knows them
    _selection: Selection
    _rows: Any

    @abc.abstractmethod
    def _row(self, index: int) -> list[Any]:
        """Return the value of each selected column in an existing row."""

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, index: int) -> Any:
        return self._selection.packed(self._values(index))

    def mean_bytes(self) -> float:
        sizes = list[int]()
        for row in spread(len(self), _PROBES):
            with contextlib.suppress(Exception):  # a bad row raises its error at its use
                sizes.append(sample_bytes(tuple(self._values(row))))
        return sum(sizes) / max(1, len(sizes))

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource | None:
        return None

    def _values(self, index: int) -> list[Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        try:
            return self._row(index)
        except AutopipeError:
            raise
        except Exception as error:  # as above
            raise unreadable(f"row {index} of {self!r}", error, told(error)) from error

    def _find_kinds(self) -> None:
        values = None
        for index in spread(len(self), _PROBES):
            with contextlib.suppress(BadSampleError):
                values = self._values(index)
                break
        values = self._values(0) if values is None else values
        row = dict(zip(self._selection.columns, values, strict=True))
        x, *targets = self._selection.slots
        kinds = {column: part_kind("x", row[column]) for column in leaves(x)}
        first = next((column for column, kind in kinds.items() if kind is not FieldKind.ARRAY), next(iter(kinds)))
        shape = np.shape(row[first])
        self.x_kind = mapped(kinds.__getitem__, x)
        self.y_kind = mapped(lambda column: part_kind("y", row[column], shape), targets[0]) if targets else None


def _slot(name: str, names: Any) -> Any:
    if isinstance(names, str):
        return names
    slot = dict(names) if isinstance(names, Mapping) else tuple(names) if isinstance(names, Sequence) else ()
    if not slot or not all(isinstance(each, str) for each in (*slot, *leaves(slot))):
        raise DataError(
            f"`{name}` must be the name of a column, or a list or a dictionary of such names, but got "
            f"{shortened(names)}.",
            hint=f'Of several, as a model names its inputs: {name}={{"image": "photo", "size": "size"}}.',
        )
    return slot


# -------------------- npz


class NPZ(Arrays):
    """Rows of arrays in a .npz archive, as `numpy.savez` and `numpy.savez_compressed` write them.

    An archive cannot be mapped into memory. At first use its arrays are unpacked to the user's cache folder, and are
    then read like the .npy files of `Arrays`.

    Args:
        path: the archive; a relative path starts at the folder of the script that writes it.
        x: the name of the array that holds the images or other samples. For a model with several inputs: a dictionary
            of such names by the names of the model's inputs, or a list of them.
        y: the same for the targets; None for x alone.
        sample_weight: the same for the weights of the samples in the loss, as in Keras's `fit`.

    Raises:
        DataError: the file is missing or no .npz archive, or lacks an array.

    Examples:
        >>> data = ap.NPZ("mnist.npz", x="x_train", y="y_train")   # doctest: +SKIP
    """

    def __init__(self, path: Place, x: Names = "x", y: Names | None = "y", sample_weight: Names | None = None) -> None:
        self._archive = Path(located(path))
        selection = Selection.of(x, y, sample_weight)
        files = _unpacked(self._archive, selection.columns)
        try:
            super().__init__(*(mapped(files.__getitem__, slot) for slot in selection.slots))
        except DataError as error:  # the user knows nothing of the files that it was unpacked to
            said, hint = error.message, error.hint
            for key, file in files.items():
                named = f"The array `{key}` of `{self._archive}` must be one"
                if (said := said.replace(f"`{file}` must be a .npy file", named)) != error.message:
                    hint = "Write it again without objects: numpy.asarray(...) of each."
            raise DataError(said, hint=hint) from error

    def __repr__(self) -> str:
        return f"NPZ({str(self._archive)!r}: {len(self)} rows)"

    def name(self, index: int) -> str:
        return f"row {index} of {self._archive}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return [str(self._archive), *super().files(indices)]

    def plain(self, spec: SampleSpec, library: Library) -> None:
        """Return None: plain code would read the unpacked files, which may be deleted."""

    def digest(self) -> str:
        own = " ".join(part for part in super().digest().split() if "time=" not in part)
        return f"{own} time={self._archive.stat().st_mtime_ns}"


def _unpacked(archive: Path, keys: tuple[str, ...]) -> dict[str, Path]:
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
            stated = f"npz\0{archive}\0{status.st_size}\0{status.st_mtime_ns}".encode(errors="surrogateescape")
            folder = cache_folder().parent / "npz" / hashlib.sha256(stated).hexdigest()[:32]
            found = {key: folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy" for key in keys}
            try:
                for key, made in found.items():
                    if made.exists() and made.stat().st_size == opened.getinfo(f"{key}.npy").file_size:
                        continue  # it is whole, and not as a power cut leaves it
                    folder.mkdir(parents=True, exist_ok=True)
                    with opened.open(f"{key}.npy") as source, disk.replacing(made) as target:
                        shutil.copyfileobj(source, target, 1 << 20)
            except OSError as error:
                raise not_unpacked(str(archive), folder, error) from error
            return found
