from __future__ import annotations

import os
import pwd
import struct
from pathlib import Path

import numpy as np
import pytest

from autopipe.data import records
from autopipe.errors import BadSampleError, DataError

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


def test_the_checksum_is_that_of_the_format() -> None:
    # 123456789 -> 0xE3069283 is the check value of CRC-32C; the mask is TensorFlow's.
    assert records.masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_records_are_found_and_read_in_any_order(path: bytes) -> None:
    offsets = records.record_offsets(path).tolist()
    found = {i: records.read_record(path, offsets[i], offsets[i + 1]) for i in reversed(range(len(DATA)))}
    assert len(offsets) == len(DATA) + 1
    assert [found[i] for i in range(len(DATA))] == DATA


def test_an_empty_file_has_no_records(path: bytes) -> None:
    rewrite(path, b"")
    assert records.record_offsets(path).tolist() == [0]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11, 15])
def test_a_file_that_is_cut_short_is_refused_with_the_offset(path: bytes, cut: int) -> None:
    whole = Path(os.fsdecode(path)).read_bytes()
    start = len(whole) - len(records.frame(DATA[-1]))
    rewrite(path, whole[:-cut])
    with pytest.raises(DataError, match=rf"record at byte {start} of .*a\.tfrecord` is cut short"):
        records.record_offsets(path)


def test_a_file_that_ends_within_a_header_is_refused(path: bytes) -> None:
    rewrite(path, records.frame(b"whole") + records.frame(b"cut")[:7])
    with pytest.raises(DataError, match=r"record at byte 21 .* ends within its header, at 28 bytes"):
        records.record_offsets(path)


def test_a_corrupt_header_is_refused_with_the_offset(path: bytes) -> None:
    rewrite(path, records.frame(b"whole") + b"\xff" + records.frame(b"wrong")[1:])
    with pytest.raises(DataError, match=r"record at byte 21 of .* header does not match its checksum"):
        records.record_offsets(path)


def test_a_file_of_another_kind_is_refused(path: bytes) -> None:
    rewrite(path, b"\xff\xd8\xff\xe0 this is a JPEG")
    with pytest.raises(DataError, match="is no TFRecord file"):
        records.record_offsets(path)


@pytest.mark.parametrize("magic", [b"\x1f\x8b\x08\x00", b"\x78\x9c\xed\xc1"])
def test_a_compressed_file_is_refused_with_the_way_out(path: bytes, magic: bytes) -> None:
    rewrite(path, magic + bytes(30))
    with pytest.raises(DataError, match=r"compressed as a whole.*without compression"):
        records.record_offsets(path)


def test_a_record_that_does_not_match_its_checksum_is_a_bad_sample(path: bytes) -> None:
    frame = bytearray(records.frame(b"content"))
    frame[14] ^= 1
    rewrite(path, bytes(frame))
    with pytest.raises(BadSampleError, match=r"record at byte 0 of .*a\.tfrecord` is corrupt"):
        records.read_record(path, 0, len(frame))


def test_a_file_that_shrank_since_is_a_bad_sample(path: bytes) -> None:
    end = len(records.frame(b"content"))
    rewrite(path, records.frame(b"content")[:-3])
    with pytest.raises(BadSampleError, match="has shrunk"):
        records.read_record(path, 0, end)


def test_a_missing_file_is_refused_at_once_and_a_bad_sample_later() -> None:
    with pytest.raises(DataError, match="No such file"):
        records.record_offsets(b"/nowhere")
    with pytest.raises(BadSampleError, match="No such file"):
        records.read_record(b"/nowhere", 0, 20)


def test_the_index_is_kept_until_the_file_changes(path: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = records.record_offsets(path)
    assert len(list(cache.iterdir())) == 1
    with monkeypatch.context() as patched:
        patched.delattr(records, "scan_records")  # whoever scans again fails
        np.testing.assert_array_equal(first, records.record_offsets(path))
    rewrite(path, records.frame(b"new"))
    assert records.record_offsets(path).tolist() == [0, 19]


@pytest.mark.parametrize("content", [b"", b"broken", struct.pack("<4Q", 0, 1, 2, 3)])
def test_a_broken_index_is_made_anew(path: bytes, cache: Path, content: bytes) -> None:
    first = records.record_offsets(path)
    kept = next(cache.iterdir())
    kept.write_bytes(content)
    np.testing.assert_array_equal(first, records.record_offsets(path))
    np.testing.assert_array_equal(first, np.load(kept))


def test_an_index_of_other_offsets_is_made_anew(path: bytes, cache: Path) -> None:
    first = records.record_offsets(path)
    for wrong in (first[1:], first[:-1], first[::-1], first.astype("int64"), first[None], np.array([], "uint64")):
        np.save(next(cache.iterdir()), wrong)
        np.testing.assert_array_equal(first, records.record_offsets(path))


def test_a_cache_folder_that_cannot_be_made_costs_nothing_but_time(path: bytes, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")
    assert len(records.record_offsets(path)) == len(DATA) + 1


def test_a_user_without_a_name_and_without_a_home_has_the_cache_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert records.cache_folder() == Path("/.cache/autopipe/tfrecord")


@pytest.mark.timeout(20)
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.tfrecord")
    with pytest.raises(DataError, match="must be a regular file, but is a named pipe"):
        records.record_offsets(os.fsencode(tmp_path / "train.tfrecord"))
