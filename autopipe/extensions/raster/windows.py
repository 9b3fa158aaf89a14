"""`Windows`: samples that are parts of large rasters or of volumes, in a grid or at random positions.

Only the tiles of a file that a window needs are read and unpacked. How a file is read is the business of `rasters`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import AutopipeError, BadSampleError, DataError, DataWarning, called, shortened, told
from autopipe.extensions.raster import rasters
from autopipe.extensions.raster.files import bytes_of, scenes_of, writers
from autopipe.extensions.raster.rasters import Kept, Raster
from autopipe.workload.data import remote
from autopipe.workload.data.columns import Selection
from autopipe.workload.data.images import check_split, part_of
from autopipe.workload.data.paths import PathList, Place, has_run_out, is_url, short_digest, shown, spread, unreadable
from autopipe.workload.data.source import Pieces
from autopipe.workload.op import Op, Step, Target
from autopipe.workload.plain_code import SEED, Library, Lines, PlainSource, names, parts, through_python
from autopipe.workload.sample import SLOTS, FieldKind, Sample, SampleSpec, label, leaves, mapped

Part: TypeAlias = Place | Sequence[Place]
Parts: TypeAlias = Part | dict[str, Part]

_TILE_BYTES: Final = 64 << 20  # of unpacked tiles that a process keeps
_WHOLE_BYTES: Final = 512 << 20  # of files that are packed as a whole
_AXES: Final = ("slices", "rows", "columns")
_IN_FRONT: Final = " If it lies as (bands, height, width), say bands_first=True."
_MOST_OPEN: Final = 64  # rasters that a process keeps open
_HINTS: Final = {
    "bands": "Choose `bands` that all have.",
    "dtype": "Convert one of them, say by `gdal_translate -ot`; NIfTI files that scale their voxels hold fractions.",
    "nodata": "nodata=0 replaces the value of each file by one.",
}


class Windows:
    """Windows of rasters, such as satellite scenes and microscope slides: arrays (height, width, bands). Or slices and
    parts of volumes, such as scans.

    A raster is a .npy file, which stays on disk, an .npz archive of one array, which is unpacked as a whole, a TIFF
    (GeoTIFF, COG, BigTIFF; tiles or strips) or a Zarr array. Each has a scene's pixels; parts of x and y are other
    rasters of the same scenes, with the same height and width. Geometric ops act on all of them alike.

    A volume is the same with an axis more, (depth, height, width) and perhaps bands; in a TIFF pages are the slices. Or
    it is a NIfTI file (.nii, .nii.gz), whose axes are (z, y, x): nibabel's array, transposed. Values are those of the
    file: only what a header scales becomes float32, or float64 from 32 bits on. A .nii.gz is unpacked as a whole, for
    each slice if they come in any order: take `ap.Workload(shuffle=ap.Blocks())`.

    TIFF and Zarr need the extra `raster`, URLs the extra `remote`. Each process keeps up to 64 MiB of unpacked tiles,
    for windows that share them; of files that are packed as a whole up to 512 MiB, and the last one of each part if it
    is larger. `keep` holds the windows of a grid, and of windows at random positions the whole scenes, unpacked, but
    not volumes.

    Args:
        x: a folder, a pattern such as "scenes/*.tif", or a list of paths; a dictionary of them by the names of the
            model's inputs. URLs, too, but of Zarr arrays. A relative path starts at the folder of the script that
            writes it.
        y: the same for the masks, or other targets of each pixel; None for x alone. Scenes are matched by the text for
            which the wildcards of a pattern stand, by the file's name without ending in a folder, and in lists by
            their order. A target of one band has the shape (height, width).
        size: height and width of a window in pixels; one number for both. Of volumes depth, height and width; along the
            axis of 1, if there is one, windows are slices, without that axis. None is a scene's whole axis:
            (1, None, None).
        stride: from one window of the grid to the next, as `size`; None for `size`, so that none overlap.
        edge: where the grid does not end with the scene, "moved" has a last window that is moved inwards to the edge,
            and "dropped" leaves the rest of the scene out.
        random: windows of each scene in an epoch, at positions that each window's own random numbers choose, anew in
            each epoch; None for the grid. For validation take a grid.
        bands: numbers of bands of x, from 1 as GDAL counts them, in the order wanted; a dictionary by the names of
            parts, also of y.
        nodata: put in place of the value that a file of x declares for pixels without data: in the tag of GDAL, in
            `_FillValue` of a Zarr array; a dictionary as for `bands`. None leaves pixels as they are.
        bands_first: whether arrays of NumPy and Zarr are (bands, height, width). TIFF and NIfTI files say it.
        validation_split: share of the scenes, or windows, that are for validation.
        subset: "training" or "validation": which part this source has.
        split_by: "scene", or "window" for a grid in which no window overlaps another.
        seed: of the split; None takes the last ones for validation.

    Raises:
        DataError: no scenes are found; one is smaller than a window; rasters of a part differ in bands, dtype or
            declared nodata, or those of a scene in size; or a file is damaged or needs another package.
        MissingExtraError: the library of a format is not installed.

    Example:
        >>> data = ap.Windows("scenes/*.tif", "masks/*.tif", size=256)   # doctest: +SKIP
        >>> image, mask = data.read(3)                                   # doctest: +SKIP
    """

    def __init__(  # noqa: PLR0913  # what a window is
        self,
        x: Parts,
        y: Parts | None = None,
        *,
        size: int | tuple[int | None, int | None] | tuple[int | None, int | None, int | None],
        stride: int | tuple[int, ...] | None = None,
        edge: Literal["moved", "dropped"] = "moved",
        random: int | None = None,
        bands: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        nodata: float | Mapping[str, float] | None = None,
        bands_first: bool = False,
        validation_split: float | None = None,
        subset: Literal["training", "validation"] | None = None,
        split_by: Literal["scene", "window"] = "scene",
        seed: int | None = None,
    ) -> None:
        check_split(validation_split, subset)
        self._size = _size(size)
        self._flat = self._size.index(1) if len(self._size) == 3 and 1 in self._size else None  # the axis left out
        self._stride = _stride(stride, self._size)
        self._edge, self._random = edge, random
        self._bands_first = bands_first
        if edge not in ("moved", "dropped"):
            raise DataError(f'`edge` must be "moved" or "dropped", but got {edge!r}.')
        if random is not None and (isinstance(random, bool) or not isinstance(random, int) or random < 1):
            raise DataError(f"`random` must be the number of windows of a scene, >= 1, but got {random!r}.")
        if split_by not in ("scene", "window") or (split_by == "window" and random is not None):
            raise DataError(
                f'`split_by` must be "scene", or "window" for a grid, but got {split_by!r} with random={random!r}.'
            )
        given = [(name, slot) for name, slot in zip(SLOTS, (x, y), strict=False) if slot is not None]
        named = [{key: label((slot, key)) for key in part} if isinstance(part, dict) else slot for slot, part in given]
        self._names = [name for slot in named for name in leaves(slot)]
        self._selection = Selection(tuple(named), tuple(self._names))
        self._kept: tuple[int, Kept, Kept] | None = None  # of a process, its rasters and tiles
        self._unpacked: tuple[Pieces, Windows] | None = None
        self._bands = [_numbered(chosen) for chosen in _by_part("bands", bands, self._names)]
        self._nodata = _by_part("nodata", nodata, self._names)
        each = (part for _, slot in given for part in (slot.values() if isinstance(slot, dict) else [slot]))
        scenes = scenes_of(dict(zip(self._names, each, strict=True)))
        if subset is not None and split_by == "scene" and validation_split is not None:
            scenes = [scenes[at] for at in sorted(part_of(len(scenes), "scenes", validation_split, subset, seed))]
        self._paths = [_listed(part) for part in zip(*scenes, strict=True)]
        self.remote = next((each.remote for each in self._paths if each.remote is not None), None)
        self._chosen: NDArray[np.int64] | None = None
        self._look(scenes)
        if subset is not None and split_by == "window" and validation_split is not None:
            self._require_apart()
            self._chosen = np.array(sorted(part_of(len(self), "windows", validation_split, subset, seed)))

    def _look(self, scenes: Sequence[Sequence[str]]) -> None:
        self._parts: list[_Alike] = []
        self._is_whole = False  # whether a file is packed as a whole
        sizes, elsewhere = np.empty((len(scenes), len(self._size)), np.int64), list[tuple[Raster, Raster]]()
        each_in_turn: Any = map if self.remote is None else remote.at_once
        rasters_of = each_in_turn(lambda paths: [self._opened(path) for path in paths], scenes)
        for number, found in enumerate(rasters_of):
            sizes[number] = whole = found[0].shape[:-1]
            for name, raster in zip(self._names, found, strict=True):
                if raster.shape[:-1] != whole:
                    raise DataError(
                        f"`{name}` must have the height and width of the scene, {_by(whole)} as `{found[0].path}`, but "
                        f"`{raster.path}` has {_by(raster.shape[:-1])}.",
                        hint="Bring it to the same grid, say by `gdalwarp -te ... -ts ...`.",
                    )
            if any(has < wanted for has, wanted in zip(whole, self._size, strict=True) if wanted is not None):
                raise DataError(
                    f"A window must fit in its scene, but size={self._size}, and `{found[0].path}` has {_by(whole)}.",
                    hint=f"Take smaller windows, or leave it out.{_IN_FRONT * (found[0].shape[-1] > min(whole))}",
                )
            self._require_alike(found)
            elsewhere += [(found[0], raster) for raster in found if _lie_apart(found[0].grid, raster.grid)]
            self._is_whole |= any(raster.is_whole for raster in found)
        for first, other in elsewhere[:1]:
            warnings.warn(
                f"Parts of a scene are taken pixel on pixel, but {len(elsewhere)} lie elsewhere by their georeference: "
                f"(EPSG, left, top, pixel) is {other.grid} in `{other.path}`, but {first.grid} in `{first.path}`. "
                "Bring them to one grid, say by `gdalwarp -t_srs ... -te ... -ts ...`.",
                DataWarning,
                stacklevel=4,
            )
        self._sizes = self._whole = sizes
        self._count()
        flat = (FieldKind.IMAGE, FieldKind.MASK) if len(self._size) == 2 or self._flat is not None else None
        x_kind, y_kind = flat or (FieldKind.ARRAY, FieldKind.ARRAY)
        self.x_kind: Any = mapped(lambda _: x_kind, self._selection.slots[0])
        self.y_kind: Any = next((mapped(lambda _: y_kind, slot) for slot in self._selection.slots[1:]), None)

    def _count(self) -> None:
        sizes, is_whole = self._sizes, [wanted is None for wanted in self._size]
        self._extents = np.where(is_whole, sizes, [wanted or 0 for wanted in self._size])
        steps, rests = np.divmod(sizes - self._extents, self._stride)
        self._steps = steps + 1 + ((rests > 0) & (self._edge == "moved"))  # windows of the grid along each axis
        counts = self._steps.prod(axis=1) if self._random is None else np.full(len(sizes), self._random)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.first_op = None if self._random is None else RandomWindow.of(self)

    def _require_alike(self, found: Sequence[Raster]) -> None:
        if not self._parts:
            self._parts = [_Alike.of(raster) for raster in found]
        for number, (alike, raster) in enumerate(zip(self._parts, found, strict=True)):
            name, chosen = self._names[number], self._bands[number]
            if chosen is not None and max(chosen) >= raster.shape[-1]:
                raise DataError(
                    f"`bands` of `{name}` must be from 1 to {raster.shape[-1]} in `{raster.path}`, but got "
                    f"{max(chosen) + 1}.",
                    hint="Leave the file out, or take bands that all files have.",
                )
            value = self._nodata[number]
            limits = np.iinfo(raster.dtype) if value is not None and raster.dtype.kind in "iu" else None
            if limits is not None and not (float(value).is_integer() and limits.min <= value <= limits.max):
                raise DataError(f"`nodata` must be a value of {raster.dtype}, as in `{raster.path}`, but got {value}.")
            is_free = {"bands": chosen is not None, "dtype": False, "nodata": value is not None}
            for what, hint in _HINTS.items():
                wanted, has = getattr(alike, what), getattr(_Alike.of(raster), what)
                if repr(wanted) != repr(has) and not is_free[what]:
                    raise DataError(
                        f"All rasters of `{name}` must have the same {what}, but `{alike.path}` has {wanted}, and "
                        f"`{raster.path}` has {has}.",
                        hint=f"{hint} Or leave the file out.",
                    )

    def _require_apart(self) -> None:
        for scene, (whole, extent) in enumerate(zip(self._sizes, self._extents, strict=True)):
            moved = self._edge == "moved" and np.any((whole - extent) % self._stride)
            if moved or any(size and step < size for step, size in zip(self._stride, self._size, strict=True)):
                raise DataError(
                    'split_by="window" needs windows that do not overlap, or pixels of the training are validated on, '
                    f"but size={self._size}, stride={self._stride}, edge={self._edge!r}, and "
                    f"`{self._paths[0].text(scene)}` has {_by(whole)}.",
                    hint='Take split_by="scene"; or edge="dropped" and a stride of at least the size.',
                )

    @property
    def block_starts(self) -> list[int]:
        starts = self._starts[:-1] if self._chosen is None else np.searchsorted(self._chosen, self._starts[:-1])
        return sorted({int(start) for start in starts if start < len(self)})

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._chosen is None else len(self._chosen)

    def __repr__(self) -> str:
        what = "a grid" if self._random is None else "random positions"
        return f"Windows({len(self)} in {what} of {len(self._sizes)} scenes, {self._paths[0].text(0)!r} the first)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "pieces"} | {"_kept": None}

    def read(self, index: int) -> Any:
        scene, inside = self._place(index)
        if self._random is not None:
            return self._selection.packed([np.array([index, number]) for number in range(len(self._names))])
        place = self._around(scene, self._grid(scene, inside))
        return self._selection.packed([self.part(number, scene, place) for number in range(len(self._names))])

    def part(self, number: int, scene: int, place: Sequence[slice]) -> NDArray[Any]:
        """Read some of a part by the numbers of the part and of the scene; raise BadSampleError if that fails."""
        path, alike, kept = self._path(number, scene), self._parts[number], self._kept
        if kept is None or kept[0] != os.getpid():  # those from before a fork are the parent's
            tiles = Kept(_WHOLE_BYTES, least=len(self._names)) if self._is_whole else Kept(_TILE_BYTES)
            self._kept = kept = (os.getpid(), Kept(_MOST_OPEN), tiles)
        _, opened, tiles = kept
        try:
            if self._unpacked is not None:
                return self._cut(*self._unpacked, number, scene, *place)
            raster = opened.get(path, lambda: self._again(path, alike, scene), lambda _: 1)
            found = raster.window(place, self._bands[number], tiles)
        except AutopipeError as error:
            # A server that fails is not the sample's fault, which else would be skipped.
            is_bad = isinstance(error, BadSampleError) or not (is_url(path) or has_run_out(error))
            said = f"{error.message.rstrip('.')}. It was read for the {_named(place)}."
            raise (BadSampleError if is_bad else DataError)(said, hint=error.hint) from error
        except Exception as error:  # libraries raise many errors for damaged files
            raise unreadable(f"The {_named(place)} of `{shown(path)}`", error, told(error)) from error
        if self._nodata[number] is not None and raster.nodata is not None:
            found[np.isnan(found) if math.isnan(raster.nodata) else found == raster.nodata] = self._nodata[number]
        found = found if self._flat is None else found.squeeze(self._flat)
        return found[..., 0] if number >= len(leaves(self._selection.slots[0])) and found.shape[-1] == 1 else found

    def _opened(self, path: str) -> Raster:
        return called(functools.partial(rasters.opened, bands_first=self._bands_first, axes=len(self._size)), path)

    def _again(self, path: str, alike: _Alike, scene: int) -> Raster:
        raster = self._opened(path)
        if raster.shape[:-1] != tuple(self._whole[scene]) or raster.dtype != alike.dtype:
            raise BadSampleError(
                f"`{raster.path}` was replaced: it has {_by(raster.shape[:-1])} pixels of {raster.dtype}, and had "
                f"{_by(self._whole[scene])} of {alike.dtype}.",
                hint="Open the source again.",
            )
        return raster

    def _path(self, number: int, scene: int) -> str:
        return os.fsdecode(self._paths[number].path(scene))

    def _place(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = index if self._chosen is None else int(self._chosen[index])
        scene = int(np.searchsorted(self._starts, number, "right")) - 1
        return scene, number - int(self._starts[scene])

    def _grid(self, scene: int, inside: int) -> list[int]:
        at = np.array(np.unravel_index(inside, self._steps[scene]))
        corner: list[int] = np.minimum(at * self._stride, self._sizes[scene] - self._extents[scene]).tolist()
        return corner

    def _around(self, scene: int, corner: Sequence[int]) -> list[slice]:
        return [slice(at, at + size) for at, size in zip(corner, self._extents[scene].tolist(), strict=True)]

    def at_random(self, index: int, number: int, random: NDArray[np.float64]) -> NDArray[Any]:
        """Return a part, by its number, of the window of a scene that random numbers choose, one for each axis."""
        scene, _ = self._place(index)
        spare = self._sizes[scene] - self._extents[scene] + 1
        corner = [int(share * count) for share, count in zip(random, spare, strict=True)]
        return self.part(number, scene, self._around(scene, corner))

    def name(self, index: int) -> str:
        scene, inside = self._place(index)
        path = self._paths[0].text(scene)
        if self._random is not None:
            return f"random window {inside} of {path}"
        return f"{_named(self._around(scene, self._grid(scene, inside)))} of {path}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        scenes = range(len(self._sizes)) if indices is None else sorted({self._place(index)[0] for index in indices})
        local = [number for number, paths in enumerate(self._paths) if paths.remote is None]
        return [rasters.metadata_file(self._path(number, scene)) for number in local for scene in scenes]

    def mean_bytes(self) -> float:
        parts = zip(self._parts, self._bands, strict=True)
        pixel = sum(alike.dtype.itemsize * len(chosen or range(alike.bands)) for alike, chosen in parts)
        return float(np.average(self._extents.prod(axis=1), weights=np.diff(self._starts))) * pixel

    def digest(self) -> str:
        """Describe the files (names, sizes, times; of Zarr those of its metadata) and how windows are cut."""
        files, described = self.files(), [paths.digest() for paths in self._paths if paths.remote is not None]
        if files:
            root = os.path.commonpath([Path(file).parent for file in files])
            entries = [(b"", os.fsencode(os.path.relpath(file, root))) for file in files]
            described.append(PathList(root, entries).digest())
        cut = (self._size, self._stride, self._edge, self._random, self._bands, self._nodata, self._bands_first)
        part = [] if np.array_equal(self._sizes, self._whole) else [self._sizes.tolist()]
        said = repr((cut, self._names, None if self._chosen is None else self._chosen.tolist(), *part))
        return f"{' '.join(described)} windows={short_digest(said.encode())} count={len(self)}"

    def plain(self, spec: SampleSpec, library: Library) -> PlainSource | None:
        return None

    # ------------------------------------------------------------ scenes that are kept unpacked

    @functools.cached_property
    def pieces(self) -> Windows | None:
        """The grid that random windows are cut of if it is kept; None for a grid, volumes, or if nothing is packed."""
        tile = next((each.tile for each in self._parts if each.tile is not None), None)
        if self._random is None or tile is None or len(self._size) > 2:
            return None
        sides = [
            min(int(least), -(-int(size) // side) * side)
            for least, size, side in zip(self._sizes.min(axis=0), self._extents.max(axis=0), tile, strict=False)
        ]
        made = copy.copy(self)
        made._size = made._stride = sides[0], sides[1]
        made._random, made._unpacked, made._edge = None, None, "moved"
        made._count()
        return made

    def over(self, kept: Pieces) -> Windows:
        """Return the windows cut out of `pieces` that are kept somewhere."""
        made = copy.copy(self)
        assert self.pieces is not None
        made._unpacked = kept, self.pieces
        made._count()
        return made

    def some(self, count: int) -> Windows:
        """Return about so many of the windows, of about so many pieces: of some scenes the rows above."""
        assert self.pieces is not None
        share, high = count / len(self.pieces), int(self.pieces._extents[0, 0])
        scenes = list(spread(len(self._sizes), max(2, math.ceil(share * len(self._sizes)))))
        made = copy.copy(self)
        made._paths = [_listed([self._path(number, scene) for scene in scenes]) for number in range(len(self._names))]
        made._whole, made._sizes = self._whole[scenes], self._sizes[scenes]
        rows = np.ceil(share * len(self._sizes) / len(scenes) * made._sizes[:, 0] / high).astype(np.int64) * high
        made._sizes[:, 0] = np.minimum(np.maximum(rows, high), made._sizes[:, 0])
        made._random = max(1, math.ceil(count / len(scenes)))
        made._count()
        return made

    def rewritten(self, folder: Path) -> Iterator[tuple[str | None, float, Callable[[np.random.Generator], Any]]]:
        """Yield how files may hold the windows, with parts of up to four scenes written anew to `folder`: the form's
        name, None as they are; the bytes of a window; and what reads one of them.
        """
        scenes, axes = list(spread(len(self._sizes), 4)), len(self._size)
        most = np.maximum(self._extents[scenes], (2048, 2048) if axes == 2 else (64, 512, 512))
        sizes = np.minimum(self._sizes[scenes], most)
        numbers = range(len(self._names))
        paths = [[self._path(number, scene) for scene in scenes] for number in numbers]

        def form(name: str | None, paths: list[list[str]], whole: NDArray[np.int64]) -> Any:
            made = copy.copy(self)
            made._paths, made._whole, made._sizes = [_listed(each) for each in paths], whole, sizes
            made._random, made._chosen = None if self._random is None else 1, None
            made._kept = os.getpid(), Kept(_MOST_OPEN), Kept(0)  # each window unpacks its tiles
            made._count()

            def read(rng: np.random.Generator) -> Any:
                index = int(rng.integers(len(made)))
                random = rng.random(axes)
                if self._random is None:
                    return made.read(index)
                return [made.at_random(index, number, random) for number in numbers]

            held = sum(bytes_of(path) for each in paths for path in each)
            return name, held / whole.prod(axis=1).sum() * made._extents.prod(axis=1).mean(), read

        yield form(None, paths, self._whole[scenes])
        boxes = itertools.cycle([[slice(0, size) for size in each] for each in sizes.tolist()])
        arrays = [self._opened(path).window(next(boxes), None, Kept(0)) for path in itertools.chain(*paths)]
        for name, ending, write in writers(self._flat, axes):
            with tempfile.TemporaryDirectory(dir=folder) as into:
                to = [[f"{into}/{part}-{at}{ending}" for at in range(len(scenes))] for part in numbers]
                for path, array in zip(itertools.chain(*to), arrays, strict=True):
                    write(path, array)
                yield form(name, to, sizes)

    def box(self, index: int, part: str, rows: slice, columns: slice) -> NDArray[Any]:
        """Return some rows and columns of a part of a window, by the part's name. Raise as `read`."""
        scene, inside = self._place(index)
        top, left = self._grid(scene, inside)
        down, across = slice(top + rows.start, top + rows.stop), slice(left + columns.start, left + columns.stop)
        return self.part(self._names.index(part), scene, (down, across))

    def _cut(self, kept: Pieces, grid: Windows, number: int, scene: int, rows: slice, columns: slice) -> NDArray[Any]:
        out: NDArray[Any] | None = None
        first, (height, width) = int(grid._starts[scene]), self._sizes[scene].tolist()
        high, wide = grid._extents[scene].tolist()
        for row, to_rows, from_rows in rasters.crossed(rows, high, height):
            for column, to_columns, from_columns in rasters.crossed(columns, wide, width):
                index = first + row * int(grid._steps[scene, 1]) + column
                try:
                    box = kept.box(index, self._names[number], from_rows, from_columns)
                except BadSampleError:  # a piece of several tiles, of which those that are wanted may be sound
                    box = grid.box(index, self._names[number], from_rows, from_columns)
                if out is None:
                    out = np.empty((rows.stop - rows.start, columns.stop - columns.start, *box.shape[2:]), box.dtype)
                out[to_rows, to_columns] = box
        assert out is not None
        return out


@dataclasses.dataclass(frozen=True)
class RandomWindow(Op):
    """Read a window at a random position of its scene; windows that were read already pass unchanged."""

    on: ClassVar[Target] = "both"
    size: tuple[int | None, ...]

    @property
    def draws(self) -> int:  # type: ignore[override]  # as many as axes
        return len(self.size)

    @classmethod
    def of(cls, windows: Windows) -> RandomWindow:
        made = cls(windows._size)
        object.__setattr__(made, "_windows", windows)  # no field: a digest of ops holds no paths
        return made

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        x, y = sample
        return self._read(x, random), None if y is None else self._read(y, random)

    def _read(self, part: NDArray[np.int64], random: NDArray[np.float64]) -> NDArray[Any]:
        windows: Windows = vars(self)["_windows"]
        return windows.at_random(int(part[0]), int(part[1]), random)

    def window_at_random(self, *given: Any) -> Any:
        """Return the windows of some parts; the last argument is the generator that chooses them."""
        *found, rng = given
        random = rng.random(self.draws)
        made = [self._read(part, random) for part in found]
        return made if len(made) > 1 else made[0]

    def plain_functions(self, step: Step) -> Mapping[str, Callable[..., Any]]:
        return {"random_window": self.window_at_random}

    def plain(self, step: Step, library: Library) -> Lines:
        given = ", ".join(parts(step))
        if library == "np":
            return [f"{given} = random_window({given}, rng)"]
        return [SEED, *through_python("random_window", given, names(step.after), random=True)]


# -------------------- arguments


class _Alike(NamedTuple):
    """What all rasters of a part have, by the first one."""

    path: str
    bands: int
    dtype: np.dtype[Any]
    nodata: float | None
    tile: tuple[int, ...] | None

    @classmethod
    def of(cls, raster: Raster) -> _Alike:
        return cls(raster.path, raster.shape[-1], raster.dtype, raster.nodata, raster.tile)


def _listed(paths: Sequence[str]) -> PathList:
    """Return paths or URLs as a list; raise DataError if a URL leads to nothing."""
    if any(map(is_url, paths)):
        infos = remote.asked(list(dict.fromkeys(paths)))
        root, found = remote.named(infos)
        by_url = dict(zip(infos, found, strict=True))
        return remote.ObjectList(root, [by_url[path] for path in paths])
    split = [os.fsencode(os.path.abspath(path)).rpartition(b"/") for path in paths]  # noqa: PTH100
    return PathList("/", [(folder or b"/", name) for folder, _, name in split])


def _named(place: Sequence[slice]) -> str:
    axes = zip(_AXES[-len(place) :], place, strict=True)
    return f"window of {', '.join(f'{name} {each.start} to {each.stop}' for name, each in axes)}"


def _lie_apart(one: tuple[float, ...] | None, other: tuple[float, ...] | None) -> bool:
    far = one and other and (one[0] != other[0] or max(abs(one[1] - other[1]), abs(one[2] - other[2])) > one[3])
    return bool(far)


def _by(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _size(given: Any) -> tuple[int | None, ...]:
    size = (given, given) if isinstance(given, int) else tuple(given) if isinstance(given, list | tuple) else ()
    is_one = len(size) == 2 or (len(size) == 3 and size.count(1) < 2)
    if not is_one or not all(each is None or _is_count(each) for each in size):
        raise DataError(
            "`size` must be a whole number of pixels >= 1, (height, width), or of volumes (depth, height, width), with "
            f"None for a whole axis and at most one axis of 1, that of slices, but got {given!r}."
        )
    return size


def _stride(given: Any, size: tuple[int | None, ...]) -> tuple[int, ...]:
    if given is None:
        return tuple(1 if each is None else each for each in size)  # a whole axis has one window
    stride = (given,) * len(size) if isinstance(given, int) else tuple(given) if isinstance(given, list | tuple) else ()
    if len(stride) != len(size) or not all(map(_is_count, stride)):
        raise DataError(
            f"`stride` must be a whole number of pixels >= 1, or {len(size)} of them as `size`, but got {given!r}."
        )
    return stride


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def _by_part(what: str, given: Any, names: Sequence[str]) -> list[Any]:
    if not isinstance(given, Mapping):
        if what == "bands" and given is not None and "x" not in names:
            raise DataError(f"`bands` must name a part of {', '.join(names)}, as in {{{names[0]!r}: (3, 2, 1)}}.")
        return [given if name.startswith("x") else None for name in names]
    found: list[Any] = [None] * len(names)
    for key, value in given.items():
        places = [at for at, name in enumerate(names) if key in (name, name.partition(".")[2])]
        if len(places) != 1:
            raise DataError(f"`{what}` must name parts, which are {', '.join(names)}, but got {key!r}.")
        found[places[0]] = value
    return found


def _numbered(bands: Any) -> tuple[int, ...] | None:
    if bands is None:
        return None
    chosen = tuple(bands) if isinstance(bands, list | tuple | range) else ()
    if not chosen or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in chosen):
        raise DataError(f"`bands` must be numbers from 1, but got {shortened(bands)}.")
    return tuple(each - 1 for each in chosen)
