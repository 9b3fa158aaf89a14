"""Images in folders, alone or with a mask each, and in tables with their labels."""

import functools
import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import DataError, DataWarning
from autopipe.workload.sample import FieldKind
from tests.fakes.reports import Approved, refusal

TWO_EACH = ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg")


def write(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def test_names_that_are_no_text_are_read_too(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(write(tmp_path, "a/b.jpg")) + b"/a/\xff\xfe.jpg")).write_bytes(b"odd")
    assert ap.ImageFolder(tmp_path, labels=[2, 3]).read(1) == (b"odd", 3)


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


# -------------------- tables of files and labels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("1.jpg", "2.jpg", "sub/3.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def table(folder: Path, text: str | bytes, **options: Any) -> ap.Table:
    (folder / "labels.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return ap.Table(folder / "labels.csv", **options)


def read_all(data: ap.Table) -> list[object]:
    return [data.read(i) for i in range(len(data))]


def test_numbers_of_any_length_are_labels_may_be_targets_or_names_and_several_columns_one_vector(folder: Path) -> None:
    text = f"path,label\n1.jpg,{2**63 - 1}\n2.jpg,{-(2**63)}\n"
    assert read_all(table(folder, text)) == [(b"1.jpg", 2**63 - 1), (b"2.jpg", -(2**63))]
    larger = f"path,label\n1.jpg,7\n\n2.jpg,{2**63}\n"
    for label in ("label", ["label", "label"]):
        with pytest.raises(DataError, match=r"`label` must be from -2.*, but row 4 has '9223372036854775808'.*=.class"):
            table(folder, larger, label=label)
    assert table(folder, larger, label_mode="class").classes == ("7", "9223372036854775808")
    assert table(folder, larger, label_mode="number").read(1) == (b"2.jpg", np.float32(2**63))
    text = "path,label\n1.jpg,70\n2.jpg,8\n"
    ages, houses = (table(folder, text, label_mode=mode) for mode in ("number", "class"))
    assert (ages.y_kind, ages.classes, houses.classes) == (FieldKind.ARRAY, None, ("70", "8"))
    assert read_all(ages) == [(b"1.jpg", np.float32(70)), (b"2.jpg", np.float32(8))]
    assert read_all(houses) == [(b"1.jpg", 0), (b"2.jpg", 1)]
    assert len({ages.digest(), houses.digest(), table(folder, text).digest()}) == 3
    mixed = table(folder, "path,label\n1.jpg,7\n2.jpg,0.5\n")
    assert (mixed.y_kind, mixed.read(1)) == (FieldKind.ARRAY, (b"2.jpg", np.float32(0.5)))
    text = "path,x,y,kind,day\n1.jpg,0.5,2,dog,3\n2.jpg,1,4,cat,1\n"
    places = table(folder, text, label=["x", "y"])
    assert (places.y_kind, places.classes) == (FieldKind.ARRAY, (None, None))
    both = table(folder, text, label=["kind", "day"])
    assert both.classes == (("cat", "dog"), None)
    for data, dtype, wanted in ((places, "float32", [[0.5, 2], [1, 4]]), (both, "int64", [[1, 3], [0, 1]])):
        vectors: list[Any] = [data.read(number)[1] for number in range(2)]  # type: ignore[index]  # a pair
        assert ([each.tolist() for each in vectors], vectors[0].dtype) == (wanted, dtype)
    series = table(folder, text, label=np.array(["x", "y"]))  # of names, whatever holds them
    assert series.digest() == places.digest() != both.digest()


def test_a_class_of_another_number_in_the_validation_is_refused(folder: Path) -> None:
    training = table(folder, "path,label,kind\n1.jpg,a,x\n2.jpg,b,y\nsub/3.jpg,c,y\n")
    several = ap.Table(training._csv, label=["label", "kind"])
    for rows, said in (
        ("1.jpg,b,x\n2.jpg,c,y", "`b` is 1 in .* and 0 in "),
        ("1.jpg,a,x\n2.jpg,d,y", "`d` is missing in .* and 1 in "),
        ("1.jpg,a,x\n2.jpg,b,y", None),
        ("1.jpg,a,x\n2.jpg,b,y\nsub/3.jpg,c,y\n./1.jpg,d,x", None),  # the number of `d` is no other's
        ("1.jpg,p,u\n2.jpg,q,v", None),
    ):
        (folder / "other.csv").write_text(f"path,label,kind\n{rows}\n")
        for data in (training, several):
            other = ap.Table(folder / "other.csv", label="label" if data is training else ["label", "kind"])
            refused = pytest.raises(DataError, match=said.replace("`", "`(label )?", 1)) if said else nullcontext()
            with refused:
                ap.Workload(data=data, ops=[], batch_size=1, validation=other)
    ages = table(folder, "path,label\n1.jpg,1.5\n2.jpg,2\n")
    assert ap.Workload(data=ages, ops=[], batch_size=1, validation=ages).validation is ages


def test_rows_that_contradict_each_other_and_a_class_that_consists_of_others_are_told(folder: Path) -> None:
    text = "path,label\n1.jpg,a b\n2.jpg,b|a\nsub/3.jpg,a\n./1.jpg,b\n"
    with pytest.warns(DataWarning, match=r'`a b` in the column `label` .*frame\["label"\]\.str\.get_dummies\(" "\)'):
        assert table(folder, text).classes == ("a", "a b", "b", "b|a")
    table(folder, text, label_mode="class")
    table(folder, text.replace("jpg,a\n", "jpg,hot dog\n"))
    said = r"1 images .* `1\.jpg` by the rows 2 and 4: .* label=\[\.\.\.\]"
    with pytest.warns(DataWarning, match=said):
        table(folder, "path,label\n1.jpg,a\n2.jpg,b\n1.jpg,b\n2.jpg,b\n1.jpg,c\n")
    with pytest.warns(DataWarning, match=said):
        table(folder, "path,label,k\n1.jpg,1,1\n2.jpg,1,1\n1.jpg,1,0\n2.jpg,1,1\n", label=["label", "k"])
    for labels in ("aa", ("1", "1.5")):
        table(folder, f"path,label\n1.jpg,{labels[0]}\n1.jpg,{labels[1]}\n")
    for option, value in (("features", ["at"]), ("sample_weight", "at")):  # which tell the rows apart
        table(folder, "path,label,at\n1.jpg,a,1\n1.jpg,b,2\n", **{option: value})
    assert len(table(folder, "[path],label\n1.jpg,a\n", path="[path]")) == 1


@pytest.mark.parametrize("missing", [*"?-", "nan", "NaN", "-inf", "NA", "n/a", "<NA>", "NULL", "None", "nil", "1e300"])
def test_numbers_of_which_one_is_missing_are_no_classes(folder: Path, missing: str) -> None:
    said = f"`label` must hold finite numbers, but row 4 has '{re.escape(missing)}'"
    for others in ("1.5", "7"):
        text = f"path,label\n1.jpg,{others}\n\n2.jpg,{missing}\n"
        for settings in ({}, {"label": ["label", "label"]}, {"label_mode": "number"}):
            with pytest.raises(DataError, match=said) as told:
                table(folder, text, **settings)
            assert ('label_mode="class"' in str(told.value.hint)) == ("label_mode" not in settings)
        assert table(folder, text, label_mode="class").classes == tuple(sorted((others, missing)))


def test_numbers_with_decimal_commas_are_no_classes_and_texts_are_that_look_like_a_missing_number(folder: Path) -> None:
    text = "path;label\n1.jpg;7\n2.jpg;-0,5\nsub/3.jpg;1,25\n"
    for mode, first in (("auto", "7"), ("number", "7"), ("auto", "NA")):
        with pytest.raises(DataError, match=r"row 3 has '-0,5'.*Write a point for the comma"):
            table(folder, text.replace("7", first), label_mode=mode)
    assert table(folder, text, label_mode="class").classes == ("-0,5", "1,25", "7")
    assert table(folder, text.replace("7", "a,b")).classes == ("-0,5", "1,25", "a,b")
    for classes in (("7", "NA", "ZW"), ("nan", "null"), ("+", "-")):
        rows = "".join(f"{file},{name}\n" for file, name in zip(("1.jpg", "2.jpg", "sub/3.jpg"), classes, strict=False))
        assert table(folder, f"path,label\n{rows}").classes == classes


def test_features_and_weights_count_and_need_no_label(folder: Path) -> None:
    text = "path,rooms,age,price,trust\n1.jpg,3,0.5,70,1\n2.jpg,4,12,80,0.25\n"
    houses = table(folder, text, label="price", features=["rooms", "age"], sample_weight="trust")
    alone = table(folder, text, label=None, features=["rooms"])
    assert alone.read(0)["features"].tolist() == [3]  # type: ignore[index]  # a dictionary
    others = [table(folder, text.replace("12", "13"), label="price", features=["rooms", "age"], sample_weight="trust")]
    others += [table(folder, text, label="price"), table(folder, text, label="price", sample_weight="trust")]
    assert len({each.digest() for each in (houses, *others)}) == 4


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_byte_order_mark_quotes_and_blank_lines_are_understood(folder: Path, separator: str) -> None:
    text = '\ufefffile;kind\r\n"1.jpg";"a cat"\r\n\r\n2.jpg;dog\r\n'.replace(";", separator)
    data = table(folder, text, path="file", label="kind")
    assert data.classes == ("a cat", "dog")
    assert data.name(1) == f"{folder}/2.jpg (row 4 of {folder}/labels.csv)"
    quoted = table(folder, 'path,seen,label\n1.jpg,a dog,3,\n2.jpg,"a cat, asleep",7\n')
    assert read_all(quoted) == [(b"1.jpg", 3), (b"2.jpg", 7)]


def test_paths_may_be_absolute_or_start_at_another_root_which_is_advised_only_where_it_helps(folder: Path) -> None:
    data = table(folder, f"path,label\n3.jpg,1\n{folder}/1.jpg,2\n", root=str(folder / "sub"))
    assert read_all(data) == [(b"sub/3.jpg", 1), (b"1.jpg", 2)]
    hints = []
    for rows in ("4.jpg,1\n", "/was/there/1.jpg,1\n", "1.jpg,1\n4.jpg,1\n"):
        with pytest.raises(DataError) as raised:
            table(folder, f"path,label\n{rows}")
        hints.append(("another as root=" in str(raised.value.hint), "Remove" in str(raised.value.hint)))
    assert hints == [(True, False), (False, False), (True, True)]
    with pytest.raises(DataError, match=r'2 of 2 are missing.*frame\["path"\] \+ "\.jpg"'):  # names without an ending
        table(folder, "path,label\n1,a\nsub/3,b\n")


UNREAD: tuple[dict[str, Any], ...] = (
    *({"label": label} for label in ({"kind": "label"}, ["label", None], [], ["label", "z"])),
    {"label_mode": "text"},
    *({"features": features} for features in ({"rooms": "label"}, "rooms", ["rooms"])),
    {"path": ["path"]},
    {"sample_weight": ["label"]},
    {"label": None, "sample_weight": "label"},
)


def test_columns_that_cannot_be_read(approved: Approved, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    text = "path,rooms,label\n1.jpg,three,1\n2.jpg,4,2\n"
    approved({str(each): refusal(functools.partial(table, folder, text, **each)) for each in UNREAD})


UNUSABLE: tuple[str | bytes, ...] = (
    "path,label\n",
    b"path,label\n\xff\xfe.jpg,1\n",
    "path,label,label\n1.jpg,1,2\n",
    *(f"path,label\n1.jpg,1\n{row}\n" for row in ("1.jpg", "1.jpg,", ",3")),
    "path,label\n1.jpg,3,\n2.jpg, 4, 7\n",
    "path,labels\n1.jpg,1\n",
    "path,label\n1.jpg,1\nno.jpg,2\nnor.jpg,3\n",
    "path,label\nsub\\3.jpg,1\n",
    '{"images": [{"path": "1.jpg"}]}',
    "1.jpg,0\n2.jpg,1\n",
    "path label\n1.jpg 0\n",
    "path,label\n1.jpg,0\n".encode("utf-16"),
)


def test_tables_that_cannot_be_used(approved: Approved, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = {"nowhere": refusal(lambda: ap.Table(folder / "labels.csv"))}
    approved(found | {repr(text): refusal(functools.partial(table, folder, text)) for text in UNUSABLE})
