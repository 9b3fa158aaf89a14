"""PNG by either decoder, images that are to be rotated by their EXIF tags, and what decoders leave out of files."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

import autopipe as ap
from autopipe.artifact.verifying import verify_files
from autopipe.errors import BadSampleError, DataError, DataWarning, WorkloadError
from autopipe.reports import tables
from autopipe.workload.ops import headers
from autopipe.workload.ops.decode import decode
from autopipe.workload.ops.headers import Progressive, image_size, orientation_of
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.reference import by_python

ENCODED = Field(FieldKind.ENCODED, None, None)
MODES = ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")


def png(mode: str = "RGB", size: tuple[int, int] = (7, 5), seed: int = 0, **how: Any) -> bytes:
    """Return a PNG of noise and of flat parts, so that the encoder takes different filters."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    pixels[: size[1] // 2] //= 64
    if mode == "I;16":
        return bytes(cv2.imencode(".png", pixels[..., 0].astype(np.uint16) * 257)[1])
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "png", **how)
    return file.getvalue()


def result(data: bytes, channels: Any) -> NDArray[Any] | str:
    try:
        return decode(data, channels)
    except BadSampleError as error:
        return error.message


def require_alike(data: bytes) -> None:
    """Compare the native library, which decodes some PNG files, with OpenCV."""
    for channels in (None, 3, 1):
        found = result(data, channels)
        with by_python():
            by_opencv = result(data, channels)
        np.testing.assert_array_equal(found, by_opencv)
        assert getattr(found, "dtype", None) == getattr(by_opencv, "dtype", None)


@given(data=st.data(), mode=st.sampled_from(MODES))
def test_a_damaged_file_is_read_or_refused_as_by_opencv(data: st.DataObject, mode: str) -> None:
    file = bytearray(png(mode, (9, 9)))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    require_alike(bytes(file[: data.draw(st.integers(0, len(file)))]))


def of_stream(stream: bytes, size: tuple[int, int] = (6, 5), colour: int = 2) -> bytes:
    """Return a PNG whose checksums are right, whatever its compressed pixels are."""
    chunks = (b"IHDR", struct.pack(">IIBBBBB", *size, 8, colour, 0, 0, 0)), (b"IDAT", stream), (b"IEND", b"")
    body = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def with_chunk(name: bytes, body: bytes) -> bytes:
    data = png()
    return data[:33] + chunk(name, body) + data[33:]


STREAM = zlib.compress(b"".join(b"\0" + bytes(range(18 * row % 256, 18 * row % 256 + 18)) for row in range(5)) * 2)


def interlaced() -> bytes:
    data = bytearray(png())
    data[28] = 1
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


CHUNKS = {
    b"gAMA": struct.pack(">I", 99_999), b"sRGB": b"\0", b"tEXt": b"Comment\0none", b"pHYs": bytes(9), b"tRNS": bytes(6),
    b"sBIT": b"\x05\x06\x05", b"bKGD": bytes(6), b"acTL": struct.pack(">II", 1, 0), b"prVt": b"of somebody's own",
}  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        *(with_chunk(name, body) for name, body in CHUNKS.items()),
        *(png()[:-cut] for cut in range(1, 13)),
        # behind the pixels: a length beyond the end, a critical chunk, one of somebody's own
        png()[:-12] + struct.pack(">I", 1 << 20) + b"tEXtIEND" + png()[-12:],
        png()[:-12] + chunk(b"QRST", b"") + png()[-12:],
        png()[:-12] + chunk(b"prVt", b"") + png()[-12:],
        of_stream(b"\x08\x1d" + STREAM[2:], size=(6, 10)),  # a small window
        *(of_stream(STREAM[:-4] + end, size=(6, 10)) for end in (STREAM[-4:], b"Adle", b"")),  # a checksum
        interlaced(),
    ],
    ids=range(29),
)
def test_odd_files_are_read_or_refused_as_by_opencv(data: bytes) -> None:
    require_alike(data)


PIXELS = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8), (9, 9), 4)


def photograph(orientation: int | None, kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    if orientation is not None:
        exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind, exif=exif, **({"quality": 95} if kind != "PNG" else {}))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_and_masks_are_turned_as_pil_turns_them(kind: str, orientation: int) -> None:
    content = photograph(orientation, kind)
    assert orientation_of(content) == orientation
    tagged = Image.open(io.BytesIO(content))
    shape = np.asarray(ImageOps.exif_transpose(tagged)).shape
    x, y = ap.Decode(orientation="exif").apply((content, content), SampleSpec(ENCODED, ENCODED), np.empty(0))
    assert x.shape == y.shape == shape
    np.testing.assert_allclose(x, np.asarray(ImageOps.exif_transpose(tagged)), atol=4 if kind == "WEBP" else 1)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "content",
    [photograph(None), photograph(6)[:30], photograph(9), b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a"],
    ids=["no tag", "cut", "no such orientation", "empty", "short", "short PNG", "another format"],
)
def test_what_has_no_tag_or_a_damaged_one_is_upright(content: bytes) -> None:
    assert orientation_of(content) == 1


def test_bytes_that_fill_up_a_jpeg_hide_neither_its_tag_nor_its_size_nor_its_end() -> None:
    content = photograph(6)
    at = content.index(b"\xff\xe1")
    filled = content[:at] + b"\xff" * 3 + content[at:]
    assert orientation_of(filled) == 6
    assert image_size(filled) == (24, 40)
    np.testing.assert_array_equal(decode(filled + b"trailer", 3), decode(content, 3))
    with pytest.raises(BadSampleError, match="truncated"):
        decode(filled[:-9], 3, strict=False)


def test_an_image_that_is_turned_is_reduced_to_the_size_that_is_seen() -> None:
    op = ap.Decode(orientation="exif", reduce=(20, 10))
    x, _ = op.apply((photograph(6), None), SampleSpec(ENCODED, None), np.empty(0))
    assert np.shape(x) == (20, 12, 3)  # 24 x 40 as it is stored


def folder(root: Path, *orientations: int) -> ap.ImageFolder:
    for number, orientation in enumerate(orientations):
        (root / "a").mkdir(exist_ok=True, parents=True)
        (root / "a" / f"{number}.jpg").write_bytes(photograph(orientation))
    return ap.ImageFolder(root)


def cv(extension: str, *pages: Any) -> bytes:
    made = cv2.imencodemulti(extension, pages) if len(pages) > 1 else cv2.imencode(extension, pages[0])
    return made[1].tobytes()


def wide(extension: str, *shape: int) -> list[bytes]:
    """Return a file of bytes and one of more bits."""
    return [cv(extension, np.full(shape, 200, dtype)) for dtype in (np.uint8, np.uint16)]


GREY = np.full((8, 8), 300, np.uint16)
FLAT, NOISE = np.full((8, 8), 3, np.uint8), np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
TURNED = [photograph(orientation) for orientation in (1, 6, 8, 1)]
TO_BYTES, TO_SIXTEEN = ap.Decode(), ap.Decode(1, dtype="uint16")
LOST: list[tuple[ap.Decode, list[bytes], list[bytes], int, str]] = [  # images, masks, how many are told, and the words
    (TO_BYTES, TURNED, [], 2, r'images.*ap\.Decode\(orientation="exif"\)'),
    *((ap.Decode(orientation=choice), TURNED, [], 0, "") for choice in ("exif", "ignore")),
    (TO_BYTES, wide(".png", 8, 8), [], 1, "images that were looked at have more than 8 bits"),
    (TO_BYTES, wide(".png", 8, 8, 3), [], 1, "images that were looked at have more than 8 bits"),
    (TO_BYTES, wide(".tif", 8, 8), [], 1, "images that were looked at have more than 8 bits"),
    (TO_BYTES, wide(".tif", 8, 8, 3), [], 1, "have more than 8 bits"),  # of each channel, elsewhere in the file
    *((TO_BYTES, [cv(kind, FLAT)] * 2, [], 0, "") for kind in (".png", ".tif", ".jpg")),
    *((TO_SIXTEEN, [cv(".tif", *pages)] * 2, [cv(".tif", *pages)] * 2, 0, "") for pages in ([GREY], [GREY, GREY[:4]])),
    (TO_SIXTEEN, [cv(".tif", GREY, GREY)] * 2, [cv(".tif", GREY)] * 2, 2, "images"),  # pages
    (TO_SIXTEEN, [cv(".tif", GREY)] * 2, [cv(".tif", np.dstack([GREY] * 4))] * 2, 2, "images"),  # four bands
    (TO_SIXTEEN, [cv(".tif", np.dstack([GREY] * 3))] * 2, [cv(".tif", GREY)] * 2, 0, ""),
    (
        TO_BYTES,
        [cv(".png", FLAT)] * 2,
        [cv(".png", FLAT), cv(".jpg", FLAT)],
        1,
        "masks that are JPEG.*Keep masks as PNG",
    ),
    (TO_BYTES, [cv(".png", FLAT)] * 2, [cv(".png", FLAT), cv(".jpg", NOISE)], 0, ""),  # it is an image
]


@pytest.mark.parametrize(("op", "images", "masks", "count", "said"), LOST, ids=range(len(LOST)))
def test_what_a_decoder_leaves_out_is_told_as_a_loader_opens_and_counted_of_all_files(
    op: ap.Decode, images: list[bytes], masks: list[bytes], count: int, said: str, tmp_path: Path
) -> None:
    for name, contents in (("images", images), ("masks", masks)):
        for number, content in enumerate(contents):
            extension = {b"\xff\xd8": "jpg", b"\x89P": "png"}.get(content[:2], "tif")
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{number}.{extension}").write_bytes(content)
    data = ap.ImagePairs(tmp_path / "images", tmp_path / "masks") if masks else ap.ImageFolder(tmp_path)
    workload = ap.Workload(data=data, ops=[op, ap.Resize(8, 8)], batch_size=2)
    with pytest.warns(DataWarning, match=rf"{count} of {len(images)} .*{said}") if count else contextlib.nullcontext():
        make_plan(workload)
    found = verify_files(workload, workers=1)
    assert (found.bad, list(found.lost.values())) == ((), [count] * bool(count))


def test_a_file_of_more_bands_than_opencv_reads_is_told_of_with_what_reads_it(tmp_path: Path) -> None:
    content = cv(".tif", GREY)
    bands = struct.pack("<HHIH", 277, 3, 1, 1)
    assert content.count(bands) == 1
    with pytest.raises(BadSampleError, match="has 13 bands, and `Decode` takes at most 4") as caught:
        decode(content.replace(bands, bands[:-2] + b"\x0d\0"), 3)
    assert "ap.Windows" in str(caught.value.hint)
    floats = cv(".tif", np.ones((8, 8), np.float32))
    with pytest.raises(BadSampleError, match="has 32 bits a value, of which `Decode` makes no 8") as caught:
        decode(floats, 3)
    assert 'dtype="float32"' in str(caught.value.hint)


@pytest.mark.parametrize("extension", [".png", ".tif"])
def test_all_bits_that_are_asked_for_are_kept_without_a_word_and_a_file_of_fewer_is_named(
    extension: str, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    for number in range(4):
        (tmp_path / "a" / f"{number}{extension}").write_bytes(cv(extension, GREY + number))
    workload = ap.Workload(
        data=ap.ImageFolder(tmp_path), ops=[ap.Decode(1, dtype="uint16"), ap.Resize(8, 8)], batch_size=2
    )
    assert make_plan(workload).compact.x == Field(FieldKind.IMAGE, (8, 8, 1), np.dtype(np.uint16))
    (tmp_path / "a" / f"3{extension}").write_bytes(cv(extension, FLAT))
    with pytest.raises(BadSampleError, match=rf"3{extension}.* must be of uint16, but its values are of 8 bits"):
        make_plan(workload)
    found = verify_files(dataclasses.replace(workload, on_bad_sample="skip"), workers=1)
    assert [Path(bad.name).name for bad in found.bad] == [f"3{extension}"]


def test_all_files_with_turned_photographs_are_counted(tmp_path: Path) -> None:
    workload = ap.Workload(data=folder(tmp_path, 1, 6, 8, 1, 3), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=2)
    with pytest.raises(WorkloadError, match=r"must be an ap\.Workload or its name, but got 3"):
        verify_files(3)  # type: ignore[arg-type]
    found = verify_files(workload)  # a warning would be an error: it says the number of all
    assert list(found.lost.values()) == [3]
    assert next(tables.file_lines(found)).startswith("note      3 of 5 images are to be rotated")
    validation = folder(tmp_path / "validation", 1, 6, 1)
    (tmp_path / "validation" / "a" / "2.jpg").write_bytes(b"")
    found = verify_files(dataclasses.replace(workload, validation=validation))
    assert (found.samples, list(found.lost.values()), [each.index for each in found.bad]) == (8, [4], [7])


# -------------------- progressive JPEG files


def black(*settings: int) -> bytes:
    return bytes(cv2.imencode(".jpg", np.zeros((9, 9, 3), np.uint8), settings)[1])


PROGRESSIVE = (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)


def files(*kinds: bytes) -> Callable[[int], bytes]:
    def read(index: int) -> bytes:
        if not kinds[index]:
            raise BadSampleError(f"{index} is empty")
        return kinds[index]

    return read


def test_progressive_files_are_counted_and_what_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = black(*PROGRESSIVE)
    kinds = [cut, black(), b"", b"\x89PNG\r\n", cut[:-9], cut[:8], cut[:2] + b"\xff" * 9]
    assert Progressive.of(7, files(*kinds)) == Progressive(files=7, looked_at=6, progressive=2)
    monkeypatch.setattr(headers, "_LOOKED_AT", 3)  # of many files, from the first to the last
    kinds = [b"\xff\xd8"] * 9
    kinds[4] = kinds[8] = cut
    assert Progressive.of(9, files(*kinds)) == Progressive(files=9, looked_at=3, progressive=2)


def test_a_folder_is_looked_at_as_a_source_reads_it(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, data in {"1.jpg": PROGRESSIVE, "b/2.JPEG": PROGRESSIVE, "b/3.jpg": (), "b/.4.jpg": PROGRESSIVE}.items():
        (tmp_path / name).write_bytes(black(*data))
    (tmp_path / "b" / "notes.txt").write_text("mine")
    found = Progressive.in_folder(str(tmp_path))
    assert (found.files, found.progressive) == (len(ap.ImageFolder(tmp_path, labels=None)), 2)
    with pytest.raises(DataError, match="does not exist"):
        Progressive.in_folder(str(tmp_path / "c"))
    with pytest.raises(DataError, match="folder on a disk can be looked at, but got s3://bucket/photos"):
        Progressive.in_folder("s3://bucket/photos")
