"""Bytes from outside give samples or a DataError with the name of their file, never another exception."""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autopipe.errors import DataError
from autopipe.workload.data import records
from autopipe.workload.data.arrays import boxed
from autopipe.workload.data.records import ExampleError, TFRecords, features, serialise
from autopipe.workload.data.table import Table

pytestmark = pytest.mark.usefixtures("cache")

per_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = {bytes: "bytes_list", int: "int64_list"}
PARTS: dict[str, bytes | int] = {"image/encoded": b"an image", "image/class/label": 3}


def read_or_message(path: Path) -> set[object] | str:
    """Return the samples of a file, or the path if a DataError names it."""
    try:
        data = TFRecords(path)
        return {data.read(i) for i in range(len(data))}
    except DataError as error:
        return str(path) if str(path) in str(error) else str(error)


@per_file
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_what_is_framed_is_read(tmp_path: Path, contents: list[bytes]) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"".join(map(records.frame, contents)))
    path = os.fsencode(file)
    offsets = records.scan_records(path).tolist()
    assert contents == [records.read_record(path, *pair) for pair in itertools.pairwise(offsets)]


@per_file
@given(st.data())
def test_a_changed_file_gives_what_was_written_or_a_data_error(tmp_path: Path, data: st.DataObject) -> None:
    whole = records.frame(serialise(PARTS)) * 3
    changed = bytearray(whole)
    for position in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=3)):
        changed[position] = data.draw(st.integers(0, 255))
    kept = data.draw(st.integers(0, len(whole)))
    (tmp_path / "a").write_bytes(changed[:kept] + data.draw(st.binary(max_size=20)))
    assert read_or_message(tmp_path / "a") in ({(b"an image", 3)}, str(tmp_path / "a"))


@given(st.dictionaries(st.text(max_size=10), st.binary(max_size=50) | st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_what_is_serialised_is_read(values: dict[str, bytes | int]) -> None:
    parsed = features(serialise(values))
    assert values == {key: getattr(parsed[key], KINDS[type(value)]).value[0] for key, value in values.items()}


class Held:
    """A file in memory, and how much of it was read."""

    def __init__(self, content: bytes, apart: int) -> None:
        self._content, self.size, self.apart, self.taken = content, len(content), apart, 0

    def read(self, start: int, count: int) -> bytes:
        self.taken += count
        return self._content[start : start + count]


@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from([0, 16, 1000]))
def test_a_part_of_an_array_in_a_file_is_that_of_the_array(data: st.DataObject, shape: list[int], apart: int) -> None:
    array = np.arange(np.prod(shape), dtype=">u2").reshape(shape)
    box = []
    for size in shape[: data.draw(st.integers(1, len(shape)))]:
        first = data.draw(st.integers(0, size - 1))
        box.append(slice(first, data.draw(st.integers(first + 1, size))))
    file = Held(b"abc" + array.tobytes(), apart)
    found, wanted = boxed(file, 3, array.shape, array.dtype, box), array[tuple(box)]
    np.testing.assert_array_equal(found, wanted)
    assert file.taken <= 4 * wanted.nbytes or apart


LABELS = st.text(min_size=1, max_size=8).map(str.strip).filter(bool).filter(lambda text: "\0" not in text)


@per_file
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_refused_or_read(tmp_path: Path, content: bytes) -> None:
    with contextlib.suppress(ExampleError):
        sorted(features(content))
    (tmp_path / "a.csv").write_bytes(b"path,label\n" + content)
    with contextlib.suppress(DataError):
        Table(tmp_path / "a.csv")


@pytest.mark.filterwarnings("ignore:.*are named by several rows")
@per_file
@given(st.lists(LABELS, min_size=1, max_size=6))
def test_labels_come_back(tmp_path: Path, labels: list[str]) -> None:
    (tmp_path / "1.jpg").write_bytes(b"1")
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("path", "label"), *(("1.jpg", label) for label in labels)])
    data = Table(tmp_path / "a.csv")
    found = [data.read(i)[1] for i in range(len(data))]  # type: ignore[index]  # a pair, because there is a label
    if data.classes is None:
        assert [float(label) for label in labels] == [float(value) for value in found]
    else:
        assert labels == [data.classes[number] for number in found]
