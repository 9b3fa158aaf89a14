"""What a training's data, its call of `fit` and its reads tell: files, numbers, what workers copy or unpack."""

import functools
import gzip
import sqlite3
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import cv2
import h5py
import numpy as np
import PIL.Image
import pytest

import autopipe as ap
from autopipe.extensions.diagnose import data as of_data
from autopipe.extensions.diagnose import fit_call, loop, steps
from autopipe.extensions.diagnose.data import shared
from autopipe.extensions.diagnose.unpacked import Decoded, Filtered, Unpacked, look_at_resizes
from tests.extensions.diagnose.conftest import only

Has = types.SimpleNamespace  # data of which a test says all that is looked at


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    """Six images in two folders, every second one progressive."""
    found = [tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg" for number in range(6)]
    for number, path in enumerate(found):
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), np.zeros((20, 30, 3), np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, number % 2])
    return list(map(str, found))


def sliced(x: Any) -> Any:
    return pytest.importorskip("tensorflow").data.Dataset.from_tensor_slices(x)


def of_tensorflow(paths: list[str]) -> Any:
    tf = pytest.importorskip("tensorflow")
    numbered = tf.data.Dataset.zip((sliced(paths), tf.data.Dataset.range(len(paths))))
    return numbered.shuffle(4).map(lambda path, number: (tf.io.read_file(path), number)).batch(2).prefetch(1)


def listed_by_tensorflow(paths: list[str]) -> Any:
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.list_files(f"{Path(paths[0]).parents[1]}/*/*.jpg").interleave(tf.data.TextLineDataset)


def generated(paths: list[str]) -> Iterator[str]:
    yield from paths


LISTED: list[str] = []


def reading() -> Iterator[Any]:
    while True:
        yield [cv2.imread(path) for path in LISTED]


def from_globals(paths: list[str]) -> Any:
    LISTED[:] = paths
    return reading()


@pytest.mark.parametrize(
    "data",
    [
        of_tensorflow,
        listed_by_tensorflow,
        generated,
        from_globals,
        lambda paths: Has(  # torch's
            batch_size=2,
            dataset=Has(dataset=Has(samples=[(path, 3) for path in paths], classes=["cat", "dog"]), indices=[0, 1]),
        ),
        lambda paths: Has(numbers=[1, 2], files=[Path(path) for path in paths]),  # a PyDataset
        lambda paths: Has(table=np.array(paths, object), labels=np.zeros(6)),
        lambda paths: ap.ImageFolder(Path(paths[0]).parents[1]),  # a trainer's
    ],
)
def test_files_that_the_data_name_are_looked_at(photos: list[str], data: Callable[[list[str]], Any]) -> None:
    seen = of_data.image_files(data(photos))
    assert seen is not None
    assert (seen[0].files, seen[0].looked_at, seen[0].progressive) == (6, 6, 3)
    assert seen[1] == str(Path(photos[0]).parents[1])


def test_data_without_files_are_none_and_a_file_that_is_gone_is_left_out(photos: list[str]) -> None:
    unusual = Has(files=["nowhere.jpg"], words=["a", "b"], pairs=[()], empty=np.zeros(0))
    none: list[Any] = [None, np.zeros((4, 3)), [], unusual, Has(dataset=3)]
    assert [of_data.image_files(each) for each in none] == [None] * 5
    Path(photos[1]).unlink()
    seen = of_data.image_files(Has(files=[*photos, None, 7]))
    assert seen is not None
    assert (seen[0].files, seen[0].looked_at, seen[0].progressive) == (8, 5, 2)


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
    PIL.Image.new(mode, (9, 9)).save(tmp_path / "other.png")
    told = of_data.modes(Has(files=[*photos, str(tmp_path / "other.png")]), error)
    assert told is None if said is None else said in str(told)


@pytest.mark.parametrize(
    ("shape", "count", "is_told"), [((8, 4), 10, False), ((2**30, 2**10), 1000, True), ((8,), 0, False)]
)
def test_batches_that_wait_in_much_memory_are_told_of(shape: tuple[int, ...], count: int, is_told: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    batch = [Has(shape=shape, dtype=each) for each in (tf.float32, "torch.float32", np.dtype("u1"))]
    assert [of_data._width(each) for each in batch] == [4, 4, 1]
    loader = Has(num_workers=4, prefetch_factor=count // 4)
    queue = Has(workers=4, use_multiprocessing=False, max_queue_size=count)
    for data in (loader, queue, tf.data.Dataset.range(9).batch(2).prefetch(count or -1)):
        assert len(list(of_data.held_ahead(of_data.ahead_of(data), batch))) == is_told


@pytest.mark.parametrize(("order", "is_told"), [("ms", True), ("sm", False), ("mcs", False), ("mcms", True)])
def test_a_shuffle_buffer_that_takes_much_memory_is_told_of(order: str, is_told: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    data, image = tf.data.Dataset.from_tensors("a.png").repeat(), tf.zeros((1024, 1024, 3))
    for step in order:
        data = {"m": data.map(lambda _: image), "s": data.shuffle(100_000), "c": data.cache()}[step]
    only(of_data.shuffled_ahead(data.batch(8)), "holds 100,000 elements" if is_told else None)


@pytest.mark.parametrize("data", [of_tensorflow, lambda paths: Has(files=paths)])
def test_files_that_cannot_be_decoded_are_named(photos: list[str], data: Callable[[list[str]], Any]) -> None:
    assert of_data.refused_files(data(photos)) is None
    Path(photos[1]).write_bytes(b"")
    Path(photos[4]).write_text("<html>")
    said = str(of_data.refused_files(data(photos)))
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
    data = Has(rows=[(name.format(number), number) for number in range(5)])
    assert str(said) in str(of_data.missing_files(data))
    assert of_data.missing_files(Has(files=photos)) is None


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
    data: Any = Has(images=images, masks=masks, ids=NUMBERS)
    if is_tensors:
        data = sliced(images).zip(sliced(images), sliced(masks)).shuffle(4)
    only(of_data.mispaired(data), f"{count} of 4 places" if count else None)


@pytest.mark.parametrize(("count", "said"), [(24, "leaves out 4 of 24 files"), (20, None), (28, None), (5, None)])
def test_files_behind_the_last_batch_are_told_of(count: int, said: str | None) -> None:
    only(of_data.left_out(Has(files=[f"{number}.jpg" for number in range(count)], num_batches=4), 5), said)


def drawn(x: Any) -> Iterator[Any]:
    while True:
        yield x[:4]


@pytest.mark.parametrize(
    ("make", "steps", "said"),
    [
        (lambda x: sliced(x).shuffle(20).repeat().batch(4), 20, "is the number of samples, but"),
        (lambda x: sliced(x).batch(4).repeat(), 5, None),
        (lambda x: sliced(x).shuffle(20).batch(4), 20, "steps_per_epoch=5 is one pass"),
        (drawn, 20, "here of 4 samples: an epoch is 4 passes"),
        (drawn, 5, None),
        (lambda x: Has(x=x, num_batches=5), 20, "is the number of samples"),
        (lambda x: Has(x=x, num_batches=20), 20, None),  # by its own length
        (lambda _: Has(files=[f"{n}.jpg" for n in range(20)]), 20, "is the number of files that the data name"),
        (lambda _: Has(order=np.arange(20)), 20, None),
    ],
)
def test_as_many_steps_as_there_are_samples_are_told_of(make: Any, steps: int, said: str | None) -> None:
    x = np.zeros((20, 3), np.float32)
    for batch in (x[:4], Has(values=(x[:2], x[2:4]))):  # the second as TensorFlow's PerReplica, on two devices
        only(of_data.counts_samples(make(x), steps, (batch, np.zeros(4))), said)


def with_folders(make: Callable[..., Any], told: list[str]) -> Any:
    """Return the modules of Keras that have `image_dataset_from_directory`, also as `tf.keras`, as they are watched."""
    bare = [Has(utils=Has(), preprocessing=Has()) for _ in "12"]
    bare[0].utils.image_dataset_from_directory = make
    bare[0]._tf_keras = Has(keras=bare[1])
    of_data.look_at_labels(bare[0], lambda message, about: told.append(message))
    return bare[0]


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
    files, told = [f"photos/img_{name}.jpg" for name in names], list[str]()
    keras = with_folders(lambda *_: Has(file_paths=files), told)
    for each in (keras.utils, keras.preprocessing, keras._tf_keras.keras.utils, keras._tf_keras.keras.preprocessing):
        told.clear()
        assert each.image_dataset_from_directory("photos", labels).file_paths == files
        only(told, said)


B_MOVED = "`b` has number 1 in one folder, and 0 in another"


def split(*seeds: int, **named: Any) -> list[Any]:
    """Return the calls for the parts of a folder, with these seeds."""
    subsets = ("training", "validation") * 2
    return [("ab", {"subset": subset, "seed": seed, **named}) for subset, seed in zip(subsets, seeds, strict=False)]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (split(1, 2), "ab by seed=1 and by seed=2"),
        ([*split(1, 1), *split(5, 5)], None),  # the second are of another trial, say
        (split(1, 2, shuffle=False), None),
        ([("abc", {}), ("bc", {}), ("bz", {})], B_MOVED),  # the last are other data
        *(([("abc", {}), (names, {}), ("bz", {})], None) for names in ("ab", "de", "0b")),
    ],
)
def test_parts_by_several_seeds_and_classes_that_another_folder_numbers_otherwise_are_told_of(
    calls: list[Any], said: str | None
) -> None:
    keras = with_folders(lambda folder, *_, **named: Has(class_names=[*folder]), told := list[str]())
    for folder, named in calls:
        keras.utils.image_dataset_from_directory(folder, **named)
    only(told, said)


@pytest.mark.parametrize(
    ("high", "wide", "said"),
    [(5, 6, "20 times"), (12, 8, "6 times"), (4, 3, "50 times"), (15, 20, None), (11, 14, None)],
)
def test_files_with_many_times_the_pixels_of_a_batch_are_told_of(
    photos: list[str], high: int, wide: int, said: str | None
) -> None:
    pytest.importorskip("keras")
    # As pyarrow has it: no column has that for its name.
    data, batch = Has(table=Has(columns=[[0]]), files=photos), (np.zeros((4, high, wide, 3), "f"), np.zeros(4))
    only(told := list(of_data.larger(data, batch)), said)
    assert all("30 x 20" in each and f"{max(high, wide)} x {min(high, wide)}" in each for each in told)
    assert all(("IMREAD_REDUCED_COLOR_4" in each) == (high < 12) for each in told)
    seen = loop.Loop(steps.Look(), data, "train.py:7")
    seen.came(batch)
    assert seen._larger == told
    data.transforms = [type("RandomResizedCrop", (), {})()]
    ragged = pytest.importorskip("tensorflow").RaggedTensor.from_row_lengths(np.zeros((3, 5, 3)), [1, 2])
    for each in (batch, (np.zeros((4, 7)), np.zeros(4)), (ragged, np.zeros(2))):
        only(of_data.larger(data, each), None)
    only(of_data.held_ahead(("prefetch", 9), (ragged, np.zeros(2))), None)


# -------------------- what a call of `fit` tells


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": Has(num_batches=14), "steps_per_epoch": 13, "epochs": 50}, "1 of 2 epochs has 1."),
        ({"x": Has(num_batches=250), "steps_per_epoch": 100, "epochs": 3}, "1 of 3 epochs has 50."),
        ({"x": Has(num_batches=250), "steps_per_epoch": 100, "epochs": 2}, None),
        ({"x": Has(num_batches=200), "steps_per_epoch": 100, "epochs": 9}, None),
        ({"x": Has(num_batches=14), "steps_per_epoch": 14, "epochs": 9}, None),
        ({"x": Has(num_batches=14), "steps_per_epoch": None, "epochs": 9}, None),
        ({"x": Has(num_batches=0)}, "`x` has no batches"),
        ({"validation_data": Has(num_batches=0)}, "`validation_data` has no batches"),
        ({"x": Has(cardinality=lambda: np.int64(-1))}, "never ends"),
        ({"x": Has(cardinality=np.int64(-1))}, "never ends"),  # distributed by a strategy of TensorFlow
        ({"x": Has(cardinality=lambda: 0)}, "has no batches"),
        ({"x": Has(cardinality=lambda: -2)}, None),
        ({"x": Has(cardinality=np.int64(8))}, None),
        ({"x": Has(class_indices={"a": 0, "b": 1}), "validation_data": Has(class_indices={"b": 0})}, B_MOVED),
        ({"x": Has(class_indices={"a": 0, "b": 1}), "validation_data": Has(class_indices={"b": 1})}, None),
    ],
)
def test_batches_that_a_call_of_fit_has_not_are_told_of(given: dict[str, Any], said: str | None) -> None:
    only(fit_call.faults(given), said)


@pytest.mark.parametrize(
    ("text", "shuffle", "is_told"),
    [
        ("model.fit(x, validation_data = val)\ny = model.predict(val)", True, True),
        ("model.fit(x, validation_data=val)\ny = model.predict(val)", False, False),
        ("model.fit(x, validation_data=val)\ny = model.predict(test)", True, False),
        ("model.fit(x, validation_data=val)", True, False),
    ],
)
def test_predictions_on_data_in_another_order_are_told_of(text: str, shuffle: bool, is_told: bool) -> None:
    for flow, shuffles in ((Has(class_indices={}, shuffle=shuffle), False), (None, shuffle)):
        only(fit_call.predicted(flow, text, shuffles=shuffles), "shuffle=False" if is_told else None)


# -------------------- what each worker has of its own, or shares with the others


class Indexed:
    use_multiprocessing, workers = True, 2

    def __init__(self, **held: Any) -> None:
        self.__dict__ |= held

    def __len__(self) -> int:
        return 6


@functools.lru_cache
def kept(index: int) -> Any:
    return np.zeros(2)


class Drawing(Indexed):
    def __getitem__(self, index: int) -> Any:
        self.seen[self.read[0]] = index  # type: ignore[attr-defined]
        return self.held.rng.random() + kept(index)  # type: ignore[attr-defined]


def test_what_each_forked_worker_has_of_its_own_is_told_of() -> None:
    held = Has(rng=np.random.default_rng(0))
    data = Drawing(order=np.random.default_rng(0), held=held, seen=dict[int, Any](), read={0: 0})
    numbers, cache = shared(data)
    assert numbers.startswith("`Drawing.held.rng`: worker processes")  # what only orders samples is none
    assert "keeps what `kept` returns (lru_cache), what goes into `Drawing.seen` on its own, and loses it" in cache
    data.use_multiprocessing = False
    only(shared(data), None)


class Reading(Indexed):
    use_multiprocessing = False
    file: Any

    def __getitem__(self, index: int) -> Any:
        return self.file.read(index)


def test_a_file_that_threads_read_at_once_is_told_of() -> None:
    with open(__file__) as file:
        only(shared(Reading(file=file)), "`Reading.file`: workers=2 are threads")
        for held in (
            {"file": file, "lock": threading.Lock()},
            {"other": file},
            {"file": file, "workers": 1},
            {"file": sqlite3.connect(":memory:")},
        ):
            only(shared(Reading(**held)), None)


@pytest.mark.parametrize(
    ("drawn", "told"),
    [
        (lambda: np.random.normal(size=3), True),
        (lambda: np.random.seed() or np.random.normal(size=3), False),
        (lambda: np.random.default_rng().random(3), False),
    ],
)
def test_numbers_of_numpy_itself_that_forked_workers_copy_are_told_of(drawn: Any, told: bool) -> None:
    class Data(Indexed):
        draw = staticmethod(drawn)

        def __getitem__(self, index: int) -> Any:
            return np.zeros(3) + self.draw()

    only(shared(Data()), "`np.random`: worker processes" if told else None)


class Compose:  # as albumentations has it
    __module__ = "albumentations.core.composition"

    def __init__(self, seed: int | None) -> None:
        self.random_generator, self._base_seed = np.random.default_rng(), seed
        self.transforms = [Has(random_generator=self.random_generator)]


def transformed(self: Any, index: int) -> Any:
    return self.transform(image=index)


@pytest.mark.parametrize("read", [transformed, functools.partialmethod(transformed)])  # the second: a library's code
@pytest.mark.parametrize("seed", [None, 3])
def test_a_transform_whose_numbers_forked_workers_copy_is_told_of_unless_it_seeds_them(
    read: Any, seed: int | None
) -> None:
    images = type("Images", (), {"__getitem__": read, "transform": Compose(seed)})()
    images.__dict__ |= {"transform": Compose(seed), "transforms": [Compose(seed)]}

    class Loader:
        _num_workers, _persistent_workers, _workers = 2, True, (Has(_start_method="fork"),)
        __module__ = "torch.utils.data.dataloader"
        _dataset = images

    said = list(shared(Loader()))
    only(said, "`Images.transform.random_generator`: worker processes" if seed is None else None)
    only(said, "worker_init_fn" if seed is None else None)


# -------------------- what reads of packed arrays unpack beside what they use: the advice that is given ends it

COUNT, SIZE = 64, 256  # 16 samples are as many bytes as HDF5 holds of an array


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for owner in (h5py.Dataset, np.lib.npyio.NpzFile):
        monkeypatch.setattr(owner, "__getitem__", owner.__getitem__)  # it is given back
    monkeypatch.setattr(gzip.GzipFile, "close", gzip.GzipFile.close)
    monkeypatch.setattr(np, "load", np.load)
    found: list[str] = []
    for module in (h5py, np):
        Unpacked(lambda message, line: found.append(message)).look_at(module)
    return found


def images(path: Path, chunks: tuple[int, ...] | None) -> Any:
    with h5py.File(path, "w") as file:
        values = np.ones((COUNT, SIZE, SIZE), np.uint8)
        file.create_dataset("images", data=values, chunks=chunks, compression="gzip" if chunks else None)
    return h5py.File(path)["images"]


WHOLE, EACH, PLACES = (16, SIZE, SIZE), (1, SIZE, SIZE), [37 * at % COUNT for at in range(16)]


@pytest.mark.parametrize(
    ("chunks", "read", "advice"),
    [
        (WHOLE, lambda data: [data[at] for at in PLACES], EACH),
        (WHOLE, lambda data: [data[[at, at + 16, at + 32]] for at in range(16)], EACH),
        (WHOLE, lambda data: [data[np.arange(COUNT) == at] for at in PLACES], EACH),
        (WHOLE, lambda data: [data[4 * (5 * at % 16), 2:4, 2:4] for at in range(16)], (1, 2, 2)),
        (WHOLE, lambda data: [data[at] for at in range(COUNT)], None),  # samples in order
        (WHOLE, lambda data: [data[16 * at : 16 * at + 16] for at in (3, 1, 2, 0) * 4], None),
        (WHOLE, lambda data: [data[...] for _ in range(16)], None),
        ((4, SIZE, SIZE), lambda data: [data[5 * at % 16] for at in range(32)], None),  # four chunks, which HDF5 holds
        (None, lambda data: [data[at] for at in PLACES], None),  # not packed
    ],
)
def test_samples_that_are_picked_out_of_chunks_are_told_of_and_the_advice_ends_it(
    chunks: tuple[int, ...] | None,
    read: Callable[[Any], Any],
    advice: tuple[int, ...] | None,
    told: list[str],
    tmp_path: Path,
) -> None:
    read(images(tmp_path / "images.h5", chunks))
    only(told, f"chunks={advice}" if advice else None)
    if advice == EACH:
        assert "16 times" in told[0]
        read(images(tmp_path / "advised.h5", advice))
        assert len(told) == 1


def test_reads_that_cannot_be_counted_are_as_unwatched(told: list[str], tmp_path: Path) -> None:
    values = np.zeros(32, [("image", np.uint8, (4,)), ("label", np.int32)])
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=values, chunks=(16,), compression="gzip")
        file["scalar"] = 3
        for _ in range(16):
            assert file["rows"]["label"].tolist() == [0] * 32
            assert file["rows"][0, "label"] == 0
            assert file["scalar"][()] == 3
    assert told == []


def test_an_npz_member_that_is_read_for_each_sample_is_told_of(told: list[str], tmp_path: Path) -> None:
    for at in range(16):  # files of one sample each
        np.savez_compressed(tmp_path / f"{at}.npz", image=np.zeros((2**20,), np.uint8))
        np.load(tmp_path / f"{at}.npz")["image"]
    np.savez_compressed(tmp_path / "images.npz", images=np.zeros((2**20,), np.uint8), labels=np.zeros(8))
    file = np.load(tmp_path / "images.npz")
    for at in range(16):
        file["images"][at], file["labels"][at % 8]
    only(told, "`images`, 1 MB")


@pytest.mark.parametrize(("files", "mode", "is_told"), [(2, None, True), (8, None, False), (2, "r", False)])
def test_npy_files_that_are_read_again_and_again_are_told_of(
    files: int, mode: Literal["r"] | None, is_told: bool, told: list[str], tmp_path: Path
) -> None:
    for at in range(files):
        np.save(tmp_path / f"{at}.npy", np.zeros((4, 2**18), np.uint8))
    for at in range(24):
        np.load(tmp_path / f"{at % files}.npy", mmap_mode=mode)[at % 4]
    assert ["2 files" in message and "mmap_mode" in message for message in told] == [True] * is_told


@pytest.mark.parametrize(
    ("each", "told_of"),  # all but a few, half as many, pairs, pairs that are ahead, all, a few
    [(3.4, True), (1.5, True), (2.0, False), (2.2, False), (1.0, False), (1.1, False)],
)
def test_images_that_are_decoded_and_not_trained_on_are_counted(
    each: float, told_of: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("imdecode", "imread"):
        monkeypatch.setattr(cv2, name, getattr(cv2, name))  # it is given back
    decoded, png = Decoded(), cv2.imencode(".png", np.zeros((2, 2), np.uint8))[1]
    decoded.look_at(cv2)
    for _ in range(round(each * 800)):
        cv2.imdecode(png, cv2.IMREAD_COLOR)
    only(decoded.dropped(800 - 8, 4), " images for each sample" if told_of else None)  # two batches are ahead


@pytest.mark.parametrize("module", [cv2, PIL.Image])
@pytest.mark.parametrize(
    ("classes", "by_nearest", "said"),
    [(5, False, "resizes an image of 5 values to "), (5, True, None), (2, False, None), (200, False, None)],
)
def test_masks_that_are_resized_with_interpolation_are_told_of(
    module: Any, classes: int, by_nearest: bool, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = cv2 if module is cv2 else module.Image
    monkeypatch.setattr(owner, "resize", owner.resize)  # it is given back
    told = list[str]()
    look_at_resizes(module, lambda message, line: told.append(message))
    mask = np.random.default_rng(0).integers(0, classes, (40, 40), np.uint8) * np.uint8(255 // classes)
    for _ in range(3):
        if module is cv2:
            cv2.resize(mask, (9, 9), interpolation=cv2.INTER_NEAREST if by_nearest else cv2.INTER_LINEAR)
            cv2.resize(np.dstack([mask] * 3), (9, 9))  # a photograph
        else:
            PIL.Image.fromarray(mask).resize((9, 9), 0 if by_nearest else None)
            PIL.Image.new("RGB", (9, 9)).resize((3, 3))
    only(told, said)


def test_slices_of_packed_volumes_that_are_unpacked_for_each_are_told_of(told: list[str], tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.nii.gz").write_bytes(gzip.compress(bytes(2**21), 1))
    for at in range(32):
        with gzip.open(tmp_path / f"{'abc'[at % 3]}.nii.gz") as file:
            assert file.read() == bytes(2**21)
    only(told, "has unpacked 3 files 8 times, `b.nii.gz` to 2 MB")


def test_samples_that_a_filter_of_grain_throws_away_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    grain = pytest.importorskip("grain")
    for kind in (grain.MapDataset, grain.IterDataset):
        monkeypatch.setattr(kind, "filter", kind.filter)  # it is given back
    even: Any = type("Even", (grain.transforms.Filter,), {"filter": lambda self, element: element % 2 == 0})
    seen = Filtered(grain)
    numbers = grain.MapDataset.source(list(range(100))).filter(even()).to_iter_dataset()
    assert list(numbers.filter(lambda number: number < 90)) == list(range(0, 90, 2))
    only(seen.said(), "50% of the samples")  # the second keeps nine of ten


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@pytest.mark.parametrize("library", ["tifffile", "rasterio"])
def test_rasters_that_are_read_as_a_whole_again_and_again_are_told_of(
    library: str, told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = pytest.importorskip(library)
    owner, name = (module, "imread") if library == "tifffile" else (module.io.DatasetReader, "read")
    monkeypatch.setattr(owner, name, getattr(owner, name))
    Unpacked(lambda message, line: told.append(message)).look_at(module)
    for at in range(24):
        path = tmp_path / f"{at % 2}.tif"
        cv2.imwrite(str(path), np.zeros((1024, 1024), np.uint16))
        module.imread(path) if library == "tifffile" else module.open(path).read(1)
    (message,) = told
    assert all(words in message for words in ("2 files", "2 MB", "read(window=...)"))


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_windows_that_rasterio_reads_are_told_of_if_blocks_are_much_larger(
    told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rasterio = pytest.importorskip("rasterio")
    monkeypatch.setattr(rasterio.io.DatasetReader, "read", rasterio.io.DatasetReader.read)
    Unpacked(lambda message, line: told.append(message)).look_at(rasterio)
    tiles = {"tiled": True, "blockxsize": 128, "blockysize": 128}
    for name, how in (("wide", {"compress": "deflate"}), ("tiled", {"compress": "deflate", **tiles}), ("plain", {})):
        size: dict[str, Any] = {"height": 1024, "width": 1024, "count": 6, "dtype": "uint16", "driver": "GTiff"}
        with rasterio.open(tmp_path / f"{name}.tif", "w", interleave="pixel", **size, **how) as file:
            file.write(np.ones((6, 1024, 1024), np.uint16))
        for at in range(16):
            with rasterio.open(tmp_path / f"{name}.tif") as scene:
                scene.read(window=rasterio.windows.Window(128 * (at % 8), 128 * (at // 8), 128, 128))
        with rasterio.open(tmp_path / f"{name}.tif") as scene:
            for _ in range(16):  # GDAL holds these blocks
                scene.read(window=((0, 128), (0, 128)))
    (message,) = told
    assert all(words in message for words in ("wide.tif", "8 times", "(128, 128)"))


def test_windows_of_a_zarr_array_are_told_of_if_its_chunks_are_much_larger(
    told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr(zarr.Array, "__getitem__", zarr.Array.__getitem__)
    Unpacked(lambda message, line: told.append(message)).look_at(zarr)
    for name, side in (("large", 256), ("fitting", 16)):
        scene = zarr.create_array(tmp_path / f"{name}.zarr", data=np.ones((SIZE, SIZE), "u2"), chunks=(side, side))
        for at in range(16):
            scene[16 * at : 16 * at + 16, 32:48]
    (message,) = told
    assert all(words in message for words in ("256 times", "chunks=(16, 16)"))


def test_files_of_gzip_that_are_read_once_or_in_part_are_not_told_of(told: list[str], tmp_path: Path) -> None:
    for at in range(16):
        (path := tmp_path / f"{at}.gz").write_bytes(gzip.compress(bytes(2**21), 1))
        for size in (-1, 348, 348, 348):
            with gzip.open(path) as file:
                file.read(size)
    assert told == []
