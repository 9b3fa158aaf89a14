from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from autopipe.core.sample import FieldKind
from autopipe.data.image_pairs import ImagePairs
from autopipe.errors import DataError


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def pairs(root: Path, **options: str) -> ImagePairs:
    return ImagePairs(root / "images", root / "masks", **options)


def test_files_of_the_same_name_are_pairs_whatever_their_extension(tmp_path: Path) -> None:
    write(tmp_path, "images/b.jpg", "images/a.jpg", "images/sub/c.jpg", "masks/a.png", "masks/b.bmp", "masks/sub/c.png")
    data = pickle.loads(pickle.dumps(pairs(tmp_path)))
    expected = [
        (b"images/a.jpg", b"masks/a.png"),
        (b"images/b.jpg", b"masks/b.bmp"),
        (b"images/sub/c.jpg", b"masks/sub/c.png"),
    ]
    assert expected == [data.read(i) for i in range(len(data))]
    assert (data.x_kind, data.y_kind) == (FieldKind.ENCODED, FieldKind.ENCODED)
    assert data.name(0) == f"{tmp_path}/images/a.jpg with {tmp_path}/masks/a.png"
    assert data.files([1]) == [f"{tmp_path}/images/b.jpg", f"{tmp_path}/masks/b.bmp"]


def test_a_suffix_of_the_masks_is_left_out_of_the_match(tmp_path: Path) -> None:
    write(tmp_path, "images/1.png", "images/2.png", "masks/1_L.png", "masks/2_L.png")
    assert pairs(tmp_path, mask_suffix="_L").read(1) == (b"images/2.png", b"masks/2_L.png")


def test_a_suffix_that_was_not_given_is_suggested(tmp_path: Path) -> None:
    write(tmp_path, "images/1.png", "images/2.png", "masks/1_L.png", "masks/2_L.png")
    with pytest.raises(DataError, match=r'Pass mask_suffix="_L"'):
        pairs(tmp_path)


def test_the_first_few_without_a_partner_are_listed(tmp_path: Path) -> None:
    write(tmp_path, "images/0.jpg", "masks/0.png", "masks/extra.png", *(f"images/x{i}.jpg" for i in range(7)))
    with pytest.raises(DataError) as caught:
        pairs(tmp_path)
    assert f"7 files of `{tmp_path}/images` have no partner: x0.jpg, x1.jpg, x2.jpg, x3.jpg, x4.jpg and 2 more" in str(
        caught.value
    )
    assert f"1 files of `{tmp_path}/masks` have no partner: extra.png" in str(caught.value)


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "images/0.jpg", "images/0.png", "masks/0.png")
    with pytest.raises(DataError, match=r"`0\.png` and `0\.jpg` .* differ only in their ending"):
        pairs(tmp_path)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    write(tmp_path, "images/0.jpg", "masks/readme.txt")
    with pytest.raises(DataError, match=r"no images in .*masks"):
        pairs(tmp_path)


def test_one_folder_for_both_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be two folders"):
        ImagePairs(tmp_path, f"{tmp_path}/")


def test_the_digest_covers_both_folders(tmp_path: Path) -> None:
    write(tmp_path, "images/0.jpg", "masks/0.png")
    before = pairs(tmp_path).digest()
    (tmp_path / "masks/0.png").write_bytes(b"another mask")
    assert before.split()[:4] == pairs(tmp_path).digest().split()[:4]
    assert before != pairs(tmp_path).digest()
