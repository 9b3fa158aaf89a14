"""URLs on fsspec's own memory file system and on a web server on loopback. What only a bucket can do: test_s3.py."""

from __future__ import annotations

import importlib
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import autopipe as ap
from autopipe.errors import BadSampleError, ConfigError, DataError, DataWarning, MissingExtraError, StorageError
from autopipe.extensions.remote import filesystem
from autopipe.measure.fingerprint import storage_of
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.eject.module import eject
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion, Folder
from autopipe.pipeline.storage.layout import find, open_set, verify
from autopipe.pipeline.storage.tfrecord import IMAGE_KEY, LABEL_KEY
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import Found
from autopipe.workload.data.records import frame, serialise
from autopipe.workload.data.remote import ObjectList
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.web import CUT, Server, serving
from tests.unit.pipeline.storage import test_convert
from tests.unit.pipeline.storage.test_convert import COUNT, fail_at

Put = Callable[..., str]

NAMES = ("cat/b.jpg", "cat/a.JPG", "cat/deep/er/x.png", "cat-2/y.jpg", "cat-2/z.jpg", "dog/ä ö?.jpg", "dog/[1].jpg")
LEFT_OUT = ("cat/.hidden.jpg", "cat/.git/x.jpg", "dog/notes.txt", ".trash/x.jpg")


@pytest.fixture
def put(bucket: str) -> Put:
    """Write files into a bucket of the test's own, and return its URL."""

    def write(*names: str, content: bytes | None = None) -> str:
        for name in names:
            fsspec.filesystem("memory").pipe_file(f"{bucket}/{name}", name.encode() if content is None else content)
        return bucket

    return write


def test_images_of_kinds_that_are_not_read_warn(put: Put) -> None:
    url = put(*NAMES, "cat/1.gif", "cat/.2.gif", "cat/deep/3.heic")
    with pytest.warns(DataWarning, match=r"2 files below `memory://.*` are left out \(\.gif, \.heic\)"):
        assert len(ap.ImageFolder(url)) == len(NAMES)


def test_a_folder_has_the_order_and_the_names_of_the_same_folder_on_a_disk(put: Put, tmp_path: Path) -> None:
    for name in (*NAMES, *LEFT_OUT):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(name.encode())
    here, there = ap.ImageFolder(tmp_path), ap.ImageFolder(put(*NAMES, *LEFT_OUT))
    assert [here.read(index) for index in range(len(here))] == [there.read(index) for index in range(len(there))]
    assert here.classes == there.classes == ("cat", "cat-2", "dog")
    assert sorted(NAMES) == sorted(there.read(index)[0].decode() for index in range(len(there)))
    assert data_source.difference(here.digest(), there.digest()) == "times, tags"


def test_a_million_urls_take_well_under_64_bytes_each() -> None:
    objects = (
        Found(b"n%08d" % (k // 1300), b"n%08d_%d.JPEG" % (k // 1300, k), 110_000 + k, b"%032x" % k)
        for k in range(100_000)
    )
    assert len(pickle.dumps(ObjectList("s3://bucket/train", objects))) < 48 * 100_000


def test_what_changes_behind_a_url_changes_the_digest(put: Put) -> None:
    before = ap.ImageFolder(put("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg")).digest()
    assert ap.ImageFolder(put()).digest() == before
    after = ap.ImageFolder(put("b/1.jpg", content=b"b/X.jpg")).digest()
    assert data_source.difference(before, after) == "tags"
    assert (
        data_source.difference(after, ap.ImageFolder(put("b/1.jpg", content=b"longer than")).digest()) == "sizes, tags"
    )


def test_a_source_tells_of_its_url_names_no_file_on_a_disk_and_pickles_without_its_connection(put: Put) -> None:
    data = ap.ImageFolder(put(*NAMES))
    assert (data.remote, storage_of(data), data.files()) == ("memory", "memory", [])
    assert data.name(0).endswith("/cat/a.JPG")
    assert data.mean_bytes() == np.mean([len(name.encode()) for name in NAMES])
    packed = pickle.dumps(data)
    assert b"fsspec" not in packed
    assert pickle.loads(packed).read(0)[0] == b"cat/a.JPG"


def test_an_object_that_vanished_changed_or_is_empty_is_a_bad_sample_and_is_named(put: Put) -> None:
    url = put(*NAMES)
    data = ap.ImageFolder(url)
    fsspec.filesystem("memory").rm(f"{url}/cat/a.JPG")
    with pytest.raises(BadSampleError, match=r"`memory://\w+/cat/a\.JPG` does not exist"):
        data.read(0)
    put("cat/a.JPG", content=b"more than before")
    with pytest.raises(BadSampleError, match=r"a\.JPG` has changed since it was listed: 16 bytes came, not 9"):
        data.read(0)
    put("cat/a.JPG", content=b"")
    with pytest.raises(BadSampleError, match=r"a\.JPG` is empty"):
        data.read(0)


class _AnswersS3(Exception):
    """What botocore raises, as far as it is looked at."""

    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class _AnswersHTTP(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


def _answered_by_s3(status: int) -> Exception:
    made = OSError(22, "The requested range is not satisfiable")
    made.__cause__ = _AnswersS3(status)
    return made


@pytest.mark.parametrize("answer", [_answered_by_s3, _AnswersHTTP])
def test_bytes_that_a_server_does_not_have_are_a_bad_sample(
    put: Put, answer: Callable[[int], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(*NAMES)
    status = 416

    def refused(*_: object, **__: object) -> bytes:
        raise answer(status)

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", refused)
    with pytest.raises(BadSampleError, match=r"a\.JPG` is empty \(0 bytes\)"):
        ap.ImageFolder(url).read(0)
    with pytest.raises(BadSampleError, match=r"a\.JPG` ends before byte 50\."):
        filesystem.read(f"{url}/cat/a.JPG", 50, 60)
    status = 500
    with pytest.raises(DataError, match="cannot be read") as caught:
        ap.ImageFolder(url).read(0)
    assert type(caught.value) is DataError


def test_pairs_are_matched_behind_urls(put: Put) -> None:
    url = put("images/b.jpg", "images/s/a.jpg", "masks/b_L.png", "masks/s/a_L.png")
    data = ap.ImagePairs(f"{url}/images/", f"{url}/masks", mask_suffix="_L")
    assert [data.read(index) for index in range(2)] == [
        (b"images/b.jpg", b"masks/b_L.png"),
        (b"images/s/a.jpg", b"masks/s/a_L.png"),
    ]
    assert data.remote == "memory"


def test_images_may_be_behind_a_url_and_masks_on_a_disk(put: Put, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"mask")
    assert ap.ImagePairs(put("a.jpg"), tmp_path).read(0) == (b"a.jpg", b"mask")


def test_a_table_behind_a_url_names_images_beside_it(put: Put) -> None:
    url = put("images/1.jpg", "images/2.jpg")
    put("table.csv", content="file,label\nimages/1.jpg,cat\nimages/2.jpg,dög\n".encode())
    data = ap.Table(f"{url}/table.csv", path="file")
    assert [data.read(index) for index in range(2)] == [(b"images/1.jpg", 0), (b"images/2.jpg", 1)]
    assert data.classes == ("cat", "dög")
    assert data.name(1).endswith("/images/2.jpg (row 3 of " + f"{url}/table.csv)")
    assert data.mean_bytes() == 12


def test_a_table_on_a_disk_names_urls(put: Put, tmp_path: Path) -> None:
    url = put("1.jpg", "s/2.jpg")
    table = tmp_path / "table.csv"
    table.write_text(f"path,label\n{url}/1.jpg,3\n{url}/s/2.jpg,4\n")
    data = ap.Table(table)
    assert [data.read(index) for index in range(2)] == [(b"1.jpg", 3), (b"s/2.jpg", 4)]
    assert data.remote == "memory"


def test_a_table_names_rows_whose_url_does_not_exist_and_refuses_urls_among_paths(put: Put, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("path,label\n1.jpg,3\n2.jpg,4\n")
    with pytest.raises(DataError, match=r"1 of 2 are missing: row 3: memory://\w+/2\.jpg"):
        ap.Table(table, root=put("1.jpg"))
    table.write_text(f"path,label\n{put('1.jpg')}/1.jpg,3\n2.jpg,4\n")
    with pytest.raises(DataError, match=f"All files must be URLs where some are, but `{tmp_path}/` is a folder"):
        ap.Table(table)


def records(*labels: int) -> bytes:
    return b"".join(frame(serialise({IMAGE_KEY: b"image %d" % label, LABEL_KEY: label})) for label in labels)


@pytest.mark.usefixtures("cache")
def test_records_behind_urls_are_read_in_any_order(put: Put) -> None:
    url = put("train/data-0.tfrecord", content=records(1, 2))
    put("train/data-1.tfrecord", content=records(3))
    for data in (
        ap.TFRecords(f"{url}/train/data-*"),
        ap.TFRecords([f"{url}/train/data-0.tfrecord", f"{url}/train/data-1.tfrecord"]),
    ):
        assert [data.read(index) for index in (2, 0, 1)] == [(b"image 3", 3), (b"image 1", 1), (b"image 2", 2)]
        assert data.remote == "memory"
        assert data.files() == []


class _Hosted(MemoryFileSystem):
    """A file system that knows paths without the host that they are on, as that of sftp:// does."""

    protocol = "hosted"

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        is_url = str(path).startswith("hosted://")
        stripped: str = super()._strip_protocol("/" + path.split("/", 3)[3] if is_url else path)
        return stripped


@pytest.mark.usefixtures("cache")
def test_records_that_a_pattern_finds_are_read_from_the_host_that_has_them(put: Put) -> None:
    fsspec.register_implementation("hosted", _Hosted, clobber=True)
    folder = put("data-0.tfrecord", content=records(1, 2)).removeprefix("memory://")
    data = ap.TFRecords(f"hosted://example/{folder}/data-*")
    assert data.name(0).startswith(f"hosted://example/{folder}/data-0.tfrecord, record 0")
    assert data.read(1) == (b"image 2", 2)


@pytest.mark.usefixtures("cache")
def test_records_that_changed_behind_their_url_are_scanned_again(put: Put) -> None:
    url = put("data.tfrecord", content=records(1, 2))
    assert len(ap.TFRecords(f"{url}/data.tfrecord")) == 2
    put("data.tfrecord", content=records(1, 2, 3))
    assert len(ap.TFRecords(f"{url}/data.tfrecord")) == 3


@pytest.mark.usefixtures("cache")
def test_a_scan_over_several_requests_finds_every_record(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autopipe.workload.data.records._FETCH_BYTES", 100)
    data = ap.TFRecords(f"{put('data.tfrecord', content=records(*range(20)))}/data.tfrecord")
    assert [data.read(index) for index in range(20)] == [(b"image %d" % label, label) for label in range(20)]


@pytest.mark.parametrize(
    "url", ["s3://user:hunter2@bucket/x", "https://user:hunter2@host/x.csv", "https://hunter2@host/x.csv"]
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"path,label\n{url}/1.jpg,3\n")
    for make in (
        lambda: ap.ImageFolder(url),
        lambda: ap.ImagePairs(url, url),
        lambda: ap.Table(url),
        lambda: ap.Table(table),
        lambda: ap.TFRecords(url),
        lambda: ap.TFRecords([url]),
        lambda: Folder.of(url),  # of a set
    ):
        with pytest.raises(DataError, match="must not hold a user name or password") as caught:
            make()
        assert "hunter2" not in str(caught.value)


def test_a_signature_in_a_url_is_in_no_message_and_no_name(put: Put, tmp_path: Path) -> None:
    url = put("1.jpg?sig=hunter2")
    table = tmp_path / "table.csv"
    table.write_text(f"path,label\n{url}/1.jpg?sig=hunter2,3\n")
    data = ap.Table(table)
    assert data.read(0) == (b"1.jpg?sig=hunter2", 3)
    assert "hunter2" not in f"{data.name(0)} {data.digest()} {data!r}"
    fsspec.filesystem("memory").rm_file(f"{url}/1.jpg?sig=hunter2")
    put("other.jpg")
    with pytest.raises(BadSampleError) as caught:
        data.read(0)
    assert "hunter2" not in str(caught.value)


def test_what_a_file_system_says_is_shown_without_users_and_signatures() -> None:
    said = OSError("GET https://me:hunter2@host/1.jpg?X-Amz-Signature=hunter2 failed")
    error = filesystem.failure("https://host/1.jpg?X-Amz-Signature=hunter2", said)
    assert "hunter2" not in str(error)
    assert "OSError: GET https://host/1.jpg?… failed" in str(error)


def test_access_that_is_denied_is_not_the_samples_fault_and_says_where_credentials_go() -> None:
    error = filesystem.failure("s3://bucket/1.jpg", PermissionError("Forbidden"))
    assert type(error) is DataError
    assert "Access to `s3://bucket/1.jpg` is denied" in error.message
    assert error.hint is not None
    assert "~/.aws" in error.hint


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a b" / "cat").mkdir(parents=True)
    (tmp_path / "a b" / "cat" / "1.jpg").write_bytes(b"1")
    (tmp_path / "a b" / "cat" / "2.jpg").write_bytes(b"2")
    data = ap.ImageFolder(f"file://{tmp_path}/a%20b")
    assert data.remote is None
    assert data.files([0]) == [f"{tmp_path}/a b/cat/1.jpg"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ap.Arrays("s3://bucket/x.npy"), r"must be a file on a disk, but got `s3://bucket/x\.npy`"),
        (lambda: ap.ImageFolder("simplecache::s3://bucket/photos"), "Chains of URLs"),
        (lambda: ap.ImageFolder(Path("s3://bucket/photos")), "must be passed as text"),
        (lambda: ap.ImageFolder("nosuch://bucket/photos"), "`nosuch://` is no kind of URL that fsspec knows"),
        (lambda: ap.ImageFolder("memory://gone/photos"), "There is nothing at `memory://gone/photos`"),
        (lambda: ap.Table("memory://gone/a.csv"), r"The table `memory://gone/a\.csv` does not exist"),
        (lambda: ap.TFRecords("memory://gone/*.records"), "No object matches"),
        (lambda: ap.ImageFolder("http://example.invalid/photos/"), r"A web server cannot list.*ap\.Table"),
        (lambda: ap.TFRecords("https://example.invalid/*.tfrecord"), r"A web server cannot list.*ap\.Table"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_by_name(make: Callable[[], object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        make()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda url: ap.ImageFolder(f"{url}/images"), "needs a folder for each class, but the 2 images lie in"),
        (
            lambda url: ap.ImagePairs(f"{url}/images", f"{url}/masks"),
            r"1 file of `memory://\w+/images` has no partner: b\.jpg",
        ),
        (
            lambda url: ap.TFRecords([f"{url}/masks/a.png", f"{url}/gone"]),
            r"1 of 2 files do not exist, the first is `memory://\w+/gone`",
        ),
    ],
)
def test_what_is_missing_behind_a_url_is_named_as_on_a_disk(make: Any, said: str, put: Put) -> None:
    with pytest.raises(DataError, match=said):
        make(put("images/a.jpg", "images/b.jpg", "masks/a.png"))


@pytest.fixture
def _nothing_opened() -> Iterator[None]:
    filesystem._implementation.cache_clear()
    yield
    filesystem._implementation.cache_clear()


@pytest.mark.usefixtures("_nothing_opened")
def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match="`fsspec` is not installed; the extra `remote` brings it"):
        ap.ImageFolder("s3://bucket/photos")


@pytest.mark.usefixtures("_nothing_opened")
@pytest.mark.parametrize(
    ("url", "package"),
    [("gs://bucket/x", "gcsfs"), ("abfs://bucket@account.dfs.core.windows.net/x", "adlfs"), ("s3://bucket/x", "s3fs")],
)
def test_without_the_package_of_a_scheme_it_is_named(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(importlib.import_module("fsspec.registry"), "_registry", {})  # what is imported already
    with pytest.raises(MissingExtraError, match=f"pip install.* {package}$"):
        ap.ImageFolder(url)


# ---------------------------------------------------------------- sets behind URLs


TFRECORD = STORAGES["tfrecord"]
SPEC = SampleSpec(Field(FieldKind.ENCODED, None, None), Field(FieldKind.LABEL, (), np.dtype(np.int64)))


def conversion(on_read: Callable[[int], None] | None = None, **changes: Any) -> Conversion:
    """Return one of encoded images, as TFRecords hold them."""
    return test_convert.conversion(on_read, lambda index: (b"image %d" % index, index), **{"spec": SPEC, **changes})


@pytest.fixture
def url(bucket: str, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return f"{bucket}/set"


def content(url: str) -> dict[str, bytes]:
    system = fsspec.filesystem("memory")
    return {name.rpartition("/")[2]: system.cat_file(name) for name in system.find(url)}


def test_a_set_behind_a_url_is_that_of_a_disk_byte_for_byte_and_nothing_is_left_here(url: str, tmp_path: Path) -> None:
    convert(conversion(), TFRECORD, url, workers=2)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    convert(conversion(), TFRECORD, tmp_path / "set")
    assert {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir() if path.name[0] != "."} == content(
        url
    )


def test_a_set_behind_a_url_is_read_in_any_order_and_pickles(url: str) -> None:
    convert(conversion(), TFRECORD, url)
    made = open_set(url, conversion(), TFRECORD)
    again = pickle.loads(pickle.dumps(made))
    for source in (made, again):
        assert [source.read(index) for index in (19, 0, 7)] == [(b"image %d" % index, index) for index in (19, 0, 7)]
    assert made.remote == "memory"
    assert made.files() == []
    assert made.name(3) == f"sample 3 of {url}"
    assert verify(made, conversion(), at_most=COUNT) == COUNT


def test_it_is_found_below_the_url_that_a_workload_names(url: str) -> None:
    convert(conversion(), TFRECORD, f"{url}/tfrecord")
    assert find(url, conversion(), TFRECORD).read(4) == (b"image 4", 4)
    with pytest.raises(StorageError, match="has no set of the 100 samples"):
        find(f"{url}/elsewhere", conversion(), TFRECORD)


def test_what_was_finished_before_a_failure_is_kept_and_nothing_else(url: str) -> None:
    with pytest.raises(BadSampleError, match="sample 50 is broken"):
        convert(conversion(fail_at(50)), TFRECORD, url)
    assert sorted(content(url)) == sorted(
        ["part-0-of-1.json"]
        + [name for number in range(3) for name in (f"data-{number:05d}.tfrecord", f"index-{number:05d}.npy")]
    )
    with pytest.raises(StorageError, match="its conversion was begun and did not end"):
        open_set(url, conversion(), TFRECORD)
    done = convert(conversion(), TFRECORD, url)
    assert (done.kept, done.samples) == (39, 61)


def test_a_shard_that_was_lost_or_cut_is_written_again_and_a_changed_byte_is_found_by_verifying(url: str) -> None:
    convert(conversion(), TFRECORD, url)
    whole = content(url)
    system = fsspec.filesystem("memory")
    system.rm_file(f"{url}/data-00002.tfrecord")
    system.pipe_file(f"{url}/index-00004.npy", b"cut")
    with pytest.raises(StorageError, match="2 of 8 shards are missing or not whole"):
        open_set(url, conversion(), TFRECORD)
    assert convert(conversion(), TFRECORD, url).samples == 26
    assert content(url) == whole
    made, file = open_set(url, conversion(), TFRECORD), f"{url}/data-00001.tfrecord"
    system.pipe_file(file, system.cat_file(file)[:-1] + b"?")
    with pytest.raises(StorageError, match=r"data-00001\.tfrecord` does not match its checksum"):
        verify(made, conversion())


def test_two_at_once_are_refused(url: str) -> None:
    def convert_again(index: int) -> None:
        if index == 0:
            with pytest.raises(StorageError, match="Another conversion is at work on"):
                convert(conversion(), TFRECORD, url)

    convert(conversion(convert_again), TFRECORD, url)


def test_a_form_for_disks_is_refused_behind_a_url_and_the_way_out_is_named(url: str) -> None:
    array = STORAGES["array"]
    spec = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype(np.uint8)), None)
    for call in (lambda: convert(conversion(spec=spec), array, url), lambda: find(url, conversion(spec=spec), array)):
        with pytest.raises(ConfigError, match="must lie on a disk, but got `memory://") as caught:
            call()
        assert caught.value.hint is not None
        assert "tfrecord" in caught.value.hint


@pytest.mark.parametrize("form", ["tf.data", "keras"])
def test_samples_behind_a_url_are_not_listed_in_plain_code(form: str) -> None:
    for name in ("cat/1.jpg", "cat/2.jpg"):
        fsspec.filesystem("memory").pipe_file(
            f"memory://ejected/{name}", bytes(cv2.imencode(".jpg", np.ones((4, 4)))[1])
        )
    workload = ap.Workload(data=ap.ImageFolder("memory://ejected"), ops=[ap.Decode()], batch_size=2)
    with pytest.raises(ConfigError, match=r"behind a URL \(memory://\)"):
        eject(workload, form)


# ---------------------------------------------------------------- a web server, which lists no files

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
    ("status", "message", "when"),
    [
        (403, "is denied", "sample"),
        (401, "is denied", "sample"),
        (500, "cannot be read", "sample"),
        (CUT, "cannot be read: ServerDisconnectedError", "sample"),
        (500, "cannot be read", "table"),
        (403, "is denied", "table"),
        (404, "are missing", "table"),
    ],
)
def test_what_a_server_refuses_is_no_samples_fault(
    web: Server, table: Path, status: int, message: str, when: str
) -> None:
    data = ap.Table(table)
    web.status["/photos/1.jpg"] = status
    with pytest.raises(DataError, match=message) as caught:
        ap.Table(table) if when == "table" else data.read(1)
    assert not isinstance(caught.value, BadSampleError)
    assert "hunter2" not in str(caught.value)


def test_records_are_read_by_their_bytes(web: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    web.files["/all.tfrecord"] = RECORDS
    data = ap.TFRecords([f"{web.url}/all.tfrecord"])
    assert data.read(2) == (b"image 2", 2)
    web.ranges = False
    with pytest.raises(DataError, match="cannot send a part of a file"):
        data.read(2)
