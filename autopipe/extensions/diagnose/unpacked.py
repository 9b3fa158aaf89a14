"""What is unpacked and not used: of compressed chunks of HDF5 files and Zarr arrays, of blocks of rasters that rasterio
reads by windows, of members of .npz files, of .npy files, of files of gzip, such as volumes (.nii.gz), and whole
images; samples that Grain's filters throw away; and values that resizing makes of a mask's.

The reads of the libraries' own classes, and the images that OpenCV and Pillow decode, are counted by the line of the
user's that asks for them.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gzip
import itertools
import math
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autopipe.frameworks import hooks
from autopipe.hardware.processes import line_of
from autopipe.measure import lines  # which may be importing NumPy, and so this, just now

_READS = 8  # by a line of one process, after which it is told of
_TIMES = 4.0  # as many bytes unpacked as used
# An index of another kind, such as the name of a field, or a read of another thread meanwhile.
_NOT_COUNTED = (LookupError, TypeError, ValueError, RuntimeError, StopIteration)
_LEAST_BYTES = 2**20  # of a member, or a file, that is read again and again

_CHUNKS = (
    "unpacks {times:.0f} times the bytes that it uses, because a chunk of `{name}` is {chunk}. For such reads "
    "write it with chunks={better}, or read whole chunks and shuffle those."
)
_BLOCKS = (
    "unpacks {times:.0f} times the bytes that it uses, because a block of `{name}` is {chunk}. For such reads write it "
    "in blocks of about {better}; `keep` of ap.Windows holds scenes unpacked."
)
_STREAM = (
    "has unpacked {count} files {times} times, `{name}` to {megabytes:.0f} MB: to read any part of a .gz file, all "
    "before it is unpacked. Write them unpacked and map them (numpy.memmap; nibabel does that with .nii), or shuffle "
    "files, and take all that is needed of one at a time."
)
_WHOLE = (
    "has read {count} files {times} times, `{name}` with its {megabytes:.0f} MB, each time as a whole. If a sample is "
    "a part of one, {parts}; else keep the arrays, if memory has room."
)
_MAPPED = 'np.load(..., mmap_mode="r") reads no more than that'
_BY_WINDOW = "rasterio's read(window=...), or ap.Windows, unpacks only the blocks that it needs"
_AGAIN = {_STREAM: 2, _WHOLE: 4}  # times that each of a line's files is read, from which on it is told of


class Unpacked:
    """Counts reads from now on, also in processes that are forked."""

    def __init__(self, told: Callable[[str, str], None]) -> None:
        """Call `told(message, line)` of a line that unpacks much more than it uses."""
        self._told = told
        self._sums: dict[Any, list[int]] = {}  # by what is read where: reads, bytes unpacked, bytes used
        self._held: dict[Any, dict[Any, None]] = {}  # by array: the chunks that HDF5 holds, the latest last
        # the same of the blocks that GDAL holds of an open raster
        self._opened: weakref.WeakKeyDictionary[Any, dict[Any, None]] = weakref.WeakKeyDictionary()
        self._files: dict[Any, dict[str, int]] = {}  # by line: how often each file was read as a whole
        self._told_of = set[Any]()  # lines of those

    def look_at(self, module: Any) -> None:
        """Count the reads of this module: of h5py, NumPy, rasterio, tifffile or Zarr; with those of NumPy gzip's."""
        match module.__name__:
            case "h5py":
                self._look_at(module.Dataset, "__getitem__", self._chunks)
            case "rasterio":
                self._look_at(module.io.DatasetReader, "read", self._blocks)
            case "tifffile":
                self._look_at(module, "imread", functools.partial(self._loaded, parts=_BY_WINDOW))
            case "zarr":
                self._look_at(module.Array, "__getitem__", self._inner)
            case _:
                self._look_at(module.lib.npyio.NpzFile, "__getitem__", self._member)
                self._look_at(module, "load", self._loaded)
                self._look_at_gzip()

    def _look_at(self, owner: Any, name: str, count: Callable[..., str | None]) -> None:
        """Have `count(place, found, ...)` look at what a function of a module, or of a class, has read by `...`."""

        @hooks.around(owner, name)
        def counted(read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            found, frame = read(*arguments, **named), lines.users_frame(sys._getframe(1))
            if frame is None or not hasattr(found, "nbytes") or found.dtype.hasobject:
                return found
            with contextlib.suppress(*_NOT_COUNTED):
                self._tell(frame, count((frame.f_code, frame.f_lineno), found, *arguments, **named))
            return found

    def _look_at_gzip(self) -> None:
        @hooks.around(gzip.GzipFile, "close")  # until the script ends
        def counted(close: Callable[[gzip.GzipFile], None], file: gzip.GzipFile) -> None:
            frame, read = lines.users_frame(sys._getframe(1)), None
            with contextlib.suppress(*_NOT_COUNTED, AttributeError, OSError):  # such as of one that is closed already
                if frame is not None and file.readable() and (unpacked := file.tell()) >= _LEAST_BYTES:
                    opened: Any = file.fileobj  # a GzipFile that got this has no name
                    read = frame, os.fspath(opened.name), unpacked
            close(file)
            if read is not None:
                self._tell(read[0], self._again(_STREAM, (read[0].f_code, read[0].f_lineno), *read[1:]))

    def _tell(self, frame: types.FrameType, message: str | None) -> None:
        if message is not None:
            self._told(f"{line_of(frame)} {message}", line_of(frame))

    def _chunks(self, place: Any, found: Any, data: Any, index: Any, **_: Any) -> str | None:
        if not data.chunks or not data.id.get_create_plist().get_nfilters():
            return None
        array, chunk = (data.file.filename, data.name), math.prod(data.chunks) * data.dtype.itemsize
        fit = data.id.get_access_plist().get_chunk_cache()[1] // chunk
        held = self._held.setdefault(array, {})
        return self._of_chunks(_CHUNKS, place, array, data.shape, data.chunks, chunk, index, held, fit, found.nbytes)

    def _inner(self, place: Any, found: Any, data: Any, index: Any, **_: Any) -> str | None:
        """Look at a read of a Zarr array, which holds no chunks."""
        if not data.compressors:
            return None
        name, chunk = str(data.store_path).removeprefix("file://"), math.prod(data.chunks) * data.dtype.itemsize
        array = (name, name)
        return self._of_chunks(_CHUNKS, place, array, data.shape, data.chunks, chunk, index, {}, 0, found.nbytes)

    def _blocks(self, place: Any, found: Any, data: Any, *_: Any, window: Any = None, **__: Any) -> str | None:
        if window is None:
            return self._loaded(place, found, data.name, parts=_BY_WINDOW)
        if not data.compression:
            return None
        index = window.toslices() if hasattr(window, "toslices") else tuple(slice(*side) for side in window)
        high, wide = data.block_shapes[0]
        bands = data.count if str(data.interleaving).endswith("pixel") else math.prod(found.shape[:-2])
        block = high * wide * bands * found.dtype.itemsize
        array, fit = (data.name, data.name), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 20 // block
        held, shape = self._opened.setdefault(data, {}), (data.height, data.width)
        return self._of_chunks(_BLOCKS, place, array, shape, (high, wide), block, index, held, fit, found.nbytes)

    def _of_chunks(  # noqa: PLR0913, PLR0917  what a read of chunks is
        self,
        said: str,
        place: Any,
        array: tuple[str, str],
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        chunk_bytes: int,
        index: Any,
        held: dict[Any, None],
        fit: int,
        used: int,
    ) -> str | None:
        """Count the chunks that an index touches, less those that the library holds, of which it has room for `fit`."""
        chosen = index if isinstance(index, tuple) else (index,)
        if any(each is ... for each in chosen):
            return None
        chosen += (slice(None),) * (len(shape) - len(chosen))
        touched, runs = zip(*map(_touched, chosen, shape, chunks), strict=True)
        unpacked = 0
        for each in itertools.product(*touched):
            unpacked += 0 if each in held else chunk_bytes
            held[each] = held.pop(each, None)  # the latest one is the last
            if len(held) > fit:
                del held[next(iter(held))]
        sums = self._added((place, array), unpacked, used)
        if sums is None or sums[0] < _TIMES * sums[1]:
            return None
        better = tuple(runs) if said is _BLOCKS else tuple(map(min, runs, chunks))  # a strip is lower than a window
        return said.format(times=sums[0] / sums[1], name=array[1], chunk=chunks, better=better)

    def _member(self, place: Any, found: Any, data: Any, name: str, **_: Any) -> str | None:
        if found.nbytes < _LEAST_BYTES or self._added((place, data.zip.filename, name), found.nbytes, 0) is None:
            return None
        return (
            f"reads and unpacks the whole of `{name}`, {found.nbytes / 1e6:.0f} MB, each time. Keep the array instead "
            'of the file, or save it as .npy and open that with mmap_mode="r".'
        )

    def _loaded(self, place: Any, found: Any, file: Any, *_: Any, parts: str = _MAPPED, **__: Any) -> str | None:
        if type(found) is not np.ndarray or found.nbytes < _LEAST_BYTES:  # a map of the file reads parts of it
            return None
        return self._again(_WHOLE, place, os.fspath(file), found.nbytes, parts)  # an open file has no path

    def _again(self, said: str, place: Any, name: str, size: int, parts: str = "") -> str | None:
        """Count a file that is read as a whole, and tell of a line that reads the same ones again and again, once."""
        files = self._files.setdefault(place, {})
        files[name] = files.get(name, 0) + 1
        count, times = len(files), sum(files.values())
        if times < max(_READS, _AGAIN[said] * count) or place in self._told_of:
            return None
        self._told_of.add(place)
        return said.format(count=count, times=times, name=Path(name).name, megabytes=size / 1e6, parts=parts)

    def _added(self, key: Any, unpacked: int, used: int) -> tuple[int, int] | None:
        """Add a read; return the sums of bytes when there were enough reads, once."""
        sums = self._sums.setdefault(key, [0, 0, 0])
        sums[:] = sums[0] + 1, sums[1] + unpacked, sums[2] + used
        return (sums[1], sums[2]) if sums[0] == _READS else None


_MORE, _SURE = 1.25, 0.03  # images for each sample, and the error of their count
_AHEAD = 16  # batches that are made and not trained on yet, as by Keras's `prefetch` behind a generator


class Decoded:
    """Counts the images that are decoded from now on, in this process."""

    def __init__(self) -> None:
        self._counts = collections.Counter[str]()

    def look_at(self, module: Any) -> None:
        def counted(decode: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if (frame := lines.users_frame(sys._getframe(1))) is not None:
                self._counts[line_of(frame)] += 1
            return decode(*arguments, **named)

        for name in ("imread", "imdecode") if module.__name__ == "cv2" else ("open",):
            hooks.around(module, name)(counted)

    def dropped(self, images: int, batch_size: int) -> Iterator[str]:
        """Say which lines decode more images than were trained on, but for whole numbers for each, as in pairs."""
        for line, count in self._counts.items():
            each, ahead = count / images, _AHEAD * batch_size / images
            least, most = (1 - _SURE) * each / (1 + ahead), (1 + _SURE) * each
            if least >= _MORE and math.floor(most) < least:
                yield (
                    f"{line} decodes {each:.1f} images for each sample that is trained on. If it throws some away, as "
                    "odd or of the wrong class, choose before they are decoded."
                )


_LOOKS, _CLASSES = 8, range(3, 33)  # images of a line that are looked at, and values of a mask of classes


def look_at_resizes(module: Any, told: Callable[[str, str], None]) -> None:
    """Call `told(message, line)` of a line that resizes an image of few values, as a mask is, to other values."""
    looks = collections.Counter[str]()

    @hooks.around(module if module.__name__ == "cv2" else module.Image, "resize")
    def looked_at(resize: Callable[..., Any], image: Any, *arguments: Any, **named: Any) -> Any:
        resized, frame = resize(image, *arguments, **named), lines.users_frame(sys._getframe(1))
        if frame is not None and looks[line := line_of(frame)] < _LOOKS:
            looks[line] += 1
            before, after = _values_of(image), _values_of(resized)
            if len(before) in _CLASSES and not after <= before:
                looks[line] = _LOOKS
                told(
                    f"{line} resizes an image of {len(before)} values to {len(after)}. If it is a mask that numbers "
                    "classes, interpolation makes other classes of two: resize it by the nearest pixel "
                    '(cv2.INTER_NEAREST, Image.NEAREST, method="nearest").',
                    line,
                )
        return resized


def _values_of(image: Any) -> set[int]:
    """Return the values of an image of one channel of bytes; none of another."""
    pixels = np.asarray(image) if getattr(image, "mode", "L") == "L" else np.empty(0)
    is_one = pixels.dtype == np.uint8 and (pixels.ndim == 2 or pixels.shape[2:] == (1,))
    return set(np.flatnonzero(np.bincount(pixels.ravel(), minlength=256)).tolist()) if is_one else set()


_FILTERED, _TELLING = 0.2, 64  # of the samples, from which on a filter is told of, and the fewest that tell


class Filtered:
    """Counts what filters of Grain throw away from now on, in this process."""

    def __init__(self, grain: Any) -> None:
        self._counts = dict[str, list[int]]()

        def counted(method: Callable[..., Any], dataset: Any, transform: Any) -> Any:
            counts = self._counts.setdefault(line_of(sys._getframe(2)), [0, 0])
            keeps = getattr(transform, "filter", transform)

            @functools.wraps(keeps)
            def asked(sample: Any) -> Any:
                kept = keeps(sample)
                counts[bool(kept)] += 1
                return kept

            return method(dataset, asked)

        for kind in (grain.MapDataset, grain.IterDataset):
            hooks.around(kind, "filter")(counted)

    def said(self) -> list[str]:
        return [
            f"{line} throws away {dropped / (dropped + kept):.0%} of the samples that reach it. If steps before it "
            "read or decode them, that is done in vain: choose by path or label, before the first `map`."
            for line, (dropped, kept) in self._counts.items()
            if dropped + kept >= _TELLING and dropped >= _FILTERED * (dropped + kept)
        ]


def _touched(index: Any, length: int, chunk: int) -> tuple[frozenset[int], int]:
    """Return the chunks of an axis that an index touches, and how many values that stand side by side it takes."""
    values = np.atleast_1d(np.arange(length)[index])
    return frozenset((values // chunk).tolist()), len(values) if isinstance(index, slice) else 1
