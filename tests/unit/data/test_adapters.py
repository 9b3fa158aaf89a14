"""What the sources over other libraries refuse, and what they make of labels. Their contract is in test_sources.py."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import datasets
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from autopipe.core.sample import FieldKind
from autopipe.core.workload import Workload
from autopipe.data.hdf5 import HDF5
from autopipe.data.hugging_face import HuggingFace
from autopipe.data.npz import NPZ
from autopipe.data.parquet import Parquet
from autopipe.data.tfds import TFDS
from autopipe.errors import BadSampleError, DataError, MissingExtraError
from autopipe.ops.flip import RandomFlip
from autopipe.ops.planner import make_plan

WRONG: Any = {"kind": 3}
NOTHING: Any = None


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(label: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"image": [b"one", b"two"], "label": label})


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (lambda: HuggingFace("nowhere"), "datasets", "hf"),
        (lambda: Parquet(["nowhere.parquet"]), "datasets", "hf"),
        (lambda: HDF5("nowhere.h5"), "h5py", "hdf5"),
        (lambda: TFDS("beans", "train"), "tensorflow_datasets", "tfds"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    make: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"`{module}` is not installed; the extra `{extra}` brings it"):
        make()


def test_labels_are_what_their_column_says() -> None:
    named = made([1, 0]).cast_column("label", datasets.ClassLabel(names=["cat", "dog"]))
    data = HuggingFace(named)
    assert (data.classes, data.y_kind, data.read(0)) == (("cat", "dog"), FieldKind.LABEL, (b"one", 1))
    ages = HuggingFace(made([7.5, 8.0]))
    assert (ages.classes, ages.y_kind, ages.read(0)[1].dtype) == (None, FieldKind.ARRAY, np.float32)
    places = HuggingFace(made([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(places.read(1)[1], [3, 4])


def test_a_first_row_that_is_bad_is_one_sample_and_not_the_set() -> None:
    rows = {"image": [[1.0, 2.0]] * 3, "label": [None, 1, 0]}
    data = HuggingFace(datasets.Dataset.from_dict(rows))
    assert data.read(1)[1] == 1
    with pytest.raises(BadSampleError, match="row 0"):
        data.read(0)


def test_a_null_among_numbers_is_a_bad_sample() -> None:
    rows = {"image": [[1.0, 2.0], [3.0, None], [float("nan"), 4.0]]}
    features = datasets.Features({"image": datasets.Sequence(datasets.Value("float32"))})
    data = HuggingFace(datasets.Dataset.from_dict(rows, features=features), label=None)
    np.testing.assert_array_equal(data.read(2), [np.nan, 4.0])
    with pytest.raises(BadSampleError, match=r"row 1 .* null"):
        data.read(1)


@pytest.mark.parametrize("labels", [[3, None], [[0.5, 1.5], [None, 2.5]]])
def test_a_null_among_targets_is_a_bad_sample(labels: Any) -> None:
    data = HuggingFace(made(labels))
    assert data.read(0)[0] == b"one"
    with pytest.raises(BadSampleError, match=r"row 1 .* must hold numbers, but holds .*None"):
        data.read(1)


def test_parquet_files_are_found_in_folders_below(tmp_path: Path) -> None:
    for number, name in enumerate(("a.parquet", "b/c/d.parquet")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"image": [b"one"], "label": [number]}), tmp_path / name)
    data = Parquet(tmp_path / "**" / "*.parquet")
    assert [data.read(number) for number in range(len(data))] == [(b"one", 0), (b"one", 1)]


def test_a_column_that_parquet_files_lack_is_told_with_the_file_and_the_call(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [b"one"], "labels": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet` has no column `label`.*Did you mean `labels`") as caught:
        Parquet(tmp_path / "a.parquet")
    assert "ap.Parquet(" in str(caught.value.hint)
    assert "HuggingFace" not in str(caught.value)


def test_the_extra_of_hugging_face_brings_what_its_images_need() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
    assert any(each.startswith("pillow") for each in project["optional-dependencies"]["hf"])


def test_a_parquet_files_name_is_no_pattern(tmp_path: Path) -> None:
    for number, name in enumerate(("a1.parquet", "a[1].parquet", "a*.parquet")):
        pq.write_table(pa.table({"image": [b"one"], "label": [number]}), tmp_path / name)
    data = Parquet([tmp_path / "a[1].parquet", tmp_path / "a*.parquet"])
    assert [data.read(number)[1] for number in range(len(data))] == [1, 2]


def test_images_may_be_arrays() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    features = datasets.Features({"image": datasets.Array3D((2, 2, 3), "uint8")})
    data = HuggingFace(datasets.Dataset.from_dict({"image": pixels}, features=features), label=None)
    assert data.x_kind in (FieldKind.IMAGE, FieldKind.ARRAY)
    np.testing.assert_array_equal(data.read(1), pixels[1])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: HuggingFace([1, 2]), "one split"),
        (lambda: HuggingFace(datasets.DatasetDict(train=made([1, 2]))), "one split"),
        (lambda: HuggingFace(made([1, 2]), label="labels"), "Did you mean `label`"),
        (lambda: HuggingFace(made(["cat", "dog"])), "class_encode_column"),
        (lambda: HuggingFace(made([1, 2]), image=[]), r"`image` must be the name of a column, or a list .*got \[\]"),
        (lambda: HuggingFace(made([1, 2]), label=WRONG), "`label` must be the name of a column, or a list"),
        (lambda: HuggingFace(made([1, 2]), NOTHING), "`image` must be the name of a column.*got None"),
        (lambda: HuggingFace(made([1, 2]), label=None, sample_weight="label"), "there is no `label`"),
        (
            lambda: HuggingFace(made([1, 2]), {"photo": "image", "more": "labels"}),
            r"no column `labels`; its columns are `image`, `label`\. Did you mean `label`",
        ),
        (lambda: HuggingFace("nowhere"), "cannot be read as a Hugging Face dataset"),
        (lambda: Parquet("nowhere-*.parquet"), "No file matches"),
        (lambda: HDF5("nowhere.h5"), "does not exist"),
        (lambda: TFDS("nowhere", "train"), r"`nowhere, train` cannot be opened: Dataset nowhere not found\.$"),
        (lambda: NPZ("nowhere.npz"), "does not exist"),
    ],
)
def test_what_cannot_be_read_is_named(make: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        make()


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"nothing of the kind")
    for make, said in (
        (lambda: HDF5(other), "cannot be read as an HDF5 file"),
        (lambda: NPZ(other), r"cannot be read as a \.npz archive"),
        (lambda: Parquet([other]), "cannot be read as Parquet"),
    ):
        with pytest.raises(DataError, match=said):
            make()


def test_arrays_that_are_not_there_and_lengths_that_differ_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["group/images"], file["labels"] = np.zeros((3, 2)), np.zeros(4)
    with pytest.raises(DataError, match=r"datasets are `group/images`, `labels`.*Did you mean `labels`"):
        HDF5(tmp_path / "set.h5", x="group/images", y="label")
    with pytest.raises(DataError, match="equally long"):
        HDF5(tmp_path / "set.h5", x="group/images", y="labels")
    with pytest.raises(DataError, match=r"equally long and not empty, but they are .*`labels` \(4,\)"):
        HDF5(tmp_path / "set.h5", x={"images": "group/images", "more": "labels"}, y=None)
    assert len(HDF5(tmp_path / "set.h5", x="group/images", y=None)) == 3
    np.savez(tmp_path / "set.npz", x_train=np.zeros((3, 2)))
    with pytest.raises(DataError, match="no array `x`; its arrays are `x_train`"):
        NPZ(tmp_path / "set.npz", y=None)


@pytest.mark.parametrize("dtype", ["S3", h5py.string_dtype()])
def test_texts_in_a_file_are_no_targets(tmp_path: Path, dtype: Any) -> None:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["x"] = np.zeros((2, 4, 4, 3), np.uint8)
        file.create_dataset("y", data=[b"cat", b"dog"], dtype=dtype)
    with pytest.raises(DataError, match=r"The dataset `y` of `.*` must hold numbers, but holds text.*numpy\.unique"):
        HDF5(tmp_path / "set.h5")


def test_columns_become_the_parts_that_a_model_wants(tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 2, 2, 3)
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["photos"], file["numbers"], file["price"] = pixels, np.zeros((4, 5), np.float32), np.arange(4)
    data = HDF5(tmp_path / "set.h5", {"numbers": "numbers", "image": "photos"}, "price", "price")
    plan = make_plan(Workload(data=data, ops=[RandomFlip()], batch_size=2))
    assert plan.source.labels == ("x.image", "y", "x.numbers", "sample_weight")
    assert (plan.source.x.kind, plan.source.y and plan.source.y.kind) == (FieldKind.IMAGE, FieldKind.LABEL)
    pair = HDF5(tmp_path / "set.h5", ["photos", "numbers"], None)
    assert [part.shape for part in pair.read(0)[0]] == [(2, 2, 3), (5,)]
    assert make_plan(Workload(data=pair, ops=[], batch_size=2)).source.labels == ("x.0", "y", "x.1")


def test_a_digest_tells_which_column_is_which_part() -> None:
    data = made([1, 2])
    assert "columns=image,label " in HuggingFace(data).digest()
    assert "columns=x.0:image,x.1:label " in HuggingFace(data, ["image", "label"], None).digest()
    assert "columns=x:image,y.kind:label " in HuggingFace(data, label={"kind": "label"}).digest()


def test_a_mask_stays_encoded_like_its_image() -> None:
    features = datasets.Features({"image": datasets.Image(), "mask": datasets.Image()})
    rows = {name: [{"bytes": name.encode(), "path": None}] for name in features}
    data = HuggingFace(datasets.Dataset.from_dict(rows, features=features), label="mask")
    assert (data.read(0), data.y_kind) == ((b"image", b"mask"), FieldKind.ENCODED)


def test_features_of_tensorflow_datasets_become_parts(tmp_path: Path) -> None:
    import tensorflow_datasets as library

    features = {
        "image": library.features.Image(),
        "mask": library.features.Image(shape=(None, None, 1)),
        "numbers": library.features.Tensor(shape=(2,), dtype=np.float32),
    }
    row = {"image": b"image", "mask": b"mask", "numbers": np.array([1, 2], np.float32)}
    library.dataset_builders.store_as_tfds_dataset(
        "toy",
        version="1.0.0",
        features=library.features.FeaturesDict(features),
        split_datasets={"train": [(0, row)]},
        data_dir=tmp_path,
        file_format="array_record",
        disable_shuffling=True,
    )
    data = TFDS("toy", "train", image={"image": "image", "numbers": "numbers"}, label="mask", data_dir=tmp_path)
    x, y = data.read(0)
    assert (x["image"], x["numbers"].tolist(), y) == (b"image", [1, 2], b"mask")
    with pytest.raises(DataError, match=r"no feature `masks`; its features are .*Did you mean `mask`"):
        TFDS("toy", "train", label="masks", data_dir=tmp_path)


def test_a_feature_of_text_is_no_target(tmp_path: Path) -> None:
    import tensorflow_datasets as library

    library.dataset_builders.store_as_tfds_dataset(
        "toy",
        version="1.0.0",
        features=library.features.FeaturesDict({"image": library.features.Image(), "label": library.features.Text()}),
        split_datasets={"train": [(0, {"image": b"image", "label": "cat"})]},
        data_dir=tmp_path,
        file_format="array_record",
        disable_shuffling=True,
    )
    each: tuple[dict[str, Any], ...] = ({}, {"label": ["label"]}, {"label": "image", "sample_weight": "label"})
    for targets in each:
        with pytest.raises(DataError, match=r"must hold numbers, but the feature `label` of `toy, train` holds text\."):
            TFDS("toy", "train", data_dir=tmp_path, **targets)
    assert TFDS("toy", "train", label=None, data_dir=tmp_path).read(0) == b"image"


def test_a_row_without_an_image_is_a_bad_sample() -> None:
    data = HuggingFace(datasets.Dataset.from_dict({"image": [b"one", None]}), label=None)
    with pytest.raises(BadSampleError, match="row 1"):
        data.read(1)


def test_an_archive_of_other_files_has_no_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("x", "no array")
    with pytest.raises(DataError, match="has no array `x`; its arrays are none"):
        NPZ(tmp_path / "photos.zip", y=None)


def test_an_array_of_objects_in_an_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((2, 3)), kinds=np.array([None, "cat"]))
    said = r"^The array `kinds` of `.*/set\.npz` must be one of plain numbers, but .*objects.* without objects"
    with pytest.raises(DataError, match=said):
        NPZ(tmp_path / "set.npz", y="kinds")


def test_a_changed_archive_is_unpacked_again(tmp_path: Path) -> None:
    for value in (1, 2):
        np.savez(tmp_path / "set.npz", x=np.full((3, 4 + value), value))
        np.testing.assert_array_equal(NPZ(tmp_path / "set.npz", y=None).read(2), np.full(4 + value, value))


def test_a_cache_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((3, 2)))
    datasets.Dataset.from_dict({"image": [b"one"]}).to_parquet(tmp_path / "set.parquet")
    (tmp_path / "cache").write_text("in the way", encoding="utf-8")
    for make in (lambda: NPZ(tmp_path / "set.npz", y=None), lambda: Parquet([tmp_path / "set.parquet"], label=None)):
        with pytest.raises(DataError, match=r"set\..* cannot be unpacked into .*/cache/autopipe/.*Set XDG_CACHE_HOME"):
            make()


def test_no_framework_is_imported_for_them() -> None:
    code = "import sys, datasets, h5py, autopipe.data; print({'tensorflow', 'torch', 'keras'} & set(sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def of_numbers(path: Path) -> Path:
    rows = np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3)
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["x"], file["y"] = rows, np.arange(20)
    elif path.suffix == ".npz":
        np.savez_compressed(path, x=rows, y=np.arange(20))
    else:
        datasets.Dataset.from_dict({"image": list(map(bytes, rows)), "label": list(range(20))}).to_parquet(str(path))
    return path


@pytest.mark.parametrize(("make", "name", "tries"), [(HDF5, "a.h5", 60), (NPZ, "a.npz", 60), (Parquet, "a.parquet", 4)])
def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(
    make: Any, name: str, tries: int, tmp_path: Path
) -> None:
    whole, chance = of_numbers(tmp_path / name).read_bytes(), random.Random(1)
    unnamed = []
    for number in range(tries):
        content = bytearray(whole)
        for _ in range(16):
            content[chance.randrange(min(len(content), 4096))] = chance.randrange(256)
        damaged = tmp_path / f"{number}{name}"
        damaged.write_bytes(content)
        try:
            data = make(damaged)
            for row in range(min(len(data), 20)):
                data.read(row)
        except DataError as error:
            unnamed += [error.message] if str(damaged) not in error.message else []
    assert unnamed == []


def test_an_archive_of_a_later_version_is_refused_by_its_name(tmp_path: Path) -> None:
    whole = of_numbers(tmp_path / "a.npz").read_bytes()
    entry = whole.index(b"PK\1\2")  # of the directory; the version that it takes to read it stands 6 bytes behind
    (tmp_path / "a.npz").write_bytes(whole[: entry + 6] + b"\xff" + whole[entry + 7 :])
    with pytest.raises(DataError, match=r"a\.npz.*version 25\.5"):
        NPZ(tmp_path / "a.npz")


def test_a_link_to_itself_is_refused_by_the_files_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.arange(20), h5py.SoftLink("/y")
    with pytest.raises(DataError, match=r"a\.h5"):
        HDF5(tmp_path / "a.h5")
