"""Bytes from outside give samples or a DataError with the name of their file, never another exception."""

import contextlib
import csv
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from autopipe.errors import DataError
from autopipe.workload import order as randomness
from autopipe.workload.data import records
from autopipe.workload.data.arrays import boxed
from autopipe.workload.data.records import ExampleError, TFRecords, features, serialise
from autopipe.workload.data.table import Table
from autopipe.workload.order import BatchOrder

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


seeds = st.integers(-(2**63), 2**64)
epochs = st.integers(0, 2**31)
streams = st.integers(0, 64)
indices = st.lists(st.integers(0, 2**40), min_size=1, max_size=20)


@given(seeds, epochs, indices, streams, st.integers(0, 4), st.randoms())
def test_a_samples_numbers_do_not_depend_on_its_batch(seed, epoch, wanted, stream, draws, shuffler):  # type: ignore[no-untyped-def]
    together = randomness.uniforms(seed, epoch, np.array(wanted), stream, draws)
    assert (together.shape, together.dtype.name) == ((len(wanted), draws), "float64")
    assert np.all((together >= 0) & (together < 1))
    for place in shuffler.sample(range(len(wanted)), len(wanted)):
        alone = randomness.uniforms(seed, epoch, np.array([wanted[place]]), stream, draws)
        assert_array_equal(together[place], alone[0])


@given(seeds, epochs, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 6))
def test_an_order_is_a_permutation_that_in_blocks_ends_some_before_it_begins_others(
    seed: int, epoch: int, lengths: list[int], mixed: int
) -> None:
    block_of = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    order = randomness.block_order(seed, epoch, len(block_of), starts, mixed)
    for each in (order, randomness.epoch_order(seed, epoch, len(block_of))):
        assert sorted(each.tolist()) == list(range(len(block_of)))
    began = list(dict.fromkeys(block_of[order].tolist()))  # so many of them are mixed at a time
    group_of = np.empty(len(lengths), int)
    group_of[began] = np.arange(len(began)) // mixed
    assert_array_equal(np.sort(group_of[block_of[order]]), group_of[block_of[order]])


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 7), st.booleans(), st.booleans(), epochs)
def test_shards_are_disjoint_and_cover_the_epoch(count, size, parts, shuffle, drop, epoch):  # type: ignore[no-untyped-def]
    assume(count // parts >= (size if drop else 1))  # a part without a batch is refused
    orders = [
        BatchOrder(count=count, batch_size=size, seed=1, shuffle=shuffle, drop_remainder=drop, shard=(part, parts))
        for part in range(parts)
    ]
    seen = [index for order in orders for index in order.epoch(epoch).tolist()]
    assert sorted(seen) == list(range(count))
    for order in orders:
        assert order.samples == len(order.epoch(epoch))
        sizes = [order.batch_samples(batch) for batch in range(order.batches)]
        assert sum(sizes) == (order.samples // size * size if drop else order.samples)
        assert all(0 < found <= size for found in sizes)
        assert order.has_short_batch == any(found < size for found in sizes)
