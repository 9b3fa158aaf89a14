"""Decoding a part of a JPEG: a crop right behind `Decode` has no more decoded than it needs.

libjpeg-turbo skips rows and blocks outside of a rectangle. No Python package reaches that at the pixels of a whole
decode (TensorFlow's `decode_and_crop_jpeg` leaves out the margin that the chroma's interpolation needs, and takes the
fast transform by default), so `region.c` beside this file does. It is compiled once for each user, with the machine's
C compiler and libjpeg-turbo's headers, when a loader needs it first. Without them images are decoded whole. The same
file has what writes a progressive JPEG as a baseline one; `progressive` calls it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from autopipe.workload.op import Op, Step
from autopipe.workload.ops.pixels import Box
from autopipe.workload.sample import Part, Sample, SampleSpec

_SOURCE = Path(__file__).with_name("region.c")
_COMPILER_SECONDS = 60.0
_TOLD = 300  # characters of what a compiler says
_ROOM_BYTES = 1 << 16  # a baseline file is rarely larger by more

Function: TypeAlias = Callable[..., int]


def library() -> Function | None:
    """Return the compiled function; None if it cannot be compiled here or gives other pixels than simplejpeg."""
    found = _loaded()
    return None if isinstance(found, str) else found


def why_whole() -> str | None:
    """Return why JPEG files are decoded whole; None if only a crop is decoded."""
    found = _loaded()
    return found if isinstance(found, str) else None


@functools.cache
def compiled() -> ctypes.CDLL | str:
    """Return the library that `region.c` is compiled to, or why there is none."""
    try:
        found = ctypes.CDLL(str(_made()))
    except subprocess.CalledProcessError as error:
        return f"the C compiler refuses {_SOURCE.name}: {error.stderr.decode(errors='replace').strip()[:_TOLD]}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: nobody's home is known
        return f"{_SOURCE.name} cannot be compiled: {error}"
    data, pointer, numbers = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_void_p, [ctypes.c_int] * 5
    found.autopipe_region.argtypes = [*data, *numbers, pointer, pointer]
    found.autopipe_baseline.argtypes = [*data, pointer, ctypes.POINTER(ctypes.c_ulong)]
    return found


@functools.cache
def _loaded() -> Function | str:
    """Return the function that decodes a part, or why there is none."""
    found = compiled()
    if isinstance(found, str):
        return found
    function: Function = found.autopipe_region
    return function if _is_exact(function) else "this machine's libjpeg gives other pixels"


def _made() -> Path:
    """Return the library for this source, compiled unless it is there already. Raise OSError or SubprocessError."""
    text = _SOURCE.read_bytes()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    target = Path(base) / "autopipe" / f"region-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(made), "-ljpeg"]
            subprocess.run(command, check=True, capture_output=True, timeout=_COMPILER_SECONDS)
            made.replace(target)
    return target


def _is_exact(function: Function) -> bool:
    """Return True if the machine's libjpeg gives the pixels of simplejpeg's, on images of each sampling."""
    coarse = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    image = cv2.resize(coarse, (75, 61), interpolation=cv2.INTER_CUBIC)
    for sampling in (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
                     cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444):  # fmt: skip
        data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling])[1].tobytes()
        whole = simplejpeg.decode_jpeg(data, "RGB")
        for top, left, height, width in ((0, 0, 61, 75), (19, 21, 30, 37), (40, 50, 21, 25)):
            part = _called(function, data, (61, 75), (top, left, height, width), 3)
            if part is None or not np.array_equal(part, whole[top : top + height, left : left + width]):
                return False
    return True


def region(data: bytes, size: tuple[int, int], box: Box, channels: int) -> NDArray[np.uint8] | None:
    """Return a rectangle of a JPEG of `size` (height, width), shape (height, width, channels); None if it must be
    decoded whole: here that is not possible, or the file is damaged, which decoding all of it tells.
    """
    function = library()
    return None if function is None else _called(function, data, size, box, channels)


def _called(
    function: Function, data: bytes, size: tuple[int, int], box: Box, channels: int
) -> NDArray[np.uint8] | None:
    top, left, height, width = box
    row, out = np.empty(size[1] * channels, np.uint8), np.empty((height, width, channels), np.uint8)
    failed = function(_address(data), len(data), top, left, height, width, channels, row.ctypes.data, out.ctypes.data)
    return None if failed else out


def baseline(data: bytes) -> bytes | None:
    """Return a JPEG as a baseline one with the same coefficients and markers; None if it is damaged, or nothing could
    be compiled here.
    """
    library = compiled()
    if isinstance(library, str):
        return None
    room, full = 2 * len(data) + _ROOM_BYTES, 2
    while full == 2:
        out, count = np.empty(room, np.uint8), ctypes.c_ulong(room)
        full = library.autopipe_baseline(_address(data), len(data), out.ctypes.data, ctypes.byref(count))
        room += count.value
    return out[: count.value].tobytes() if full == 0 else None


def _address(data: bytes | memoryview) -> Any:
    return data if isinstance(data, bytes) else np.frombuffer(data, np.uint8).ctypes.data


# -------------------- EXIF: how stored pixels are shown

UPRIGHT = 1


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return the pixels as a viewer shows them: a copy, unless they are upright."""
    if orientation == UPRIGHT:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def as_stored(box: Box, size: tuple[int, int], orientation: int) -> Box:
    """Return the rectangle of the stored pixels that shows as `box` in an upright image of `size`."""
    top, left, height, width = box
    if orientation in (3, 4, 7, 8):
        top = size[0] - top - height
    if orientation in (2, 3, 6, 7):
        left = size[1] - left - width
    return (left, top, width, height) if orientation >= 5 else (top, left, height, width)


# -------------------- the op


@dataclasses.dataclass(frozen=True)
class DecodedCrop(Op):
    """A `Decode`, and the crop that follows it, as one op."""

    decode: Any  # a Decode
    crop: Any  # a Cutting
    between: SampleSpec  # the sample after the first

    @property
    def name(self) -> str:
        return str(self.decode.name)

    @property
    def draws(self) -> int:  # type: ignore[override]  # it is that of the crop
        return int(self.crop.draws)

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        x, *rest = sample
        cut = self.decode.region(x, lambda size: self.crop.box(size, random))
        if cut is None:
            made: Sample = self.crop.apply(self.decode.apply(sample, spec, random[:0]), self.between, random, out)
            return made
        return (self.crop.finished(cut, self.between.x.kind, out), *rest)

    @classmethod
    def of(cls, decode: Step, crop: Step) -> Step:
        return Step(cls(decode.op, crop.op, decode.after), crop.stream, decode.before, crop.after)
