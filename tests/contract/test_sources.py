"""What every source must do, those of extensions too: give each sample by its number, and say what it reads."""

import dataclasses
import functools
import gc
import os
import pickle
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe import testing
from autopipe.workload.data import source as asked
from autopipe.workload.data.records import frame, serialise
from autopipe.workload.ops import planner
from autopipe.workload.sample import Source, leaves, slots_of
from tests.fakes import damage

pytestmark = pytest.mark.usefixtures("cache")

COUNT = 11
Parts = tuple[Any, ...]


def image(number: int) -> bytes:
    return b"image %d " % number * (1 + number % 3)


def mask(number: int) -> bytes:
    return b"mask %d" % number


@dataclasses.dataclass(frozen=True)
class Case:
    """A source, and what it has to give."""

    make: Callable[[Path, int], Source]  # writes so many samples into a folder and opens them
    sample: Callable[[int], Parts]  # what the sample of a number is: (x,), (x, y) or (x, y, sample_weight)
    file: str | None  # one with samples in it; None where they are in no file
    cut: Callable[[Path], object] | None = Path.unlink  # what makes the first sample bad; None where none alone can be


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def folder(root: Path, count: int) -> Source:
    for number in range(count):
        written(root / "ab"[number % 2] / f"{number:06}.jpg", image(number))
    return ap.ImageFolder(root)


def foldered(number: int) -> Parts:
    """Class by class, as folders are."""
    evens = (COUNT + 1) // 2
    return (image(2 * number), 0) if number < evens else (image(2 * (number - evens) + 1), 1)


def flat(root: Path, count: int) -> Source:
    for number in range(count):
        written(root / f"{number:06}.jpg", image(number))
    return ap.ImageFolder(root, labels=[number % 5 for number in range(count)])


def half(root: Path, count: int) -> Source:
    """As many for validation: the even ones."""
    for number in range(2 * count):
        written(root / f"{1 - number % 2}" / f"{number:06}.jpg", image(number))
    return ap.ImageFolder(root, label_mode="categorical", validation_split=0.5, subset="validation")


def pairs(root: Path, count: int) -> Source:
    for number in range(count):
        written(root / "images" / f"{number:06}.jpg", image(number))
        written(root / "masks" / f"{number:06}.png", mask(number))
    return ap.ImagePairs(root / "images", root / "masks")


def table(header: str, cells: Callable[[int], object], **options: Any) -> Callable[[Path, int], Source]:
    """Return what makes a table of these columns and cells behind the path."""

    def make(root: Path, count: int) -> Source:
        rows = [f"{written(root / f'{n:06}.jpg', image(n)).name},{cells(n)}" for n in range(count)]
        written(root / "all.csv", "\n".join([f"path,{header}", *rows, ""]).encode())
        return ap.Table(root / "all.csv", **options)

    return make


def records(root: Path, count: int, **keys: Any) -> Source:
    def values(number: int) -> dict[str, bytes | int]:
        return {"image/encoded": image(number), "image/class/label": number, "mask": mask(number)}

    for shard in range(2):
        numbers = range(shard * count // 2, (shard + 1) * count // 2)
        written(root / f"{shard}.tfrecord", b"".join(frame(serialise(values(number))) for number in numbers))
    return ap.TFRecords(root / "*.tfrecord", **keys)


def rows(count: int, dtype: str = "uint8") -> tuple[Any, Any]:
    x = (np.arange(count * 12) * (1 if dtype == "uint8" else 493)).astype(dtype).reshape(count, 2, 2, 3)
    return x, np.arange(count) * 7


def mapped(root: Path, count: int, dtype: str = "uint8") -> Source:
    for name, array in zip("xy", rows(count, dtype), strict=True):
        np.save(written(root / f"{name}.npy", b""), array)
    return ap.Arrays(root / "x.npy", root / "y.npy")


def row(number: int, dtype: str = "uint8") -> Parts:
    x, y = rows(COUNT, dtype)
    return x[number], y[number]


def npz(root: Path, count: int) -> Source:
    x, y = rows(count)
    np.savez_compressed(written(root / "set.npz", b""), x=x, y=y)
    return ap.NPZ(root / "set.npz")


SEVERAL: dict[str, Any] = {  # columns, as a model with two inputs wants them
    "x": {"photo": "image", "numbers": "features"},
    "y": ["label", "features"],
    "sample_weight": "weight",
}


def of_several(number: int) -> Parts:
    features = np.array([number, 0.5], np.float32)
    return {"photo": image(number), "numbers": features}, (7 * number, features), np.float32(number / 4)


def columns_of_several(count: int) -> dict[str, Any]:
    features = [[float(number), 0.5] for number in range(count)]
    weights = [number / 4 for number in range(count)]
    labels = [7 * number for number in range(count)]
    return {"image": [image(n) for n in range(count)], "features": features, "label": labels, "weight": weights}


def npz_of_several(root: Path, count: int) -> Source:
    x, y = rows(count)
    features, weight = np.arange(2 * count).reshape(count, 2), np.arange(count, dtype=np.float32)
    np.savez(written(root / "set.npz", b""), image=x, features=features, label=y, weight=weight)
    return ap.NPZ(root / "set.npz", x=["features", "image"], y={"kind": "label"}, sample_weight="weight")


def of_several_arrays(number: int) -> Parts:
    x, y = row(number)
    return (np.array([2 * number, 2 * number + 1]), x), {"kind": y}, np.float32(number)


def spoil(file: Path) -> None:
    """Change a byte of the first record's content, which its checksum tells."""
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)


def _vector(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def _house(number: int) -> Parts:
    x = {"image": image(number), "features": _vector(number, 0.5)}
    return x, np.array([number % 2, 7 * number]), np.float32(number / 4)


def _gapped(root: Path, count: int) -> Source:
    return ap.Arrays(*(part[::2] for part in rows(2 * count)))


_two_labels, _no_label = table("a,b", lambda n: f"{n},0.5", label=["a", "b"]), table("label", str, label=None)
_houses = table(
    "rooms,age,kind,day,trust", lambda n: f"{n},0.5,{'ab'[n % 2]},{7 * n},{n / 4}", label=["kind", "day"],
    features=["rooms", "age"], sample_weight="trust",
)  # fmt: skip
_masked = functools.partial(records, mask_key="mask")
CASES = {
    "ImageFolder": Case(folder, foldered, "a/000000.jpg"),
    "ImageFolder with labels": Case(flat, lambda number: (image(number), number % 5), "000000.jpg"),
    "ImageFolder of validation": Case(half, lambda number: (image(2 * number), _vector(0, 1)), "1/000000.jpg"),
    "ImagePairs": Case(pairs, lambda number: (image(number), mask(number)), "masks/000000.png"),
    "Table": Case(table("label", lambda n: 7 * n), lambda number: (image(number), 7 * number), "000000.jpg"),
    "Table of two labels": Case(_two_labels, lambda number: (image(number), _vector(number, 0.5)), "000000.jpg"),
    "Table of several parts": Case(_houses, _house, "000000.jpg"),
    "Table without labels": Case(_no_label, lambda number: (image(number),), "000000.jpg"),
    "TFRecords": Case(records, lambda number: (image(number), number), "0.tfrecord", spoil),
    "TFRecords with masks": Case(_masked, lambda number: (image(number), mask(number)), "0.tfrecord", spoil),
    "Arrays": Case(lambda root, count: ap.Arrays(*rows(count)), row, None, None),
    "Arrays with gaps": Case(_gapped, lambda number: tuple(part[2 * number] for part in rows(2 * COUNT)), None, None),
    "Arrays in files": Case(mapped, row, "x.npy", None),
    **{
        f"Arrays of {each} in files": Case(
            functools.partial(mapped, dtype=each), functools.partial(row, dtype=each), "x.npy", None
        )
        for each in ("uint16", "float32")
    },
    "NPZ": Case(npz, row, "set.npz", None),
    "NPZ of several parts": Case(npz_of_several, of_several_arrays, "set.npz", None),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the contract on the cases of the module that it stands in: here, or in an extension's tests."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", metafunc.module.CASES.values(), ids=metafunc.module.CASES)


def parts(value: object) -> Parts:
    return tuple(part for slot in slots_of(value) for part in leaves(slot))


def test_every_source_of_the_core_is_here() -> None:
    public = [getattr(ap, name) for name in ap.__all__]
    found = {
        each.__name__
        for each in public
        if isinstance(each, type) and issubclass(each, Source) and each is not ap.Source
    }
    assert found == {name.split()[0] for name in CASES}


def test_it_keeps_the_contract_of_sources(case: Case, tmp_path: Path) -> None:
    made: Any = case.make(tmp_path, COUNT)
    assert len(made) == COUNT
    testing.check_source(made, case.sample)
    assert callable(getattr(made, "plain", None)), (
        f"{type(made).__name__} needs a method `plain(self, spec, library)` that returns its PlainSource, for "
        "`autopipe eject` and the baselines of a tune. If it has none, it raises PlainCodeError with the reason."
    )


def test_a_read_that_gives_less_than_was_asked_for_is_gone_on_with(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, into = os.pread, os.preadv

    def few(descriptor: int, buffers: Sequence[Any], *rest: int) -> int:
        return into(descriptor, [memoryview(buffers[0])[:5]], *rest)

    monkeypatch.setattr(os, "pread", lambda descriptor, count, start: whole(descriptor, min(count, 5), start))
    monkeypatch.setattr(os, "preadv", few)
    testing.check_source(case.make(tmp_path, COUNT), case.sample)


def test_sizes_are_those_of_the_samples(case: Case, tmp_path: Path) -> None:
    made: Any = case.make(tmp_path, COUNT)

    def size(part: Any) -> int:
        return len(part) if isinstance(part, bytes) else np.asarray(part).nbytes if np.ndim(part) else 0

    mean = sum(size(part) for number in range(COUNT) for part in parts(case.sample(number))) / COUNT
    assert mean <= asked.mean_bytes(made) <= mean + 120  # a record has its keys and checksums, and a label 8 bytes


def test_the_digest_is_the_same_until_something_changes(case: Case, tmp_path: Path) -> None:
    made = case.make(tmp_path, COUNT)
    assert asked.digest(made) == asked.digest(made)
    assert all(key and value for key, _, value in (each.partition("=") for each in asked.digest(made).split()))
    assert asked.digest(case.make(tmp_path / "more", COUNT + 1)) != asked.digest(made)
    if case.file is not None:
        before, file = asked.digest(made), tmp_path / case.file
        status = file.stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
        assert asked.difference(before, asked.digest(made))


def test_files_and_names_lead_to_the_samples(case: Case, tmp_path: Path) -> None:
    made: Any = case.make(tmp_path, COUNT)
    assert len({made.name(number) for number in range(COUNT)}) == COUNT
    assert str(COUNT) in repr(made)
    files = asked.files(made)
    assert all(Path(file).is_file() for file in files)
    assert (case.file is None) == (files == [])
    if case.file is not None:
        assert str(tmp_path / case.file) in asked.files(made, [0])
    assert asked.remote(made) is None


def test_a_bad_sample_is_an_error_that_names_the_file_and_the_others_are_read(case: Case, tmp_path: Path) -> None:
    made = case.make(tmp_path, COUNT)
    if case.file is None or case.cut is None:
        return
    case.cut(tmp_path / case.file)
    with pytest.raises(ap.BadSampleError, match=case.file.rpartition("/")[2]):
        made.read(0)
    testing.require_same(case.sample(COUNT - 1), made.read(COUNT - 1), "the others")


def test_a_process_without_another_file_descriptor_has_no_bad_samples(case: Case, tmp_path: Path) -> None:
    """Else a training that skips them would go on with other samples."""
    made, failure = case.make(tmp_path, COUNT), None
    with damage.no_other_file():
        try:
            planner.read(made, 0)  # unless its files are open
        except ap.DataError as error:
            failure = error
    assert not isinstance(failure, ap.BadSampleError)


def test_a_million_samples_would_take_at_most_64_mb_in_memory_and_in_a_pickle(case: Case, tmp_path: Path) -> None:
    """Judged by what four hundred more take. Each worker process gets a copy of it."""
    own = 12 + 8 if case.file is None else 0  # an array in memory is its samples
    limit = (64 + own) * 400
    for attempt in range(3):  # a table of the interpreter's own, such as that of all names, may grow meanwhile
        held, pickled = zip(*(_taken(case, tmp_path / f"{attempt}-{count}", count) for count in (60, 460)), strict=True)
        if held[1] - held[0] <= limit:
            break
    assert held[1] - held[0] <= limit
    assert pickled[1] - pickled[0] <= limit


def _taken(case: Case, root: Path, count: int) -> tuple[int, int]:
    """Return the bytes of a source in memory and in a pickle."""
    tracemalloc.start()
    made = case.make(root, count)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held, len(pickle.dumps(made))
