"""Sets while they are made and read: what is told, and what is kept, where samples, disks, files and runs fail."""

import contextlib
import dataclasses
import os
import shutil
import types
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import filelock
import numpy as np
import pytest

import autopipe as ap
from autopipe.pipeline.assembly import conversion_of, recipe_of
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.convert import convert, estimate_bytes, finish
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.storage.layout import find, open_set, verify
from autopipe.pipeline.storage.tfrecord import TFRecord
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes import damage
from tests.fakes.commands import by_python, content
from tests.fakes.damage import in_classes
from tests.fakes.sources import Failing, Made

COUNT = 100  # 8 shards, 7 of them of 13 samples
DIGEST = "type=Made count=100"
ARRAY = STORAGES["array"]
SPEC = SampleSpec(Field(FieldKind.IMAGE, (5, 4, 3), np.dtype(np.uint8)), Field(FieldKind.LABEL, (), np.dtype(np.int64)))


def numbers(index: int) -> tuple[Any, Any]:
    return np.random.default_rng(index).integers(0, 256, (5, 4, 3), np.uint8), index


def conversion(
    on_read: Callable[[int], None] | None = None, make: Callable[[int], Any] = numbers, **changes: Any
) -> Conversion:
    """Return a conversion of samples that are made from their index; `on_read` sees each read and may fail it."""

    def read(index: int) -> Any:
        if on_read is not None:
            on_read(index)
        return make(index)

    made = Conversion(source=Made(COUNT, read), steps=(), spec=SPEC, source_digest=DIGEST, ops_digest="no ops")
    return dataclasses.replace(made, **changes)


def fail_at(index: int) -> Callable[[int], None]:
    def on_read(read: int) -> None:
        if read == index:
            raise ap.BadSampleError(f"sample {index} is broken")

    return on_read


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The files of an undisturbed conversion."""
    convert(conversion(), ARRAY, tmp_path / "undisturbed")
    return content(tmp_path / "undisturbed")


def test_progress_is_told_after_each_shard_and_a_set_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    result = convert(conversion(), ARRAY, tmp_path, workers=2, on_progress=lambda done, of: told.append((done, of)))
    assert result.record is not None
    assert estimate_bytes(conversion(), ARRAY) == COUNT * (60 + 8)  # exact for one shape, but for the files' headers
    assert (told[0], told[-1], sorted({*told})) == ((0, COUNT), (COUNT, COUNT), told)
    assert (result.samples, result.kept, len(result.shard_seconds)) == (COUNT, 0, 8)
    again = convert(conversion(fail_at(0)), ARRAY, tmp_path)
    assert (again.samples, again.kept, again.record) == (0, COUNT, result.record)


def test_what_was_finished_before_a_failure_is_kept(tmp_path: Path, whole: dict[str, bytes]) -> None:
    folder = tmp_path / "set"
    with pytest.raises(ap.BadSampleError, match="sample 50: sample 50 is broken"):
        convert(conversion(fail_at(50)), ARRAY, folder)
    with pytest.raises(ap.StorageError, match="conversion was begun and did not end"):
        open_set(folder, conversion(), ARRAY)
    assert not [*folder.glob(".shard-*")]
    (folder / ".shard-1-killed").mkdir()
    (folder / ".shard-1-killed" / "x.npy").write_bytes(b"half")  # as a killed run leaves it
    result = convert(conversion(), ARRAY, folder)
    assert (result.samples, result.kept) == (COUNT - 39, 39)
    assert not [*folder.glob(".shard-*")]
    assert content(folder) == whole


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_shard_that_was_damaged_is_written_again(tmp_path: Path, whole: dict[str, bytes], damage: str) -> None:
    folder = tmp_path / "set"
    convert(conversion(), ARRAY, folder)
    file = folder / "x-00003.npy"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(bytes(file.stat().st_size - (damage == "cut")))
    if damage != "changed":  # which no size tells
        with pytest.raises(ap.StorageError, match=r"1 of 8 shards are missing or not whole, .* number 3.*Run the same"):
            open_set(folder, conversion(), ARRAY)
    with pytest.raises(ap.BadSampleError):  # the run is stopped, and goes on
        convert(conversion(fail_at(39)), ARRAY, folder)
    assert convert(conversion(), ARRAY, folder).samples == 13
    assert content(folder) == whole


def test_parts_are_joined_to_the_same_set(tmp_path: Path, whole: dict[str, bytes]) -> None:
    folder = tmp_path / "set"
    for number in (2, 0):  # on two machines
        assert convert(conversion(), ARRAY, tmp_path / f"{number}", part=(number, 3)).record is None
        shutil.copytree(tmp_path / f"{number}", folder, dirs_exist_ok=True)
    with pytest.raises(ap.StorageError, match=r"not complete: 3 of 8 shards are missing .* the first is number 1"):
        finish(folder)
    convert(conversion(), ARRAY, folder, part=(1, 3))
    finish(folder)
    assert content(folder) == whole


def test_parts_may_begin_at_once(tmp_path: Path, whole: dict[str, bytes]) -> None:
    folder, others = tmp_path / "set", [(1, 2)]

    def begin_another(index: int) -> None:
        if others:
            convert(conversion(), ARRAY, folder, part=others.pop())

    convert(conversion(begin_another), ARRAY, folder, part=(0, 2))
    finish(folder)
    assert content(folder) == whole


def test_a_full_disk_keeps_what_was_finished_and_a_short_one_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    """/dev/full takes no byte, as a full disk."""
    folder = tmp_path / "set"

    def fill_disk(index: int) -> None:
        if index == 39:  # in a shard of its own
            (written,) = folder.glob(".shard-3-*")
            (written / "index.npy").symlink_to("/dev/full")

    encoded = SampleSpec(Field(FieldKind.ENCODED, None, None), None)
    made: dict[str, Any] = {"make": lambda index: b"%d" % index, "spec": encoded}
    said = r"disk is full.* after 39 of 100 samples\. These are kept.*goes on from there"
    with pytest.raises(ap.StorageError, match=said):
        convert(conversion(fill_disk, **made), TFRecord(), folder)
    assert convert(conversion(**made), TFRecord(), folder).kept == 39
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(total=10**9, free=1000))
    with pytest.raises(ap.StorageError, match=r"1 MiB are needed in .*, but 1000 B are free"):
        convert(conversion(), ARRAY, tmp_path / "short")
    assert content(tmp_path / "short") == {}


def test_two_at_once_are_refused_and_other_parts_are_not(tmp_path: Path) -> None:
    said = "Another conversion is at work"
    with filelock.FileLock(tmp_path / ".lock-0-of-1"), pytest.raises(ap.StorageError, match=said):
        convert(conversion(), ARRAY, tmp_path)
    with filelock.FileLock(tmp_path / ".lock-0-of-2"):
        convert(conversion(), ARRAY, tmp_path, part=(1, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_digest": "type=Made count=101"}, r"made from other data \(count differ\)"),
        ({"ops_digest": "Resize"}, "made by other ops"),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_stale_set_is_named(tmp_path: Path, changes: dict[str, Any], message: str, *, complete: bool) -> None:
    made = conversion()
    stale = dataclasses.replace(made, **changes)
    convert(made, ARRAY, tmp_path, part=(0, 1) if complete else (0, 2))
    before = content(tmp_path)
    for call in (lambda: convert(stale, ARRAY, tmp_path), lambda: open_set(tmp_path, stale, ARRAY))[: 1 + complete]:
        with pytest.raises(ap.StorageError, match=message):
            call()
    if complete:
        with pytest.raises(ap.StorageError, match="is kept as array, not as tfrecord"):
            open_set(tmp_path, made, STORAGES["tfrecord"])
    assert before == content(tmp_path)


@pytest.mark.parametrize("part", [(0, 1), (0, 2)])
def test_an_edited_record_is_told(tmp_path: Path, part: tuple[int, int]) -> None:
    convert(conversion(), ARRAY, tmp_path, part=part)
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text().replace("no ops", "some ops"))
    for call in (lambda: finish(tmp_path), lambda: convert(conversion(), ARRAY, tmp_path)):
        with pytest.raises(ap.StorageError, match=rf"{path.name}` was edited .* seal does not match"):
            call()


def test_a_set_is_found_below_a_folder(tmp_path: Path) -> None:
    convert(conversion(ops_digest="others"), ARRAY, tmp_path / "a")
    with pytest.raises(ap.StorageError, match=r"has no set of the 100 samples after 0 ops.*made by other ops"):
        find(tmp_path, conversion(), ARRAY)
    convert(conversion(), ARRAY, tmp_path / "b")
    assert find(tmp_path, conversion(), ARRAY).folder.path == tmp_path / "b"
    assert find(tmp_path / "b", conversion(), ARRAY).folder.path == tmp_path / "b"
    with pytest.raises(ap.StorageError, match="has no set of"):
        find(tmp_path / "nowhere", conversion(), ARRAY)


def test_a_sample_that_the_source_gives_otherwise_is_found_by_verifying(tmp_path: Path) -> None:
    convert(conversion(), ARRAY, tmp_path)
    with pytest.raises(ap.StorageError, match=r"Sample 0 of the set .* is not what the source gives now"):
        verify(open_set(tmp_path, conversion(), ARRAY), conversion(make=lambda index: (numbers(index + 1)[0], index)))


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ((np.zeros((5, 4, 3), np.uint16), 5), r"uint16 and others are uint8.*ap\.Cast"),
        ((np.zeros((5, 4, 3), np.uint8), 0.5), "float64 and others are int64"),
        ((np.zeros((5, 4, 3), np.uint8), 2**63), "uint64 and others are int64"),
    ],
    ids=["image", "label", "large label"],
)
def test_a_sample_of_another_dtype_is_named(tmp_path: Path, odd: tuple[Any, Any], said: str) -> None:
    with pytest.raises(ap.WorkloadError, match=f"but sample 5 is {said}"):
        convert(conversion(make=lambda index: odd if index == 5 else numbers(index)), ARRAY, tmp_path)


def test_samples_of_unexpected_shapes_are_kept_too(tmp_path: Path) -> None:
    def of_shapes(index: int) -> tuple[Any, int]:
        return np.full((1 + index % 7, 4, 3) if index != 9 else (2, 3), index, np.uint8), index

    convert(ragged := conversion(make=of_shapes), ARRAY, tmp_path)
    stored = open_set(tmp_path, ragged, ARRAY)
    for index in range(COUNT):
        np.testing.assert_array_equal(stored.read(index)[0], of_shapes(index)[0])


def test_a_folder_that_cannot_hold_the_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("important")
    with pytest.raises(ap.StorageError, match=r"must hold nothing else, but .* has 1 other files: `thesis\.tex`"):
        convert(conversion(), ARRAY, tmp_path / "full")
    assert set(content(tmp_path / "full")) == {"thesis.tex"}
    convert(conversion(), ARRAY, tmp_path / "part", part=(0, 2))
    (tmp_path / "part" / "notes.txt").write_text("mine")
    with pytest.raises(ap.StorageError, match=r"`notes\.txt`"):
        convert(conversion(), ARRAY, tmp_path / "part")
    (tmp_path / "locked" / ".lock-0-of-1").mkdir(parents=True)  # as in a folder that is read-only, it cannot be opened
    with pytest.raises(ap.StorageError, match=rf"`{tmp_path}/locked` cannot be written to: .*Choose another folder"):
        convert(conversion(), ARRAY, tmp_path / "locked")
    (tmp_path / "file").write_text("")
    with pytest.raises(ap.StorageError, match="cannot be written to: File exists"):
        convert(conversion(), ARRAY, tmp_path / "file")
    for part in ((1, 1), (-1, 2), (0, 0)):
        with pytest.raises(ap.ConfigError, match=r"`part` must be \(i, n\)"):
            convert(conversion(), ARRAY, tmp_path, part=part)


PHOTOS = 64  # 8 shards of 8


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return in_classes(tmp_path / "photos", PHOTOS, (20, 24), suffix=".jpg")


def of_photos(photos: Path) -> Conversion:
    workload = ap.Workload(data=ap.ImageFolder(photos), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=2)
    return conversion_of(workload, make_plan(workload), ARRAY)


def at(samples: int, act: Callable[[], object]) -> Callable[[int, int], None]:
    def on_progress(done: int, of: int) -> None:
        if done == samples:
            act()

    return on_progress


@pytest.mark.parametrize(
    "befalls",
    [Path.unlink, lambda path: os.truncate(path, 300), lambda path: path.write_bytes(b"")],
    ids=["vanished", "cut short", "emptied"],
)
def test_a_file_spoilt_meanwhile_is_named(photos: Path, tmp_path: Path, befalls: Callable[[Path], None]) -> None:
    made = of_photos(photos)
    with pytest.raises(ap.BadSampleError, match=r"sample 63\b.*9\.jpg"):
        convert(made, ARRAY, tmp_path / "set", on_progress=at(0, lambda: befalls(photos / "class_1" / "9.jpg")))
    assert len([*(tmp_path / "set").glob("x-*.npy")]) == 7
    assert not [*(tmp_path / "set").glob(".shard-*")]
    with pytest.raises(ap.StorageError, match="begun and did not end"):
        open_set(tmp_path / "set", made, ARRAY)


def test_a_file_that_grew_after_it_was_read_makes_no_set(photos: Path, tmp_path: Path) -> None:
    made = of_photos(photos)
    first = photos / "class_0" / "0.jpg"

    def grow() -> None:
        first.write_bytes(first.read_bytes() + b"more")

    with pytest.raises(ap.StorageError, match=r"was made from other data \(sizes"):
        convert(made, ARRAY, tmp_path / "set", on_progress=at(32, grow))
    with pytest.raises(ap.AutopipeError):
        open_set(tmp_path / "set", made, ARRAY)


def target(shape: tuple[int, ...], dtype: str) -> Field:
    return Field(FieldKind.LABEL, shape, np.dtype(dtype), len(shape))


ENCODED = Field(FieldKind.ENCODED, None, None)
FITTING = (target((), "int64"), target((), "uint8"), target((), "bool"), ENCODED, None)


@pytest.mark.parametrize("part", [*FITTING, target((), "float32"), target((4,), "int64")], ids=str)
def test_a_target_is_one_whole_number_or_a_mask_or_nothing(part: Field | None) -> None:
    assert TFRecord().can_hold(SampleSpec(ENCODED, part)) == (part in FITTING)


def test_an_unsigned_label_that_int64_does_not_hold_is_refused() -> None:
    spec = SampleSpec(ENCODED, target((), "uint64"))
    assert TFRecord().sample_bytes(spec, [(b"image", np.uint64(2**63 - 1))]) > 0
    with pytest.raises(ap.StorageError, match=r"from -2\*\*63 to 2\*\*63 - 1, but got 9223372036854775808\."):
        TFRecord().sample_bytes(spec, [(b"image", np.uint64(2**63))])


KEPT = 32
Damage = Callable[[Path], object]


def encoded(index: int) -> tuple[bytes, int]:
    pixels = np.random.default_rng(index).integers(0, 256, (16, 16, 3), np.uint8)
    return bytes(cv2.imencode(".png", pixels)[1]), index


def cut(folder: Path) -> None:
    for file in [*folder.glob("x-*.npy"), *folder.glob("*.tfrecord")]:
        os.truncate(file, 300)


def fail(folder: Path) -> None:
    """Have reads of open files fail as of a broken disk: the memory at the first addresses gives EIO."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it meanwhile
            if (opened := each.readlink()).is_relative_to(folder) and opened.suffix != ".json":
                os.dup2(memory, int(each.name))
    os.close(memory)


@pytest.fixture(params=["array", "array:1", "tfrecord"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ap.Workload, ap.PipelineConfig, Path]:
    """`array:1` is read image by image, `array` a batch at a time."""
    form, _, cut = request.param.partition(":")
    ops: list[Any] = [ap.Decode(), ap.RandomFlip()] if cut or form == "tfrecord" else [ap.Decode()]
    data = Made(KEPT, encoded)
    workload = ap.Workload(data=data, ops=ops, batch_size=8, converted=str(tmp_path / "kept"))
    convert(conversion_of(workload, make_plan(workload), STORAGES[form]), STORAGES[form], tmp_path / "kept")
    return workload, ap.PipelineConfig(loader=ap.Threads(workers=2), keep=form), tmp_path / "kept"


@pytest.mark.parametrize("maker", [contextlib.nullcontext, by_python])
@pytest.mark.parametrize(
    ("befalls", "said"), [(cut, "is cut short: it ends before byte"), (fail, "cannot be read: Input/output error")]
)
def test_an_open_set_that_is_cut_or_on_a_broken_disk_is_told(kept: Any, befalls: Damage, said: str, maker: Any) -> None:
    workload, config, folder = kept
    with maker(), ap.make_loader(workload, config) as loader:
        assert sum(len(batch[0]) for batch in loader.epoch(0)) == KEPT
        befalls(folder)
        with pytest.raises(ap.BadSampleError, match=rf"`{folder}/[a-z]+-\d+\.[a-z]+` {said}"):
            list(chain.from_iterable(map(loader.epoch, range(1, 100))))  # the first ones may have been read before


def test_a_set_is_opened_again_where_two_threads_parse_headers_at_once(kept: Any, monkeypatch: Any) -> None:
    workload, config, _ = kept
    loading = Failing(np.load)
    monkeypatch.setattr(np, "load", loading)
    with ap.make_loader(workload, config) as loader:
        assert sum(len(batch[0]) for batch in loader.epoch(0)) == KEPT
    assert loading.calls < 0


def test_a_set_that_vanishes_is_read_on_while_it_is_open_and_else_told(kept: Any) -> None:
    workload, config, folder = kept
    with ap.make_loader(workload, config) as loader, ap.make_loader(workload, config) as later:
        first = [batch[0].copy() for batch in loader.epoch(0)]
        shutil.rmtree(folder)
        np.testing.assert_array_equal(first, [batch[0] for batch in loader.epoch(0)])
        with pytest.raises(ap.BadSampleError, match=rf"set in `{folder}` cannot be read: No such file or directory\."):
            list(later.epoch(0))


def test_a_process_that_cannot_open_another_file_is_told_and_no_sample_is_bad(kept: Any) -> None:
    workload, config, _ = kept
    source = recipe_of(workload, config, make_plan(workload)).source
    with damage.no_other_file(), pytest.raises(ap.DataError, match="cannot be read: Too many open files") as caught:
        source.read(0)
    assert not isinstance(caught.value, ap.BadSampleError)


LARGE = (64, 64, 3)
OPS: Any = (ap.RandomCrop(8, 8), ap.Map(np.flipud))


@pytest.mark.parametrize(("row", "ops"), [(LARGE, ()), ((28, 28), ()), ((5,), ()), (LARGE, OPS[:1]), (LARGE, OPS[1:])])
def test_arrays_in_a_file_that_is_cut_short_are_told(tmp_path: Path, row: tuple[int, ...], ops: Any) -> None:
    np.save(tmp_path / "x.npy", np.ones((KEPT, *row), np.uint8))
    arrays = ap.Arrays(str(tmp_path / "x.npy"))
    workload = ap.Workload(data=arrays, ops=ops, batch_size=8)
    recipe = Recipe.of(workload, make_plan(workload))
    kernel, indices, batch = Kernel(recipe), np.arange(KEPT), recipe.spec.empty(KEPT)
    kernel.fill(0, indices, batch)
    os.truncate(tmp_path / "x.npy", 130)
    with pytest.raises(ap.BadSampleError, match=rf"`{tmp_path}/x\.npy` is cut short: it ends before byte"):
        kernel.fill(1, indices, batch)
    with pytest.raises(ap.BadSampleError, match="is cut short"):
        arrays.digest()
