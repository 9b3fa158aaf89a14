"""The question of formats: which forms there are, that their figures are right, and what is worth it. No time is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autopipe as ap
from autopipe.errors import ConfigError, WorkloadError
from autopipe.measure.formats import AS_THEY_ARE, Form, Formats, PartForms, formats
from autopipe.workload.sample import FieldKind
from tests.fakes.images import in_classes
from tests.fakes.sources import Made

FILES = {"JPEG 95", "JPEG 90", "PNG, fast", "WebP, lossless"}
LOSSLESS = FILES - {"JPEG 95", "JPEG 90"}


def smooth(height: int, width: int, seed: int = 0, channels: int = 3) -> Any:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, channels), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def encoded(pixels: Any, ending: str = ".png") -> bytes:
    return bytes(cv2.imencode(ending, pixels)[1])


class Encoded(Made):
    x_kind = FieldKind.ENCODED


class Pairs(Made):
    x_kind, y_kind = FieldKind.ENCODED, FieldKind.ENCODED


def asked(source: Any, *ops: ap.Op, samples: int = 4) -> Formats:
    return formats(ap.Workload(data=source, ops=list(ops), batch_size=1), samples=samples)


def rows(part: PartForms) -> dict[str, Form]:
    return {form.name: form for form in part.forms}


def test_each_form_is_there_with_its_bytes_and_its_error() -> None:
    sizes = [len(encoded(smooth(60, 80, seed))) for seed in range(3)]
    found = asked(Encoded(3, lambda index: (encoded(smooth(60, 80, index)), index)), ap.Decode(), ap.Resize(60, 80))
    (part,) = found.parts
    forms = rows(part)
    assert (found.samples, part.part, part.found, part.timed) == (3, "x", {"PNG": 3}, ("Decode", "Resize"))
    assert next(iter(forms)) == AS_THEY_ARE
    assert set(forms) == {AS_THEY_ARE, *FILES, "raw pixels"}  # the resize brings nothing
    assert forms[AS_THEY_ARE].bytes_per_image == pytest.approx(np.mean(sizes))
    assert forms["raw pixels"].bytes_per_image == 60 * 80 * 3
    exact = {name for name, form in forms.items() if form.psnr_decibels is None}
    assert exact == {AS_THEY_ARE, "raw pixels", *LOSSLESS}
    assert all(forms[name].mean_error == 0 for name in exact)
    good, less = forms["JPEG 95"], forms["JPEG 90"]
    assert 0 < good.mean_error < less.mean_error < 20
    assert (good.psnr_decibels or 0) > (less.psnr_decibels or 0) > 20
    assert good.bytes_per_image > less.bytes_per_image
    assert {name for name, form in forms.items() if not form.is_file} == {"raw pixels"}


def test_the_error_of_a_jpeg_is_that_of_its_pixels() -> None:
    image = smooth(48, 64)
    file = encoded(image[..., ::-1])
    back = np.asarray(cv2.imdecode(np.frombuffer(encoded_at(image, 90), np.uint8), cv2.IMREAD_COLOR_RGB))
    off = np.abs(back.astype(float) - image)
    form = rows(asked(Encoded(1, lambda index: file), ap.Decode(), ap.Resize(48, 64)).parts[0])["JPEG 90"]
    assert form.mean_error == pytest.approx(off.mean())
    assert form.psnr_decibels == pytest.approx(10 * np.log10(255**2 / (off**2).mean()))
    assert form.bytes_per_image == len(encoded_at(image, 90))


def encoded_at(image: Any, quality: int) -> bytes:
    return bytes(cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1])


def test_large_images_are_offered_at_the_size_that_the_first_resize_leaves() -> None:
    found = asked(Encoded(3, lambda index: encoded(smooth(120, 160, index), ".bmp")), ap.Decode(), ap.Resize(30, 40))
    forms = rows(found.parts[0])
    assert found.parts[0].found == {"BMP": 3}
    assert set(forms) == {AS_THEY_ARE, *FILES, "raw pixels", "JPEG 95 at 30x40", "raw pixels at 30x40"}
    assert forms["raw pixels at 30x40"].bytes_per_image == 30 * 40 * 3
    assert forms["raw pixels at 30x40"].psnr_decibels is None
    assert 0 < forms["JPEG 95 at 30x40"].mean_error < 20


def test_masks_are_offered_lossless_forms_only() -> None:
    def pair(index: int) -> tuple[bytes, bytes]:
        mask = np.random.default_rng(index).integers(0, 5, (40, 60), np.uint8)
        return encoded(smooth(40, 60, index), ".tiff"), encoded(mask)

    image, mask = asked(Pairs(3, pair), ap.Decode(), ap.Resize(20, 30)).parts
    assert (image.is_mask, mask.is_mask, image.found, mask.part) == (False, True, {"TIFF": 3}, "y")
    assert {"PNG, fast", "raw pixels", "PNG, fast at 20x30", "raw pixels at 20x30"} <= rows(mask).keys()
    assert not any("JPEG" in form.name for form in mask.forms)
    assert all(form.psnr_decibels is None and form.mean_error == 0 for form in mask.forms)
    assert "WebP, lossless" in mask.left_out  # which knows no grey: Decode would make three channels of it


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_mask_of_many_levels_or_colours_comes_back_as_it_is(dtype: Any) -> None:
    mask = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (16, 16, 3)).astype(dtype)
    source = Pairs(1, lambda index: (encoded(smooth(16, 16)), encoded(mask)))
    _, found = asked(source, ap.Decode()).parts
    assert rows(found)["PNG, fast"].psnr_decibels is None
    assert rows(found)["raw pixels"].bytes_per_image == mask.nbytes
    assert ("WebP, lossless" in rows(found)) == (dtype == np.uint8)


def test_a_jpeg_that_is_cropped_first_is_timed_as_loaders_decode_it() -> None:
    source = Encoded(2, lambda index: encoded(smooth(64, 64), ".jpg"))
    (part,) = asked(source, ap.Decode(), ap.RandomResizedCrop(16, 16), ap.RandomFlip()).parts
    assert part.timed == ("Decode", "RandomResizedCrop")
    assert not any(form.name.endswith("16x16") for form in part.forms)


@pytest.mark.parametrize("decode", [ap.Decode(channels=1), ap.Decode(orientation="exif"), ap.Decode(reduce=(8, 8))])
def test_settings_of_the_decoder_hold_for_every_form(decode: ap.Decode) -> None:
    source = Encoded(2, lambda index: encoded(smooth(40, 30), ".jpg"))
    forms = rows(asked(source, decode, ap.Resize(8, 8)).parts[0])
    assert all(forms[name].psnr_decibels is None for name in LOSSLESS)
    assert forms["raw pixels"].bytes_per_image == 40 * 30 * decode.channels


def test_parts_of_a_sample_are_told_apart() -> None:
    class Two(Made):
        x_kind = {"left": FieldKind.ENCODED, "right": FieldKind.ENCODED}  # noqa: RUF012

    source = Two(2, lambda index: ({"left": encoded(smooth(8, 8)), "right": encoded(smooth(16, 16), ".bmp")}, index))
    found = asked(source, ap.Decode(), ap.Resize(8, 8))
    assert [(part.part, part.found) for part in found.parts] == [("x.left", {"PNG": 2}), ("x.right", {"BMP": 2})]
    assert "JPEG 95 at 8x8" in rows(found.parts[1])


@settings(max_examples=30, deadline=None)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    seed=st.integers(0, 9),
    ending=st.sampled_from([".png", ".bmp", ".tiff", ".webp", ".jpg"]),
)
def test_whatever_the_image_its_lossless_forms_have_its_pixels(height: int, width: int, seed: int, ending: str) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    (part,) = asked(Encoded(1, lambda index: encoded(image, ending)), ap.Decode()).parts
    forms = rows(part)
    assert set(forms) == {AS_THEY_ARE, *FILES, "raw pixels"}
    assert {name for name in LOSSLESS if forms[name].psnr_decibels is not None} == set()


def test_nothing_is_written_and_bad_samples_are_left_out(tmp_path: Path) -> None:
    folder = in_classes(tmp_path / "photos", 8, (20, 20))
    sorted(folder.rglob("*.png"))[3].write_bytes(b"\x89PNG nothing")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    workload = ap.Workload(data=ap.ImageFolder(folder), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=8)
    steps: list[tuple[int, int]] = []
    found = formats(workload, on_progress=lambda done, total: steps.append((done, total)))
    assert found.samples == 7
    assert steps[-1] == (8, 8)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def _decoded_by_hand(data: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


@pytest.mark.parametrize(
    ("source", "ops", "kind", "said"),
    [
        (ap.Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)), [], WorkloadError, r"`x` \(image\), `y` \(label\)"),
        (ap.Arrays(np.zeros((4, 7), np.float32)), [], WorkloadError, r"image files only.*`x` \(array\)"),
        (
            Encoded(4, lambda index: encoded(smooth(8, 8))),
            [ap.Map(_decoded_by_hand)],
            WorkloadError,
            "`x` is decoded by `Map",
        ),
        (
            Encoded(4, lambda index: encoded(smooth(8, 8)) if index in (0, 3) else b"no image"),
            [ap.Decode()],
            None,
            "",
        ),
    ],
)
def test_what_cannot_be_encoded_anew_is_refused(source: Any, ops: list[ap.Op], kind: Any, said: str) -> None:
    if kind is None:
        assert asked(source, *ops).samples == 2
        return
    with pytest.raises(kind, match=said):
        asked(source, *ops)


def test_a_wrapped_dataset_is_refused() -> None:
    def batches() -> Any:
        yield np.zeros((2, 4, 4, 3), np.float32), np.zeros(2)

    workload = ap.wrap(batches, model=lambda: None, steps=1)
    with pytest.raises(ConfigError, match="reads its own files"):
        formats(workload)


# -------------------- what is worth it


def form(name: str, milliseconds: float, *, error: float = 0.0, size: float = 1000.0, is_file: bool = True) -> Form:
    return Form(
        name=name,
        is_file=is_file,
        seconds_per_image=milliseconds / 1e3,
        bytes_per_image=size,
        mean_error=error,
        psnr_decibels=None if error == 0 else 40.0,
    )


def part(*forms: Form) -> PartForms:
    return PartForms(part="x", is_mask=False, found={"PNG": 4}, timed=("Decode",), forms=forms, left_out={})


def test_of_the_fastest_forms_the_one_with_the_least_error_is_worth_it() -> None:
    now = form(AS_THEY_ARE, 2.0)
    close = part(now, form("JPEG 95", 0.55, error=1.2), form("JPEG 90", 0.5, error=2.0), form("PNG, fast", 1.4))
    assert close.worth == close.forms[1]
    far = part(now, form("JPEG 95", 0.9, error=1.2), form("JPEG 90", 0.5, error=2.0))
    assert far.worth == far.forms[2]
    none = part(now, form("JPEG 95", 1.6, error=1.2), form("raw pixels", 0.1, is_file=False))
    assert none.worth is None
    assert none.decoded == none.forms[2]
    equal = part(now, form("WebP, lossless", 0.5, size=900), form("PNG, fast", 0.5, size=1100))
    assert equal.worth == equal.forms[1]


def test_pixels_that_are_no_faster_are_no_advice() -> None:
    assert part(form(AS_THEY_ARE, 0.1), form("raw pixels", 0.09, is_file=False)).decoded is None
    assert part(form(AS_THEY_ARE, 0.1)).decoded is None
