"""One raster in a file, read by windows: NumPy's .npy and .npz, TIFF by tifffile, Zarr arrays by zarr.

Here is where pixels lie in a file and how a tile is unpacked. Which windows there are, and of which files, belongs to
`windows`. Files are other people's: whatever a library raises about one becomes an error that names it.
"""

from __future__ import annotations

import abc
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, BadSampleError, DataError, extra_module
from autopipe.workload.data.arrays import boxed, npy_mapped
from autopipe.workload.data.columns import read_as
from autopipe.workload.data.paths import OpenFile

TIFF: Final = (".tif", ".tiff", ".btf", ".tf8")
ENDINGS: Final = (".npy", ".npz", *TIFF, ".zarr")
_ZARR_FILES: Final = ("zarr.json", ".zarray", ".zgroup")
_MOST_TILE_BYTES: Final = 1 << 31
_GDAL_NODATA: Final = 42113  # the number of GDAL's own tag
_Value = TypeVar("_Value")


class Kept:
    """The values last asked for, as many as there is room for, for the threads of one process."""

    def __init__(self, room: int) -> None:
        self._room, self._used, self._lock = room, 0, threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], _Value], cost: Callable[[_Value], int]) -> _Value:
        """Return a value, made if it is not kept. Two threads may make the same one; neither waits for the other."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                kept: _Value = self._values[key][0]
                return kept
        made = make()
        taken = cost(made)
        if taken > self._room:
            return made
        with self._lock:
            self._used += taken - self._values.pop(key, (None, 0))[1]
            self._values[key] = made, taken
            while self._used > self._room:
                self._used -= self._values.popitem(last=False)[1][1]
        return made


class Raster(abc.ABC):
    """An open raster. Any number of threads may read it.

    Attributes:
        path: the file, or the folder of a Zarr array.
        shape: (height, width, bands).
        dtype: of its pixels, in the byte order of this machine.
        nodata: the value of pixels without data as the file declares it; None if it does not.
        tile: (height, width, bands) of what is unpacked as a whole, which at the far edges may be less; None if pixels
            lie in the file as they are.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    tile: tuple[int, int, int] | None = None
    nodata: float | None = None

    def __init__(self, path: str) -> None:
        self.path = path

    @abc.abstractmethod
    def window(self, rows: slice, columns: slice, bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        """Return the pixels (height, width, bands) of a part that lies inside, as an array of its own. Bands have
        numbers from 0, None for all; `kept` holds unpacked tiles between calls.
        """

    def _described(self, shape: tuple[int, ...], dtype: Any, *, bands_first: bool) -> None:
        """Take the shape of a whole array, (height, width), with bands before or behind, and axes of 1 in front."""
        shape = shape[max(0, len(shape) - 3) :] if math.prod(shape[:-3]) == 1 else shape
        if len(shape) not in (2, 3) or 0 in shape:
            raise DataError(
                f"`{self.path}` must hold a raster (height, width), (height, width, bands) or, with bands_first=True, "
                f"(bands, height, width), but its shape is {shape}."
            )
        height, width, bands = (*shape, 1) if len(shape) == 2 else (*shape[1:], shape[0]) if bands_first else shape
        self.shape = (int(height), int(width), int(bands))
        if dtype is None or np.dtype(dtype).kind not in "biuf":
            raise DataError(
                f"`{self.path}` must hold whole numbers or fractions of at most 64 bits, but its dtype is {dtype}."
            )
        self.dtype = np.dtype(dtype).newbyteorder("=")


class _Plain(Raster):
    """Pixels that lie in a file as they are, from its byte `start` on. `turned`: columns, not rows, lie together."""

    def __init__(
        self, path: str, start: int, shape: tuple[int, ...], dtype: Any, *, bands_first: bool, turned: bool = False
    ) -> None:
        super().__init__(path)
        self._described(shape, dtype, bands_first=bands_first)
        self._start, self._stored, self._turned = start, np.dtype(dtype), turned
        self._in_planes = (bands_first and self.shape[2] > 1) != turned
        self._file = OpenFile(Path(path))

    def window(self, rows: slice, columns: slice, bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        wanted = range(self.shape[2]) if bands is None else bands
        height, width, count = self.shape
        sides, box = ((width, height), (columns, rows)) if self._turned else ((height, width), (rows, columns))
        if self._in_planes:
            starts = [self._start + band * height * width * self.dtype.itemsize for band in wanted]
            found = np.stack([boxed(self._file, start, sides, self._stored, *box) for start in starts], 2)
        else:
            found = boxed(self._file, self._start, (*sides, count), self._stored, *box)[:, :, _as_slice(wanted)]
        return np.array(found.swapaxes(0, 1) if self._turned else found, self.dtype, order="C")


class _Tiled(Raster):
    """Pixels in tiles, each packed for itself."""

    tile: tuple[int, int, int]

    @abc.abstractmethod
    def unpacked(self, row: int, column: int, plane: int) -> NDArray[Any]:
        """Return a tile by its place among the tiles, shape (height, width, bands)."""

    def _check_tile(self) -> None:
        if min(self.tile) < 1 or math.prod(self.tile) * self.dtype.itemsize > _MOST_TILE_BYTES:
            raise DataError(
                f"`{self.path}` must have tiles of at most {_MOST_TILE_BYTES >> 20} MiB, but they are {self.tile} of "
                f"{self.dtype}.",
                hint="Write it anew in tiles, say by `gdal_translate -of COG`.",
            )

    def window(self, rows: slice, columns: slice, bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        wanted = range(self.shape[2]) if bands is None else bands
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start, len(wanted)), self.dtype)
        for plane, into, within in _by_plane(wanted, self.tile[2]):
            for row, to_rows, from_rows in crossed(rows, self.tile[0]):
                for column, to_columns, from_columns in crossed(columns, self.tile[1]):
                    tile = self._tile((row, column, plane), kept)
                    out[to_rows, to_columns, into] = tile[from_rows, from_columns, within]
        return out

    def _tile(self, place: tuple[int, int, int], kept: Kept) -> NDArray[Any]:
        try:
            return kept.get((self.path, *place), lambda: self._whole(place), lambda tile: tile.nbytes)
        except AutopipeError:
            raise
        except Exception as error:  # codecs raise many errors for damaged tiles
            raise BadSampleError(
                f"The tile in row {place[0]}, column {place[1]} of `{self.path}` cannot be unpacked: "
                f"{type(error).__name__}: {error}",
                hint='Write the file anew, or leave its windows out by on_bad_sample="skip".',
            ) from error

    def _whole(self, place: tuple[int, int, int]) -> NDArray[Any]:
        tile = self.unpacked(*place)
        least = [min(size, whole - at * size) for at, size, whole in zip(place, self.tile, self.shape, strict=True)]
        if tile.ndim != 3 or any(has < needs for has, needs in zip(tile.shape, least, strict=True)):
            raise ValueError(f"it holds {tile.shape} pixels, and not {tuple(least)}")
        return tile


def crossed(wanted: slice, size: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the tiles along one axis that a window crosses, and the places in the window and in the tile."""
    for number in range(wanted.start // size, (wanted.stop - 1) // size + 1):
        first, end = max(wanted.start, number * size), min(wanted.stop, (number + 1) * size)
        start = number * size
        yield number, slice(first - wanted.start, end - wanted.start), slice(first - start, end - start)


def in_grid(wanted: slice, size: int, whole: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the windows of a grid along one axis as `crossed`; the last one is moved inwards to the edge."""
    for number, to, within in crossed(wanted, size):
        moved = max(0, (number + 1) * size - whole)
        yield number, to, slice(within.start + moved, within.stop + moved)


def _by_plane(bands: Sequence[int], size: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield the tiles among the bands that hold those wanted, and the places in the window and in the tile."""
    planes: dict[int, list[tuple[int, int]]] = {}
    for place, band in enumerate(bands):
        planes.setdefault(band // size, []).append((place, band % size))
    for plane, pairs in planes.items():
        into, within = zip(*pairs, strict=True)
        yield plane, _as_slice(into), _as_slice(within)


def _as_slice(numbers: Sequence[int]) -> Any:
    """Return numbers that follow each other as a slice, which NumPy copies faster."""
    is_run = list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))
    return slice(numbers[0], numbers[-1] + 1) if is_run else list(numbers)


# -------------------- NumPy's archives


class _Archive(_Tiled):
    """The one array of an .npz archive, which is unpacked as a whole."""

    def __init__(self, path: str, *, bands_first: bool) -> None:
        super().__init__(path)
        with np.load(path, allow_pickle=False) as archive:
            if len(archive.files) != 1:
                raise DataError(
                    f"`{path}` must hold one array, a raster, but holds {', '.join(archive.files) or 'none'}.",
                    hint="Save each raster with numpy.save as a .npy file of its own, which also is read faster.",
                )
            array = archive[archive.files[0]]
        self._described(array.shape, array.dtype, bands_first=bands_first)
        self._bands_first, self.tile = bands_first, self.shape

    def unpacked(self, row: int, column: int, plane: int) -> NDArray[Any]:
        with np.load(self.path, allow_pickle=False) as archive:
            return _bands_last(archive[archive.files[0]], bands_first=self._bands_first)


def _bands_last(array: NDArray[Any], *, bands_first: bool) -> NDArray[Any]:
    array = array.reshape(array.shape[-3:])
    return np.moveaxis(array, 0, 2) if bands_first and array.ndim == 3 else array.reshape(*array.shape[:2], -1)


# -------------------- TIFF


class _Tiff(_Tiled):
    """The largest image of a TIFF file: in tiles or strips, with its bands side by side, in planes, or in pages."""

    def __init__(self, path: str, pages: Sequence[Any]) -> None:
        super().__init__(path)
        first = pages[0].keyframe
        if first.axes not in ("YX", "YXS", "SYX") or (len(pages) > 1 and first.axes != "YX"):
            raise DataError(
                f"`{path}` must hold one raster, with bands in pixels, planes or pages, but the axes of its first "
                f"image are {first.axes}, in {len(pages)} pages.",
                hint="Save what is one sample's raster as a file of its own.",
            )
        shape = (len(pages), *first.shape) if len(pages) > 1 else first.shape
        self._described(shape, first.dtype, bands_first=len(pages) > 1 or first.axes == "SYX")
        height, width = (
            (first.tilelength, first.tilewidth) if first.is_tiled else (first.rowsperstrip, first.imagewidth)
        )
        self.tile = (int(min(height, self.shape[0])) if not first.is_tiled else height, width, self.shape[2])
        if len(pages) > 1 or first.axes == "SYX":
            self.tile = (*self.tile[:2], 1)
        self._check_tile()
        down, self._across = (-(-self.shape[axis] // self.tile[axis]) for axis in (0, 1))
        self._a_plane = down * self._across
        self._places = [place for page in pages for place in zip(page.dataoffsets, page.databytecounts, strict=True)]
        if len(self._places) != self._a_plane * (self.shape[2] // self.tile[2]):
            raise DataError(
                f"`{path}` is damaged: it lists {len(self._places)} tiles, and not {self._a_plane} a plane."
            )
        self._decode, self._tables = first.decode, first.jpegtables
        self._is_paged = len(pages) > 1
        self.nodata = _declared(first)
        self._file = OpenFile(Path(path))

    def unpacked(self, row: int, column: int, plane: int) -> NDArray[Any]:
        place = row * self._across + column
        number = plane * self._a_plane + place
        offset, size = self._places[number]
        if size and offset + size > os.fstat(self._file.descriptor).st_size:
            raise BadSampleError(f"`{self.path}` is cut short: it ends before byte {offset + size}.")
        content = self._file.read(offset, size) if size else None
        tile, *_ = self._decode(content, place if self._is_paged else number, jpegtables=self._tables)
        if tile is None:  # of a sparse file
            return np.full(self.tile, 0 if self.nodata is None else self.nodata, self.dtype)
        return np.asarray(tile[0])


def _declared(page: Any) -> float | None:
    """Return the value of pixels without data, as GDAL writes it."""
    tag = page.tags.get(_GDAL_NODATA)
    try:
        return None if tag is None else float(str(tag.value).strip("\0 "))
    except ValueError:
        return None


def _tiff(path: str) -> Raster:
    tifffile = extra_module("raster", "tifffile")
    with tifffile.TiffFile(path) as file:
        pages = [page for page in file.series[0].pages if page is not None]
        first = pages[0].keyframe
        _require_codec(path, tifffile, first)
        if len(pages) == 1 and first.is_memmappable and first.shape == file.series[0].shape:
            dtype = np.dtype(first.dtype).newbyteorder(file.byteorder)
            plain = _Plain(path, first.dataoffsets[0], first.shape, dtype, bands_first=first.axes == "SYX")
            plain.nodata = _declared(first)
            return plain
        return _Tiff(path, pages)


def _require_codec(path: str, tifffile: Any, page: Any) -> None:
    for table, number in (("DECOMPRESSORS", page.compression), ("UNPREDICTORS", page.predictor)):
        try:
            getattr(tifffile.TIFF, table)[number]
        except KeyError as error:
            name = getattr(number, "name", number)
            raise DataError(
                f"`{path}` is compressed by {name}, which is not unpacked here: {error.args[0]}.",
                hint="pip install 'autopipe-tuner[raster]' brings `imagecodecs`; or write the file anew with deflate.",
            ) from error


# -------------------- Zarr


class _Zarr(_Tiled):
    """A Zarr array, of version 2 or 3; chunks are its tiles."""

    def __init__(self, path: str, *, bands_first: bool) -> None:
        super().__init__(path)
        zarr = extra_module("raster", "zarr")
        found = zarr.open(path, mode="r")
        if not hasattr(found, "chunks"):
            arrays = ", ".join(sorted(name for name, _ in found.arrays())) or "none"
            raise DataError(
                f"`{path}` must be a Zarr array, but is a group; its arrays are {arrays}.",
                hint="Name the array, as in `scenes/*.zarr/0`.",
            )
        self._described(found.shape, found.dtype, bands_first=bands_first)
        chunks = found.chunks[-3:]
        height, width, bands = (*chunks, 1) if len(chunks) == 2 else (*chunks[1:], chunks[0]) if bands_first else chunks
        self.tile = (height, width, bands)
        self._check_tile()
        self._array, self._bands_first = found, bands_first and len(chunks) == 3
        declared = found.attrs.get("_FillValue")
        self.nodata = float(declared) if isinstance(declared, int | float) else None

    def unpacked(self, row: int, column: int, plane: int) -> NDArray[Any]:
        rows, columns, bands = (
            slice(at * size, min((at + 1) * size, whole))
            for at, size, whole in zip((row, column, plane), self.tile, self.shape, strict=True)
        )
        inner = (bands, rows, columns) if self._bands_first else (rows, columns, bands)
        front = len(self._array.shape)
        chosen = (*([0] * (front - 3)), *inner) if front >= 3 else inner[:2]
        return _bands_last(np.asarray(self._array[chosen]), bands_first=self._bands_first)


def opened(path: str, *, bands_first: bool) -> Raster:
    """Open a raster by its name's ending; `bands_first` says how arrays of NumPy and Zarr lie.

    Raises:
        DataError: it is missing, damaged, compressed in a way that needs another package, or no raster.
        MissingExtraError: the library of its format is not installed.
    """
    if not os.path.lexists(path):
        raise DataError(f"The file `{path}` does not exist.")
    ending = os.path.splitext(path)[1].lower()  # noqa: PTH122  no pathlib object a window
    with read_as(path, "a raster"):
        if is_zarr(path):
            return _Zarr(path, bands_first=bands_first)
        if ending == ".npy":
            array = npy_mapped(Path(path))
            turned = not array.flags.c_contiguous
            return _Plain(path, array.offset, array.shape, array.dtype, bands_first=bands_first, turned=turned)
        if ending == ".npz":
            return _Archive(path, bands_first=bands_first)
        if ending in TIFF:
            return _tiff(path)
    raise DataError(
        f"`{path}` must be a raster, by its ending {', '.join(ENDINGS)}.",
        hint="Convert it, say by `gdal_translate -of COG`.",
    )


def is_zarr(path: str) -> bool:
    """Return True for the folder of a Zarr array or group."""
    return metadata_file(path) != path


def metadata_file(path: str) -> str:
    """Return the file that stands for a raster: itself, or what describes a Zarr array."""
    inside = (os.path.join(path, name) for name in _ZARR_FILES)  # noqa: PTH118
    return next((file for file in inside if os.path.isfile(file)), path)  # noqa: PTH113
