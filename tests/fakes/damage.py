"""Image files in folders of classes, and ways in which files are damaged."""

import contextlib
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from autopipe.errors import DataError
from autopipe.workload.sample import Source


def in_classes(root: Path, count: int, size: tuple[int, int], *, classes: int = 2, suffix: str = ".png") -> Path:
    """Write so many images of noise, in turns into folders `class_0`, `class_1` and so on, and return their folder."""
    generator = np.random.default_rng(0)
    for number in range(count):
        path = root / f"class_{number % classes}" / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), generator.integers(0, 256, (*size, 3), np.uint8))
    return root


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
    flags = ((cv2.IMWRITE_JPEG_RST_INTERVAL, 6), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1))  # a mark after 16 rows of pixels
    jpeg, progressive = (cv2.imencode(".jpg", image, each)[1].tobytes() for each in flags)
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
