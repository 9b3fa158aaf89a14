"""How many of some files are progressive JPEG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, DataError
from autopipe.measure import progressive


def jpeg(*settings: int) -> bytes:
    return bytes(cv2.imencode(".jpg", np.zeros((9, 9, 3), np.uint8), settings)[1])


PROGRESSIVE = (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)


def files(*kinds: bytes) -> Callable[[int], bytes]:
    def read(index: int) -> bytes:
        if not kinds[index]:
            raise BadSampleError(f"{index} is empty")
        return kinds[index]

    return read


def test_progressive_files_are_counted_and_what_cannot_be_read_is_left_out() -> None:
    found = progressive.look(5, files(jpeg(*PROGRESSIVE), jpeg(), b"", b"\x89PNG", jpeg(*PROGRESSIVE)[:-9]))
    assert found == progressive.Progressive(files=5, looked_at=4, progressive=2)


def test_of_many_files_some_are_looked_at_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progressive, "_LOOKED_AT", 3)
    kinds = [b"\xff\xd8"] * 9
    kinds[4] = kinds[8] = jpeg(*PROGRESSIVE)
    found = progressive.look(9, files(*kinds))
    assert (found.files, found.looked_at, found.progressive) == (9, 3, 2)


def test_a_folder_is_looked_at_as_a_source_reads_it(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, data in {"1.jpg": PROGRESSIVE, "b/2.JPEG": PROGRESSIVE, "b/3.jpg": (), "b/.4.jpg": PROGRESSIVE}.items():
        (tmp_path / name).write_bytes(jpeg(*data))
    (tmp_path / "b" / "notes.txt").write_text("mine")
    found = progressive.look_in(str(tmp_path))
    assert (found.files, found.progressive) == (len(ap.ImageFolder(tmp_path, labels=None)), 2)
    with pytest.raises(DataError, match="does not exist"):
        progressive.look_in(str(tmp_path / "c"))
    with pytest.raises(DataError, match="folder on a disk can be looked at, but got s3://bucket/photos"):
        progressive.look_in("s3://bucket/photos")
