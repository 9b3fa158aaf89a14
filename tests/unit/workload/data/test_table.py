from __future__ import annotations

import functools
import pickle
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import DataError, DataWarning
from autopipe.workload.sample import FieldKind
from tests.fakes.reports import Approved, refusal


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


def test_whole_numbers_of_any_length_are_labels_as_far_as_int64_holds_them(folder: Path) -> None:
    text = f"path,label\n1.jpg,{2**63 - 1}\n2.jpg,{-(2**63)}\n"
    assert read_all(table(folder, text)) == [(b"1.jpg", 2**63 - 1), (b"2.jpg", -(2**63))]
    larger = f"path,label\n1.jpg,7\n\n2.jpg,{2**63}\n"
    for label in ("label", ["label", "label"]):
        with pytest.raises(DataError, match=r"`label` must be from -2.*, but row 4 has '9223372036854775808'.*=.class"):
            table(folder, larger, label=label)
    assert table(folder, larger, label_mode="class").classes == ("7", "9223372036854775808")
    assert table(folder, larger, label_mode="number").read(1) == (b"2.jpg", np.float32(2**63))


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


def test_numbers_may_be_targets_or_names_and_several_columns_one_vector(folder: Path) -> None:
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


def test_features_and_weights_go_with_the_image(folder: Path) -> None:
    text = "path,rooms,age,price,trust\n1.jpg,3,0.5,70,1\n2.jpg,4,12,80,0.25\n"
    houses = table(folder, text, label="price", features=["rooms", "age"], sample_weight="trust")
    x, y, weight = pickle.loads(pickle.dumps(houses)).read(1)
    assert (x["image"], x["features"].tolist(), x["features"].dtype) == (b"2.jpg", [4, 12], np.float32)
    assert (y, weight, houses.mean_bytes()) == (80, 0.25, 5 + 8)
    assert houses.x_kind == {"image": FieldKind.ENCODED, "features": FieldKind.ARRAY}
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


UNFIT: tuple[dict[str, Any], ...] = (
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
    approved({str(each): refusal(functools.partial(table, folder, text, **each)) for each in UNFIT})


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
