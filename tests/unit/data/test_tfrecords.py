from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from autopipe.core.sample import FieldKind
from autopipe.data.example import serialise
from autopipe.data.records import frame
from autopipe.data.tfrecords import TFRecords
from autopipe.errors import BadSampleError, DataError, DataWarning


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(file: Path, *labels: int) -> Path:
    values: list[dict[str, bytes | int]] = [
        {"image/encoded": b"image %d" % n, "image/class/label": n, "mask": b"mask %d" % n} for n in labels
    ]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(frame(serialise(value)) for value in values))
    return file


def test_records_of_several_files_are_one_sequence(tmp_path: Path) -> None:
    for number, labels in enumerate(((1, 2), (), (3,), (4, 5, 6))):
        write(tmp_path / f"{number}.tfrecord", *labels)
    data = pickle.loads(pickle.dumps(TFRecords(tmp_path / "*.tfrecord")))
    assert [data.read(i) for i in range(len(data))] == [(b"image %d" % n, n) for n in range(1, 7)]
    assert (data.x_kind, data.y_kind) == (FieldKind.ENCODED, FieldKind.LABEL)
    assert data.name(4).startswith(f"{tmp_path}/3.tfrecord, record 1 at byte ")
    assert data.files([0, 1, 3]) == [f"{tmp_path}/0.tfrecord", f"{tmp_path}/3.tfrecord"]
    assert len(data.files()) == 4
    assert data.mean_bytes() == sum(file.stat().st_size for file in tmp_path.glob("*.tfrecord")) / 6


@pytest.mark.parametrize("index", [-1, 2])
def test_there_is_no_record_outside(tmp_path: Path, index: int) -> None:
    with pytest.raises(IndexError):
        TFRecords(write(tmp_path / "a", 1, 2)).read(index)


def test_keys_can_be_named_and_labels_left_out(tmp_path: Path) -> None:
    file = str(write(tmp_path / "a", 1, 2))
    assert TFRecords(file, image_key="mask", label_key=None).read(1) == b"mask 2"
    assert TFRecords([file], mask_key="mask").read(0) == (b"image 1", b"mask 1")
    assert TFRecords(file, mask_key="mask").y_kind is FieldKind.ENCODED
    assert TFRecords(file, label_key=None).y_kind is None


def test_a_key_that_is_missing_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no feature `masks`; it has .*Did you mean `mask`\? Name the features"):
        TFRecords(write(tmp_path / "a", 1), mask_key="masks")


def test_a_label_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"int64_list of `mask`.*holds bytes_list"):
        TFRecords(write(tmp_path / "a", 1), label_key="mask")


def test_records_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"\xff\xd8\xff\xe0 a JPEG"))
    with pytest.raises(DataError, match=r"first record of .* is no tf\.train\.Example"):
        TFRecords(tmp_path / "a")


def test_a_later_record_without_the_key_is_a_bad_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 1)
    with file.open("ab") as stream:
        stream.write(frame(serialise({"other": 1})))
    with pytest.raises(BadSampleError, match=r"record at byte \d+ of .* has no feature `image/encoded`"):
        TFRecords(file).read(1)


def test_no_file_and_no_record_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No file matches"):
        TFRecords(tmp_path / "*.tfrecord")
    with pytest.raises(DataError, match="empty sequence"):
        TFRecords([])
    with pytest.raises(DataError, match="no records in the 1 files"):
        TFRecords(write(tmp_path / "empty"))


def test_a_set_with_files_missing_warns(tmp_path: Path) -> None:
    write(tmp_path / "train-00000-of-00003.tfrecord", 1)
    write(tmp_path / "train-00002-of-00003.tfrecord", 3)
    with pytest.warns(DataWarning, match=r"should be 3 files .* 1 are missing, the first is number 1"):
        data = TFRecords(tmp_path / "train-*")
    assert len(data) == 2


def test_the_digest_stays_when_the_folder_moves_and_changes_with_a_file(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a", 1)
    before = TFRecords(tmp_path / "old" / "*").digest()
    (tmp_path / "old").rename(tmp_path / "new")
    assert before == TFRecords(tmp_path / "new" / "*").digest()
    os.utime(tmp_path / "new" / "a", ns=(0, 0))
    assert before != TFRecords(tmp_path / "new" / "*").digest()
