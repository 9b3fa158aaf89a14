"""Images in folders, alone or with a mask each."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import DataError, DataWarning
from autopipe.workload.sample import FieldKind, Source
from tests.fakes.reports import Approved, refusal

TWO_EACH = ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg")


def write(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def test_samples_are_file_bytes_and_class_numbers_in_sorted_order(tmp_path: Path) -> None:
    write(tmp_path, "dog/2.jpg", "dog/1.PNG", "cat/b.webp", "cat/a.tif")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/dog/\xff\xfe.jpg")).write_bytes(b"odd")  # a name that is no text
    data = ap.ImageFolder(tmp_path)
    assert data.classes == ("cat", "dog")
    expected = [(b"cat/a.tif", 0), (b"cat/b.webp", 0), (b"dog/1.PNG", 1), (b"dog/2.jpg", 1), (b"odd", 1)]
    assert expected == [data.read(i) for i in range(len(data))]
    assert isinstance(data, Source)


def test_images_of_kinds_that_are_not_read_warn(tmp_path: Path) -> None:
    names = "a/1.jpg a/1.CR2 a/2.jpg a/3.GIF a/old/4.jfif b/1.jpg b/2.jpg b/5.gif b/.6.gif b/7.txt"
    write(tmp_path, *names.split())
    said = r"3 files below `.*` are left out \(\.gif, \.jfif\)\. Images are files that end in jpg, "
    both: tuple[dict[str, Any], ...] = ({}, {"labels": None})
    for options in both:
        with pytest.warns(DataWarning, match=said) as told:
            data = ap.ImageFolder(tmp_path, **options)
        assert (len(data), [each.filename for each in told]) == (4, [__file__])


def test_class_folders_that_are_links_to_nowhere_warn(tmp_path: Path) -> None:
    write(tmp_path, "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg")
    for name, target in (("labels.csv", "gone"), ("README", "notes.md"), ("old.GIF", "gone"), (".git", "gone")):
        (tmp_path / name).symlink_to(target)  # never led to a folder
    assert ap.ImageFolder(tmp_path).classes == ("a", "b")  # a warning would be an error
    (tmp_path / "001.Albatross").symlink_to("unmounted.v2")
    (tmp_path / "gone").symlink_to(tmp_path / "unmounted")
    (tmp_path / "latest").symlink_to("latest")
    said = r"^Links in `.*` that lead nowhere .*: `001\.Albatross`, `gone`, `latest`\.$"
    with pytest.warns(DataWarning, match=said) as told:
        data = ap.ImageFolder(tmp_path)
    assert (data.classes, [each.filename for each in told]) == (("a", "b"), [__file__])
    assert len(ap.ImageFolder(tmp_path, class_names=["b", "a"])) == 4


def test_classes_may_be_chosen_and_ordered_and_targets_are_what_the_label_mode_says(tmp_path: Path) -> None:
    root = write(tmp_path, *TWO_EACH, "emu/1.jpg", "emu/2.jpg")
    data = ap.ImageFolder(root, class_names=["emu", "cat"])
    assert data.classes == ("emu", "cat")
    expected = [(b"emu/1.jpg", 0), (b"emu/2.jpg", 0), (b"cat/1.jpg", 1), (b"cat/2.jpg", 1)]
    assert expected == [data.read(number) for number in range(4)]
    assert data.digest() != ap.ImageFolder(root, class_names=["cat", "emu"]).digest()
    two: dict[str, Any] = {"class_names": ["cat", "dog"]}
    binary, one_hot = (ap.ImageFolder(root, **two, label_mode=mode) for mode in ("binary", "categorical"))
    for made, wanted in ((binary, [1.0]), (one_hot, [0.0, 1.0])):
        y: Any = made.read(2)[1]
        assert (made.y_kind, y.tolist(), y.dtype) == (FieldKind.ARRAY, wanted, np.float32)
    alone = ap.ImageFolder(root, label_mode=None)
    assert (alone.y_kind, alone.read(3)) == (None, b"dog/2.jpg")


def test_labels_may_be_given_for_images_in_one_folder(tmp_path: Path) -> None:
    root = write(tmp_path, "b.jpg", "a.jpg", "c.jpg", "below/z.jpg")
    data = ap.ImageFolder(root, labels=[7, 7, 3, 9])
    assert data.classes == ("3", "7", "9")
    wanted = [(b"a.jpg", 7), (b"b.jpg", 7), (b"c.jpg", 3), (b"below/z.jpg", 9)]
    assert [data.read(number) for number in range(4)] == wanted
    others: list[Any] = [[7, 7, 3, 8], np.array([7, 7, 3, 9])]
    assert [data.digest() == ap.ImageFolder(root, labels=each).digest() for each in others] == [False, True]
    assert ap.ImageFolder(root, labels=None).read(3) == b"below/z.jpg"


@pytest.mark.parametrize("names", [None, ["dog", "cat"]])
@pytest.mark.parametrize("seed", [None, 1, 123])
def test_a_split_is_the_one_of_keras(tmp_path: Path, seed: int | None, names: list[str] | None) -> None:
    files = [f"{name}/{number:02}.jpg" for name in ("cat", "dog", "emu") for number in range(9)]
    root = write(tmp_path, *files, "cat/b-x/1.jpg", "cat/b/1.jpg", "cat/b/c/1.jpg", "dog/B/1.PNG")
    for subset in ("training", "validation"):
        part: dict[str, Any] = {"class_names": names, "validation_split": 0.3, "subset": subset, "seed": seed}
        wanted = keras.utils.image_dataset_from_directory(root, shuffle=seed is not None, verbose=False, **part)
        data = ap.ImageFolder(root, **part)
        assert sorted(wanted.file_paths) == sorted(data.files())
        assert wanted.class_names == list(data.classes)


UNFIT: tuple[dict[str, Any], ...] = (
    *({"class_names": names} for names in (["cat", "dig"], ["cat", "cat"])),
    *({"labels": labels} for labels in ([1, 2], [1, 2, 3, 0.5], 3, [0, 1, 2**63, 1])),
    {"labels": np.array([0, 1, 2, 2**64 - 1], np.uint64)},
    *({"class_names": names} for names in ([b"cat", b"dog"], "cat")),
    {"labels": "labels.csv"},
    {"labels": [1, 2, 3, 4], "class_names": ["cat"]},
    {"labels": [0, 1, 2, 3], "label_mode": "binary"},
    {"labels": [1, 2, 1, 2], "label_mode": "binary"},
    {"labels": [1, 2, 3, 1], "label_mode": "categorical"},
    {"label_mode": "text"},
    {"validation_split": 0.2},
    {"validation_split": 0.2, "subset": "test"},
    {"validation_split": 2, "subset": "training"},
    {"validation_split": 0.1, "subset": "training"},
    {"validation_split": 0.1, "subset": "validation"},
)


def test_arguments_that_do_not_fit(approved: Approved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path, *TWO_EACH)
    monkeypatch.chdir(root)
    approved({str(each): refusal(functools.partial(ap.ImageFolder, root, **each)) for each in UNFIT})


def test_folders_of_other_classes_are_no_validation_but_labels_that_are_given_are(tmp_path: Path) -> None:
    training = ap.ImageFolder(write(tmp_path, *(f"train/{name}/{n}.jpg" for name in "abc" for n in "12")) / "train")
    validation = ap.ImageFolder(write(tmp_path, *(f"val/{name}/{n}.jpg" for name in "ac" for n in "12")) / "val")
    with pytest.raises(DataError, match=r"`c` is 2 in .*/train.* and 1 in .*/val.*make an empty folder"):
        ap.Workload(data=training, ops=[], batch_size=1, validation=validation)
    (tmp_path / "val/b").mkdir()
    ap.Workload(data=training, ops=[], batch_size=1, validation=ap.ImageFolder(tmp_path / "val", class_names=[*"abc"]))
    numbered = ap.ImageFolder(tmp_path / "val", labels=[0, 0, 2, 2])
    assert ap.Workload(data=training, ops=[], batch_size=1, validation=numbered).validation is numbered


def pairs(root: Path, **options: Any) -> ap.ImagePairs:
    return ap.ImagePairs(root / "images", root / "masks", **options)


def masks(data: ap.ImagePairs) -> list[Any]:
    return [data.read(index)[1] for index in range(len(data))]


def test_files_of_the_same_name_are_pairs_whatever_their_extension(tmp_path: Path) -> None:
    write(tmp_path, "images/b.jpg", "images/a.jpg", "images/sub/c.jpg", "masks/a.png", "masks/b.bmp", "masks/sub/c.png")
    data = pairs(tmp_path)
    assert masks(data) == [b"masks/a.png", b"masks/b.bmp", b"masks/sub/c.png"]
    assert data.name(0) == f"{tmp_path}/images/a.jpg with {tmp_path}/masks/a.png"
    assert data.files([1]) == [f"{tmp_path}/images/b.jpg", f"{tmp_path}/masks/b.bmp"]


def test_names_of_pairs_may_have_other_ends_and_be_listed(tmp_path: Path) -> None:
    write(
        tmp_path, *(f"{folder}_{end}.png" for n in "12" for folder, end in ((f"images/{n}", "l"), (f"masks/{n}", "L")))
    )
    ends = {"image_suffix": "_l", "mask_suffix": "_L"}
    assert pairs(tmp_path, **ends).read(1) == (b"images/2_l.png", b"masks/2_L.png")
    write(tmp_path, "images/3_l.png", "images/sub/4_l.png", "masks/sub/4_L.png", "masks/2_colour.png")
    file = tmp_path / "train.txt"
    file.write_text("2\r\n sub/4\n\n")
    assert masks(pairs(tmp_path, **ends, names=str(file))) == [b"masks/2_L.png", b"masks/sub/4_L.png"]
    for text, said in (("2\n3\n9\nsub/4", r"2 of 4 do not: 3, 9\."), ("\n", r"must list pairs, but `.*txt` is empty")):
        file.write_text(text)
        with pytest.raises(DataError, match=said):
            pairs(tmp_path, **ends, names=str(file))


SPLIT = ["Train/cat/1.jpg", "Train/dog/1.jpg", "Test/cat/1.jpg", "Test/dog/1.jpg"]
LAYOUTS: list[tuple[list[str], str, bool]] = [  # files, what is said, and whether it is refused
    (["1.jpg", "2.jpg"], r"the 2 images lie in .* itself.*One folder for each class", True),
    (["1.jpg"], r"an image lies in .* itself", True),
    (["a/1.pdf", "b/readme.txt"], r"no images below .*in 2 folders.*jpg, jpeg, png", True),
    (["preview.jpg", "a/1.jpg", "a/2.jpg"], r"Images in .* itself belong to no class.* left out, 1 of them", False),
    (SPLIT, r'`Test`, `Train` are taken for classes.*ap\.ImageFolder\(".*/Train"\)', False),
    (["photos/a/1.jpg", "photos/b/2.jpg"], r'one class, `photos`, in 2 folders below .*Folder\(".*/photos"\)', False),
]


@pytest.mark.parametrize(("names", "said", "is_refused"), LAYOUTS, ids=range(6))
def test_a_folder_that_is_not_one_of_classes_is_refused_or_told(
    tmp_path: Path, names: list[str], said: str, is_refused: bool
) -> None:
    write(tmp_path, *names)
    with pytest.raises(DataError, match=said) if is_refused else pytest.warns(DataWarning, match=said):
        assert len(ap.ImageFolder(tmp_path)) == len([name for name in names if "/" in name])


def test_a_class_without_images_keeps_its_number_as_in_keras(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"No image is in `b`.*class_names"):
        data = ap.ImageFolder(write(tmp_path, "a/1.jpg", "a/2.jpg", "b/run.txt", "c/1.jpg", "c/2.jpg"))
    assert data.classes == ("a", "b", "c")
    assert [data.read(index)[1] for index in range(len(data))] == [0, 0, 2, 2]
    assert len(ap.ImageFolder(tmp_path, class_names=["a", "c"])) == 4


CITY = (("masks", "colour"), ("masks", "ids"))
CITY_FILES = [f"{folder}/sub/{n}_{kind}.png" for n in (1, 12) for folder, kind in (("images", "l"), *CITY)]
ALONE = (
    r"7 files of .* no partner: x0\.jpg, x1\.jpg, x2\.jpg, x3\.jpg, x4\.jpg and 2 more\. "
    r"1 file of .*/masks` has no partner: extra\.png"
)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["images/1.png", "images/2.png", "masks/1_L.png", "masks/2_L.png"], r'Pass mask_suffix="_L"'),
        (["images/1x2.png", "images/2x2.png", "masks/1.png", "masks/2.png"], r'Pass image_suffix="x2", mask_suffix=""'),
        (CITY_FILES, r'Pass image_suffix="_l", mask_suffix="_colour" or "_ids"\.'),
        (["images/10.png", "masks/12.png"], "Remove those files"),
        (["images/1.png", "images/2.png", "masks/1.png"], "names= takes the pairs"),
        (["images/0.jpg", "masks/0.png", "masks/extra.png", *(f"images/x{i}.jpg" for i in range(7))], ALONE),
        (["images/0.jpg", "images/0.png", "masks/0.png"], r"`0\.png` and `0\.jpg` .* differ only in their ending"),
        (["images/0.jpg", "masks/readme.txt"], r"no images in .*masks"),
    ],
)
def test_folders_that_make_no_pairs_are_refused(tmp_path: Path, names: list[str], said: str) -> None:
    write(tmp_path, *names)
    with pytest.raises(DataError, match=said):
        pairs(tmp_path)
    with pytest.raises(DataError, match="must be two folders"):
        ap.ImagePairs(tmp_path, f"{tmp_path}/")
