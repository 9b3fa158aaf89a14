"""Progressive JPEG files as baseline ones, and images as their EXIF tags say that they are shown.

`region.c` beside this file moves the coefficients. It is compiled once for each user, with the machine's C compiler and
libjpeg-turbo's headers; `progressive` calls it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_SOURCE = Path(__file__).with_name("region.c")
_COMPILER_SECONDS = 60.0
_TOLD = 300  # characters of what a compiler says
_ROOM_BYTES = 1 << 16  # a baseline file is rarely larger by more

Function: TypeAlias = Callable[..., int]


@functools.cache
def compiled() -> ctypes.CDLL | str:
    """Return the library that `region.c` is compiled to, or why there is none."""
    try:
        found = ctypes.CDLL(str(_made()))
    except subprocess.CalledProcessError as error:
        return f"the C compiler refuses {_SOURCE.name}: {error.stderr.decode(errors='replace').strip()[:_TOLD]}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: nobody's home is known
        return f"{_SOURCE.name} cannot be compiled: {error}"
    data, pointer = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_void_p
    found.autopipe_baseline.argtypes = [*data, pointer, ctypes.POINTER(ctypes.c_ulong)]
    return found


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
