"""The question of formats: which forms there are, and that their figures are right. No time is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.measure.formats import AS_THEY_ARE, formats
from autopipe.measure.rows import Formats, ImageForm
from autopipe.workload.sample import FieldKind
from tests.fakes.damage import in_classes
from tests.fakes.sources import Made

RAW = "raw pixels"
FORMS = [AS_THEY_ARE, "JPEG 95", "JPEG 90", "PNG, fast", RAW]


def smooth(height: int, width: int, seed: int = 0, channels: int = 3) -> Any:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, channels), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def encoded(pixels: Any, ending: str = ".png") -> bytes:
    return bytes(cv2.imencode(ending, pixels)[1])


class Encoded(Made):
    x_kind = FieldKind.ENCODED


class Pairs(Encoded):
    y_kind = FieldKind.ENCODED


def of(source: Any, *ops: ap.Op) -> ap.Workload:
    return ap.Workload(data=source, ops=list(ops), batch_size=1)


def asked(source: Any, *ops: ap.Op) -> Formats:
    return formats(of(source, *ops))


def rows(found: Formats, part: str = "x") -> dict[str, ImageForm]:
    return {form.name: form for form in found.forms if form.part == part}


def test_each_form_is_there_with_its_bytes_and_its_error() -> None:
    sizes = [len(encoded(smooth(60, 80, seed))) for seed in range(3)]
    found = asked(Encoded(3, lambda index: (encoded(smooth(60, 80, index)), index)), ap.Decode(), ap.Resize(60, 80))
    forms = rows(found)
    assert (found.samples, list(forms)) == (3, FORMS)
    assert forms[AS_THEY_ARE].bytes_per_image == pytest.approx(np.mean(sizes))
    assert forms[RAW].bytes_per_image == 60 * 80 * 3
    good, less = forms.pop("JPEG 95"), forms.pop("JPEG 90")
    assert 0 < good.mean_error < less.mean_error < 20
    assert good.bytes_per_image > less.bytes_per_image
    assert [form.mean_error for form in forms.values()] == [0.0] * 3


def test_the_error_of_a_jpeg_is_that_of_its_pixels() -> None:
    image = smooth(48, 64)
    jpeg = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
    back = np.asarray(cv2.imdecode(jpeg, cv2.IMREAD_COLOR_RGB)).astype(float)
    file = encoded(image[..., ::-1])
    form = rows(asked(Encoded(1, lambda index: file), ap.Decode(), ap.Resize(48, 64)))["JPEG 90"]
    assert (form.mean_error, form.bytes_per_image) == pytest.approx((np.abs(back - image).mean(), len(jpeg)))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_masks_are_offered_lossless_forms_only(dtype: Any, channels: int) -> None:
    mask = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (16, 16, channels)).astype(dtype)
    source = Pairs(3, lambda index: (encoded(smooth(16, 16, index), ".tiff"), encoded(mask)))
    found = asked(source, ap.Decode(), ap.Resize(8, 8))
    assert (list(rows(found)), list(masks := rows(found, "y"))) == (FORMS, [AS_THEY_ARE, "PNG, fast", RAW])
    assert {form.mean_error for form in masks.values()} == {0.0}
    assert masks[RAW].bytes_per_image == mask.nbytes


@pytest.mark.parametrize(("dtype", "others"), [("uint16", ["PNG, fast"]), ("float32", [])])
def test_images_of_more_bits_are_offered_forms_that_keep_them(dtype: Any, others: list[str]) -> None:
    image = (np.random.default_rng(0).random((16, 20)) * 65535).astype(dtype)
    found = rows(asked(Encoded(3, lambda index: encoded(image, ".tiff")), ap.Decode(1, dtype=dtype), ap.Resize(8, 8)))
    assert {name: form.mean_error for name, form in found.items()} == dict.fromkeys([AS_THEY_ARE, *others, RAW], 0.0)
    assert found[RAW].bytes_per_image == image.nbytes


def test_nothing_is_written_and_bad_samples_are_left_out(tmp_path: Path) -> None:
    folder = in_classes(tmp_path / "photos", 8, (20, 20))
    sorted(folder.rglob("*.png"))[3].write_bytes(b"\x89PNG nothing")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    workload = ap.Workload(data=ap.ImageFolder(folder), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=8)
    assert formats(workload).samples == 7
    some = Encoded(4, lambda index: encoded(smooth(8, 8)) if index in (0, 3) else b"no image")
    assert asked(some, ap.Decode()).samples == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def batches() -> Any:
    yield np.zeros((2, 4, 4, 3), np.float32), np.zeros(2)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (of(ap.Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4))), r"`x` \(image\), `y` \(label\)"),
        (of(ap.Arrays(np.zeros((4, 7), np.float32))), r"image files that.*`x` \(array\)"),
        (of(Encoded(4, lambda index: encoded(smooth(8, 8))),
            ap.Map(lambda data: cv2.imdecode(np.frombuffer(data, "B"), 1))),
         r"`x` \(encoded\), and the ops are \[Map"),
        (ap.wrap(batches, model=lambda: None, steps=1), "reads its own files"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_anew_is_refused(workload: ap.Workload, said: str) -> None:
    with pytest.raises((ap.ConfigError, ap.WorkloadError), match=said):
        formats(workload)
