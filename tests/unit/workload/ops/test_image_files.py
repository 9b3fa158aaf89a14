"""PNG by either decoder, images that are to be rotated by their EXIF tags, and how many files are progressive JPEG."""

from __future__ import annotations

import dataclasses
import io
import struct
import warnings
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
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.ops import headers
from autopipe.workload.ops.decode import Decode, decode
from autopipe.workload.ops.headers import Progressive, image_size, orientation_of
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload
from tests.fakes.reference import by_python

MODES = ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")


def encoded(mode: str = "RGB", size: tuple[int, int] = (7, 5), seed: int = 0, **how: Any) -> bytes:
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


@given(
    mode=st.sampled_from(MODES), width=st.integers(1, 40), height=st.integers(1, 40), seed=st.integers(0, 99),
    level=st.integers(0, 9),
)  # fmt: skip
def test_pixels_are_opencvs(mode: str, width: int, height: int, seed: int, level: int) -> None:
    require_alike(encoded(mode, (width, height), seed, compress_level=level))


@given(data=st.data(), mode=st.sampled_from(MODES))
def test_a_damaged_file_is_read_or_refused_as_by_opencv(data: st.DataObject, mode: str) -> None:
    file = bytearray(encoded(mode, (9, 9)))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    require_alike(bytes(file[: data.draw(st.integers(0, len(file)))]))


def of_stream(stream: bytes, size: tuple[int, int] = (6, 5), colour: int = 2) -> bytes:
    """Return a PNG whose checksums are right, whatever its compressed pixels are."""
    chunks = (b"IHDR", struct.pack(">IIBBBBB", *size, 8, colour, 0, 0, 0)), (b"IDAT", stream), (b"IEND", b"")
    body = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


@given(data=st.data(), colour=st.sampled_from([0, 2]), filters=st.lists(st.integers(0, 6), min_size=5, max_size=5))
def test_pixels_that_do_not_fit_their_header(data: st.DataObject, colour: int, filters: list[int]) -> None:
    width = 6 * (3 if colour == 2 else 1)
    rows = [bytes([kind]) + bytes(range(3, 3 + width)) for kind in filters]
    raw = b"".join(rows)[: data.draw(st.integers(0, 5 * (width + 1)))] + data.draw(st.binary(max_size=30))
    stream = bytearray(zlib.compress(raw))
    for _ in range(data.draw(st.integers(0, 2))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    require_alike(of_stream(bytes(stream[: data.draw(st.integers(1, len(stream)))]), colour=colour))


def test_a_wrong_checksum_of_what_is_compressed_is_damage() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    stream = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    np.testing.assert_array_equal(decode(of_stream(stream), 3), rows)
    for end in (b"Adle", b""):
        with pytest.raises(BadSampleError):
            decode(of_stream(stream[:-4] + end), 3)
        require_alike(of_stream(stream[:-4] + end))


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def with_chunk(name: bytes, body: bytes) -> bytes:
    data = encoded()
    return data[:33] + chunk(name, body) + data[33:]


def with_a_small_window() -> bytes:
    rows = (b"\0" + bytes(range(18 * row % 256, 18 * row % 256 + 18)) for row in range(5))
    stream = bytearray(zlib.compress(b"".join(rows) * 2))
    stream[0], stream[1] = 0x08, 0x1D
    return of_stream(bytes(stream), size=(6, 10))


def interlaced() -> bytes:
    data = bytearray(encoded())
    data[28] = 1
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        with_chunk(b"gAMA", struct.pack(">I", 100_000)),
        with_chunk(b"sRGB", b"\0"),
        with_chunk(b"tEXt", b"Comment\0none"),
        with_chunk(b"pHYs", bytes(9)),
        with_chunk(b"tRNS", bytes(6)),
        with_chunk(b"sBIT", b"\x05\x06\x05"),
        with_chunk(b"bKGD", bytes(6)),
        with_chunk(b"acTL", struct.pack(">II", 1, 0)),
        with_chunk(b"prVt", b"of somebody's own"),
        *(encoded()[:-cut] for cut in range(1, 13)),
        # behind the pixels: a length beyond the end, a critical chunk, one of somebody's own
        encoded()[:-12] + struct.pack(">I", 1 << 20) + b"tEXtIEND" + encoded()[-12:],
        encoded()[:-12] + chunk(b"QRST", b"") + encoded()[-12:],
        encoded()[:-12] + chunk(b"prVt", b"") + encoded()[-12:],
        with_a_small_window(),
        interlaced(),
    ],
    ids=range(26),
)
def test_odd_files_are_read_or_refused_as_by_opencv(data: bytes) -> None:
    require_alike(data)


PIXELS = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8), (9, 9), 4)
ENCODED = Field(FieldKind.ENCODED, None, None)


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
    x, y = Decode(orientation="exif").apply((content, content), SampleSpec(ENCODED, ENCODED), np.empty(0))
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


def turned(orientation: int, **settings: Any) -> Any:
    op = Decode(orientation="exif", **settings)
    return op.apply((photograph(orientation), None), SampleSpec(ENCODED, None), np.empty(0))[0]


def test_an_image_that_is_turned_is_reduced_to_the_size_that_is_seen() -> None:
    assert turned(6, reduce=(20, 10)).shape == (20, 12, 3)  # 24 x 40 as it is stored


def told(workload: Workload) -> list[str]:
    """Return what is said of samples as a loader would open."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make_plan(workload)
    return [str(each.message) for each in found]


def folder(root: Path, *orientations: int) -> ImageFolder:
    for number, orientation in enumerate(orientations):
        (root / "a").mkdir(exist_ok=True, parents=True)
        (root / "a" / f"{number}.jpg").write_bytes(photograph(orientation))
    return ImageFolder(root)


def test_a_folder_with_turned_photographs_is_told_of_unless_the_choice_was_made(tmp_path: Path) -> None:
    data = folder(tmp_path, 1, 6, 8, 1)
    with pytest.warns(DataWarning, match=r'2 of 4 images.*ap\.Decode\(orientation="exif"\)'):
        plan = make_plan(Workload(data=data, ops=[Decode(), Resize(8, 8)], batch_size=2))
    for choice in ("exif", "ignore"):  # a warning would be an error
        ops = [Decode(orientation=choice), Resize(8, 8)]
        assert make_plan(Workload(data=data, ops=ops, batch_size=2)).compact == plan.compact


@pytest.mark.parametrize(
    ("extension", "shape", "is_deep"),
    [
        (".png", (8, 8), True),
        (".png", (8, 8, 3), True),
        (".tif", (8, 8), True),
        (".tif", (8, 8, 3), True),  # whose bits of each channel lie elsewhere in the file
        (".png", (8, 8, 3), False),
        (".tif", (8, 8), False),
        (".jpg", (8, 8, 3), False),
    ],
)
def test_files_of_more_than_eight_bits_are_told_of_and_counted(
    extension: str, shape: tuple[int, ...], is_deep: bool, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    for number, dtype in enumerate((np.uint8, np.uint16 if is_deep else np.uint8)):
        cv2.imwrite(str(tmp_path / "a" / f"{number}{extension}"), np.full(shape, 200, dtype))
    workload = Workload(data=ImageFolder(tmp_path), ops=[Decode(), Resize(8, 8)], batch_size=2)
    said = "1 of 2 images that were looked at have more than 8 bits"
    assert [said in each for each in told(workload)] == [True] * is_deep
    with pytest.raises(WorkloadError, match=r"must be an ap\.Workload or its name, but got 3"):
        verify_files(3)  # type: ignore[arg-type]
    found = verify_files(workload, workers=1)
    assert found.bad == ()
    assert list(found.lost.values()) == [1] * is_deep


GREY = np.full((8, 8), 300, np.uint16)


@pytest.mark.parametrize(
    ("pages", "is_told"),
    [([GREY], 0), ([np.dstack([GREY] * 3)], 0), ([GREY, GREY], 2), ([np.dstack([GREY] * 4)], 2), ([GREY, GREY[:4]], 0)],
    ids=["grey", "colours", "pages", "four bands", "a smaller copy"],
)
def test_pages_and_bands_that_are_dropped_are_told_of_also_of_masks(
    pages: list[Any], is_told: int, tmp_path: Path
) -> None:
    for folder in "xy":
        (tmp_path / folder).mkdir()
        for number in range(2):
            (tmp_path / folder / f"{number}.tif").write_bytes(cv2.imencodemulti(".tif", pages)[1].tobytes())
    ops = [Decode(1, dtype="uint16")]
    workload = Workload(data=ap.ImagePairs(tmp_path / "x", tmp_path / "y"), ops=ops, batch_size=2)
    assert [f"{is_told} of 2 images" in each for each in told(workload)] == [True] * bool(is_told)
    assert list(verify_files(workload, workers=1).lost.values()) == [is_told] * bool(is_told)


def test_masks_that_are_jpeg_files_are_told(tmp_path: Path) -> None:
    for name in ("x/1.png", "x/2.png", "y/1.png", "y/2.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / name), np.full((8, 8), 3, np.uint8))
    workload = Workload(data=ap.ImagePairs(tmp_path / "x", tmp_path / "y"), ops=[Decode()], batch_size=2)
    with pytest.warns(DataWarning, match=r"1 of 2 images .* masks that are JPEG files.*Keep masks as PNG"):
        make_plan(workload)
    assert list(verify_files(workload).lost.values()) == [1]
    cv2.imwrite(str(tmp_path / "y/2.jpg"), np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8))
    make_plan(workload)  # it is an image that is the target
    assert not verify_files(workload).lost
    early = dataclasses.replace(workload, ops=[ap.MaskToClass([(0, 0, 0)]), Decode()])
    with pytest.raises(WorkloadError, match=r"encoded bytes.*Put ap\.Decode\(\) before ap\.MaskToClass"):
        make_plan(early)


def test_a_file_of_more_bands_than_opencv_reads_is_told_of_with_what_reads_it(tmp_path: Path) -> None:
    content = cv2.imencode(".tif", GREY)[1].tobytes()
    bands = struct.pack("<HHIH", 277, 3, 1, 1)
    assert content.count(bands) == 1
    with pytest.raises(BadSampleError, match="has 13 bands, and `Decode` takes at most 4") as caught:
        decode(content.replace(bands, bands[:-2] + b"\x0d\0"), 3)
    assert "ap.Windows" in str(caught.value.hint)
    floats = cv2.imencode(".tif", np.ones((8, 8), np.float32))[1].tobytes()
    with pytest.raises(BadSampleError, match="has 32 bits a value, of which `Decode` makes no 8") as caught:
        decode(floats, 3)
    assert 'dtype="float32"' in str(caught.value.hint)


@pytest.mark.parametrize("extension", [".png", ".tif"])
def test_all_bits_that_are_asked_for_are_kept_without_a_word_and_a_file_of_fewer_is_named(
    extension: str, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    for number in range(4):
        cv2.imwrite(str(tmp_path / "a" / f"{number}{extension}"), np.full((8, 8), 300 + number, np.uint16))
    workload = Workload(data=ImageFolder(tmp_path), ops=[Decode(1, dtype="uint16"), Resize(8, 8)], batch_size=2)
    plan = make_plan(workload)  # a warning would be an error
    assert not verify_files(workload, workers=1).lost
    assert plan.compact.x == Field(FieldKind.IMAGE, (8, 8, 1), np.dtype(np.uint16))
    cv2.imwrite(str(tmp_path / "a" / f"3{extension}"), np.full((8, 8), 200, np.uint8))
    with pytest.raises(BadSampleError, match=rf"3{extension}.* must be of uint16, but its values are of 8 bits"):
        make_plan(workload)
    found = verify_files(dataclasses.replace(workload, on_bad_sample="skip"), workers=1)
    assert [Path(bad.name).name for bad in found.bad] == [f"3{extension}"]


def test_all_files_with_turned_photographs_are_counted(tmp_path: Path) -> None:
    workload = Workload(data=folder(tmp_path, 1, 6, 8, 1, 3), ops=[Decode(), Resize(8, 8)], batch_size=2)
    found = verify_files(workload)  # a warning would be an error: it says the number of all
    assert list(found.lost.values()) == [3]
    assert next(tables.file_lines(found)).startswith("note      3 of 5 images are to be rotated")
    validation = folder(tmp_path / "validation", 1, 6, 1)
    (tmp_path / "validation" / "a" / "2.jpg").write_bytes(b"")
    found = verify_files(dataclasses.replace(workload, validation=validation))
    assert (found.samples, list(found.lost.values()), [each.index for each in found.bad]) == (8, [4], [7])


def test_all_but_opencv_leave_them_as_they_are_stored(tmp_path: Path) -> None:
    """What docs/migrate.md says."""
    import keras
    import tensorflow as tf

    content, file = photograph(6), folder(tmp_path, 6, 6).files()[0]
    stored = decode(content, 3)
    read, of_bytes = cv2.imread(file), cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    shapes = [np.asarray(each).shape for each in (stored, read, of_bytes)]
    assert shapes == [(24, 40, 3), (40, 24, 3), (40, 24, 3)]
    by_tensorflow = [decode(content).shape for decode in (tf.io.decode_jpeg, tf.io.decode_image)]
    by_keras = keras.utils.img_to_array(keras.utils.load_img(file)).shape
    assert [*map(tuple, by_tensorflow), by_keras] == [(24, 40, 3)] * 3
    assert Image.open(io.BytesIO(content)).size == (40, 24)
    arguments: dict[str, Any] = {"image_size": (24, 40), "batch_size": None, "shuffle": False, "verbose": False}
    image, _ = next(iter(keras.utils.image_dataset_from_directory(tmp_path, **arguments)))
    assert np.abs(np.asarray(image) - stored).mean() < 2  # turned and resized, it would be 30 and more


# -------------------- progressive JPEG files


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
    found = Progressive.of(5, files(jpeg(*PROGRESSIVE), jpeg(), b"", b"\x89PNG", jpeg(*PROGRESSIVE)[:-9]))
    assert found == Progressive(files=5, looked_at=4, progressive=2)


def test_of_many_files_some_are_looked_at_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_LOOKED_AT", 3)
    kinds = [b"\xff\xd8"] * 9
    kinds[4] = kinds[8] = jpeg(*PROGRESSIVE)
    found = Progressive.of(9, files(*kinds))
    assert (found.files, found.looked_at, found.progressive) == (9, 3, 2)


def test_a_folder_is_looked_at_as_a_source_reads_it(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, data in {"1.jpg": PROGRESSIVE, "b/2.JPEG": PROGRESSIVE, "b/3.jpg": (), "b/.4.jpg": PROGRESSIVE}.items():
        (tmp_path / name).write_bytes(jpeg(*data))
    (tmp_path / "b" / "notes.txt").write_text("mine")
    found = Progressive.in_folder(str(tmp_path))
    assert (found.files, found.progressive) == (len(ap.ImageFolder(tmp_path, labels=None)), 2)
    with pytest.raises(DataError, match="does not exist"):
        Progressive.in_folder(str(tmp_path / "c"))
    with pytest.raises(DataError, match="folder on a disk can be looked at, but got s3://bucket/photos"):
        Progressive.in_folder("s3://bucket/photos")
