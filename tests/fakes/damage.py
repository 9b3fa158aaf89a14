"""Ways in which a JPEG file is damaged, and in which a file that is not comes in pieces."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from autopipe.errors import DataError
from autopipe.workload.sample import Source


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def corrupt(path: Path) -> None:
    """Leave what begins and ends like a JPEG, and holds no image."""
    path.write_bytes(b"\xff\xd8" + b"no image at all" * 20 + b"\xff\xd9")


def read_in_pieces(monkeypatch: pytest.MonkeyPatch, most: int = 5) -> None:
    """Have each read of a file give a few bytes of those that were asked for, as the kernel may."""
    whole, into = os.pread, os.preadv

    def few(descriptor: int, buffers: Sequence[Any], start: int, *flags: int) -> int:
        return into(descriptor, [memoryview(buffers[0])[:most]], start, *flags)

    monkeypatch.setattr(os, "pread", lambda descriptor, count, start: whole(descriptor, min(count, most), start))
    monkeypatch.setattr(os, "preadv", few)


def unnamed(make: Callable[[Path], Source], file: Path, tries: int) -> list[str]:
    """Return what a source says of copies of a file with damaged bytes, where it does not name the copy."""
    whole, chance, found = file.read_bytes(), random.Random(1), []
    for number in range(tries):
        content = bytearray(whole)
        for _ in range(16):
            content[chance.randrange(min(len(content), 4096))] = chance.randrange(256)
        damaged = file.with_name(f"{number}{file.name}")
        damaged.write_bytes(content)
        try:
            data = make(damaged)
            for row in range(min(len(data), 20)):
                data.read(row)
        except DataError as error:
            found += [error.message] if str(damaged) not in error.message else []
    return found
