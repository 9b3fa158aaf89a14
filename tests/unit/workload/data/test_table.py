from __future__ import annotations

import functools
import pickle
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.errors import DataError, DataWarning
from autopipe.workload.data.table import Table
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.plain_code import names, packed
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload
from tests.fakes.reports import Approved, refusal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("1.jpg", "2.jpg", "sub/3.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def table(folder: Path, text: str, **options: Any) -> Table:
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    return Table(folder / "labels.csv", **options)


def read_all(data: Table) -> list[object]:
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
    several = Table(training._csv, label=["label", "kind"])
    for rows, said in (
        ("1.jpg,b,x\n2.jpg,c,y", "`b` is 1 in .* and 0 in "),
        ("1.jpg,a,x\n2.jpg,d,y", "`d` is missing in .* and 1 in "),
        ("1.jpg,a,x\n2.jpg,b,y", None),
        ("1.jpg,a,x\n2.jpg,b,y\nsub/3.jpg,c,y\n./1.jpg,d,x", None),  # the number of `d` is no other's
        ("1.jpg,p,u\n2.jpg,q,v", None),
    ):
        (folder / "other.csv").write_text(f"path,label,kind\n{rows}\n")
        for data in (training, several):
            other = Table(folder / "other.csv", label="label" if data is training else ["label", "kind"])
            refused = pytest.raises(DataError, match=said.replace("`", "`(label )?", 1)) if said else nullcontext()
            with refused:
                Workload(data=data, ops=[], batch_size=1, validation=other)
    ages = table(folder, "path,label\n1.jpg,1.5\n2.jpg,2\n")
    assert Workload(data=ages, ops=[], batch_size=1, validation=ages).validation is ages


def test_a_class_whose_name_consists_of_others_is_told(folder: Path) -> None:
    text = "path,label\n1.jpg,a b\n2.jpg,b|a\nsub/3.jpg,a\n./1.jpg,b\n"
    with pytest.warns(DataWarning, match=r'`a b` in the column `label` .*frame\["label"\]\.str\.get_dummies\(" "\)'):
        assert table(folder, text).classes == ("a", "a b", "b", "b|a")
    table(folder, text, label_mode="class")
    table(folder, text.replace("jpg,a\n", "jpg,hot dog\n"))


def test_rows_that_contradict_each_other_are_told(folder: Path) -> None:
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


def test_a_name_without_its_ending_is_told_with_the_ending(folder: Path) -> None:
    with pytest.raises(DataError, match=r'2 of 2 are missing.*frame\["path"\] \+ "\.jpg"'):
        table(folder, "path,label\n1,a\nsub/3,b\n")


def test_numbers_may_be_targets_and_numbers_may_be_names(folder: Path) -> None:
    text = "path,label\n1.jpg,70\n2.jpg,8\n"
    ages = table(folder, text, label_mode="number")
    assert (ages.y_kind, ages.classes) == (FieldKind.ARRAY, None)
    assert read_all(ages) == [(b"1.jpg", np.float32(70)), (b"2.jpg", np.float32(8))]
    houses = table(folder, text, label_mode="class")
    assert houses.classes == ("70", "8")
    assert read_all(houses) == [(b"1.jpg", 0), (b"2.jpg", 1)]
    assert len({ages.digest(), houses.digest(), table(folder, text).digest()}) == 3
    mixed = table(folder, "path,label\n1.jpg,7\n2.jpg,0.5\n")
    assert (mixed.y_kind, mixed.read(1)) == (FieldKind.ARRAY, (b"2.jpg", np.float32(0.5)))


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


def test_numbers_with_decimal_commas_are_no_classes(folder: Path) -> None:
    text = "path;label\n1.jpg;7\n2.jpg;-0,5\nsub/3.jpg;1,25\n"
    for mode in ("auto", "number"):
        with pytest.raises(DataError, match=r"finite numbers, but row 3 has '-0,5'.*Write a point for the comma"):
            table(folder, text, label_mode=mode)
    with pytest.raises(DataError, match=r"row 3 has '-0,5'.*Write a point for the comma"):
        table(folder, text.replace("7", "NA"))
    assert table(folder, text, label_mode="class").classes == ("-0,5", "1,25", "7")
    assert table(folder, text.replace("7", "a,b")).classes == ("-0,5", "1,25", "a,b")


def test_texts_among_which_one_looks_like_a_missing_number_are_classes(folder: Path) -> None:
    assert table(folder, "path,label\n1.jpg,NA\n2.jpg,7\nsub/3.jpg,ZW\n").classes == ("7", "NA", "ZW")
    assert table(folder, "path,label\n1.jpg,null\n2.jpg,nan\n").classes == ("nan", "null")
    assert table(folder, "path,label\n1.jpg,+\n2.jpg,-\n").classes == ("+", "-")


def test_several_columns_are_one_vector(folder: Path) -> None:
    text = "path,x,y,kind,day\n1.jpg,0.5,2,dog,3\n2.jpg,1,4,cat,1\n"
    places = table(folder, text, label=["x", "y"])
    assert (places.y_kind, places.classes) == (FieldKind.ARRAY, (None, None))
    np.testing.assert_array_equal(places.read(0)[1], [0.5, 2])  # type: ignore[index]  # a pair
    assert places.read(0)[1].dtype == np.float32  # type: ignore[index]
    both = table(folder, text, label=["kind", "day"])
    assert both.classes == (("cat", "dog"), None)
    vectors = [both.read(number)[1] for number in range(2)]  # type: ignore[index]
    np.testing.assert_array_equal(vectors, [[1, 3], [0, 1]])
    assert vectors[0].dtype == np.int64
    series = table(folder, text, label=np.array(["x", "y"]))  # of names, whatever holds them
    assert series.digest() == places.digest() != both.digest()


def test_features_and_weights_go_with_the_image(folder: Path) -> None:
    text = "path,rooms,age,price,trust\n1.jpg,3,0.5,70,1\n2.jpg,4,12,80,0.25\n"
    houses = table(folder, text, label="price", features=["rooms", "age"], sample_weight="trust")
    x, y, weight = pickle.loads(pickle.dumps(houses)).read(1)
    assert x["image"] == b"2.jpg"
    assert x["features"].dtype == np.float32
    assert (x["features"].tolist(), y, weight) == ([4, 12], 80, 0.25)
    assert houses.x_kind == {"image": FieldKind.ENCODED, "features": FieldKind.ARRAY}
    assert houses.mean_bytes() == 5 + 8
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


def test_paths_may_be_absolute_or_start_at_another_root(folder: Path, tmp_path: Path) -> None:
    data = table(folder, f"path,label\n3.jpg,1\n{folder}/1.jpg,2\n", root=str(folder / "sub"))
    assert read_all(data) == [(b"sub/3.jpg", 1), (b"1.jpg", 2)]


def test_another_root_is_advised_only_where_it_helps(folder: Path) -> None:
    hints = []
    for rows in ("4.jpg,1\n", "/was/there/1.jpg,1\n", "1.jpg,1\n4.jpg,1\n"):
        with pytest.raises(DataError) as raised:
            table(folder, f"path,label\n{rows}")
        hints.append(str(raised.value.hint))
    assert ["another as root=" in hint for hint in hints] == [True, False, True]
    assert ["Remove" in hint for hint in hints] == [False, False, True]


def test_a_separator_in_a_quoted_text_moves_no_cells(folder: Path) -> None:
    quoted = table(folder, 'path,seen,label\n1.jpg,a dog,3,\n2.jpg,"a cat, asleep",7\n')
    assert read_all(quoted) == [(b"1.jpg", 3), (b"2.jpg", 7)]


UNFIT: tuple[dict[str, Any], ...] = (
    {"label": {"kind": "label"}},
    {"label": ["label", None]},
    {"label": []},
    {"label": ["label", "z"]},
    {"label_mode": "text"},
    {"features": {"rooms": "label"}},
    {"features": "rooms"},
    {"features": ["rooms"]},
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
    file = folder / "labels.csv"
    found = {"nowhere": refusal(lambda: Table(file))}
    for text in UNUSABLE:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        found[repr(text)] = refusal(lambda: Table(file))
    approved(found)


TEXT = "file;rooms;age;kind;day;price;trust\n1.png;1;20;old;3;1.5;0.5\n2.png;2;3;new;1;2;0.25\n"


def kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: kept(part) for key, part in value.items()}
    array = np.asarray(value)
    return array.tolist(), array.dtype


@pytest.mark.parametrize(
    "settings",
    [
        {"label": "price", "features": ["rooms", "age"], "sample_weight": "trust"},
        {"label": "day", "label_mode": "class", "sample_weight": "trust"},
        {"label": "day", "label_mode": "number"},
        {"label": ["kind", "day"]},
        {"label": ["kind", "price"], "features": ["age"]},
        {"label": None, "features": ["age", "rooms"]},
    ],
    ids=str,
)
def test_plain_code_gives_the_columns_as_the_table_does(tmp_path: Path, settings: dict[str, Any]) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(f"file {number}".encode())
    (tmp_path / "houses.csv").write_text(TEXT)
    data = Table(tmp_path / "houses.csv", path="file", **settings)
    spec = make_plan(Workload(data=data, ops=[Map(len)], batch_size=2)).source  # these files are no images
    plain = data.plain(spec, "np")
    assert plain.arguments == names(spec)
    lines = ["import csv", "from pathlib import Path", "import numpy as np", *plain.constants, plain.functions]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    columns = scope["samples"]()
    for index in range(2):
        row = dict(zip(plain.arguments, (column[index] for column in columns), strict=True))
        row[plain.arguments[0]] = Path(row[plain.arguments[0]]).read_bytes()
        found = eval(packed(spec), row)
        found, read = (value if isinstance(value, tuple) else (value,) for value in (found, data.read(index)))
        assert [kept(part) for part in found] == [kept(part) for part in read]
