"""The image files that a training's data name, wherever they name them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import autopipe as ap
from autopipe.extensions.diagnose import data as of_data
from autopipe.extensions.diagnose import fit_call, loop, steps
from autopipe.frameworks import tfdata


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    """Six images in two folders, every second one progressive."""
    found = [tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg" for number in range(6)]
    for number, path in enumerate(found):
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.zeros((20, 30, 3), np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, number % 2])
    return list(map(str, found))


def of_tensorflow(paths: list[str]) -> Any:
    tf = pytest.importorskip("tensorflow")
    numbered = tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(paths), tf.data.Dataset.range(len(paths))))
    return numbered.shuffle(4).map(lambda path, number: (tf.io.read_file(path), number)).batch(2).prefetch(1)


def listed_by_tensorflow(paths: list[str]) -> Any:
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.list_files(f"{Path(paths[0]).parents[1]}/*/*.jpg").interleave(tf.data.TextLineDataset)


def generated(paths: list[str]) -> Iterator[str]:
    yield from paths


def generated_from_globals(paths: list[str]) -> Iterator[Any]:
    globals()["LISTED"] = paths
    return reading()


def reading() -> Iterator[Any]:
    while True:
        yield [cv2.imread(path) for path in LISTED]


class Read:
    """Its methods are watched."""

    @functools.wraps(lambda self, index: cv2.imread(LISTED[index]))
    def __getitem__(self, *arguments: Any) -> None:
        raise NotImplementedError


def read_from_globals(paths: list[str]) -> Any:
    globals()["LISTED"] = paths
    return Read()


def in_a_table(paths: list[str]) -> Any:
    pandas = pytest.importorskip("pandas")
    return types.SimpleNamespace(table=pandas.DataFrame({"label": [0] * len(paths), "file": paths}))


LISTED: list[str] = []


def in_torch(paths: list[str]) -> Any:
    samples = types.SimpleNamespace(samples=[(path, 3) for path in paths], classes=["cat", "dog"])
    return types.SimpleNamespace(batch_size=2, dataset=types.SimpleNamespace(dataset=samples, indices=[0, 1]))


@pytest.mark.parametrize(
    "data",
    [
        of_tensorflow,
        listed_by_tensorflow,
        generated,
        generated_from_globals,
        read_from_globals,
        in_a_table,
        in_torch,
        lambda paths: types.SimpleNamespace(numbers=[1, 2], files=[Path(path) for path in paths]),  # a PyDataset
        lambda paths: types.SimpleNamespace(table=np.array(paths, object), labels=np.zeros(6)),
        lambda paths: ap.ImageFolder(Path(paths[0]).parents[1]),  # a trainer's
    ],
)
def test_files_that_the_data_name_are_looked_at(photos: list[str], data: Callable[[list[str]], Any]) -> None:
    seen = of_data.image_files(data(photos))
    assert seen is not None
    assert (seen[0].files, seen[0].looked_at, seen[0].progressive) == (6, 6, 3)
    assert seen[1] == str(Path(photos[0]).parents[1])


@pytest.mark.parametrize(
    "data",
    [
        None,
        np.zeros((4, 3)),
        [],
        types.SimpleNamespace(files=["nowhere.jpg"], words=["a", "b"], pairs=[()], empty=np.zeros(0)),
        types.SimpleNamespace(dataset=3),
    ],
)
def test_data_without_files_are_none(data: Any) -> None:
    assert of_data.image_files(data) is None


@pytest.mark.parametrize(
    ("error", "mode", "said"),
    [
        ("could not broadcast input array from shape (9,9,4)", "RGBA", "6 RGB (such as "),
        ("stack expects each tensor to be equal size", "L", "1 grey (such as "),
        ("Shapes are: [tensor]: [9,9,1], but number of elements does not match", "P", "1 palette (such as "),
        ("could not broadcast input array from shape (9,9,4)", "RGB", None),
        ("the disk is full", "RGBA", None),
    ],
)
def test_modes_of_files_are_named_if_shapes_differ(
    error: str, mode: str, said: str | None, photos: list[str], tmp_path: Path
) -> None:
    Image.new(mode, (9, 9)).save(tmp_path / "other.png")
    told = of_data.modes(types.SimpleNamespace(files=[*photos, str(tmp_path / "other.png")]), error)
    assert told is None if said is None else said in str(told)


@pytest.mark.parametrize(("depth", "count"), [(3, 1), (1, 0)])
def test_columns_of_lists_of_lists_are_named(depth: int, count: int) -> None:
    datasets = pytest.importorskip("datasets")
    values = np.zeros((2, *[4] * depth), "uint8").tolist()
    table = datasets.Dataset.from_dict({"image": values, "label": [0, 1]})
    said = list(of_data.listed(types.SimpleNamespace(dataset=table, batch_size=2)))
    changed = list(of_data.listed(types.SimpleNamespace(dataset=table.with_transform(dict), batch_size=2)))
    assert ["set_transform" in each for each in said + changed] == [False] * count + [True] * count
    assert len(said) == count
    assert all('"image" holds lists of lists' in each and f"Array{depth}D" in each for each in said)


@pytest.mark.parametrize(("is_datasets", "said"), [(True, "num_workers="), (False, "num_parallel_calls=")])
def test_a_dataset_that_hugging_face_makes_is_advised_for_what_it_takes(
    is_datasets: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets, tf = pytest.importorskip("datasets"), pytest.importorskip("tensorflow")
    made = datasets.Dataset.from_dict({"x": list(range(8))}).to_tf_dataset(columns="x", batch_size=4)
    data = made if is_datasets else tf.data.Dataset.range(8).map(lambda x: x + 1)
    node = types.SimpleNamespace(name="Map", num_elements=100, processing_time=10**9, inputs=[], parameters=[])
    monkeypatch.setattr(tfdata, "nodes_of", lambda _: {1: node})
    assert said in str(tfdata.one_by_one(None, data))


@pytest.mark.parametrize(
    ("shape", "count", "is_told"), [((8, 4), 10, False), ((2**30, 2**10), 1000, True), ((8,), 0, False)]
)
def test_batches_that_wait_in_much_memory_are_told_of(shape: tuple[int, ...], count: int, is_told: bool) -> None:
    dtypes = (pytest.importorskip("tensorflow").float32, "torch.float32", np.dtype("u1"))
    batch = [types.SimpleNamespace(shape=shape, dtype=each) for each in dtypes]
    assert [of_data._width(each) for each in batch] == [4, 4, 1]
    loader = types.SimpleNamespace(num_workers=4, prefetch_factor=count // 4)
    queue = types.SimpleNamespace(workers=4, use_multiprocessing=False, max_queue_size=count)
    ahead = pytest.importorskip("tensorflow").data.Dataset.range(9).batch(2).prefetch(count or -1)
    told = [list(of_data.held_ahead(of_data.ahead_of(data), batch)) for data in (loader, queue, ahead)]
    assert [len(each) for each in told] == [is_told] * 3


@pytest.mark.parametrize(("order", "is_told"), [("ms", True), ("sm", False), ("mcs", False), ("mcms", True)])
def test_a_shuffle_buffer_that_takes_much_memory_is_told_of(order: str, is_told: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    data, image = tf.data.Dataset.from_tensors("a.png").repeat(), tf.zeros((1024, 1024, 3))
    for step in order:
        data = {"m": data.map(lambda _: image), "s": data.shuffle(100_000), "c": data.cache()}[step]
    said = list(of_data.shuffled_ahead(data.batch(8)))
    assert ["holds 100,000 elements" in each for each in said] == [True] * is_told


@pytest.mark.parametrize("before", [True, False])
def test_a_cache_in_a_file_of_an_earlier_run_is_told_of(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pytest.importorskip("tensorflow").data.Dataset.range(4).cache(str(tmp_path / "train")).batch(2)
    assert list(of_data.cached_before(data)) == []  # nothing is written yet
    assert len(list(data)) == 2
    monkeypatch.setattr(of_data, "_BEGAN", of_data._BEGAN + 3600 * before)
    assert [f"delete {tmp_path}/train.*" in said for said in of_data.cached_before(data)] == [True] * before


def test_a_file_that_is_gone_is_left_out(photos: list[str]) -> None:
    Path(photos[1]).unlink()
    seen = of_data.image_files(types.SimpleNamespace(files=[*photos, None, 7]))
    assert seen is not None
    assert (seen[0].files, seen[0].looked_at, seen[0].progressive) == (8, 5, 2)


@pytest.mark.parametrize("data", [of_tensorflow, lambda paths: types.SimpleNamespace(files=paths)])
def test_files_that_cannot_be_decoded_are_named(photos: list[str], data: Callable[[list[str]], Any]) -> None:
    assert of_data.refused_files(data(photos)) is None
    Path(photos[1]).write_bytes(b"")
    Path(photos[4]).write_text("<html>")
    said = of_data.refused_files(data(photos))
    assert said is not None
    assert said.startswith("2 of 6 ")
    assert [photo in said for photo in photos] == [False, True, False, False, True, False]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("C:\\photos\\{}.jpg", "5 of 5 image files"),
        ("cat\\{}.jpg", 'path.replace("\\\\", "/")'),
        ("/content/drive/{}.jpg", "/content/drive/0.jpg"),
        ("{}.jpg", None),  # behind the name of a folder, perhaps
    ],
)
def test_files_that_are_not_where_the_data_say_are_told_of(photos: list[str], name: str, said: str | None) -> None:
    data = types.SimpleNamespace(rows=[(name.format(number), number) for number in range(5)])
    assert str(said) in str(of_data.missing_files(data))
    assert of_data.missing_files(types.SimpleNamespace(files=photos)) is None


NUMBERS = range(8, 12)


@pytest.mark.parametrize(
    ("images", "masks", "count"),
    [
        (sorted(f"x/{n}.jpg" for n in NUMBERS), sorted(f"y/{n:03d}.png" for n in NUMBERS), 4),
        ([f"x/{n}.jpg" for n in NUMBERS], sorted(f"x/{n}_mask.png" for n in NUMBERS), 4),
        ([f"x/{n}.jpg" for n in NUMBERS], [f"x/{n:03d}_mask.png" for n in NUMBERS], 0),
        ([f"x/{n}.jpg" for n in NUMBERS], [f"y/{n}.jpg" for n in reversed(NUMBERS)], 0),  # no pairs, perhaps
        ([f"x/{n}.jpg" for n in NUMBERS], [f"y/mask_{n}.png" for n in range(9, 13)], 0),
        ([f"x/{n // 2}.jpg" for n in NUMBERS], [f"y/mask_{n // 2}.png" for n in reversed(NUMBERS)], 0),
        ([f"x/{n}.jpg" for n in NUMBERS], [f"y/mask_{n}.png" for n in NUMBERS[1:]], 0),
    ],
)
@pytest.mark.parametrize("is_tensors", [True, False])
def test_lists_of_files_that_stand_by_others_are_told_of(
    images: list[str], masks: list[str], count: int, is_tensors: bool
) -> None:
    data: Any = types.SimpleNamespace(images=images, masks=masks, ids=NUMBERS)
    if is_tensors:
        made = [pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices(each) for each in (images, masks)]
        data = made[0].zip(*made).shuffle(4)
    assert [f"{count} of 4 places" in said for said in of_data.mispaired(data)] == [True] * (count > 0)


@pytest.mark.parametrize(("count", "said"), [(24, "leaves out 4 of 24 files"), (20, None), (28, None), (5, None)])
def test_files_behind_the_last_batch_are_told_of(count: int, said: str | None) -> None:
    data: Any = types.SimpleNamespace(files=[f"{number}.jpg" for number in range(count)], num_batches=4)
    assert [str(said) in each for each in of_data.left_out(data, 5)] == [True] * (said is not None)


def drawn(x: Any) -> Iterator[Any]:
    while True:
        yield x[:4]


@pytest.mark.parametrize(
    ("make", "steps", "said"),
    [
        (lambda x: of_tensors(x).shuffle(20).repeat().batch(4), 20, "is the number of samples, but"),
        (lambda x: of_tensors(x).batch(4).repeat(), 5, None),
        (lambda x: of_tensors(x).shuffle(20).batch(4), 20, "steps_per_epoch=5 is one pass"),
        (drawn, 20, "here of 4 samples: an epoch is 4 passes"),
        (drawn, 5, None),
        (lambda x: types.SimpleNamespace(x=x, num_batches=5), 20, "is the number of samples"),
        (lambda x: types.SimpleNamespace(x=x, num_batches=20), 20, None),  # by its own length
        (
            lambda _: types.SimpleNamespace(files=[f"{n}.jpg" for n in range(20)]),
            20,
            "is the number of files that the data name",
        ),
        (lambda _: types.SimpleNamespace(order=np.arange(20)), 20, None),
    ],
)
def test_as_many_steps_as_there_are_samples_are_told_of(make: Any, steps: int, said: str | None) -> None:
    x = np.zeros((20, 3), np.float32)
    in_parts = types.SimpleNamespace(values=(x[:2], x[2:4]))  # as TensorFlow's PerReplica, on two devices
    for batch in (x[:4], in_parts):
        told = list(of_data.counts_samples(make(x), steps, (batch, np.zeros(4))))
        assert [str(said) in each for each in told] == [True] * (said is not None)


def of_tensors(x: Any) -> Any:
    return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices(x)


@pytest.mark.parametrize(
    ("names", "labels", "said"),
    [
        ([1, 2, 10], [0, 1, 2], "img_1.jpg: 0, img_10.jpg: 1, img_2.jpg: 2"),
        (["01", "02", "10"], [0, 1, 2], None),
        ([1, 2, 10], "inferred", None),
    ],
)
def test_which_files_a_list_of_labels_goes_to_is_told_if_text_and_numbers_differ(
    names: list[Any], labels: Any, said: str | None
) -> None:
    files = [f"photos/img_{name}.jpg" for name in names]
    told = list[str]()
    keras = with_folders(lambda *_: types.SimpleNamespace(file_paths=files))
    of_data.look_at_labels(keras, lambda message, about: told.append(message))
    for each in (keras.utils, keras.preprocessing, keras._tf_keras.keras.utils, keras._tf_keras.keras.preprocessing):
        told.clear()
        assert each.image_dataset_from_directory("photos", labels).file_paths == files
        assert [str(said) in each for each in told] == [True] * (said is not None)


def with_folders(make: Callable[..., Any]) -> Any:
    """Return the modules of Keras that have `image_dataset_from_directory`, also as `tf.keras`."""
    bare = [types.SimpleNamespace(utils=types.SimpleNamespace(), preprocessing=types.SimpleNamespace()) for _ in "12"]
    bare[0].utils.image_dataset_from_directory = make
    bare[0]._tf_keras = types.SimpleNamespace(keras=bare[1])
    return bare[0]


@pytest.mark.parametrize(
    ("seed", "shuffle", "said"), [(2, True, "photos by seed=1 and by seed=2"), (1, True, None), (2, False, None)]
)
def test_parts_of_a_folder_that_several_seeds_split_are_told_of(seed: int, shuffle: bool, said: str | None) -> None:
    told, keras = list[str](), with_folders(lambda *_, **named: types.SimpleNamespace())
    of_data.look_at_labels(keras, lambda message, about: told.append(message))
    keras.utils.image_dataset_from_directory("photos", subset="training", seed=1, shuffle=shuffle)
    keras.utils.image_dataset_from_directory("photos", subset="validation", seed=seed, shuffle=shuffle)
    for subset in ("training", "validation"):  # of another trial, say
        keras.utils.image_dataset_from_directory("photos", subset=subset, seed=5)
    assert [str(said) in each for each in told] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["b", "c"], "`b` has number 1 in one folder, and 0 in another"),
        (["a", "b"], None),
        (["d", "e"], None),
        (["0", "b"], None),
    ],
)
@pytest.mark.parametrize("by_generator", [False, True])
def test_classes_that_another_folder_numbers_otherwise_are_told_of(
    by_generator: bool, names: list[str], said: str | None
) -> None:
    told = list[str]()
    if by_generator:
        numbers = ({name: number for number, name in enumerate(each)} for each in ("abc", names))
        x, validation = (types.SimpleNamespace(class_indices=each) for each in numbers)
        told.extend(fit_call.faults({"x": x, "validation_data": validation}))
    else:
        keras = with_folders(lambda names, *_: types.SimpleNamespace(class_names=names))
        of_data.look_at_labels(keras, lambda message, about: told.append(message))
        keras.utils.image_dataset_from_directory(["a", "b", "c"])
        for each in (names, ["b", "z"]):  # the second are other data
            keras.utils.image_dataset_from_directory(each)
    assert [str(said) in each for each in told] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("high", "wide", "said"),
    [(5, 6, "20 times"), (12, 8, "6 times"), (4, 3, "50 times"), (15, 20, None), (11, 14, None)],
)
def test_files_with_many_times_the_pixels_of_a_batch_are_told_of(
    photos: list[str], high: int, wide: int, said: str | None
) -> None:
    pytest.importorskip("keras")
    table = types.SimpleNamespace(columns=[[0]])  # as pyarrow has it: no column has that for its name
    data, batch = types.SimpleNamespace(table=table, files=photos), (np.zeros((4, high, wide, 3), "f"), np.zeros(4))
    told = list(of_data.larger(data, batch))
    assert [str(said) in each for each in told] == [True] * (said is not None)
    assert all("30 x 20" in each and f"{max(high, wide)} x {min(high, wide)}" in each for each in told)
    assert all(("IMREAD_REDUCED_COLOR_4" in each) == (high < 12) for each in told)
    seen = loop.Loop(steps.Look(), data, "train.py:7")
    seen.came(batch)
    assert seen._larger == told
    data.transforms = [type("RandomResizedCrop", (), {})()]
    assert not list(of_data.larger(data, batch))
    assert not list(of_data.larger(data, (np.zeros((4, 7)), np.zeros(4))))
    ragged = pytest.importorskip("tensorflow").RaggedTensor.from_row_lengths(np.zeros((3, 5, 3)), [1, 2])
    assert not list(of_data.larger(data, (ragged, np.zeros(2))))
    assert not list(of_data.held_ahead(("prefetch", 9), (ragged, np.zeros(2))))
