"""The contract of sources on Hugging Face datasets and Parquet files; what they refuse, and what labels become."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from autopipe.errors import BadSampleError, DataError, MissingExtraError
from autopipe.extensions.huggingface.source import HuggingFace, Parquet
from autopipe.workload.sample import FieldKind, Source
from autopipe.workload.workload import Workload
from tests.contract.test_sources import *  # noqa: F403  # the contract itself
from tests.contract.test_sources import SEVERAL, Case, columns_of_several, image, of_several, written
from tests.fakes import damage

pytestmark = pytest.mark.usefixtures("cache")
del test_every_source_of_the_core_is_here  # noqa: F821


def hugging_face(root: Path, count: int) -> Source:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    images = [{"bytes": image(n), "path": None} for n in range(count)]
    values = {"image": images, "label": [n % 3 for n in range(count)]}
    datasets.Dataset.from_dict(values, features=features).save_to_disk(root / "set")
    return HuggingFace(root / "set")


def image_folder_of_hugging_face(root: Path, count: int) -> Source:
    paths = [str(written(root / f"{number:06}.jpg", image(number))) for number in range(count)]
    made = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    made.save_to_disk(root / "set")
    return HuggingFace(root / "set", label=None)


def parquet(root: Path, count: int) -> Source:
    root.mkdir(parents=True, exist_ok=True)
    columns = {"image": [image(n) for n in range(count)], "label": [7 * n for n in range(count)]}
    pq.write_table(pa.table(columns), root / "set.parquet", row_group_size=4)
    return Parquet(root / "*.parquet")


def hugging_face_of_several(root: Path, count: int) -> Source:
    datasets.Dataset.from_dict(columns_of_several(count)).save_to_disk(root / "set")
    return HuggingFace(root / "set", SEVERAL["x"], SEVERAL["y"], SEVERAL["sample_weight"])


ARROW = "set/data-00000-of-00001.arrow"
CASES = {
    "HuggingFace of several parts": Case(hugging_face_of_several, of_several, ARROW, None),
    "HuggingFace": Case(hugging_face, lambda number: (image(number), number % 3), ARROW, None),
    "HuggingFace of files": Case(image_folder_of_hugging_face, lambda number: (image(number),), ARROW, None),
    "Parquet": Case(parquet, lambda number: (image(number), 7 * number), "set.parquet", None),
}


def made(label: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"image": [b"one", b"two"], "label": label})


def test_parts_are_what_their_columns_say_and_the_digest_tells_which_is_which() -> None:
    data = HuggingFace(made([1, 0]).cast_column("label", datasets.ClassLabel(names=["cat", "dog"])))
    assert (data.classes, data.y_kind, data.read(0)) == (("cat", "dog"), FieldKind.LABEL, (b"one", 1))
    other = HuggingFace(made([1, 0]).cast_column("label", datasets.ClassLabel(names=["ant", "cat"])))
    with pytest.raises(DataError, match=r"`ant` is missing in .*, and 0 in "):
        Workload(data=data, ops=[], batch_size=1, validation=other)
    ages = HuggingFace(made([7.5, 8.0]))
    assert (ages.classes, ages.y_kind, ages.read(0)[1].dtype) == (None, FieldKind.ARRAY, np.float32)
    np.testing.assert_array_equal(HuggingFace(made([[1.0, 2.0], [3.0, 4.0]])).read(1)[1], [3, 4])
    features = datasets.Features({"image": datasets.Image(), "mask": datasets.Image()})
    rows = {name: [{"bytes": name.encode(), "path": None}] for name in features}
    masks = HuggingFace(datasets.Dataset.from_dict(rows, features=features), label="mask")
    assert (masks.read(0), masks.y_kind) == ((b"image", b"mask"), FieldKind.ENCODED)
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    features = datasets.Features({"image": datasets.Array3D((2, 2, 3), "uint8")})
    data = HuggingFace(datasets.Dataset.from_dict({"image": pixels}, features=features), label=None)
    np.testing.assert_array_equal(data.read(1), pixels[1])
    assert "columns=image,label " in HuggingFace(made([1, 2])).digest()
    assert "columns=x.0:image,x.1:label " in HuggingFace(made([1, 2]), ["image", "label"], None).digest()
    assert "columns=x:image,y.kind:label " in HuggingFace(made([1, 2]), label={"kind": "label"}).digest()


@pytest.mark.parametrize(
    ("rows", "bad", "said"),
    [
        ({"image": [b"one", None]}, 1, "must hold an image or numbers, but holds None"),
        ({"image": [[1.0, 2.0], [3.0, None], [float("nan"), 4.0]]}, 1, "null"),
        ({"image": [b"one", b"two"], "label": [3, None]}, 1, "must hold numbers, but holds .*None"),
        ({"image": [b"one", b"two"], "label": [[0.5, 1.5], [None, 2.5]]}, 1, "must hold numbers, but holds .*None"),
        ({"image": [[1.0, 2.0]] * 3, "label": [None, 1, 0]}, 0, "must hold numbers, but holds .*None"),
    ],
)
def test_a_null_is_a_bad_sample_and_spoils_no_other(rows: dict[str, Any], bad: int, said: str) -> None:
    made = datasets.Dataset.from_dict(rows)
    if isinstance(rows["image"][0], list):
        made = made.cast_column("image", datasets.Sequence(datasets.Value("float32")))
    data = HuggingFace(made, label="label" if "label" in rows else None)
    for number in set(range(len(data))) - {bad}:
        data.read(number)
    with pytest.raises(BadSampleError, match=f"row {bad} .*{said}"):
        data.read(bad)


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        (["a.parquet", "b/c/d.parquet"], "**/*.parquet", [0, 1]),
        (["a1.parquet", "a[1].parquet", "a*.parquet"], ["a[1].parquet", "a*.parquet"], [1, 2]),
    ],
    ids=["in folders below", "a name is no pattern"],
)
def test_parquet_files_are_found(names: list[str], asked: Any, found: list[int], tmp_path: Path) -> None:
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"image": [b"one"], "label": [number]}), tmp_path / name)
    data = Parquet(tmp_path / asked if isinstance(asked, str) else [tmp_path / name for name in asked])
    assert [data.read(number) for number in range(len(data))] == [(b"one", number) for number in found]


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ([1, 2], {}, "one split"),
        (datasets.DatasetDict(train=made([1, 2])), {}, "one split"),
        (made([1, 2]), {"label": "labels"}, "Did you mean `label`"),
        (made(["cat", "dog"]), {}, "class_encode_column"),
        (made([1, 2]), {"image": []}, r"`image` must be the name of a column, or a list .*got \[\]"),
        (made([1, 2]), {"label": {"kind": 3}}, "`label` must be the name of a column, or a list"),
        (made([1, 2]), {"image": None}, "`image` must be the name of a column.*got None"),
        (made([1, 2]), {"label": None, "sample_weight": "label"}, "there is no `label`"),
        (made([1, 2]), {"image": {"a": "image", "b": "labels"}}, r"are `image`, `label`\. Did you mean `label`"),
        ("nowhere", {}, "cannot be read as a Hugging Face dataset"),
    ],
)
def test_what_cannot_be_read_is_named(data: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        HuggingFace(data, **options)


def test_a_parquet_file_or_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"image": [b"one"], "labels": [1]}), tmp_path / "a.parquet")
    (tmp_path / "other").write_bytes(b"nothing of the kind")
    for name, said in (
        ("a.parquet", r"a\.parquet` has no column `label`.*Did you mean `labels`.*ap\.Parquet\("),
        ("other", "cannot be read as Parquet"),
        ("nowhere-*.parquet", "No file matches"),
    ):
        with pytest.raises(DataError, match=said):
            Parquet(tmp_path / name)
    monkeypatch.setitem(sys.modules, "datasets", None)
    calls: list[tuple[Any, Any]] = [(HuggingFace, "nowhere"), (Parquet, ["nowhere.parquet"])]
    for make, source in calls:
        with pytest.raises(MissingExtraError, match="`datasets` is not installed; the extra `hf` brings it"):
            make(source)


def test_a_cache_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"image": [b"one"]}).to_parquet(tmp_path / "set.parquet")
    (tmp_path / "cache").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataError, match=r"set\..* cannot be unpacked into .*/cache/autopipe/.*Set XDG_CACHE_HOME"):
        Parquet([tmp_path / "set.parquet"], label=None)


def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(tmp_path: Path) -> None:
    file, rows = tmp_path / "set.parquet", np.arange(240, dtype=np.uint8).reshape(20, 12)
    whole = datasets.Dataset.from_dict({"image": list(map(bytes, rows)), "label": list(range(20))})
    whole.to_parquet(str(file))
    assert damage.unnamed(Parquet, file, tries=4) == []


@pytest.mark.slow
def test_no_framework_is_imported_for_them() -> None:
    code = "import sys, datasets, autopipe as ap; ap.Parquet; print({'tensorflow', 'keras'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
