"""PNG by either decoder, images that are to be rotated by their EXIF tags, and what decoders leave out of files."""

import contextlib
import dataclasses
import io
import struct
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
from autopipe.errors import BadSampleError, DataWarning, WorkloadError
from autopipe.reports import tables
from autopipe.workload.ops.decode import decode
from autopipe.workload.ops.headers import image_size, orientation_of
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.commands import by_python

ENCODED = Field(FieldKind.ENCODED, None, None)
MODES = ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")


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


def png(mode: str) -> bytes:
    pixels, file = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8), io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "png")
    return cv(".png", pixels[..., 0].astype(np.uint16) * 257) if mode == "I;16" else file.getvalue()


@given(data=st.data(), mode=st.sampled_from(MODES))
def test_a_damaged_file_is_read_or_refused_as_by_opencv(data: st.DataObject, mode: str) -> None:
    file = bytearray(png(mode))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    require_alike(bytes(file[: data.draw(st.integers(0, len(file)))]))


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


def test_bytes_that_fill_up_a_jpeg_hide_nothing_and_it_is_reduced_to_the_size_that_is_seen() -> None:
    content = photograph(6)
    at = content.index(b"\xff\xe1")
    filled = content[:at] + b"\xff" * 3 + content[at:]
    assert orientation_of(filled) == 6
    assert image_size(filled) == (24, 40)
    np.testing.assert_array_equal(decode(filled + b"trailer", 3), decode(content, 3))
    with pytest.raises(BadSampleError, match="truncated"):
        decode(filled[:-9], 3, strict=False)
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


def test_a_file_of_more_bands_or_bits_than_are_made_bytes_is_told_of_with_what_reads_it() -> None:
    content, bands = cv(".tif", GREY), struct.pack("<HHIH", 277, 3, 1, 1)
    assert content.count(bands) == 1
    for file, said, hint in (
        (content.replace(bands, bands[:-2] + b"\x0d\0"), "has 13 bands, and `Decode` takes at most 4", "ap.Windows"),
        (
            cv(".tif", np.ones((8, 8), np.float32)),
            "has 32 bits a value, of which `Decode` makes no 8",
            'dtype="float32"',
        ),
    ):
        with pytest.raises(BadSampleError, match=said) as caught:
            decode(file, 3)
        assert hint in str(caught.value.hint)


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
