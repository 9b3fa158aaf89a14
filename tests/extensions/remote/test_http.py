"""Files on a web server on loopback, each named by its URL; such a server lists nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, DataError
from autopipe.measure.fingerprint import storage_of
from autopipe.workload.data.records import frame, serialise
from tests.fakes.web import CUT, Server, serving

FILES = {f"/photos/{number}.jpg": b"image %d" % number for number in range(4)}
RECORDS = b"".join(
    frame(serialise({"image/encoded": b"image %d" % number, "image/class/label": number})) for number in range(4)
)


@pytest.fixture
def web() -> Iterator[Server]:
    with serving() as server:
        server.files.update(FILES)
        yield server


@pytest.fixture
def table(web: Server, tmp_path: Path) -> Path:
    """A table of four images, whose URLs are signed."""
    rows = [f"{web.url}{path}?signature=hunter2,{number}" for number, path in enumerate(FILES)]
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *rows, ""]))
    return tmp_path / "labels.csv"


def test_a_table_of_urls_is_read(table: Path) -> None:
    data = ap.Table(table)
    assert [data.read(number) for number in range(4)] == [(b"image %d" % number, number) for number in range(4)]
    assert data.mean_bytes() == 7
    assert storage_of(data) == "http"


def test_a_file_that_is_gone_is_named_with_its_row_and_without_its_signature(web: Server, table: Path) -> None:
    del web.files["/photos/2.jpg"]
    with pytest.raises(DataError, match=r"1 of 4 are missing: row 4: http://127\.0\.0\.1:\d+/photos/2\.jpg") as caught:
        ap.Table(table)
    assert "hunter2" not in str(caught.value)

    web.files["/photos/2.jpg"] = b"image 2"
    data = ap.Table(table)
    del web.files["/photos/2.jpg"]  # later, it is a bad sample
    with pytest.raises(BadSampleError, match=r"photos/2\.jpg\?…` does not exist") as caught:
        data.read(2)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "is denied"), (401, "is denied"), (500, "cannot be read"), (CUT, "cannot be read: ServerDisconnectedError")],
)
def test_what_a_server_refuses_or_cuts_is_not_the_samples_fault(
    web: Server, table: Path, status: int, message: str
) -> None:
    data = ap.Table(table)
    web.status["/photos/1.jpg"] = status
    with pytest.raises(DataError, match=message) as caught:
        data.read(1)
    assert not isinstance(caught.value, BadSampleError)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("status", "message"), [(500, "cannot be read"), (403, "is denied"), (404, "are missing")])
def test_what_a_server_answers_when_it_is_asked_about_files_is_told(
    web: Server, table: Path, status: int, message: str
) -> None:
    web.status["/photos/1.jpg"] = status
    with pytest.raises(DataError, match=message) as caught:
        ap.Table(table)
    assert "hunter2" not in str(caught.value)


def test_records_are_read_by_their_bytes(web: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    web.files["/all.tfrecord"] = RECORDS
    data = ap.TFRecords([f"{web.url}/all.tfrecord"])
    assert data.read(2) == (b"image 2", 2)
    web.ranges = False
    with pytest.raises(DataError, match="cannot send a part of a file"):
        data.read(2)
