"""Records of TFRecord files by the native library: what it takes is what Python reads, and all else is left to Python.

Each case runs twice: with the processor's checksums and in plain C.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import autopipe as ap
from autopipe import native
from autopipe.errors import BadSampleError
from autopipe.pipeline.assembly import build_loader
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.data import records
from autopipe.workload.data.records import FRAMING_BYTES, HEADER_BYTES, frame, serialise
from autopipe.workload.ops.planner import make_plan
from tests.fakes import reference
from tests.unit.native.test_program import jpeg, pixels, png

pytestmark = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))

IMAGE, LABEL = b"image/encoded", b"label"


@pytest.fixture(autouse=True)
def _told_why(caplog: pytest.LogCaptureFixture) -> None:
    """Have a failure show why rows were left to Python."""
    caplog.set_level(logging.DEBUG, "autopipe")


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


def by_python(path: Path, offsets: Sequence[int]) -> list[tuple[bytes, int] | None]:
    found: list[tuple[bytes, int] | None] = []
    for start, end in itertools.pairwise(offsets):
        try:
            parsed = records.features(records.read_record(bytes(path), start, end))
            image, label = records.single(parsed, "image/encoded", "bytes"), records.single(parsed, "label", "int64")
            found.append((image, label))
        except (records.ExampleError, BadSampleError):
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
    random.seed(0)
    others = {
        "name": ("bytes", [b"a.jpg"]),
        "box": ("float", [0.5, 1.0]),
        "sizes": ("int64", [7, -8]),
        "no": ("int64", []),
    }
    messages = [
        example(
            image__encoded=("bytes", [random.randbytes(size)]), label=("int64", [label]), **others
        ).SerializeToString()
        for size, label in zip((1, 7, 8, 9, 127, 128, 20_000, 0), LABELS, strict=True)
    ]
    offsets = written(tmp_path / "a", messages)
    found = by_library(tmp_path / "a", offsets, simd=simd)
    assert found == by_python(tmp_path / "a", offsets)
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


@pytest.mark.parametrize("name", LEFT)
def test_a_record_without_them_is_left(tmp_path: Path, name: str) -> None:
    offsets = written(tmp_path / "a", [GOOD, LEFT[name], GOOD])
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
def test_whatever_is_taken_python_takes_too(
    tmp_path: Path, features: dict[str, Any], change: str, place: float, byte: int
) -> None:
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
        found, expected = by_library(path, offsets, simd=simd), by_python(path, offsets)
        assert found in (expected, [None])
        if change == "none" and "ä" not in features:
            assert found == expected


# -------------------- loaders


def images(count: int) -> list[bytes]:
    return [(png if number % 3 == 0 else jpeg)(pixels((20 + number, 30))) for number in range(count)]


def workload(folder: Path, **keys: Any) -> ap.Workload:
    masks = [png(pixels((20 + number, 30), 1, seed=1)[..., 0]) for number in range(23)]
    for shard in range(2):
        each = [
            frame(serialise({"image/encoded": image, "image/class/label": number, "mask": mask}))
            for number, (image, mask) in enumerate(zip(images(23), masks, strict=True))
        ]
        (folder / f"{shard}.tfrecord").write_bytes(b"".join(each[12 * shard : 12 + 11 * shard]))
    ops = [ap.Decode(), ap.RandomResizedCrop(16, 16), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.TFRecords(folder / "*.tfrecord", **keys), ops=ops, batch_size=4)


def batches(made: ap.Workload, **settings: Any) -> list[Any]:
    with build_loader(made, ap.PipelineConfig(loader=ap.Threads(workers=2), **settings)) as loader:
        return [[np.array(part) for part in batch] for batch in loader.epoch(1)]


def refuse(*_: object) -> Any:
    raise AssertionError("a record was read by Python")


@pytest.mark.parametrize("keys", [{}, {"mask_key": "mask"}, {"label_key": None}])
@pytest.mark.parametrize("keep", ["none", "tfrecord"])
def test_batches_are_made_from_records_without_a_visit_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], keep: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = workload(tmp_path, **keys)
    with reference.by_python():
        expected = batches(made)
    settings: dict[str, Any] = {}
    if keep != "none":
        conversion = Conversion.of(made, make_plan(made), 0)
        convert(conversion, STORAGES[keep], tmp_path / "kept")
        made = ap.Workload(data=made.data, ops=made.ops, batch_size=4, converted=str(tmp_path / "kept"))
        settings = {"keep": keep}
    with build_loader(made, ap.PipelineConfig(loader=ap.Threads(workers=2), **settings)) as loader:
        monkeypatch.setattr(records, "read_record", refuse)
        monkeypatch.setattr(layout.StoredSource, "read", refuse)
        loaded = [[np.array(part) for part in batch] for batch in loader.epoch(1)]
    for one, other in zip(loaded, expected, strict=True):
        for part, wanted in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, wanted)
