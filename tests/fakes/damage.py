"""Ways in which image files are damaged, and in which a file that is not comes in pieces."""

from __future__ import annotations

import contextlib
import os
import random
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.errors import DataError
from autopipe.workload.sample import Source


@contextlib.contextmanager
def no_other_file() -> Iterator[None]:
    """Let this process open no file within the block, as if too many were open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def corrupt(path: Path) -> None:
    """Leave what begins and ends like a JPEG, and holds no image."""
    path.write_bytes(b"\xff\xd8" + b"no image at all" * 20 + b"\xff\xd9")


def damaged_files() -> dict[str, bytes]:
    """Return files that no training may take, by their names."""
    image = cv2.resize(np.random.default_rng(5).integers(0, 256, (6, 8, 3), np.uint8), (96, 96))
    marked = [cv2.IMWRITE_JPEG_RST_INTERVAL, 6]  # after 16 rows of pixels
    jpeg = cv2.imencode(".jpg", image, marked)[1].tobytes()
    progressive = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    png = cv2.imencode(".png", image)[1].tobytes()
    mark, checksum = jpeg.index(b"\xff\xd4"), png.index(b"IEND") - 8
    middle = (jpeg.index(b"\xff\xda") + len(jpeg)) // 2
    return {
        "cut in the middle.jpg": jpeg[:middle],
        "cut in its last rows.jpg": jpeg[: mark + 10],
        "without its end.jpg": jpeg[:-2],
        "cut, progressive.jpg": progressive[:-100],
        "without its tables.jpg": jpeg[: jpeg.index(b"\xff\xdb")] + jpeg[jpeg.index(b"\xff\xc0") :],
        "damaged in its last rows.jpg": jpeg[:mark] + b"\xff\xd0" + jpeg[mark + 2 :],
        "damaged in the middle.jpg": jpeg[:middle] + bytes(range(100, 116)) + jpeg[middle + 16 :],
        "empty.jpg": b"",
        "no image.jpg": b"no image at all" * 20,
        "cut.png": png[: len(png) // 2],
        "with a wrong checksum.png": png[:checksum] + bytes(4) + png[checksum + 4 :],
    }


def read_in_pieces(monkeypatch: pytest.MonkeyPatch, most: int = 5) -> None:
    """Have each read of a file give a few bytes of those that were asked for, as the kernel may."""
    whole, into = os.pread, os.preadv

    def few(descriptor: int, buffers: Sequence[Any], start: int, *flags: int) -> int:
        return into(descriptor, [memoryview(buffers[0])[:most]], start, *flags)

    monkeypatch.setattr(os, "pread", lambda descriptor, count, start: whole(descriptor, min(count, most), start))
    monkeypatch.setattr(os, "preadv", few)


def blank(path: Path, *starts: int, size: int = 20) -> None:
    """Fill bytes of a file with zeros."""
    content = bytearray(path.read_bytes())
    for start in starts:
        content[start : start + size] = bytes(size)
    path.write_bytes(content)


def is_named(make: Callable[[Path], Source], file: Path, fits: Callable[[Any], bool] = lambda sample: True) -> bool:
    """Whether the first samples of a source can be read, and fit; or its error names the file."""
    try:
        data = make(file)
        return all(fits(data.read(row)) for row in range(min(len(data), 20)))
    except DataError as error:
        return str(file) in error.message


def unnamed(make: Callable[[Path], Source], file: Path, tries: int) -> list[bytes]:
    """Return copies of a file with damaged bytes that a source refuses without naming them."""
    whole, chance, found = file.read_bytes(), random.Random(1), []
    for number in range(tries):
        content = bytearray(whole)
        for _ in range(16):
            content[chance.randrange(min(len(content), 4096))] = chance.randrange(256)
        damaged = file.with_name(f"{number}{file.name}")
        damaged.write_bytes(content)
        found += [] if is_named(make, damaged) else [bytes(content)]
    return found
