"""Crops right behind `Decode`: a part of a JPEG has the pixels that it has in the whole."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, strategies

import autopipe as ap
from autopipe.errors import BadSampleError
from autopipe.pipeline.batching import traced
from autopipe.pipeline.loader import Recipe
from autopipe.workload.op import Op, Step
from autopipe.workload.ops import region
from autopipe.workload.ops.planner import joined, make_plan
from autopipe.workload.sample import Field, FieldKind, Sample, SampleSpec
from tests.fakes.sources import Made

pytestmark = pytest.mark.skipif(region.library() is None, reason="needs a C compiler and libjpeg-turbo's headers")

ENCODED = SampleSpec(Field(FieldKind.ENCODED, None, None), Field(FieldKind.LABEL, (), np.dtype("int64")))
DECODED = dataclasses.replace(ENCODED, x=Field(FieldKind.IMAGE, None, np.dtype("uint8"), 3))


def jpeg(height: int, width: int, *settings: int, grey: bool = False, orientation: int = 1) -> bytes:
    coarse = np.random.default_rng(height * width).integers(0, 256, (height // 5 + 2, width // 5 + 2, 3), np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    data: bytes = cv2.imencode(".jpg", image[..., 0] if grey else image, settings)[1].tobytes()
    tags = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0) + bytes(4)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(tags) + 2) + tags + data[2:]


def steps_of(decode: ap.Decode, crop: Op) -> list[Step]:
    return [Step(decode, 0, ENCODED, DECODED), Step(crop, 1, DECODED, DECODED)]


def apart(decode: ap.Decode, crop: Op, data: Any, numbers: Any) -> Sample:
    return crop.apply(decode.apply((data, 3), ENCODED, np.empty(0)), DECODED, numbers)


def together(decode: ap.Decode, crop: Op, data: Any, numbers: Any) -> Sample:
    (step,) = joined(steps_of(decode, crop))
    assert (step.stream, step.op.draws) == (1, crop.draws)
    return step.op.apply((data, 3), ENCODED, numbers)


SAMPLINGS = [getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{name}") for name in ("411", "420", "422", "440", "444")]


@given(
    size=strategies.tuples(strategies.integers(1, 120), strategies.integers(1, 120)),
    sampling=strategies.sampled_from(SAMPLINGS),
    progressive=strategies.booleans(),
    grey=strategies.booleans(),
    orientation=strategies.integers(1, 8),
    channels=strategies.sampled_from([1, 3]),
    numbers=strategies.lists(strategies.floats(0, 1, exclude_max=True), min_size=4, max_size=4),
)
def test_the_part_has_the_pixels_of_the_whole(
    size: tuple[int, int], sampling: int, progressive: bool, grey: bool, orientation: int, channels: Any, numbers: Any
) -> None:
    settings = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive))
    data = jpeg(*size, *settings, grey=grey, orientation=orientation)
    decode = ap.Decode(channels, orientation="exif")
    upright = size if orientation < 5 else size[::-1]
    crops = [ap.RandomResizedCrop(17, 23), *(made(max(1, upright[0] // 2), max(1, upright[1] // 3))
             for made in (ap.RandomCrop, ap.CenterCrop))]  # fmt: skip
    for crop in crops:
        drawn = np.array(numbers[: crop.draws])
        x, y = together(decode, crop, memoryview(data), drawn)
        np.testing.assert_array_equal(x, apart(decode, crop, data, drawn)[0])
        assert y == 3


def test_only_a_part_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autopipe.workload.ops.decode.decode", None)
    x, _ = together(ap.Decode(), ap.RandomCrop(20, 30), jpeg(90, 80), np.array([0.2, 0.9]))
    assert x.shape == (20, 30, 3)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("data", [jpeg(90, 80)[:-700], jpeg(90, 80)[:-1], b"\xff\xd8\xff\xd9", b"", b"\x89PNG\r\n"])
def test_what_cannot_be_decoded_is_refused_as_it_is_without_a_crop(data: bytes, strict: bool) -> None:
    decode, crop, numbers = ap.Decode(strict=strict), ap.RandomCrop(9, 9), np.array([0.0, 0.0])
    with pytest.raises(BadSampleError) as alone:
        apart(decode, crop, data, numbers)
    with pytest.raises(BadSampleError) as both:
        together(decode, crop, data, numbers)
    assert str(both.value) == str(alone.value)


def test_damage_in_the_part_is_found_and_behind_it_not_looked_for() -> None:
    whole = jpeg(96, 96, cv2.IMWRITE_JPEG_RST_INTERVAL, 1)
    at = whole.rindex(b"\xff\xd5")  # a restart in the lower part: the next number is missing
    damaged = whole[:at] + b"\xff\xd0" + whole[at + 2 :]
    assert together(ap.Decode(), ap.CenterCrop(96, 48), whole, np.empty(0))[0].shape == (96, 48, 3)
    with pytest.raises(BadSampleError, match="damaged"):
        together(ap.Decode(), ap.CenterCrop(96, 48), damaged, np.empty(0))
    top = np.zeros(2)
    np.testing.assert_array_equal(
        together(ap.Decode(), ap.RandomCrop(20, 20), damaged, top)[0],
        together(ap.Decode(), ap.RandomCrop(20, 20), whole, top)[0],
    )


def test_other_formats_and_images_in_memory_are_decoded_whole() -> None:
    png = cv2.imencode(".png", np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8))[1].tobytes()
    crop, numbers = ap.RandomResizedCrop(9, 9), np.array([0.1, 0.4, 0.9, 0.3])
    np.testing.assert_array_equal(
        together(ap.Decode(), crop, png, numbers)[0], apart(ap.Decode(), crop, png, numbers)[0]
    )
    source = Made(4, lambda index: (np.zeros((9, 9, 3), np.uint8), index))
    arrays = ap.Workload(data=source, ops=[ap.Decode(), ap.RandomCrop(4, 4)], batch_size=2)
    assert len(joined(make_plan(arrays).steps)) == 2


def test_a_mask_that_is_cropped_alike_and_a_reduced_image_are_decoded_whole() -> None:
    mask = dataclasses.replace(ENCODED, y=Field(FieldKind.ENCODED, None, None))
    pair = dataclasses.replace(DECODED, y=Field(FieldKind.MASK, None, np.dtype("uint8"), 2))
    crop = ap.RandomCrop(4, 4)
    assert len(joined([Step(ap.Decode(), 0, mask, pair), Step(crop, 1, pair, pair)])) == 2
    assert len(joined(steps_of(ap.Decode(reduce=(8, 8)), crop))) == 2


class Brighter(ap.RandomCrop):
    """Somebody's own crop, which does more."""

    def pixels(self, array: Any, kind: FieldKind, random: Any, out: Any) -> Any:
        return super().pixels(array, kind, random, out) // 2 + 128


class Inverted(ap.Decode):
    """Somebody's own decoder."""

    def apply(self, sample: Sample, spec: SampleSpec, random: Any, out: Any = None) -> Sample:
        x, y = super().apply(sample, spec, random, out)
        return 255 - np.asarray(x), y


def test_ops_of_somebodys_own_that_do_more_are_left_alone() -> None:
    assert len(joined(steps_of(ap.Decode(), Brighter(9, 9)))) == 2
    assert len(joined(steps_of(Inverted(), ap.RandomCrop(9, 9)))) == 2


def test_with_a_trace_the_two_are_one_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, numbers, noted = jpeg(40, 50), np.array([0.3, 0.6]), list[str]()

    def noting(function: Any, name: str, log: Any) -> Any:
        noted.append(name)
        return function

    monkeypatch.setattr(traced, "noted", noting)
    steps = tuple(steps_of(ap.Decode(), ap.RandomCrop(20, 30)))
    recipe = Recipe(source=Made(1, lambda index: (data, 3)), steps=steps, fixed_spec=ENCODED, spec=DECODED)
    (step,) = joined(traced.traced(dataclasses.replace(recipe, trace=str(tmp_path))).steps)
    np.testing.assert_array_equal(
        step.op.apply((data, 3), ENCODED, numbers)[0], apart(ap.Decode(), ap.RandomCrop(20, 30), data, numbers)[0]
    )
    assert noted[-2:] == ["Decode", "Decode"]  # a sample's half and a batch's


def test_without_a_compiler_images_are_decoded_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    _forget()
    try:
        assert region.library() is None
        assert "no-such-compiler" in str(region.why_whole())
        assert len(joined(steps_of(ap.Decode(), ap.RandomCrop(4, 4)))) == 2
    finally:
        monkeypatch.undo()
        _forget()


def _forget() -> None:
    region.compiled.cache_clear()
    region._loaded.cache_clear()
