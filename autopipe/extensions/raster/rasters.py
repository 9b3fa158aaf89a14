"""One raster or volume in a file, read by windows: NumPy's .npy and .npz, NIfTI, TIFF by tifffile, Zarr by zarr.

Here is where pixels lie in a file and how a tile is unpacked. Which windows there are, and of which files, belongs to
`windows`. Files are other people's: whatever a library raises about one becomes an error that names it.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import io
import itertools
import math
import os
import threading
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from gzip import BadGzipFile
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, BadSampleError, DataError, called, extra_module, told
from autopipe.extensions.raster import nifti
from autopipe.extensions.raster.nifti import Lying
from autopipe.workload.data import remote
from autopipe.workload.data.arrays import boxed
from autopipe.workload.data.columns import read_as
from autopipe.workload.data.paths import OpenFile, RangeIO, Ranges, is_url, shown

TIFF: Final = (".tif", ".tiff", ".btf", ".tf8")
ENDINGS: Final = (".npy", ".npz", *nifti.ENDINGS, *TIFF, ".zarr")
_ZARR_FILES: Final = ("zarr.json", ".zarray", ".zgroup")
_MOST_TILE_BYTES: Final = 1 << 31
_GDAL_NODATA: Final = 42113  # the number of GDAL's own tag
_PIXEL_SCALE, _TIE_POINT, _GEO_KEYS = 33550, 33922, 34735  # tags of GeoTIFF; of the last, 2048 and 3072 are CRSs
_PATIENCE_SECONDS: Final = 1.0  # with a request for a tile, which may never be answered: the next reader asks anew
_STAYS_DAMAGED: Final = (BadSampleError, ValueError, EOFError, zlib.error, BadGzipFile, zipfile.BadZipFile)
_Value = TypeVar("_Value")


class Kept:
    """The values last asked for, for the threads of one process: the last `least`, and more as there is room."""

    def __init__(self, room: int, least: int = 0) -> None:
        self._room, self._least, self._used, self._lock = room, least, 0, threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._made: dict[Hashable, Future[Any]] = {}

    def get(
        self,
        key: Hashable,
        make: Callable[[], _Value],
        cost: Callable[[_Value], int],
        patience_seconds: float | None = None,
    ) -> _Value:
        """Return a value, made if it is not kept, or waited for while another thread makes it, up to the patience."""
        made: _Value
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                made = self._values[key][0]
                return made
            mine = Future[Any]()
            others = self._made.setdefault(key, mine)
        try:
            if others is not mine:
                with contextlib.suppress(TimeoutError):
                    made = others.result(patience_seconds)
                    return made
            made = make()
            self._keep(key, made, cost(made))
            mine.set_result(made)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                if others is mine:
                    del self._made[key]
        return made

    def _keep(self, key: Hashable, made: Any, taken: int) -> None:
        with self._lock:
            if taken > self._room and not self._least:
                return
            self._used += taken - self._values.pop(key, (None, 0))[1]
            self._values[key] = made, taken
            while self._used > self._room and len(self._values) > self._least:
                self._used -= self._values.popitem(last=False)[1][1]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How arrays lie that do not say it themselves."""

    axes: int  # of a place: 2, or 3 of volumes
    bands_first: bool

    def bands_last(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a whole array, or a part of it, as (height, width, bands) or (depth, height, width, bands)."""
        array = array.reshape(array.shape[-self.axes - 1 :])
        if self.bands_first and array.ndim > self.axes:
            return np.moveaxis(array, 0, -1)
        return array.reshape(*array.shape[: self.axes], -1)

    def turned(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an array, or of its chunks, after `bands_last`."""
        if len(shape) == self.axes:
            return (*shape, 1)
        return (*shape[1:], shape[0]) if self.bands_first else tuple(shape)


class Raster(abc.ABC):
    """An open raster or volume. Any number of threads may read it.

    Attributes:
        path: the file, or the folder of a Zarr array, as messages show it; `key` is what it was opened by.
        shape: (height, width, bands), of a volume (depth, height, width, bands).
        dtype: of its pixels, in the byte order of this machine.
        nodata: the value of pixels without data as the file declares it; None if it does not.
        tile: what is unpacked as a whole, with the axes of `shape`; at the far edges it may be less. None if pixels lie
            in the file as they are.
        grid: where a GeoTIFF lies: the number of its CRS, its left and upper edge, and the size of a pixel; else None.
        scaling: slope and intercept that make pixels of the numbers in the file; None if they are the pixels.
        is_whole: whether it is packed as a whole, so that each part of it costs as much as all.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tile: tuple[int, ...] | None = None
    nodata: float | None = None
    grid: tuple[int, float, float, float] | None = None
    scaling: tuple[float, float] | None = None
    is_whole = False

    def __init__(self, path: str) -> None:
        self.path = self.key = path

    def window(self, place: Sequence[slice], bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        """Return the pixels of a part that lies inside, with the axes of `shape`; bands count from 0, None for all."""
        stored = self._raw(place, bands, kept)
        if self.scaling is None:
            return stored
        slope, intercept = self.scaling
        scaled: NDArray[np.float64] = np.multiply(stored, slope, dtype=np.float64)
        return (scaled + intercept).astype(self.dtype)

    @abc.abstractmethod
    def _raw(self, place: Sequence[slice], bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        """Return a part as `window`, before it is scaled, in the byte order of this machine."""

    def _described(self, shape: tuple[int, ...], dtype: Any, layout: Layout) -> None:
        """Take the shape of a whole array: a place's axes, with bands before or behind, and axes of 1 in front."""
        shape = shape[-layout.axes - 1 :] if math.prod(shape[: -layout.axes - 1]) == 1 else shape
        if len(shape) not in (layout.axes, layout.axes + 1) or 0 in shape:
            what, axes, hint = "volume", "depth, height, width", None
            if layout.axes == 2:
                what, axes = "raster", "height, width"
                hint = "Windows of volumes have a size of three: (1, None, None) is a slice."
            raise DataError(
                f"`{self.path}` must hold a {what} ({axes}), ({axes}, bands) or, with bands_first=True, "
                f"(bands, {axes}), but its shape is {shape}.",
                hint=hint,
            )
        self.shape = tuple(map(int, layout.turned(shape)))
        if dtype is None or np.dtype(dtype).kind not in "biuf":
            raise DataError(
                f"`{self.path}` must hold whole numbers or fractions of at most 64 bits, but its dtype is {dtype}."
            )
        self.dtype = self._dtype = np.dtype(dtype).newbyteorder("=")


class _Plain(Raster):
    """Pixels that lie in a file as they are."""

    def __init__(self, path: str, file: Ranges, lying: Lying, layout: Layout) -> None:
        super().__init__(path)
        self._described(lying.shape, lying.dtype, layout)
        self._lying, self._file = lying, file
        if file.size < lying.end:
            said = f"`{path}` is cut short: it ends at byte {file.size:,}, and its pixels at {lying.end:,}."
            raise BadSampleError(said)
        *inside, bands = range(len(self.shape))
        in_front = layout.bands_first and self.shape[-1] > 1
        axes = (bands, *inside) if in_front else (*inside, bands)
        self._axes = axes[::-1] if lying.is_turned else axes  # from the one whose pixels lie farthest apart
        self._in_planes = self._axes[0] == bands

    def _raw(self, place: Sequence[slice], bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        wanted = range(self.shape[-1]) if bands is None else bands
        if self._in_planes:
            found = np.concatenate([self._box((*place, slice(band, band + 1))) for band in wanted], -1)
        else:
            least, end = min(wanted), max(wanted) + 1
            found = self._box((*place, slice(least, end)))[..., _as_slice([band - least for band in wanted])]
        return np.array(found, self._dtype, order="C")

    def _box(self, box: Sequence[slice]) -> NDArray[Any]:
        shape, turned = tuple(self.shape[axis] for axis in self._axes), [box[axis] for axis in self._axes]
        return boxed(self._file, self._lying.offset, shape, self._lying.dtype, turned).transpose(np.argsort(self._axes))


class _Tiled(Raster):
    """Pixels in tiles, each packed for itself."""

    tile: tuple[int, ...]
    _is_remote = False  # tiles are then waited for at the same time

    @abc.abstractmethod
    def unpacked(self, *place: int) -> NDArray[Any]:
        """Return a tile by its place among the tiles along each axis of `shape`."""

    def _check_tile(self) -> None:
        if min(self.tile) < 1 or math.prod(self.tile) * self.dtype.itemsize > _MOST_TILE_BYTES:
            raise DataError(
                f"`{self.path}` must have tiles of at most {_MOST_TILE_BYTES >> 20} MiB, but they are {self.tile} of "
                f"{self.dtype}.",
                hint="Write it anew in tiles, say by `gdal_translate -of COG`.",
            )

    def _raw(self, place: Sequence[slice], bands: Sequence[int] | None, kept: Kept) -> NDArray[Any]:
        wanted = range(self.shape[-1]) if bands is None else bands
        out = np.empty((*(each.stop - each.start for each in place), len(wanted)), self._dtype)
        parts = [
            ((*numbers, plane), (*to, into), (*of, within))
            for plane, into, within in _by_plane(wanted, self.tile[-1])
            for each in itertools.product(*map(crossed, place, self.tile))
            for numbers, to, of in [zip(*each, strict=True)]
        ]
        each_in_turn: Any = remote.at_once if self._is_remote and len(parts) > 1 else map
        tiles = each_in_turn(lambda part: self._tile(part[0], kept), parts)
        for tile, (_, to, of) in zip(tiles, parts, strict=True):
            out[to] = tile[of]
        return out

    def _tile(self, place: tuple[int, ...], kept: Kept) -> NDArray[Any]:
        patience = _PATIENCE_SECONDS if self._is_remote else None
        try:
            return kept.get((self.key, *place), lambda: self._whole(place), lambda tile: tile.nbytes, patience)
        except AutopipeError:
            raise
        except Exception as error:  # codecs raise many errors for damaged tiles
            named = "" if self.is_whole else f"The tile in row {place[-3]}, column {place[-2]} of "
            raise BadSampleError(
                f"{named}`{self.path}` cannot be unpacked: {told(error)}",
                hint='Write the file anew, or leave its windows out by on_bad_sample="skip".',
            ) from error

    def _whole(self, place: tuple[int, ...]) -> NDArray[Any]:
        tile = self.unpacked(*place)
        least = [min(size, whole - at * size) for at, size, whole in zip(place, self.tile, self.shape, strict=True)]
        if tile.ndim != len(least) or any(has < needs for has, needs in zip(tile.shape, least, strict=True)):
            raise ValueError(f"it holds {tile.shape} pixels, and not {tuple(least)}")
        return tile


def crossed(wanted: slice, size: int, whole: int | None = None) -> Iterator[tuple[int, slice, slice]]:
    """Yield the tiles of an axis that a window crosses, with places in both; the last of `whole` is moved inwards."""
    for number in range(wanted.start // size, (wanted.stop - 1) // size + 1):
        start, end = number * size, (number + 1) * size
        first, last = max(wanted.start, start), min(wanted.stop, end)
        start -= 0 if whole is None else max(0, end - whole)
        yield number, slice(first - wanted.start, last - wanted.start), slice(first - start, last - start)


def _by_plane(bands: Sequence[int], size: int) -> Iterator[tuple[int, Any, Any]]:
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


class _Whole(_Tiled):
    """An array that is packed as a whole, and is its only tile. What is damaged is not unpacked again."""

    is_whole = True

    def __init__(self, path: str, array: Any, load: Callable[[], NDArray[Any]], layout: Layout) -> None:
        super().__init__(path)
        self._described(array.shape, array.dtype, layout)
        self._load, self._layout, self.tile = load, layout, self.shape
        self._damage: BaseException | None = None

    def unpacked(self, *place: int) -> NDArray[Any]:
        if self._damage is not None:
            raise self._damage.with_traceback(None)
        try:
            return self._layout.bands_last(called(self._load))
        except _STAYS_DAMAGED as error:
            self._damage = error
            raise


def _archive(path: str, file: Ranges) -> NDArray[Any]:
    with np.load(io.BytesIO(file.read(0, file.size)), allow_pickle=False) as archive:
        if len(archive.files) != 1:
            raise DataError(
                f"`{path}` must hold one array, a raster, but holds {', '.join(archive.files) or 'none'}.",
                hint="Save each raster with numpy.save as a .npy file of its own, which also is read faster.",
            )
        array: NDArray[Any] = archive[archive.files[0]]
    return array


def _nifti(path: str, file: Ranges, layout: Layout) -> Raster:
    if layout.axes != 3:
        raise DataError(
            f"`{path}` holds a volume, of which windows need a size of three, (depth, height, width).",
            hint="size=(1, None, None) takes its slices, and size=(32, 64, 64) parts of it.",
        )
    is_packed = path.lower().endswith(nifti.PACKED)
    header, layout = nifti.read_header(path, file, is_packed=is_packed), Layout(3, bands_first=True)
    load = functools.partial(nifti.unpacked, path, file, header)
    made: Raster = _Whole(path, header, load, layout) if is_packed else _Plain(path, file, header, layout)
    made.scaling = header.scaling
    if made.scaling is not None:  # numbers up to 16 bits, and float32, become float32, others float64
        made.dtype = np.result_type(made._dtype, np.float32)
    return made


class _Tiff(_Tiled):
    """The largest image of a TIFF file, its bands side by side, in planes or in pages; pages of a volume are slices."""

    def __init__(self, path: str, file: Ranges, pages: Sequence[Any], axes: int) -> None:
        super().__init__(path)
        first, self._is_stack = pages[0].keyframe, axes == 3
        if first.axes not in ("YX", "YXS", "SYX") or (len(pages) > 1 and first.axes != "YX" and not self._is_stack):
            raise DataError(
                f"`{path}` must hold one raster, with bands in pixels, planes or pages, but the axes of its first "
                f"image are {first.axes}, in {len(pages)} pages.",
                hint="Save what is one sample's raster as a file of its own.",
            )
        in_pages = len(pages) > 1 or self._is_stack
        in_planes = first.axes == "SYX" or (in_pages and not self._is_stack)
        shape = (len(pages), *first.shape) if in_pages else first.shape
        self._described(shape, first.dtype, Layout(axes, bands_first=in_planes))
        height = first.tilelength if first.is_tiled else int(min(first.rowsperstrip, self.shape[-3]))
        width = first.tilewidth if first.is_tiled else first.imagewidth
        self.tile = (*[1] * self._is_stack, height, width, 1 if in_planes else self.shape[-1])
        self._check_tile()
        down, self._across = (-(-self.shape[axis] // self.tile[axis]) for axis in (-3, -2))
        self._a_plane = down * self._across
        self._places = [place for page in pages for place in zip(page.dataoffsets, page.databytecounts, strict=True)]
        planes = len(pages) if self._is_stack else self.shape[2] // self.tile[2]
        if len(self._places) != self._a_plane * planes:
            raise DataError(
                f"`{path}` is damaged: it lists {len(self._places)} tiles, and not {self._a_plane} a plane."
            )
        self._decode, self._tables = first.decode, first.jpegtables
        self._is_paged = in_pages
        self._file, self._is_remote = file, not isinstance(file, OpenFile)

    def unpacked(self, *numbers: int) -> NDArray[Any]:
        plane, row, column, *_ = numbers if self._is_stack else (numbers[2], *numbers[:2])
        place = row * self._across + column
        number = plane * self._a_plane + place
        offset, size = self._places[number]
        if size and offset + size > self._file.size:
            raise BadSampleError(f"`{self.path}` is cut short: it ends before byte {offset + size}.")
        content = self._file.read(offset, size) if size else None
        tile, *_ = self._decode(content, place if self._is_paged else number, jpegtables=self._tables)
        if tile is None:  # of a sparse file
            return np.full(self.tile, 0 if self.nodata is None else self.nodata, self.dtype)
        return np.asarray(tile if self._is_stack else tile[0])


def _grid(page: Any) -> tuple[int, float, float, float] | None:
    scale, tie, keys = (list(page.tags.valueof(tag) or ()) for tag in (_PIXEL_SCALE, _TIE_POINT, _GEO_KEYS))
    crs = [keys[at + 3] for at in range(0, len(keys) - 3, 4) if keys[at] in (2048, 3072) and keys[at + 1] == 0]
    if not crs or len(scale) < 2 or len(tie) < 5:
        return None
    return crs[-1], tie[3] - tie[0] * scale[0], tie[4] + tie[1] * scale[1], scale[0]


def _tiff(path: str, file: Ranges, axes: int) -> Raster:
    tifffile, stream = extra_module("raster", "tifffile"), RangeIO(file)
    try:
        with tifffile.TiffFile(stream.buffered(), name=path) as opened:
            return _first_image(path, file, opened, axes)
    finally:
        if stream.failure is not None:  # tifffile goes on without a page that it cannot read
            raise stream.failure


def _first_image(path: str, file: Ranges, opened: Any, axes: int) -> Raster:
    series = opened.series[0]
    pages = list(series.pages)
    if any(page is None for page in pages):
        raise DataError(
            f"`{path}` is a part of an image in several files, which are not read together.",
            hint="Write the image as one file.",
        )
    first = pages[0].keyframe
    _require_codec(path, first)
    in_front = len(series.shape) - len(first.shape)
    if axes == 3 and (in_front > 1 or first.axes not in ("YX", "YXS")):
        raise DataError(
            f"`{path}` must hold one volume, with its slices in pages, but has the axes {series.axes} of the shape "
            f"{series.shape}, in pages of {first.axes}.",
            hint="Save each time or channel as a file of its own, or the array as a .npy file.",
        )
    made: Raster
    is_one = first.shape == series.shape or (axes == 3 and series.dataoffset is not None)
    if is_one and first.is_final and first.dtype and first.dataoffsets[0]:  # 0: a tile that a sparse file leaves out
        shape = series.shape if axes == 2 or in_front else (1, *first.shape)
        start = series.dataoffset if axes == 3 and in_front else first.dataoffsets[0]
        lying = Lying(shape, np.dtype(first.dtype).newbyteorder(opened.byteorder), start)
        made = _Plain(path, file, lying, Layout(axes, first.axes == "SYX"))
    else:
        made = _Tiff(path, file, pages, axes)
    made.grid = _grid(first)
    if (tag := first.tags.get(_GDAL_NODATA)) is not None:
        with contextlib.suppress(ValueError):
            made.nodata = float(str(tag.value).strip("\0 "))
    return made


def _require_codec(path: str, page: Any) -> None:
    tifffile = extra_module("raster", "tifffile")
    for table, number in (("DECOMPRESSORS", page.compression), ("UNPREDICTORS", page.predictor)):
        try:
            getattr(tifffile.TIFF, table)[number]
        except KeyError as error:
            name = getattr(number, "name", number)
            raise DataError(
                f"`{path}` is compressed by {name}, which is not unpacked here: {error.args[0]}.",
                hint="pip install 'autopipe-tuner[raster]' brings `imagecodecs`; or write the file anew with deflate.",
            ) from error


class _Zarr(_Tiled):
    """A Zarr array, of version 2 or 3; chunks are its tiles."""

    def __init__(self, path: str, layout: Layout) -> None:
        super().__init__(path)
        zarr = extra_module("raster", "zarr")
        found = zarr.open(path, mode="r")
        if not hasattr(found, "chunks"):
            arrays = ", ".join(sorted(name for name, _ in found.arrays())) or "none"
            raise DataError(
                f"`{path}` must be a Zarr array, but is a group; its arrays are {arrays}.",
                hint="Name the array, as in `scenes/*.zarr/0`.",
            )
        self._described(found.shape, found.dtype, layout)
        self.tile = layout.turned(found.chunks[-layout.axes - 1 :])
        self._check_tile()
        self._array, self._layout = found, layout
        declared = found.attrs.get("_FillValue")
        self.nodata = float(declared) if isinstance(declared, int | float) else None

    def unpacked(self, *place: int) -> NDArray[Any]:
        *inside, bands = (
            slice(at * size, min((at + 1) * size, whole))
            for at, size, whole in zip(place, self.tile, self.shape, strict=True)
        )
        axes, front = self._layout.axes, len(self._array.shape)
        inner = (bands, *inside) if self._layout.bands_first else (*inside, bands)
        chosen = tuple(inside) if front == axes else (*[0] * (front - axes - 1), *inner)
        return self._layout.bands_last(np.asarray(self._array[chosen]))


def opened(path: str, *, bands_first: bool, axes: int = 2) -> Raster:
    """Open a raster, or with 3 `axes` a volume, by its name's ending; `bands_first` is of arrays of NumPy and Zarr.
    Raise DataError if it is missing, damaged or none, and MissingExtraError without its format's library.
    """
    is_remote, named, layout = is_url(path), shown(path), Layout(axes, bands_first)
    if not is_remote and not os.path.lexists(path):
        raise DataError(f"The file `{path}` does not exist.")
    with read_as(named, "a raster"):
        if not is_remote and is_zarr(path):
            return _Zarr(path, layout)
        file: Ranges = remote.Object(path) if is_remote else OpenFile(Path(path))
        made = _of_file(named.removesuffix("?…"), file, layout)
        made.key = path
        return made


def _of_file(path: str, file: Ranges, layout: Layout) -> Raster:
    name = path.lower()
    if name.endswith(".npy"):
        stream, header = RangeIO(file).buffered(), np.lib.format
        read = header.read_array_header_1_0 if header.read_magic(stream) == (1, 0) else header.read_array_header_2_0
        shape, turned, dtype = read(stream)
        return _Plain(path, file, Lying(shape, dtype, stream.tell(), is_turned=turned), layout)
    if name.endswith(".npz"):
        load = functools.partial(_archive, path, file)
        return _Whole(path, load(), load, layout)
    if name.endswith(nifti.ENDINGS):
        return _nifti(path, file, layout)
    if name.endswith(TIFF):
        return _tiff(path, file, layout.axes)
    if name.endswith(".zarr") and is_url(path):
        raise DataError(f"A Zarr array must be on a disk, but got `{path}`.", hint="Copy it to a disk.")
    raise DataError(
        f"`{path}` must be a raster, by its ending {', '.join(ENDINGS)}.",
        hint="Convert scenes by `gdal_translate -of COG`, scans by dcm2niix or SimpleITK. ap.ImagePairs reads PNG.",
    )


def is_zarr(path: str) -> bool:
    """Return True for the folder of a Zarr array or group."""
    return metadata_file(path) != path


def metadata_file(path: str) -> str:
    """Return the file that stands for a raster: itself, or what describes a Zarr array."""
    inside = (os.path.join(path, name) for name in _ZARR_FILES)  # noqa: PTH118
    return next((file for file in inside if os.path.isfile(file)), path)  # noqa: PTH113
