"""The native library: loading it, and a program of its instructions that makes a batch by one call.

`native/` has its C files. It is called by ctypes, which gives up Python's lock for the whole call. Which ops are which
instructions is the ops' business (`autopipe.workload.program`); no op, source or loader is known here.

A library is taken only if it was built from the files of this version, and if it gives OpenCV's bits on this machine.
Otherwise, and with AUTOPIPE_NATIVE=0, samples are made by Python, which is the reference: right, and slower.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import logging
import math
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

_log = logging.getLogger(__name__)
_FILE: Final = Path(__file__).with_name("_native.so")
_DIGEST: Final = _FILE.with_suffix(".digest")
_SOURCES: Final = Path(__file__).parents[1] / "native"  # of a checkout

SIMD = 2  # the best that the processor has; 1: SSSE3, 0: plain C, which tests compare
HOW: Final = {"bilinear": 0, "nearest": 1, "area": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of the library; its C function says what the numbers mean."""

    name: str  # one of `codes`
    whole: tuple[int, ...] = ()  # at most six
    real: tuple[float, ...] = ()  # at most six
    table: NDArray[Any] | None = None  # that it looks up
    is_wide: bool = False  # whether it takes values of the dtype that it was made for; others take bytes alone


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int32),
        ("draw", ctypes.c_int32),
        ("whole", ctypes.c_int64 * 6),
        ("real", ctypes.c_double * 6),
        ("table", ctypes.c_void_p),
    )


class _Program(ctypes.Structure):
    _numbers = ("count", "height", "width", "channels")
    _fields_ = (("instructions", ctypes.POINTER(_Instruction)), *((name, ctypes.c_int64) for name in _numbers))


class _Part(ctypes.Structure):
    _numbers = ("height", "width", "channels", "value_bytes")
    _fields_ = (("values", ctypes.c_void_p), *((name, ctypes.c_int64) for name in _numbers))


class _Feature(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("key_bytes", ctypes.c_int64), ("is_number", ctypes.c_int64))


SPAN: Final = np.dtype([
    ("path", np.uint64), ("data", np.uint64), ("file", np.int64), ("offset", np.int64), ("size", np.int64),
    ("height", np.int64), ("width", np.int64), ("channels", np.int64),
])  # fmt: skip
"""A file (the address of its name), a part of one or of an open one, encoded bytes (their address) or pixels, of which
`channels` are the bytes of one.
"""

# -------------------- loading


@functools.cache
def _loaded() -> ctypes.CDLL | str:
    if os.environ.get("AUTOPIPE_NATIVE") == "0":
        return "AUTOPIPE_NATIVE=0 is set"
    if not _FILE.exists():
        return f"{_FILE} does not exist: autopipe was not built on this machine"
    try:
        if not _FILE.read_bytes().endswith(digest().encode()):  # a cut one, too, whose loading would end the process
            return f"{_FILE} was not built from the C files of this version: install autopipe anew"
        found = ctypes.CDLL(str(_FILE))
    except OSError as error:
        return f"{_FILE} cannot be loaded: {error}"
    found.autopipe_simd.restype = found.autopipe_name.restype = ctypes.c_char_p
    found.autopipe_scratch_new.restype = ctypes.c_void_p
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    found.autopipe_scratch_free.argtypes = [pointer]
    found.autopipe_scratch_free.restype = found.autopipe_uniforms.restype = found.autopipe_features.restype = None
    found.autopipe_fill.restype = found.autopipe_keep.restype = found.autopipe_take.restype = number
    found.autopipe_take.argtypes = [pointer, number, number]
    found.autopipe_keep.argtypes = [pointer, pointer, number, pointer, pointer, number, pointer, pointer, pointer]
    found.autopipe_uniforms.argtypes = [pointer, number, pointer, number, pointer]
    found.autopipe_features.argtypes = [pointer, number, pointer, number, pointer, pointer]
    found.autopipe_fill.argtypes = [pointer, pointer, number, pointer, number, pointer, number, pointer, pointer]
    found.autopipe_mix.argtypes = [pointer, number, number, pointer, pointer, real, real, number, number, pointer]
    return found


def _library() -> ctypes.CDLL:
    found = _loaded()
    assert not isinstance(found, str), found
    return found


@functools.cache
def codes() -> dict[str, int]:
    """Return the codes of all instructions by their names; none if there is no library."""
    library, names = _loaded(), list[str]()
    while not isinstance(library, str) and (name := library.autopipe_name(len(names))) is not None:
        names.append(name.decode())
    return {name: code for code, name in enumerate(names)}


@functools.cache
def digest() -> str:
    """Return the digest of the C files that a library of this version is built from."""
    if _DIGEST.exists():  # installed
        return _DIGEST.read_text()
    files = sorted((*_SOURCES.glob("*.c"), *_SOURCES.glob("*.h")))
    each = "".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256(each.encode()).hexdigest()[:16]


@functools.cache
def why_not() -> str | None:
    """Return why samples are made by Python; None if the native library makes them. The first call loads it."""
    found = _loaded()
    reason: str | None = found if isinstance(found, str) else None
    if reason is None:
        other = next((how for how in _FLAGS if not _is_alike("uint8", how, 3)), None)
        reason = other and f"OpenCV {cv2.__version__} resizes to other pixels ({other})"
    if reason is not None:
        _log.warning("Samples are made by Python, which takes longer: %s.", reason)
    return reason


def facts() -> str:
    """Return which library is used, for people; or why none is."""
    found = _loaded()
    if isinstance(found, str) or why_not() is not None:
        return f"none: {why_not()}"
    version = found.autopipe_jpeg_version()
    jpeg = f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
    return f"{_FILE.name} {digest()}, {found.autopipe_simd().decode()}, libjpeg-turbo {jpeg}"


_LEAST_ALPHA: Final = 0.06  # below it, shares of NumPy come from logarithms
_SIZES: Final = (
    ((97, 61), (40, 33)), ((97, 61), (224, 224)), ((64, 96), (32, 48)), ((90, 60), (30, 20)), ((50, 50), (49, 51)),
    ((1, 1), (7, 5)), ((1, 300), (3, 100)), ((131, 77), (50, 77)),
)  # fmt: skip
_FLAGS: Final = {"bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}
_DEEP_CHANNELS: Final = {"bilinear": (1, 2, 5), "area": (1, 2, 3, 4)}  # of which OpenCV and IPP have code of their own
_MOST_CHANNELS: Final = 128  # of which OpenCV makes one image


def resizes(dtype: str, how: str, channels: int | None) -> bool:
    """Return True if images are resized to OpenCV's bits; of unknown channels the library decides."""
    if dtype == "uint8":
        return True  # or nothing is made by the library
    known, is_code = _DEEP_CHANNELS[how], dtype in ("uint16", "float32") and not isinstance(_loaded(), str)
    is_done = how == "area" or channels is None or (channels not in (3, 4) and channels <= _MOST_CHANNELS)
    return is_code and is_done and all(_is_alike(dtype, how, each) for each in known)


@functools.cache
def _is_alike(dtype: str, how: str, channels: int) -> bool:
    numbers, of = np.random.default_rng(0), np.dtype(dtype)
    for before, after in _SIZES:
        shape = (*before, channels)
        image: NDArray[Any] = (numbers.random(shape) * (np.iinfo(of).max if of.kind == "u" else 1)).astype(of)
        program = Program([(Instruction("RESIZE", (*after, HOW[how], of.itemsize)), 0)], (*after, channels), of)
        made = np.empty((1, *after, channels), of)
        verdicts = program.fill(pixels_at([image]), np.empty((1, 0)), made)
        wanted = cv2.resize(image, after[::-1], interpolation=_FLAGS[how]).reshape(made[0].shape)
        if verdicts.any() or not np.array_equal(made[0], wanted):
            return False
    return True


# -------------------- program


class _Scratch:
    def __init__(self, library: ctypes.CDLL) -> None:
        if not (address := library.autopipe_scratch_new(SIMD)):
            raise MemoryError
        self.address = ctypes.c_void_p(address)
        # Not at the interpreter's exit, where threads of workers may still use theirs.
        weakref.finalize(self, library.autopipe_scratch_free, self.address).atexit = False


_OF_THREAD: Final = threading.local()  # its attributes go with the thread


def _scratch(library: ctypes.CDLL) -> ctypes.c_void_p:  # of this thread
    name = f"simd_{SIMD}"
    if (scratch := getattr(_OF_THREAD, name, None)) is None:
        setattr(_OF_THREAD, name, scratch := _Scratch(library))
    return scratch.address


class Program:
    """Instructions that make one part of a sample, each with the number of its first random number."""

    def __init__(
        self, instructions: Sequence[tuple[Instruction, int]], shape: tuple[int, ...] | None, dtype: np.dtype[Any]
    ) -> None:
        """Make rows of `shape`, of an image (height, width[, channels]), or images of any (None), to be kept."""
        self._library = _library()
        self._tables = [each.table for each, _ in instructions]
        self._code = (_Instruction * max(1, len(instructions)))()
        for to, (each, draw) in zip(self._code, instructions, strict=False):
            to.code, to.draw = codes()[each.name], draw
            to.whole[: len(each.whole)], to.real[: len(each.real)] = each.whole, each.real
            to.table = None if each.table is None else each.table.ctypes.data
        of_row = (0, 0, 0) if shape is None else sizes(shape, dtype.itemsize)
        self._program = _Program(self._code, len(instructions), *of_row)

    def fill(self, spans: NDArray[Any], draws: NDArray[np.float64], out: NDArray[Any]) -> NDArray[np.uint8]:
        """Write rows from spans, whose memory must live until then; return 0 for each that is made."""
        verdicts = np.empty(len(spans), np.uint8)
        self._library.autopipe_fill(
            ctypes.addressof(self._program), spans.ctypes.data, len(spans), draws.ctypes.data, draws.shape[1],
            out.ctypes.data, out.strides[0], _scratch(self._library), verdicts.ctypes.data,
        )  # fmt: skip
        return verdicts

    def keep(
        self, spans: NDArray[Any], heap: NDArray[np.uint8], first_free: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Put images into a heap; return where each begins, height, width and bytes of a pixel, and verdicts."""
        verdicts, places = np.empty(len(spans), np.uint8), np.empty((len(spans), 4), np.int64)
        self._library.autopipe_keep(
            ctypes.addressof(self._program), spans.ctypes.data, len(spans), heap.ctypes.data, first_free.ctypes.data,
            len(heap), places.ctypes.data, _scratch(self._library), verdicts.ctypes.data,
        )  # fmt: skip
        return places, verdicts


def take(first_free: NDArray[np.int64], size: int, end: int) -> int:
    """Take some bytes of a heap, as `Program.keep` does; return where they begin, or -1 if they are not left."""
    return int(_library().autopipe_take(first_free.ctypes.data, size, end))


def mix(
    parts: Sequence[tuple[NDArray[Any], bool]], draws: NDArray[np.float64], alpha: float, probability: float
) -> bool:
    """Mix the samples of a batch where they lie; return False if Python is to. `parts` has the images first, each with
    whether a rectangle is put in, or values are added; `draws` the six random numbers of each sample.
    """
    if why_not() is not None or not _LEAST_ALPHA <= alpha <= 1:
        return False
    library, found = _library(), (_Part * len(parts))()
    for to, (values, is_cut) in zip(found, parts, strict=True):
        if not values.flags.c_contiguous or (values.dtype not in (np.uint8, np.uint16, np.float32) and not is_cut):
            return False
        to.values, to.value_bytes = values.ctypes.data, 0 if is_cut else values.itemsize
        to.height, to.width, to.channels = sizes(values.shape[1:], values.itemsize)
    images, is_cut = parts[0]
    order = np.argsort(draws[:, 0], kind="stable")
    draws = np.ascontiguousarray(draws)
    height, width = images.shape[1:3] if is_cut else (0, 0)
    verdict = library.autopipe_mix(
        found, len(parts), len(draws), draws.ctypes.data, order.ctypes.data, alpha, probability, height, width,
        _scratch(library),
    )  # fmt: skip
    return bool(verdict == 0)


def uniforms(columns: NDArray[np.uint64], indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the numbers of `order`, shape (samples, draws), by each draw's hash state and mixed counter."""
    library, out = _library(), np.empty((len(indices), columns.shape[1]))
    library.autopipe_uniforms(columns.ctypes.data, columns.shape[1], indices.ctypes.data, len(indices), out.ctypes.data)
    return out


def files_at(paths: Sequence[bytes]) -> tuple[NDArray[Any], Any]:
    """Return the spans of whole files, and the memory of their names, which must be kept as long as the spans."""
    names = b"\0".join(paths) + b"\0"
    buffer = ctypes.c_char_p(names)
    lengths = np.fromiter(map(len, paths), np.int64, len(paths)) + 1
    spans = np.zeros(len(paths), SPAN)
    spans["path"] = ctypes.cast(buffer, ctypes.c_void_p).value
    spans["path"][1:] += np.cumsum(lengths)[:-1].astype(np.uint64)
    return spans, buffer


def features_at(records: NDArray[Any], keys: Sequence[bytes], numbers: Sequence[bool]) -> list[NDArray[Any]]:
    """Return the spans of features in records, for each key; of `numbers` their int64 instead. A record that is
    damaged, or lacks a feature, has empty ones. They may be used until this thread's next call.
    """
    library = _library()
    wanted = [_Feature(key, len(key), is_number) for key, is_number in zip(keys, numbers, strict=True)]
    features = (_Feature * len(keys))(*wanted)
    found = np.empty((len(keys), len(records)), SPAN)
    library.autopipe_features(
        records.ctypes.data, len(records), features, len(keys), found.ctypes.data, _scratch(library)
    )
    return [spans["offset"] if is_number else spans for spans, is_number in zip(found, numbers, strict=True)]


def bytes_at(parts: Sequence[bytes | memoryview]) -> NDArray[Any]:
    """Return the spans of encoded images in memory."""
    spans = np.zeros(len(parts), SPAN)
    spans["data"] = [np.frombuffer(part, np.uint8).ctypes.data if len(part) else 0 for part in parts]
    spans["size"] = list(map(len, parts))
    return spans


def sizes(shape: tuple[int, ...], item_bytes: int) -> tuple[int, int, int]:
    """Return the height, width and bytes of a pixel of an array; one that is no image is a single pixel."""
    if len(shape) not in (2, 3):
        return 1, 1, math.prod(shape) * item_bytes
    height, width, channels = (*shape, 1)[:3]
    return height, width, channels * item_bytes


def pixels_at(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the spans of images in memory, each contiguous, shape (height, width) or (height, width, channels)."""
    spans = np.zeros(len(arrays), SPAN)
    spans["data"] = [array.ctypes.data for array in arrays]
    found = zip(*(sizes(array.shape, array.itemsize) for array in arrays), strict=True)
    spans["height"], spans["width"], spans["channels"] = found
    return spans


def rows_at(addresses: NDArray[np.integer], shape: tuple[int, ...], item_bytes: int) -> NDArray[Any]:
    """Return the spans of arrays of one shape in memory, each contiguous."""
    spans = np.zeros(len(addresses), SPAN)
    spans["data"] = addresses
    spans["height"], spans["width"], spans["channels"] = sizes(shape, item_bytes)
    return spans


def in_memory(values: NDArray[Any]) -> tuple[int, ...]:
    """Return whole numbers that begin with the bytes of values, each of at most eight."""
    return tuple(int.from_bytes(value.tobytes().ljust(8, b"\0"), sys.byteorder, signed=True) for value in values.flat)
