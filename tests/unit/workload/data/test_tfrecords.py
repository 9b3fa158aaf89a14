"""TFRecord files: their frames, their examples and the source over them."""

from __future__ import annotations

import os
import pickle
import pwd
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autopipe.errors import BadSampleError, DataError, DataWarning
from autopipe.workload.data import paths, records
from autopipe.workload.data.records import TFRecords, frame, serialise
from autopipe.workload.sample import FieldKind


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


def test_keys_can_be_named_and_labels_left_out(tmp_path: Path) -> None:
    file = str(write(tmp_path / "a", 1, 2))
    masked, alone = TFRecords([file], mask_key="mask"), TFRecords(file, image_key="mask", label_key=None)
    assert (masked.read(0), masked.y_kind) == ((b"image 1", b"mask 1"), FieldKind.ENCODED)
    assert (alone.read(1), alone.y_kind) == (b"mask 2", None)
    for outside in (-1, 2):
        with pytest.raises(IndexError):
            alone.read(outside)


def test_a_later_record_without_the_key_is_a_bad_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 1)
    with file.open("ab") as stream:
        stream.write(frame(serialise({"other": 1})))
    with pytest.raises(BadSampleError, match=r"record at byte \d+ of .* has no feature `image/encoded`; it has `oth"):
        TFRecords(file).read(1)


def test_a_set_with_files_missing_warns(tmp_path: Path) -> None:
    write(tmp_path / "train-00000-of-00003.tfrecord", 1)
    write(tmp_path / "train-00002-of-00003.tfrecord", 3)
    with pytest.warns(DataWarning, match=r"should be 3 files .* 1 are missing, the first is number 1"):
        data = TFRecords(tmp_path / "train-*")
    assert len(data) == 2


DATA = [b"", b"a", b"12345" * 100, b"x" * 400_000, b"y" * 300_000, *(b"short %d" % i for i in range(1000))]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "autopipe" / "tfrecord"


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(records.frame, DATA)))
    return os.fsencode(tmp_path / "a.tfrecord")


def rewrite(path: bytes, content: bytes) -> None:
    Path(os.fsdecode(path)).write_bytes(content)


def test_the_checksum_is_that_of_the_format_and_equal_values_give_equal_bytes() -> None:
    # 123456789 -> 0xE3069283 is the check value of CRC-32C; the mask is TensorFlow's.
    assert records.masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert records.serialise({"a": b"1", "b": 2}) == records.serialise({"b": 2, "a": b"1"})


@pytest.mark.timeout(20)
def test_a_missing_file_and_a_named_pipe_are_refused_at_once_and_a_bad_sample_later(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file, said in ((b"/nowhere", "No such file"), (os.fsencode(tmp_path / "pipe"), "regular file, but is a named")):
        with pytest.raises(DataError, match=said):
            records.record_offsets(file)
    with pytest.raises(BadSampleError, match="No such file"):
        records.read_record(b"/nowhere", 0, 20)


def test_the_index_is_kept_until_the_file_changes(path: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")
    first = records.record_offsets(path)
    assert len(first) == len(DATA) + 1
    cache.unlink()
    records.record_offsets(path)
    assert len(list(cache.iterdir())) == 1
    with monkeypatch.context() as patched:
        patched.delattr(records, "scan_records")  # another scan fails
        np.testing.assert_array_equal(first, records.record_offsets(path))
    rewrite(path, records.frame(b"new"))
    assert records.record_offsets(path).tolist() == [0, 19]


def test_a_user_without_a_name_and_without_a_home_has_the_cache_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert paths.cache_folder() == Path("/.cache/autopipe/tfrecord")


WHOLE = records.frame(b"whole")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((WHOLE + records.frame(b"x" * 20)[:-cut], "record at byte 21 .* is cut short") for cut in (1, 4, 5, 15)),
        (WHOLE + records.frame(b"cut")[:7], "record at byte 21 .* ends within its header, at 28 bytes"),
        (WHOLE + b"\xff" + records.frame(b"wrong")[1:], "record at byte 21 .* header does not match its checksum"),
        (b"\xff\xd8\xff\xe0 this is a JPEG", "is no TFRecord file"),
        *((magic + bytes(30), "compressed as a whole.*without comp") for magic in (b"\x1f\x8b\x08\0", b"\x78\x9c")),
    ],
)
def test_a_file_that_is_damaged_or_none_is_refused_with_the_offset(path: bytes, content: bytes, said: str) -> None:
    rewrite(path, content)
    with pytest.raises(DataError, match=said):
        records.record_offsets(path)


def test_a_record_that_changed_or_shrank_since_is_a_bad_sample(path: bytes) -> None:
    frame = bytearray(records.frame(b"content"))
    rewrite(path, bytes(frame[:-3]))
    with pytest.raises(BadSampleError, match="has shrunk"):
        records.read_record(path, 0, len(frame))
    frame[14] ^= 1
    rewrite(path, bytes(frame))
    with pytest.raises(BadSampleError, match=r"record at byte 0 of .*a\.tfrecord` is corrupt"):
        records.read_record(path, 0, len(frame))


def test_an_index_that_is_broken_or_of_other_offsets_is_made_anew(path: bytes, cache: Path) -> None:
    first = records.record_offsets(path)
    kept = next(cache.iterdir())
    for content in (b"", b"broken", struct.pack("<4Q", 0, 1, 2, 3)):
        kept.write_bytes(content)
        np.testing.assert_array_equal(first, records.record_offsets(path))
        np.testing.assert_array_equal(first, np.load(kept))
    for wrong in (first[1:], first[:-1], first[::-1], first.astype("int64"), first[None], np.array([], "uint64")):
        np.save(kept, wrong)
        np.testing.assert_array_equal(first, records.record_offsets(path))


def test_files_without_such_records_are_refused(tmp_path: Path) -> None:
    file, other = write(tmp_path / "a", 1), tmp_path / "other"
    other.write_bytes(frame(b"\xff\xd8\xff\xe0 a JPEG"))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: TFRecords(file, mask_key="masks"), r"no feature `masks`; its features .*Did you mean `mask`\? Name"),
        (lambda: TFRecords(file, label_key="mask"), r"int64_list of `mask`.*holds bytes_list"),
        (lambda: TFRecords(other), r"first record of .* is no tf\.train\.Example"),
        (lambda: TFRecords(tmp_path / "*.tfrecord"), "No file matches"),
        (lambda: TFRecords([]), "empty sequence"),
        (lambda: TFRecords(write(tmp_path / "empty")), "no records in the 1 file of"),
    ]
    for make, said in refused:
        with pytest.raises(DataError, match=said):
            make()
