"""`Arrays`: samples that are rows of NumPy arrays, in memory or in .npy files that stay on disk.

Rows of a file are read by ranges. Small ones of a batch are copied from where the file is mapped, which takes a third
of the time; only the native library may do so, as Python would end by SIGBUS if the file was cut short meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import DataError, shortened
from autopipe.workload.data import source
from autopipe.workload.data.paths import OpenFile, Place, Ranges, is_url, located, short_digest, shown, spread
from autopipe.workload.plain_code import Library, PlainSource, columns, names, quoted
from autopipe.workload.sample import FieldKind, Rows, SampleSpec, Structure, label, part_at, paths_of, triple
from autopipe.workload.sample import Path as PartPath

ArrayLike: TypeAlias = NDArray[Any] | Place
Parts: TypeAlias = Mapping[str, ArrayLike] | tuple[ArrayLike, ...]

_CHANNELS = (1, 3, 4)
_SMALL_BYTES = 1 << 13  # of a row: to read a larger one takes no longer than to copy it
_HASH_WHOLE_BYTES = 1 << 20
_NARROW = 4  # if rows are more than so many times as wide as the part that is wanted, only that part is read
_PLAIN_SHUFFLED = 10_000  # rows that tf.data's own guides have its buffer hold


class Arrays:
    """Samples that are rows of arrays: `(x[i], y[i])`.

    For a model with several inputs or targets, x, y or both are tuples or dictionaries of such arrays, and samples are
    built alike.

    A .npy file stays on disk; of one of numbers, or in Fortran order, each process has a copy in memory. An array in
    memory is copied to each worker process, so save a large one with `numpy.save` and pass its path. Rows cannot be
    written to, unless they are copies because their bytes are in another order than this machine's.

    x is taken for images if its rows are (height, width, 1, 3 or 4 channels), or (height, width) in uint8. Whole
    numbers in y are labels if each sample has one, and masks if they are as high and wide as the (first) images.

    Args:
        x: an array or the path of a .npy file, from the script's own folder; the first axis counts the samples.
        y: the same for the targets; None for x alone.
        sample_weight: the same for the weights of the samples in the loss, as in Keras's `fit`.

    Raises:
        DataError: the lengths differ, there are no rows, or a file is no .npy file of plain numbers.

    Examples:
        >>> data = ap.Arrays(np.zeros((100, 28, 28, 1), "uint8"), np.arange(100) % 10)
        >>> image, label = data.read(3)
    """

    def __init__(
        self, x: ArrayLike | Parts, y: ArrayLike | Parts | None = None, sample_weight: ArrayLike | Parts | None = None
    ) -> None:
        given = (x, y) if sample_weight is None else (x, y, sample_weight)

        def is_image(path: PartPath, part: Any) -> bool:
            rows = _Rows(part, label(path))
            return looks_like_image(rows.shape[1:], rows.dtype)

        self._structure = structure = Structure.of(given, is_image)
        paths = paths_of(structure)
        named_parts = {label(path): part_at(given, path) for path in paths}
        self._rows = {name: _Rows(part, name) for name, part in named_parts.items() if part is not None}
        self._columns = tuple(self._rows.get(label(path)) for path in paths)
        named, first = next(iter(self._rows.items()))
        for name, rows in self._rows.items():
            if len(rows) != len(first):
                said = f"`{named}` and `{name}` must be equally long"
                raise DataError(f"{said}, but got {len(first)} and {len(rows)} rows.")
            if not name.startswith("x") and rows.dtype.kind in "SU":
                raise text_refused(f"`{name}`")
        kinds = [
            None if rows is None else part_kind(slot, np.asarray(rows.row(0)), first.shape[1:])
            for (slot, _), rows in zip(paths, self._columns, strict=True)
        ]
        self.x_kind, self.y_kind, _ = triple(kinds if structure is None else structure.packed(kinds))

    def __len__(self) -> int:
        return len(next(iter(self._rows.values())))

    def __repr__(self) -> str:
        if self._structure is None:
            return f"Arrays({', '.join(map(repr, self._rows.values()))})"
        return f"Arrays({', '.join(f'{name}={rows!r}' for name, rows in self._rows.items())})"

    def read(self, index: int) -> object:
        row = tuple([None if rows is None else rows.row(index) for rows in self._columns])
        if self._structure is None:
            return row if row[1] is not None else row[0]
        slots = self._structure.packed(row)
        return slots if len(slots) > 1 or isinstance(slots[0], tuple) else slots[0]

    @property
    def spans(self) -> source.Spans | None:
        return self._spans if all(rows is None or rows.is_plain for rows in self._columns) else None

    def _spans(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        return tuple([None if rows is None else rows.at(indices) for rows in self._columns])

    def name(self, index: int) -> str:
        return f"row {index} of {next(iter(self._rows.values()))!r}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        return [str(rows.file) for rows in self._rows.values() if rows.file is not None]

    def mean_bytes(self) -> float:
        return sum(rows.bytes for rows in self._rows.values()) / len(self)

    def digest(self) -> str:
        return " ".join(f"{key.replace(' ', '_')}_{part}" for key, rows in self._rows.items() for part in rows.digest())

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource | None:
        found = zip(columns(spec), self._columns, strict=True)
        rows = {name: each for name, each in found if each is not None}
        named, kept = names(spec), [f"self._{name}" for name in names(spec)]
        values = ", ".join(name if rows[name].file is None else name.upper() for name in named)
        dataset = f"tf.data.Dataset.from_tensor_slices({f'({values})' if len(named) > 1 else values})"
        return PlainSource(
            given={name: rows[name].array for name in named if rows[name].file is None},
            constants=[
                f'{name.upper()} = np.load({quoted(str(each.file))}, mmap_mode="r")'
                for name, each in rows.items()
                if each.file is not None
            ],
            opened=dataset if library == "tf" else f"{', '.join(kept)} = {values}",
            count=f"{_PLAIN_SHUFFLED:_}" if library == "tf" else f"len({kept[0]})",
            taken="load" if library == "tf" else ", ".join(f"{each}[index]" for each in kept),
            arguments=named,
            is_arrays=True,
        )


class _Rows:
    """One array, in memory or in a file; a pickle holds the path instead of the content."""

    file: Path | None  # the .npy file
    array: NDArray[Any] | None  # which cannot be written to; None if its rows are read from the file

    def __init__(self, array: ArrayLike, label: str) -> None:
        if isinstance(array, np.ndarray):
            self.file = _whole_file(array)
        elif isinstance(array, str | os.PathLike):
            if is_url(array):
                raise DataError(
                    f"`{label}` is read by ranges, and so must be a file on a disk, "
                    f"but got `{shown(os.fspath(array))}`.",
                    hint="Copy the file to a disk. Images and TFRecords can be read from URLs.",
                )
            self.file = Path(located(array))
        else:
            raise DataError(
                f"`{label}` must be a NumPy array or the path of a .npy file, but got {shortened(array)}.",
                hint="Pass numpy.asarray(...) of it.",
            )
        if self.file is not None:
            self._open(self.file)
        elif isinstance(array, np.ndarray):
            self._hold(array)
        if self.dtype.hasobject or len(self.shape) == 0 or len(self) == 0:
            raise DataError(
                f"`{label}` must have at least one row of plain numbers, but has shape {self.shape} "
                f"and dtype {self.dtype}."
            )

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        what = f"{self.dtype}{list(self.shape)}"
        return what if self.file is None else f"{str(self.file)!r}: {what}"

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "array": self.array if self.file is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.file = state["file"]
        self._hold(state["array"]) if self.file is None else self._open(self.file)

    def _hold(self, array: NDArray[Any]) -> None:
        view = array.view(np.ndarray)
        view.flags.writeable = False
        self.shape, self.dtype, self.array = array.shape, array.dtype, view

    def _open(self, file: Path) -> None:
        mapped = npy_mapped(file)
        if mapped.ndim < 2 or not mapped.flags.c_contiguous:
            self._hold(np.load(file, allow_pickle=False))
            return
        self.shape, self.dtype, self.array = mapped.shape, mapped.dtype, None
        self._mapped, self._opened, self._row_bytes = mapped, OpenFile(file), mapped[:1].nbytes
        of_pixels = native.sizes(self.shape[1:], self.dtype.itemsize)
        first = (0, 0, self._opened.descriptor, mapped.offset, self._row_bytes, *of_pixels)
        self._span = np.array([first], native.SPAN)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_plain(self) -> bool:
        """Whether each row lies in memory, or in the file, as one piece, in this machine's byte order."""
        if self.array is None:
            return self.dtype.isnative
        return self.array[0].flags.c_contiguous and self.array.flags.aligned and self.dtype.isnative

    def row(self, index: int) -> Any:
        if self.array is not None:
            row = self.array[index]
        else:
            start = self._mapped.offset + range(len(self))[index] * self._row_bytes
            row = np.frombuffer(self._opened.read(start, self._row_bytes), self.dtype).reshape(self.shape[1:])
        return row if row.dtype.isnative else row.astype(row.dtype.newbyteorder("="))

    def at(self, indices: NDArray[np.int64]) -> Any:
        if self.array is not None:
            return Rows(self.array, indices)
        spans, starts = self._span.repeat(len(indices)), indices * self._row_bytes  # all begin as that of row 0
        spans["offset"] += starts
        if self._row_bytes <= _SMALL_BYTES:
            spans["data"] = self._mapped.ctypes.data + starts
        return spans, None

    def digest(self) -> tuple[str, ...]:
        shape = "x".join(map(str, self.shape))
        rows = spread(len(self), len(self) if self.bytes <= _HASH_WHOLE_BYTES else 64)
        content = b"".join(self.row(index).tobytes() for index in rows)
        described = (f"array={self.dtype}[{shape}]", f"content={short_digest(content)}")
        return described if self.file is None else (*described, f"time={self.file.stat().st_mtime_ns}")


def boxed(file: Ranges, start: int, shape: tuple[int, ...], dtype: np.dtype[Any], box: Sequence[slice]) -> NDArray[Any]:
    """Read a part of an array in a file from byte `start` on, by slices of its first axes; it may be read-only."""
    box = (*box, *map(slice, [0] * (len(shape) - len(box)), shape[len(box) :]))
    sizes = [each.stop - each.start for each in box]
    # Of one step along `axis`: the bytes that are read, and those of them that are wanted.
    axis, taken, wanted = len(shape) - 1, dtype.itemsize, dtype.itemsize
    while axis and shape[axis] * taken <= max(file.apart, _NARROW * sizes[axis] * wanted):
        taken, wanted, axis = taken * shape[axis], wanted * sizes[axis], axis - 1
    places = np.ix_(*(np.arange(each.start, each.stop) for each in box[:axis]), [box[axis].start])
    starts = start + np.ravel_multi_index(places, shape[: axis + 1]).ravel() * taken
    content = _at(file, starts, sizes[axis] * taken)
    read: NDArray[Any] = np.frombuffer(content, dtype).reshape(*sizes[: axis + 1], *shape[axis + 1 :])
    return read[(*[slice(None)] * (axis + 1), *box[axis + 1 :])]


def _at(file: Ranges, starts: NDArray[np.int64], count: int) -> bytes | NDArray[np.uint8]:
    if isinstance(file, OpenFile) and len(starts) > 1 and native.why_not() is None:
        spans = native.rows_at(np.zeros(len(starts), np.int64), (count,), 1)
        spans["file"], spans["offset"], spans["size"] = file.descriptor, starts, count
        rows, program = np.empty((len(starts), count), np.uint8), native.Program([], (count,), np.dtype(np.uint8))
        if not program.fill(spans, np.empty((len(starts), 0)), rows).any():
            return rows
    return b"".join([file.read(at, count) for at in starts.tolist()])


def npy_mapped(file: Path) -> np.memmap[Any, Any]:
    """Return a .npy file as an array that stays on disk; raise DataError if it is none."""
    try:
        loaded = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"The file `{file}` does not exist.") from error
    except Exception as error:  # NumPy evaluates a header, which may be anything
        why = str(error)
        with contextlib.suppress(OSError), file.open("rb") as stream:
            if stream.read(6) != b"\x93NUMPY":  # NumPy calls any such file a pickle
                why = "it does not begin like one."
        raise DataError(
            f"`{file}` must be a .npy file of plain numbers, but cannot be read as one: {why}",
            hint="Write it with numpy.save.",
        ) from error
    if not isinstance(loaded, np.memmap):
        raise DataError(f"`{file}` must be a .npy file, but is an archive of several arrays (.npz).")
    return loaded


def _whole_file(array: NDArray[Any]) -> Path | None:
    """Return the .npy file that `array` maps as a whole, so that worker processes can map it too."""
    if not isinstance(array, np.memmap) or array.filename is None or array.mode == "c":
        return None  # of mode "c", copy on write: changes are in memory alone
    file = Path(array.filename)
    try:
        again = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    same = again.offset == array.offset and again.nbytes == array.nbytes and again.strides == array.strides
    return file if same and again.dtype == array.dtype and array.flags.c_contiguous else None


def text_refused(what: str) -> DataError:
    """Return the error of targets that are text: bytes would be taken for encoded masks."""
    hint = "Number the classes: names, numbers = numpy.unique(texts, return_inverse=True)."
    return DataError(f"{what} must hold numbers, but holds text.", hint=hint)


def part_kind(slot: str, value: Any, image_shape: tuple[int, ...] = ()) -> FieldKind:
    """Return the kind of a part of x, y or the weights of a row, of which `image_shape` is the first input's shape."""
    if isinstance(value, bytes):
        return FieldKind.ENCODED
    row = np.asarray(value)
    if slot == "x":
        return FieldKind.IMAGE if looks_like_image(row.shape, row.dtype) else FieldKind.ARRAY
    if slot != "y" or row.dtype.kind not in "ui":
        return FieldKind.ARRAY
    if row.ndim == 0:
        return FieldKind.LABEL
    is_mask = row.ndim in (2, 3) and len(image_shape) >= 2 and row.shape[:2] == image_shape[:2]
    return FieldKind.MASK if is_mask else FieldKind.ARRAY


def looks_like_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return True if rows of this shape and dtype are taken for images."""
    if len(shape) == 3:
        return shape[-1] in _CHANNELS and dtype.kind in "uif"
    return len(shape) == 2 and dtype == np.uint8
