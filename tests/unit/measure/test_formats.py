"""The question of formats: which forms there are, and that their figures are right. No time is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autopipe as ap
from autopipe.errors import ConfigError, WorkloadError
from autopipe.measure.formats import AS_THEY_ARE, formats
from autopipe.measure.rows import Formats, ImageForm
from autopipe.workload.sample import FieldKind
from tests.fakes.images import in_classes
from tests.fakes.sources import Made

FORMS = [AS_THEY_ARE, "JPEG 95", "JPEG 90", "PNG, fast", "raw pixels"]


def smooth(height: int, width: int, seed: int = 0, channels: int = 3) -> Any:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, channels), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def encoded(pixels: Any, ending: str = ".png") -> bytes:
    return bytes(cv2.imencode(ending, pixels)[1])


class Encoded(Made):
    x_kind = FieldKind.ENCODED


class Pairs(Made):
    x_kind, y_kind = FieldKind.ENCODED, FieldKind.ENCODED


def asked(source: Any, *ops: ap.Op) -> Formats:
    return formats(ap.Workload(data=source, ops=list(ops), batch_size=1))


def rows(found: Formats, part: str = "x") -> dict[str, ImageForm]:
    return {form.name: form for form in found.forms if form.part == part}


def test_each_form_is_there_with_its_bytes_and_its_error() -> None:
    sizes = [len(encoded(smooth(60, 80, seed))) for seed in range(3)]
    found = asked(Encoded(3, lambda index: (encoded(smooth(60, 80, index)), index)), ap.Decode(), ap.Resize(60, 80))
    forms = rows(found)
    assert (found.samples, list(forms)) == (3, FORMS)
    assert forms[AS_THEY_ARE].bytes_per_image == pytest.approx(np.mean(sizes))
    assert forms["raw pixels"].bytes_per_image == 60 * 80 * 3
    good, less = forms.pop("JPEG 95"), forms.pop("JPEG 90")
    assert 0 < good.mean_error < less.mean_error < 20
    assert good.bytes_per_image > less.bytes_per_image
    assert [form.mean_error for form in forms.values()] == [0.0] * 3


def test_the_error_of_a_jpeg_is_that_of_its_pixels() -> None:
    image = smooth(48, 64)
    file = encoded(image[..., ::-1])
    back = np.asarray(cv2.imdecode(np.frombuffer(encoded_at(image, 90), np.uint8), cv2.IMREAD_COLOR_RGB))
    form = rows(asked(Encoded(1, lambda index: file), ap.Decode(), ap.Resize(48, 64)))["JPEG 90"]
    assert form.mean_error == pytest.approx(np.abs(back.astype(float) - image).mean())
    assert form.bytes_per_image == len(encoded_at(image, 90))


def encoded_at(image: Any, quality: int) -> bytes:
    return bytes(cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_masks_are_offered_lossless_forms_only(dtype: Any, channels: int) -> None:
    mask = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (16, 16, channels)).astype(dtype)
    source = Pairs(3, lambda index: (encoded(smooth(16, 16, index), ".tiff"), encoded(mask)))
    found = asked(source, ap.Decode(), ap.Resize(8, 8))
    assert list(rows(found)) == FORMS
    assert list(rows(found, "y")) == [AS_THEY_ARE, "PNG, fast", "raw pixels"]
    assert {form.mean_error for form in rows(found, "y").values()} == {0.0}
    assert rows(found, "y")["raw pixels"].bytes_per_image == mask.nbytes


@pytest.mark.parametrize(("dtype", "others"), [("uint16", ["PNG, fast"]), ("float32", [])])
def test_images_of_more_bits_are_offered_forms_that_keep_them(dtype: Any, others: list[str]) -> None:
    image = (np.random.default_rng(0).random((16, 20)) * 65535).astype(dtype)
    found = rows(asked(Encoded(3, lambda index: encoded(image, ".tiff")), ap.Decode(1, dtype=dtype), ap.Resize(8, 8)))
    assert list(found) == [AS_THEY_ARE, *others, "raw pixels"]
    assert {form.mean_error for form in found.values()} == {0.0}
    assert found["raw pixels"].bytes_per_image == image.nbytes


@pytest.mark.parametrize("decode", [ap.Decode(channels=1), ap.Decode(orientation="exif"), ap.Decode(reduce=(8, 8))])
def test_settings_of_the_decoder_hold_for_every_form(decode: ap.Decode) -> None:
    forms = rows(asked(Encoded(2, lambda index: encoded(smooth(40, 30), ".jpg")), decode, ap.Resize(8, 8)))
    assert forms["PNG, fast"].mean_error == 0
    assert forms["raw pixels"].bytes_per_image == 40 * 30 * decode.channels


def test_parts_of_a_sample_are_told_apart() -> None:
    class Two(Made):
        x_kind = {"left": FieldKind.ENCODED, "right": FieldKind.ENCODED}  # noqa: RUF012

    source = Two(2, lambda index: ({"left": encoded(smooth(8, 8)), "right": encoded(smooth(16, 16), ".bmp")}, index))
    found = asked(source, ap.Decode(), ap.Resize(8, 8))
    assert [(form.part, form.name) for form in found.forms] == [
        (part, name) for part in ("x.left", "x.right") for name in FORMS
    ]


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    seed=st.integers(0, 9),
    ending=st.sampled_from([".png", ".bmp", ".tiff", ".webp", ".jpg"]),
)
def test_whatever_the_image_its_png_has_its_pixels(height: int, width: int, seed: int, ending: str) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    forms = rows(asked(Encoded(1, lambda index: encoded(image, ending)), ap.Decode()))
    assert forms["PNG, fast"].mean_error == 0


def test_nothing_is_written_and_bad_samples_are_left_out(tmp_path: Path) -> None:
    folder = in_classes(tmp_path / "photos", 8, (20, 20))
    sorted(folder.rglob("*.png"))[3].write_bytes(b"\x89PNG nothing")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    workload = ap.Workload(data=ap.ImageFolder(folder), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=8)
    assert formats(workload).samples == 7
    some = Encoded(4, lambda index: encoded(smooth(8, 8)) if index in (0, 3) else b"no image")
    assert asked(some, ap.Decode()).samples == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("source", "ops", "said"),
    [
        (ap.Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)), [], r"`x` \(image\), `y` \(label\)"),
        (ap.Arrays(np.zeros((4, 7), np.float32)), [], r"image files that.*`x` \(array\)"),
        (
            Encoded(4, lambda index: encoded(smooth(8, 8))),
            [ap.Map(lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))],
            r"`x` \(encoded\), and the ops are \[Map",
        ),
    ],
)
def test_what_cannot_be_encoded_anew_is_refused(source: Any, ops: list[ap.Op], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        asked(source, *ops)


def test_a_wrapped_dataset_is_refused() -> None:
    def batches() -> Any:
        yield np.zeros((2, 4, 4, 3), np.float32), np.zeros(2)

    workload = ap.wrap(batches, model=lambda: None, steps=1)
    with pytest.raises(ConfigError, match="reads its own files"):
        formats(workload)
