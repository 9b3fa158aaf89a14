"""Photographs that their EXIF tags say are to be rotated: what autopipe, PIL, Keras and OpenCV make of them."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from autopipe.core.sample import Field, FieldKind, SampleSpec
from autopipe.core.workload import Workload
from autopipe.data.image_folder import ImageFolder
from autopipe.errors import ConfigError, DataWarning, PlainCodeError
from autopipe.ops.decode import Decode
from autopipe.ops.image_file import image_size, is_truncated, orientation_of
from autopipe.ops.planner import make_plan
from autopipe.ops.sizes import Resize

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
    assert not is_truncated(filled + b"trailer")
    assert is_truncated(filled[:-9])


def test_a_slot_for_the_stored_shape_is_not_given_the_turned_one() -> None:
    slot = np.zeros((24, 40, 3), np.uint8)
    for orientation in (3, 6):
        x, _ = Decode(orientation="exif").apply(
            (photograph(orientation), None), SampleSpec(ENCODED, None), np.empty(0), slot
        )
        alone, _ = Decode(orientation="exif").apply(
            (photograph(orientation), None), SampleSpec(ENCODED, None), np.empty(0)
        )
        assert not np.may_share_memory(x, slot)
        np.testing.assert_array_equal(x, alone)


def test_a_photograph_on_its_side_is_reduced_to_the_size_that_is_seen() -> None:
    content, spec = photograph(6), SampleSpec(ENCODED, None)  # 24 x 40 as it is stored
    reduced = Decode(orientation="exif", reduce=(20, 10)).apply((content, None), spec, np.empty(0))[0]
    assert reduced.shape == (20, 12, 3)


def folder(root: Path, *orientations: int) -> ImageFolder:
    for number, orientation in enumerate(orientations):
        (root / "a").mkdir(exist_ok=True)
        (root / "a" / f"{number}.jpg").write_bytes(photograph(orientation))
    return ImageFolder(root)


def test_a_folder_with_turned_photographs_is_told_of_unless_the_choice_was_made(tmp_path: Path) -> None:
    data = folder(tmp_path, 1, 6, 8, 1)
    with pytest.warns(DataWarning, match=r'2 of 4 images.*ap\.Decode\(orientation="exif"\)'):
        plan = make_plan(Workload(data=data, ops=[Decode(), Resize(8, 8)], batch_size=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for choice in ("exif", "ignore"):
            ops = [Decode(orientation=choice), Resize(8, 8)]
            assert make_plan(Workload(data=data, ops=ops, batch_size=2)).compact == plan.compact


def test_what_tensorflow_cannot_turn_has_no_plain_code() -> None:
    with pytest.raises(PlainCodeError, match="EXIF"):
        Decode(orientation="exif").plain_tensorflow(None)  # type: ignore[arg-type]  # it is not looked at


def test_another_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'upright'"):
        Decode(orientation="upright")  # type: ignore[arg-type]


def test_keras_leaves_them_as_they_are_stored(tmp_path: Path) -> None:
    """What docs/migrate.md says."""
    import keras

    folder(tmp_path, 6, 6)
    file = tmp_path / "a" / "0.jpg"
    assert keras.utils.img_to_array(keras.utils.load_img(file)).shape == (24, 40, 3)
    arguments: dict[str, Any] = {"image_size": (24, 40), "batch_size": None, "shuffle": False, "verbose": False}
    image, _ = next(iter(keras.utils.image_dataset_from_directory(tmp_path, **arguments)))
    stored, _ = Decode(orientation="ignore").apply((file.read_bytes(), None), SampleSpec(ENCODED, None), np.empty(0))
    assert np.abs(np.asarray(image) - stored).mean() < 2  # turned and resized, it would be 30 and more
