"""Progressive JPEG files become baseline ones of the same pixels; how many there are, and what they cost."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, strategies

import autopipe as ap
from autopipe.errors import BadSampleError, DataError
from autopipe.workload.ops import progressive, region
from autopipe.workload.ops.decode import decode, jpeg_segments, orientation_of

SAMPLINGS = [getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{name}") for name in ("411", "420", "422", "440", "444")]


def jpeg(height: int, width: int, *settings: int, grey: bool = False, orientation: int = 1) -> bytes:
    coarse = np.random.default_rng(height * width).integers(0, 256, (height // 5 + 2, width // 5 + 2, 3), np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    data: bytes = cv2.imencode(".jpg", image[..., 0] if grey else image, settings)[1].tobytes()
    tags = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0) + bytes(4)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(tags) + 2) + tags + data[2:]


needs_compiler = pytest.mark.skipif(
    progressive.why_not() is not None, reason="needs a C compiler and libjpeg's headers"
)
PROGRESSIVE = (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
COMMENT, ICC = b"\xff\xfe\x00\x06note", b"\xff\xe2\x00\x14ICC_PROFILE\0\x01\x01made"
_SCAN = 0xDA


def marked(data: bytes, *segments: bytes) -> bytes:
    return data[:2] + b"".join(segments) + data[2:]


def without_last_scans(data: bytes, kept: int) -> bytes:
    """Return a progressive file that ends, as it should, after some of its scans."""
    *_, at = [place for place in range(len(data)) if data[place : place + 2] == b"\xff\xda"][: kept + 1]
    return data[:at] + b"\xff\xd9"


@needs_compiler
@given(
    size=strategies.tuples(strategies.integers(1, 120), strategies.integers(1, 120)),
    sampling=strategies.sampled_from(SAMPLINGS),
    quality=strategies.integers(5, 100),
    restart=strategies.integers(0, 9),
    grey=strategies.booleans(),
    orientation=strategies.integers(1, 8),
)
def test_pixels_and_markers_stay(
    size: tuple[int, int], sampling: int, quality: int, restart: int, grey: bool, orientation: int
) -> None:
    settings = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_QUALITY, quality)
    more = (cv2.IMWRITE_JPEG_RST_INTERVAL, restart, *PROGRESSIVE)
    data = marked(jpeg(*size, *settings, *more, grey=grey, orientation=orientation), ICC, COMMENT)
    made = progressive.rewritten(data)
    assert made is not None
    assert (progressive.is_progressive(data), progressive.is_progressive(made)) == (True, False)
    np.testing.assert_array_equal(decode(made, 3), decode(data, 3))
    np.testing.assert_array_equal(decode(made, 1), decode(data, 1))
    assert orientation_of(made) == orientation
    kept = [[part for part in (ICC, COMMENT) if part in each[:200]] for each in (data, made)]
    assert kept == [[ICC, COMMENT]] * 2
    others = [[marker for marker, _ in _segments(each) if marker >= 0xE0] for each in (data, made)]
    assert others[0] == others[1]


def _segments(data: bytes) -> list[tuple[int, int]]:
    """Return the segments in front of the first scan."""
    found: list[tuple[int, int]] = []
    for segment in jpeg_segments(data):
        if segment[0] == _SCAN:
            break
        found.append(segment)
    return found


@needs_compiler
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_colour_spaces_stay(mode: str) -> None:
    images = pytest.importorskip("PIL.Image")
    channels = len(mode) if mode != "L" else 1
    pixels = np.random.default_rng(0).integers(0, 256, (33, 47, channels), np.uint8)
    file = io.BytesIO()
    images.fromarray(pixels[..., 0] if channels == 1 else pixels, mode).save(file, "JPEG", progressive=True)
    made = progressive.rewritten(file.getvalue())
    assert made is not None
    with images.open(io.BytesIO(made)) as new, images.open(io.BytesIO(file.getvalue())) as old:
        assert (new.mode, "progressive" in new.info, "progressive" in old.info) == (mode, False, True)
        np.testing.assert_array_equal(np.asarray(new), np.asarray(old))


@needs_compiler
@pytest.mark.parametrize("cut", [40, 400, -300, -2])
def test_a_damaged_file_is_left_alone(cut: int) -> None:
    assert progressive.rewritten(jpeg(90, 80, *PROGRESSIVE)[:cut]) is None


@needs_compiler
def test_a_file_without_its_last_scans_whose_blocks_a_decoder_smooths_is_left_alone() -> None:
    data = without_last_scans(jpeg(90, 80, *PROGRESSIVE), 1)
    assert region.baseline(data) is not None
    assert decode(data, 3).shape == (90, 80, 3)
    assert progressive.rewritten(data) is None


@needs_compiler
def test_a_file_that_grows_beyond_the_room_that_was_thought_of_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg(90, 80, *PROGRESSIVE)
    expected = progressive.rewritten(data)
    assert expected is not None
    for room in (1, len(expected) - 1, len(expected), len(expected) + 1):
        monkeypatch.setattr(region, "_ROOM_BYTES", room - 2 * len(data))
        assert progressive.rewritten(data) == expected


def files(*kinds: bytes) -> Callable[[int], bytes]:
    def read(index: int) -> bytes:
        if not kinds[index]:
            raise BadSampleError(f"{index} is empty")
        return kinds[index]

    return read


def test_files_are_counted_and_a_few_are_timed() -> None:
    slow, fast = jpeg(90, 80, *PROGRESSIVE), jpeg(90, 80)
    found = progressive.look(5, files(slow, fast, b"", b"\x89PNG", slow))
    assert (found.files, found.looked_at, found.progressive) == (5, 4, 2)
    assert (found.timed > 0) == (found.seconds > 0) == (found.baseline_seconds > 0) == (found.needs is None)
    none = progressive.look(2, files(fast, b""))
    assert none == progressive.Progressive(files=2, looked_at=1, progressive=0)


def test_of_many_files_some_are_looked_at_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progressive, "_LOOKED_AT", 3)
    kinds = [b"\xff\xd8"] * 9
    kinds[4] = kinds[8] = jpeg(9, 9, *PROGRESSIVE)
    found = progressive.look(9, files(*kinds))
    assert (found.files, found.looked_at, found.progressive) == (9, 3, 2)


@needs_compiler
def test_damaged_files_are_counted_and_not_timed() -> None:
    found = progressive.look(2, files(jpeg(90, 80, *PROGRESSIVE)[:-300], jpeg(9, 9)))
    assert (found.progressive, found.timed, found.seconds, found.needs) == (1, 0, 0.0, None)


def test_without_a_compiler_they_are_counted_and_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    region.compiled.cache_clear()
    try:
        assert "no-such-compiler" in str(progressive.why_not())
        found = progressive.look(1, files(jpeg(9, 9, *PROGRESSIVE)))
        assert (found.progressive, found.timed) == (1, 0)
        assert "libjpeg-dev" in str(found.needs)
    finally:
        monkeypatch.undo()
        region.compiled.cache_clear()


def test_a_folder_is_looked_at_as_a_source_reads_it(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, data in {"1.jpg": PROGRESSIVE, "b/2.JPEG": PROGRESSIVE, "b/3.jpg": (), "b/.4.jpg": PROGRESSIVE}.items():
        (tmp_path / name).write_bytes(jpeg(9, 9, *data))
    (tmp_path / "b" / "notes.txt").write_text("mine")
    found = progressive.look_in(str(tmp_path))
    assert (found.files, found.progressive) == (len(ap.ImageFolder(tmp_path, labels=None)), 2)
    with pytest.raises(DataError, match="does not exist"):
        progressive.look_in(str(tmp_path / "c"))
    with pytest.raises(DataError, match="folder on a disk can be looked at, but got s3://bucket/photos"):
        progressive.look_in("s3://bucket/photos")
