"""Which file is the native library, and rows and records that it takes or makes at once, with the bits of Python."""

import _ctypes
import ctypes
import dataclasses
import importlib.util
import itertools
import os
import random
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import autopipe as ap
from autopipe import native
from autopipe.pipeline.assembly import conversion_of, make_loader
from autopipe.pipeline.batching import cache, kernel
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.data import records
from autopipe.workload.data.records import FRAMING_BYTES, HEADER_BYTES, frame, serialise
from autopipe.workload.ops import planner
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import FieldKind, Rows
from tests.fakes.commands import by_python
from tests.fakes.facts import known
from tests.unit.native.test_program import jpeg, pixels, png

BUILT = Path(native.__file__).with_name("_native.so")
SOURCES = Path(__file__).parents[3] / "native"
OTHER = "was not built from the C files of this version"
IS_OFF = not BUILT.exists() or os.environ.get("AUTOPIPE_NATIVE") == "0"
pytestmark = pytest.mark.skipif(IS_OFF, reason=str(native.why_not()))


def _copy(folder: Path) -> Path:
    """Copy the module, its library and the C files, as they lie in a checkout."""
    (folder / "autopipe").mkdir()
    shutil.copytree(SOURCES, folder / "native")
    for file in (Path(native.__file__), BUILT):
        shutil.copy(file, folder / "autopipe")
    return folder / "autopipe" / BUILT.name


def _loaded(library: Path) -> Any:
    """Return the copy of the module that lies beside a library."""
    spec = known(importlib.util.spec_from_file_location("copied_native", library.with_name("native.py")))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    known(spec.loader).exec_module(module)
    return module


def test_the_library_of_this_version_is_loaded_and_doctor_names_it(tmp_path: Path) -> None:
    copied = _loaded(_copy(tmp_path))
    assert copied.why_not() is None
    said = rf"{BUILT.name} {native.digest()}, (avx2|ssse3|scalar), libjpeg-turbo .*"  # its instructions and decoder
    assert re.fullmatch(said, copied.facts())


def _old_where_installed(library: Path) -> None:
    shutil.rmtree(library.parents[1] / "native")
    library.with_suffix(".digest").write_text("0123456789abcdef")


def _foreign(library: Path) -> None:
    data = bytearray(library.read_bytes())
    data[18:20] = (183 if data[18] != 183 else 62).to_bytes(2, "little")  # ELF's e_machine: aarch64 or x86-64
    library.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda library: (library.parents[1] / "native" / "fill.c").write_text("/* a later version */\n"), OTHER),
        (_old_where_installed, OTHER),
        (lambda library: library.write_bytes(Path(_ctypes.__file__).read_bytes()), OTHER),
        *((lambda library, size=size: os.truncate(library, size), OTHER) for size in (0, 5000)),
        (_foreign, "cannot be loaded"),
        (Path.unlink, "does not exist"),
        (None, "AUTOPIPE_NATIVE=0 is set"),
    ],
)
def test_no_other_file_is_loaded(spoil: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = _copy(tmp_path)
    spoil(library) if spoil else monkeypatch.setenv("AUTOPIPE_NATIVE", "0")
    copied = _loaded(library)
    assert reason in str(copied.why_not())
    assert copied.facts() == f"none: {copied.why_not()}"
    assert str(library) not in Path("/proc/self/maps").read_text()


IMAGE, LABEL = b"image/encoded", b"label"


def by_library(path: Path, offsets: Sequence[int], *, simd: int) -> list[tuple[bytes, int] | None]:
    """Return image and label of each record; None for one that is left."""
    spans, names = native.files_at([bytes(path)] * (len(offsets) - 1))
    spans["offset"] = np.array(offsets[:-1]) + HEADER_BYTES
    spans["size"] = np.diff(offsets) - HEADER_BYTES
    with mock.patch.object(native, "SIMD", simd):
        images, labels = native.features_at(spans, [IMAGE, LABEL], [False, True])
    assert names
    found: list[tuple[bytes, int] | None] = []
    for image, label in zip(images, labels.tolist(), strict=True):
        assert (image["data"] != 0) or (image["size"] == 0 and label == 0)
        found.append((ctypes.string_at(int(image["data"]), int(image["size"])), label) if image["data"] else None)
    return found


def parsed(path: Path, offsets: Sequence[int]) -> list[tuple[bytes, int] | None]:
    found: list[tuple[bytes, int] | None] = []
    for start, end in itertools.pairwise(offsets):
        try:
            parsed = records.features(records.read_record(bytes(path), start, end))
            image, label = records.single(parsed, "image/encoded", "bytes"), records.single(parsed, "label", "int64")
            found.append((image, label))
        except (records.ExampleError, ap.BadSampleError):
            found.append(None)
    return found


def written(path: Path, messages: Sequence[bytes]) -> list[int]:
    """Write messages as records, and return where they start and the last one ends."""
    path.write_bytes(b"".join(map(frame, messages)))
    return [0, *itertools.accumulate(len(message) + FRAMING_BYTES for message in messages)]


def example(**features: Any) -> Any:
    made = records._example_class()()
    for key, (kind, values) in features.items():
        getattr(made.features.feature[key.replace("__", "/")], f"{kind}_list").value.extend(values)
    return made


LABELS = (0, 1, 127, 128, -1, 2**31, 2**63 - 1, -(2**63))


@pytest.mark.parametrize("simd", [2, 0])
def test_images_and_labels_are_found(tmp_path: Path, simd: int) -> None:
    sizes: Any = {"sizes": ("int64", [7, -8]), "box": ("float", [0.5, 1.0]), "no": ("int64", [])}
    messages = [
        example(image__encoded=("bytes", [random.randbytes(size)]), label=("int64", [label]), **sizes)
        for size, label in zip((1, 7, 8, 9, 127, 128, 20_000, 0), LABELS, strict=True)
    ]
    offsets = written(tmp_path / "a", [each.SerializeToString() for each in messages])
    found = by_library(tmp_path / "a", offsets, simd=simd)
    assert found == parsed(tmp_path / "a", offsets)
    assert [each[1] for each in found if each] == [*LABELS]


GOOD = serialise({"image/encoded": b"image", "label": 3})
TAG = b"\x0a"
LEFT = {
    "nothing": b"",
    "no label": serialise({"image/encoded": b"image"}),
    "no image": serialise({"label": 1}),
    "a label of bytes": serialise({"image/encoded": b"image", "label": b"3"}),
    "two images": example(image__encoded=("bytes", [b"a", b"b"]), label=("int64", [1])).SerializeToString(),
    "two labels": example(image__encoded=("bytes", [b"a"]), label=("int64", [1, 2])).SerializeToString(),
    "no kind": example(image__encoded=("bytes", [b"a"]), label=("int64", [])).SerializeToString(),
    "cut short": GOOD[:-1],
    "something behind": GOOD + b"\x08",
    "another message": b"this is no message at all",
}


@pytest.mark.parametrize("message", LEFT.values(), ids=LEFT)
def test_a_record_without_them_is_left(tmp_path: Path, message: bytes) -> None:
    offsets = written(tmp_path / "a", [GOOD, message, GOOD])
    for simd in (2, 0):
        assert by_library(tmp_path / "a", offsets, simd=simd) == [(b"image", 3), None, (b"image", 3)]


@pytest.mark.parametrize("simd", [2, 0])
def test_a_record_that_changed_or_shrank_is_left(tmp_path: Path, simd: int) -> None:
    path = tmp_path / "a"
    offsets = written(path, [GOOD] * 3)
    content = path.read_bytes()
    for at in range(offsets[1] + HEADER_BYTES, offsets[2]):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert by_library(path, offsets, simd=simd) == [(b"image", 3), None, (b"image", 3)]
    for size in range(offsets[2], offsets[3]):
        path.write_bytes(content[:size])
        assert by_library(path, offsets, simd=simd) == [(b"image", 3), (b"image", 3), None]
    path.unlink()
    assert by_library(path, offsets, simd=simd) == [None] * 3


keys = strategies.sampled_from(["image/encoded", "label", "other", "", "ä"])
values = strategies.one_of(
    strategies.tuples(strategies.just("bytes"), strategies.lists(strategies.binary(max_size=9), max_size=2)),
    strategies.tuples(strategies.just("int64"), strategies.lists(strategies.sampled_from(LABELS), max_size=2)),
    strategies.tuples(strategies.just("float"), strategies.lists(strategies.just(0.5), max_size=2)),
)


@given(
    features=strategies.dictionaries(keys, values, max_size=5),
    change=strategies.sampled_from(["none", "twice", "byte", "cut", "insert"]),
    place=strategies.floats(0, 1, exclude_max=True),
    byte=strategies.integers(0, 255),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_taken_python_takes_too(tmp_path: Path, features: Any, change: str, place: float, byte: int) -> None:
    message = example(**features).SerializeToString() if features else GOOD
    at = int(place * len(message))
    message = {
        "none": message,
        "twice": message + message,
        "byte": message[:at] + bytes([byte]) + message[at + 1 :],
        "cut": message[:at],
        "insert": message[:at] + bytes([byte]) + message[at:],
    }[change]
    path = tmp_path / "a"
    offsets = written(path, [message])
    for simd in (2, 0):
        found, expected = by_library(path, offsets, simd=simd), parsed(path, offsets)
        assert found in (expected, [None])
        if change == "none" and "ä" not in features:
            assert found == expected


def workload(folder: Path, **keys: Any) -> ap.Workload:
    made: list[dict[str, Any]] = [
        {"image/encoded": (png if number % 3 == 0 else jpeg)(pixels((20 + number, 30))), "image/class/label": number}
        | {"mask": png(pixels((20 + number, 30), 1, seed=1)[..., 0])}
        for number in range(23)
    ]
    for name, part in (("0", made[:11]), ("1", made[11:])):
        (folder / f"{name}.tfrecord").write_bytes(b"".join(frame(serialise(each)) for each in part))
    ops = [ap.Decode(), ap.RandomResizedCrop(16, 16), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.TFRecords(folder / "*.tfrecord", **keys), ops=ops, batch_size=4)


def loaded(loader: ap.Loader) -> list[Any]:
    return [[np.array(part) for part in batch] for batch in loader.epoch(1)]


@pytest.mark.parametrize("keys", [{}, {"mask_key": "mask"}, {"label_key": None}])
@pytest.mark.parametrize("keep", ["none", "tfrecord"])
def test_batches_are_made_from_records_without_python(tmp_path: Path, monkeypatch: Any, keys: Any, keep: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made, plain = workload(tmp_path, **keys), ap.PipelineConfig(loader=ap.Threads(workers=2))
    with by_python(), make_loader(made, plain) as loader:
        expected = loaded(loader)
    if keep != "none":
        convert(Conversion.of(made, make_plan(made), 0), STORAGES[keep], tmp_path / "kept")
        made = ap.Workload(data=made.data, ops=made.ops, batch_size=4, converted=str(tmp_path / "kept"))
    with make_loader(made, plain.model_copy(update={"keep": keep})) as loader:
        monkeypatch.setattr(records, "read_record", None)
        monkeypatch.setattr(layout.StoredSource, "read", None)
        same(loaded(loader), expected)


COUNT = 12
KEPT = ap.Decode(), ap.Resize(9, 8)


class Photographs:
    """Encoded images of several sizes, of which one is damaged if that is asked for."""

    x_kind, y_kind = FieldKind.ENCODED, FieldKind.LABEL

    def __init__(self, damaged: int | None = None) -> None:
        self.images = [jpeg(pixels((20 + number, 30))) for number in range(COUNT)]
        if damaged is not None:
            self.images[damaged] = self.images[damaged][:-300]

    def __len__(self) -> int:
        return COUNT

    def read(self, index: int) -> Any:
        return self.images[index], index


def recipe(source: Any, ops: Sequence[ap.Op], cached: float, *, skips: bool = False) -> Recipe:
    workload = ap.Workload(data=source, ops=ops, batch_size=4, on_bad_sample="skip" if skips else "error")
    return dataclasses.replace(Recipe.of(workload, make_plan(workload)), cached=cached)


def batches(made: Recipe, epochs: int = 2) -> list[Any]:
    """Return the batches of some epochs, and how many samples the cache holds in the end."""
    kept = MemoryCache.of(made)
    filler, found = Kernel(made, kept), []
    for epoch, start in itertools.product(range(epochs), range(0, COUNT, 4)):
        filler.fill(epoch, np.arange(start, start + 4), batch := made.spec.empty(4))
        found.append([np.array(part) for part in batch])
    return [found, 0 if kept is None else kept.filled]


def same(one: Sequence[Any], other: Sequence[Any]) -> None:
    for first, second in zip(one, other, strict=True):
        for part, expected in zip(first, second, strict=True):
            np.testing.assert_array_equal(part, expected)


def noted_runs(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Note the runs of ops on single samples by the kernel."""
    monkeypatch.setattr(kernel, "run", runs := Mock(side_effect=planner.run))
    return runs


def names_of(runs: Mock) -> set[str]:
    return {call.args[0].op.name for call in runs.call_args_list}


@pytest.mark.parametrize("cached", [1.0, 0.5])
@pytest.mark.parametrize(
    "rest", [(), (ap.RandomFlip(), ap.Rescale(1 / 255)), (ap.OneHot(COUNT),), (ap.Cast("float32", on="both"),)]
)
def test_the_library_fills_a_cache(monkeypatch: pytest.MonkeyPatch, cached: float, rest: tuple[ap.Op, ...]) -> None:
    source = Photographs()
    expected, _ = batches(recipe(source, [*KEPT, *rest], 0.0))
    made = recipe(source, [*KEPT, *rest], cached)
    with monkeypatch.context() as refusing:
        refusing.setattr(kernel, "run", None)  # the kernel makes no sample by its ops
        found, filled = batches(made)
    same(found, expected)
    assert filled == cached * COUNT


def test_rows_of_a_cache_of_a_part_are_found_wherever_they_lie(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "sparse", np.uint8, "w+", shape=(2, 2**31))  # a cache of more than 2 GiB
    found = Rows(array, np.array([0, 1], np.int32)).addresses - array.ctypes.data
    assert found.tolist() == [0, 2**31]


def test_a_heap_that_is_full_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SPARE_BYTES", 0)
    made = recipe(Photographs(), [ap.Decode(), ap.RandomCrop(9, 8)], 1.0)
    expected, _ = batches(dataclasses.replace(made, cached=0.0))
    found, filled = batches(dataclasses.replace(made, kept_bytes=1000.0))
    same(found, expected)
    assert 0 < filled < COUNT


def test_a_damaged_sample_is_named_or_replaced_while_a_cache_is_filled() -> None:
    source = Photographs(damaged=5)
    expected, _ = batches(recipe(source, KEPT, 0.0, skips=True))
    found, filled = batches(recipe(source, KEPT, 1.0, skips=True))
    same(found, expected)
    assert filled == COUNT - 1
    with pytest.raises(ap.BadSampleError, match="sample 5"):
        batches(recipe(source, KEPT, 1.0))


def array_of(data: Any, ops: Sequence[ap.Op], folder: Path, **settings: Any) -> Any:
    workload = ap.Workload(data=data, ops=ops, batch_size=4, **settings)
    return convert(conversion_of(workload, make_plan(workload), STORAGES["array"]), STORAGES["array"], folder)


@pytest.mark.parametrize(
    ("damaged", "rest"), [(5, ()), (5, (ap.OneHot(COUNT),)), (None, (ap.Map(np.flipud), ap.Rescale(1 / 255)))]
)
def test_the_library_makes_converted_samples(tmp_path: Path, monkeypatch: Any, damaged: Any, rest: Any) -> None:
    alone, sample = list[int](), Conversion.sample

    source = Photographs(damaged)
    with by_python():
        expected = array_of(source, [*KEPT, *rest], tmp_path / "one by one", on_bad_sample="skip")
    monkeypatch.setattr(Conversion, "sample", lambda made, index: (alone.append(index), sample(made, index))[1])  # type: ignore[func-returns-value]
    found = array_of(source, [*KEPT, *rest], tmp_path / "at once", on_bad_sample="skip")
    assert {*alone} == {damaged} - {None}
    assert found.record == expected.record  # which has the checksums of all files, and the bad samples


def test_a_sample_of_another_dtype_ends_a_conversion(tmp_path: Path) -> None:
    class Mixed(Photographs):
        y_kind = FieldKind.ARRAY

        def read(self, index: int) -> Any:
            return self.images[index], np.array([index], np.float64 if index == 1 else np.float32)

    with pytest.raises(ap.WorkloadError, match=r"Samples must be of one dtype to be kept, but sample 1 is float64"):
        array_of(Mixed(), KEPT, tmp_path)


def noise(image: Any, rng: np.random.Generator) -> Any:
    return image ^ rng.integers(0, 2, image.shape, np.uint8)


CHAINS: dict[str, list[ap.Op]] = {
    "between": [*KEPT, ap.Map(np.flipud), ap.RandomFlip(), ap.Rescale(1 / 255)],
    "first": [ap.Map(np.flipud), ap.RandomFlip(), ap.Map(noise, random=True), ap.Rescale(1 / 255)],
    "of any size": [ap.Decode(), ap.Map(np.flipud), ap.Resize(9, 8), ap.RandomFlip()],
    "last": [*KEPT, ap.RandomFlip(), ap.Map(noise, random=True)],
    "several": [*KEPT, ap.Map(noise, random=True), ap.RandomBrightness(), ap.Map(np.fliplr), ap.Normalize(9, 3)],
    "of labels": [*KEPT, ap.RandomFlip(), ap.Map(lambda y: y + 1, on="mask"), ap.RandomContrast(), ap.OneHot(13)],
    "of both": [*KEPT, ap.Map(lambda x, y: (x[1:], x[0, 0]), on="both"), ap.RandomFlip()],
    "of floats": [*KEPT, ap.Rescale(1 / 255), ap.Map(np.sqrt), ap.RandomFlip(), ap.Cast("float16")],
}


@pytest.mark.parametrize("cached", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", CHAINS)
def test_an_op_of_somebodys_own_cuts_a_batch_and_no_more(monkeypatch: Any, name: str, cached: float) -> None:
    arrays = ap.Arrays(np.stack([pixels((9, 8))] * COUNT), np.arange(COUNT))
    made = recipe(arrays if name == "first" else Photographs(), CHAINS[name], cached)
    runs = noted_runs(monkeypatch)
    found, filled = batches(made)
    assert names_of(runs) == ({"Decode", "Map"} if name == "of any size" else {"Map"})
    with by_python():
        expected, filled_by_python = batches(made)
    same(found, expected)
    assert filled == filled_by_python


def some_fail(image: Any, label: Any) -> Any:
    if label == 6:
        raise ap.BadSampleError("it is not wanted.")
    return image, label


def some_are_cut(image: Any, label: Any) -> Any:
    return image[: 3 if label == 6 else 9], label


@pytest.mark.parametrize("rest", [(), (ap.RandomFlip(),)])
def test_a_row_on_which_such_an_op_fails_is_replaced_or_named(rest: tuple[ap.Op, ...]) -> None:
    skipping = recipe(Photographs(damaged=2), [*KEPT, ap.Map(some_fail, on="both"), *rest], 0.0, skips=True)
    batch = skipping.spec.empty(COUNT)
    bad = Kernel(skipping).fill(0, np.arange(COUNT), batch)
    assert [(each.index, each.replaced_by) for each in bad] == [(2, 3), (6, 7)]
    np.testing.assert_array_equal(batch[1], [0, 1, 3, 3, 4, 5, 7, 7, 8, 9, 10, 11])
    with pytest.raises(ap.BadSampleError, match="Map on sample 6: it is not wanted"):
        batches(recipe(Photographs(), [*KEPT, ap.Map(some_fail, on="both"), *rest], 0.0))
    with pytest.raises(ap.WorkloadError, match=r"sample 6 has x \(3, 8, 3\)"):
        batches(recipe(Photographs(), [*KEPT, ap.Map(some_are_cut, on="both"), *rest], 0.0))
