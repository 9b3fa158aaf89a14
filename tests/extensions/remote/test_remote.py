"""URLs on fsspec's own memory file system and on a web server on loopback. What only a bucket can do: test_s3.py."""

import importlib
import pickle
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import fsspec
import numpy as np
import pytest

import autopipe as ap
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
from tests.fakes.commands import content as folder_content
from tests.fakes.web import CUT, Server, serving
from tests.unit.pipeline.storage import test_convert
from tests.unit.pipeline.storage.test_convert import COUNT, fail_at

Put = Callable[..., str]

NAMES = ("cat/b.jpg", "cat/a.JPG", "cat/deep/er/x.png", "cat-2/y.jpg", "cat-2/z.jpg", "dog/ä ö?.jpg", "dog/[1].jpg")
LEFT_OUT = ("cat/.hidden.jpg", "cat/.git/x.jpg", "dog/notes.txt", ".trash/x.jpg")


@pytest.fixture
def bucket() -> Iterator[str]:
    """The URL of a bucket of the test's own on fsspec's memory file system, which a first file makes."""
    url = f"memory://{uuid.uuid4().hex}"
    yield url
    if fsspec.filesystem("memory").exists(url):
        fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture
def put(bucket: str) -> Put:
    """Write files into it, and return its URL."""

    def write(*names: str, content: bytes | None = None) -> str:
        for name in names:
            fsspec.filesystem("memory").pipe_file(f"{bucket}/{name}", name.encode() if content is None else content)
        return bucket

    return write


def test_a_folder_has_the_order_and_the_names_of_the_same_folder_on_a_disk(put: Put, tmp_path: Path) -> None:
    for name in (*NAMES, *LEFT_OUT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    here, there = ap.ImageFolder(tmp_path), ap.ImageFolder(put(*NAMES, *LEFT_OUT))
    found = [there.read(index) for index in range(len(there))]
    assert [here.read(index) for index in range(len(here))] == found
    assert here.classes == there.classes == ("cat", "cat-2", "dog")
    assert sorted(NAMES) == sorted(name.decode() for name, _ in found)
    assert data_source.difference(here.digest(), there.digest()) == "times, tags"
    assert (there.remote, storage_of(there), there.files()) == ("memory", "memory", [])
    assert there.mean_bytes() == np.mean([len(name.encode()) for name in NAMES])
    packed = pickle.dumps(there)
    assert b"fsspec" not in packed
    assert pickle.loads(packed).read(0) == found[0]


def test_what_changes_behind_a_url_changes_the_digest_and_is_a_bad_sample_of_the_old_listing(put: Put) -> None:
    data = ap.ImageFolder(put("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"))
    assert ap.ImageFolder(put()).digest() == data.digest()
    after = ap.ImageFolder(put("a/1.jpg", content=b"a/X.jpg")).digest()
    assert data_source.difference(data.digest(), after) == "tags"
    longer = ap.ImageFolder(put("a/1.jpg", content=b"longer than"))
    assert data_source.difference(after, longer.digest()) == "sizes, tags"
    with pytest.raises(ap.BadSampleError, match=r"1\.jpg` has changed since it was listed: 11 bytes came, not 7"):
        data.read(0)
    put("a/1.jpg", content=b"")
    with pytest.raises(ap.BadSampleError, match=r"1\.jpg` is empty"):
        data.read(0)
    fsspec.filesystem("memory").rm(f"{put()}/a/1.jpg")
    with pytest.raises(ap.BadSampleError, match=r"`memory://\w+/a/1\.jpg` does not exist"):
        data.read(0)


def test_a_million_urls_take_well_under_64_bytes_each() -> None:
    names = ((k, b"n%08d" % (k // 1300)) for k in range(100_000))
    objects = (Found(name, b"%s_%d.JPEG" % (name, k), 110_000 + k, b"%032x" % k) for k, name in names)
    assert len(pickle.dumps(ObjectList("s3://bucket/train", objects))) < 48 * 100_000


class Answered(Exception):
    """What botocore raises as the cause of an OSError, or aiohttp itself, as far as it is looked at."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize("is_cause", [True, False])
def test_bytes_that_are_not_there_are_a_bad_sample(put: Put, is_cause: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    url, status = put(*NAMES), 416

    def refused(*_: object, **__: object) -> bytes:
        answer = Answered(status)
        if not is_cause:
            raise answer
        del answer.status
        raise OSError(22, "The requested range is not satisfiable") from answer

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", refused)
    with pytest.raises(ap.BadSampleError, match=r"a\.JPG` is empty \(0 bytes\)"):
        ap.ImageFolder(url).read(0)
    with pytest.raises(ap.BadSampleError, match=r"a\.JPG` ends before byte 50\."):
        filesystem.read(f"{url}/cat/a.JPG", 50, 60)
    status = 500
    with pytest.raises(ap.DataError, match="cannot be read") as caught:
        ap.ImageFolder(url).read(0)
    assert type(caught.value) is ap.DataError


def test_pairs_are_matched_behind_urls_and_of_images_there_with_masks_on_a_disk(put: Put, tmp_path: Path) -> None:
    url = put("images/b.jpg", "images/s/a.jpg", "masks/b_L.png", "masks/s/a_L.png")
    data = ap.ImagePairs(f"{url}/images/", f"{url}/masks", mask_suffix="_L")
    wanted = [(b"images/b.jpg", b"masks/b_L.png"), (b"images/s/a.jpg", b"masks/s/a_L.png")]
    assert ([data.read(index) for index in range(2)], data.remote) == (wanted, "memory")
    for name in ("b.png", "s/a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"mask")
    assert ap.ImagePairs(f"{url}/images", tmp_path).read(0) == (b"images/b.jpg", b"mask")


def test_a_table_behind_a_url_names_images_beside_it_and_one_on_a_disk_names_urls(put: Put, tmp_path: Path) -> None:
    url = put("images/1.jpg", "images/2.jpg")
    put("table.csv", content="file,label\nimages/1.jpg,cat\nimages/2.jpg,dög\n".encode())
    data = ap.Table(f"{url}/table.csv", path="file")
    assert [data.read(index) for index in range(2)] == [(b"images/1.jpg", 0), (b"images/2.jpg", 1)]
    assert (data.classes, data.mean_bytes()) == (("cat", "dög"), 12)
    assert data.name(1).endswith(f"/images/2.jpg (row 3 of {url}/table.csv)")
    table = tmp_path / "table.csv"
    table.write_text(f"path,label\n{url}/images/1.jpg,3\n{url}/images/2.jpg,4\n")
    data = ap.Table(table)
    assert [data.read(index) for index in range(2)] == [(b"images/1.jpg", 3), (b"images/2.jpg", 4)]
    assert data.remote == "memory"
    table.write_text("path,label\n1.jpg,3\n3.jpg,4\n")
    with pytest.raises(ap.DataError, match=r"1 of 2 are missing: row 3: memory://\w+/images/3\.jpg"):
        ap.Table(table, root=f"{url}/images")
    table.write_text(f"path,label\n{url}/images/1.jpg,3\n2.jpg,4\n")
    with pytest.raises(ap.DataError, match=f"All files must be URLs where some are, but `{tmp_path}/` is a folder"):
        ap.Table(table)


def records(*labels: int) -> bytes:
    return b"".join(frame(serialise({IMAGE_KEY: b"image %d" % label, LABEL_KEY: label})) for label in labels)


def record(label: int) -> tuple[bytes, int]:
    return b"image %d" % label, label


@pytest.mark.usefixtures("cache")
def test_records_behind_urls_are_read_and_scanned_again_when_changed(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    url = put("train/data-0.tfrecord", content=records(1, 2))
    put("train/data-1.tfrecord", content=records(3))
    for files in (f"{url}/train/data-*", [f"{url}/train/data-{number}.tfrecord" for number in range(2)]):
        data = ap.TFRecords(files)
        assert [data.read(index) for index in (2, 0, 1)] == [record(3), record(1), record(2)]
        assert (data.remote, data.files()) == ("memory", [])
    monkeypatch.setattr("autopipe.workload.data.records._FETCH_BYTES", 100)  # a scan over several requests
    put("train/data-1.tfrecord", content=records(*range(20)))
    data = ap.TFRecords(f"{url}/train/data-1.tfrecord")
    assert [data.read(index) for index in range(len(data))] == [record(label) for label in range(20)]


@pytest.mark.parametrize(
    "url", ["s3://user:hunter2@bucket/x", "https://me:hunter2@host/x.csv", "https://hunter2@host/x"]
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"path,label\n{url}/1.jpg,3\n")
    calls: list[tuple[Any, Any]] = [(make, (url,)) for make in (ap.ImageFolder, ap.Table, ap.TFRecords, Folder.of)]
    for make, arguments in (*calls, (ap.ImagePairs, (url, url)), (ap.Table, (table,)), (ap.TFRecords, ([url],))):
        with pytest.raises(ap.DataError, match="must not hold a user name or password") as caught:
            make(*arguments)
        assert "hunter2" not in str(caught.value)


def test_what_a_file_system_says_is_shown_without_users_and_signatures() -> None:
    said = OSError("GET https://me:hunter2@host/1.jpg?X-Amz-Signature=hunter2 failed")
    error = filesystem.failure("https://host/1.jpg?X-Amz-Signature=hunter2", said)
    assert "hunter2" not in str(error)
    assert "OSError: GET https://host/1.jpg?… failed" in str(error)
    denied = filesystem.failure("s3://bucket/1.jpg", PermissionError("Forbidden"))
    assert type(denied) is ap.DataError  # and not the sample's fault
    assert "Access to `s3://bucket/1.jpg` is denied" in denied.message
    assert "~/.aws" in str(denied.hint)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a b" / "cat").mkdir(parents=True)
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "a b" / "cat" / name).write_bytes(b"1")
    data = ap.ImageFolder(f"file://{tmp_path}/a%20b")
    assert (data.remote, data.files([0])) == (None, [f"{tmp_path}/a b/cat/1.jpg"])


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("make", "arguments", "said"),
    [
        (ap.Arrays, ["s3://bucket/x.npy"], r"must be a file on a disk, but got `s3://bucket/x\.npy`"),
        (ap.ImageFolder, ["simplecache::s3://bucket/photos"], "Chains of URLs"),
        (ap.ImageFolder, [Path("s3://bucket/photos")], "must be passed as text"),
        (ap.ImageFolder, ["nosuch://bucket/photos"], "`nosuch://` is no kind of URL that fsspec knows"),
        (ap.ImageFolder, ["memory://gone/photos"], "There is nothing at `memory://gone/photos`"),
        (ap.Table, ["memory://gone/a.csv"], r"The table `memory://gone/a\.csv` does not exist"),
        (ap.TFRecords, ["memory://gone/*.records"], "No object matches"),
        (ap.ImageFolder, ["http://example.invalid/photos/"], r"A web server cannot list.*ap\.Table"),
        (ap.TFRecords, ["https://example.invalid/*.tfrecord"], r"A web server cannot list.*ap\.Table"),
        (ap.ImageFolder, ["memory://here/images"], "needs a folder for each class, but the 2 images lie in"),
        (ap.ImagePairs, ["memory://here/images", "memory://here/masks"], r"1 file of .*images` has no partner: b\.jpg"),
        (ap.TFRecords, [["memory://here/masks/a.png", "memory://gone"]], "1 of 2 .* not exist, the first .*//gone`"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_by_name(make: Any, arguments: list[Any], said: str) -> None:
    for name in ("images/a.jpg", "images/b.jpg", "masks/a.png"):
        fsspec.filesystem("memory").pipe_file(f"memory://here/{name}", b"image")
    with pytest.raises(ap.DataError, match=said):
        make(*arguments)


@pytest.mark.parametrize(
    ("url", "package", "said"),
    [
        ("s3://bucket/photos", "fsspec", "`fsspec` is not installed; the extra `remote` brings it"),
        ("gs://bucket/x", "gcsfs", "pip install.* gcsfs$"),
        ("abfs://bucket@account.dfs.core.windows.net/x", "adlfs", "pip install.* adlfs$"),
        ("s3://bucket/x", "s3fs", "pip install.* s3fs$"),
    ],
)
def test_a_package_that_is_missing_is_named(url: str, package: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem._implementation.cache_clear()
    monkeypatch.setattr(importlib.import_module("fsspec.registry"), "_registry", {})  # what is imported already
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ap.MissingExtraError, match=said):
        ap.ImageFolder(url)
    filesystem._implementation.cache_clear()


@pytest.mark.parametrize("form", ["tf.data", "keras"])
def test_samples_behind_a_url_are_not_listed_in_plain_code(form: str, put: Put) -> None:
    url = put("cat/1.jpg", "cat/2.jpg", content=cv2.imencode(".jpg", np.ones((4, 4)))[1].tobytes())
    workload = ap.Workload(data=ap.ImageFolder(url), ops=[ap.Decode()], batch_size=2)
    with pytest.raises(ap.ConfigError, match=r"behind a URL \(memory://\)"):
        eject(workload, form)


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
    convert(conversion(), TFRECORD, f"{url}/tfrecord", workers=2)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    convert(conversion(), TFRECORD, tmp_path / "set")
    assert folder_content(tmp_path / "set") == content(url)
    made = find(url, conversion(), TFRECORD)
    for data in (made, pickle.loads(pickle.dumps(made))):
        assert [data.read(index) for index in (19, 0, 7)] == [record(index) for index in (19, 0, 7)]
    assert (made.remote, made.files(), made.name(3)) == ("memory", [], f"sample 3 of {url}/tfrecord")
    assert verify(made, conversion(), at_most=COUNT) == COUNT
    with pytest.raises(ap.StorageError, match="has no set of the 100 samples"):
        find(f"{url}/elsewhere", conversion(), TFRECORD)


def test_what_a_conversion_finished_is_kept_and_what_is_lost_is_written_again_by_one_at_a_time(url: str) -> None:
    def fail(index: int) -> None:
        if index == 0:
            with pytest.raises(ap.StorageError, match="Another conversion is at work on"):
                convert(conversion(), TFRECORD, url)
        fail_at(50)(index)

    with pytest.raises(ap.BadSampleError, match="sample 50 is broken"):
        convert(conversion(fail), TFRECORD, url)
    whole = [name for number in range(3) for name in (f"data-{number:05d}.tfrecord", f"index-{number:05d}.npy")]
    assert sorted(content(url)) == sorted(["part-0-of-1.json", *whole])
    with pytest.raises(ap.StorageError, match="its conversion was begun and did not end"):
        open_set(url, conversion(), TFRECORD)
    done, complete, system = convert(conversion(), TFRECORD, url), content(url), fsspec.filesystem("memory")
    assert (done.kept, done.samples) == (39, 61)
    system.rm_file(f"{url}/data-00002.tfrecord")
    system.pipe_file(f"{url}/index-00004.npy", b"cut")
    with pytest.raises(ap.StorageError, match="2 of 8 shards are missing or not whole"):
        open_set(url, conversion(), TFRECORD)
    assert convert(conversion(), TFRECORD, url).samples == 26
    assert content(url) == complete
    made, file = open_set(url, conversion(), TFRECORD), f"{url}/data-00001.tfrecord"
    system.pipe_file(file, system.cat_file(file)[:-1] + b"?")
    with pytest.raises(ap.StorageError, match=r"data-00001\.tfrecord` does not match its checksum"):
        verify(made, conversion())


def test_a_form_for_disks_is_refused_behind_a_url_and_the_way_out_is_named(url: str) -> None:
    spec = SampleSpec(Field(FieldKind.ARRAY, (2,), np.dtype(np.uint8)), None)
    array, wanted = STORAGES["array"], conversion(spec=spec)
    for call in (lambda: convert(wanted, array, url), lambda: find(url, wanted, array)):
        with pytest.raises(ap.ConfigError, match=r"must lie on a disk, but got `memory://(.|\n)*tfrecord"):
            call()


# ---------------------------------------------------------------- a web server, which lists no files

FILES = {f"/photos/{number}.jpg": b"image %d" % number for number in range(4)}


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


def test_a_table_of_urls_is_read_and_what_is_gone_is_named_without_its_signature(web: Server, table: Path) -> None:
    data = ap.Table(table)
    assert [data.read(number) for number in range(4)] == [record(number) for number in range(4)]
    assert (data.mean_bytes(), storage_of(data)) == (7, "http")
    assert "hunter2" not in f"{data.name(0)} {data.digest()} {data!r}"
    del web.files["/photos/2.jpg"]  # later, it is a bad sample
    with pytest.raises(ap.BadSampleError, match=r"photos/2\.jpg\?…` does not exist") as caught:
        data.read(2)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ap.DataError, match=r"1 of 4 are missing: row 4: http://127\.0\.0\.1:\d+/photos/2\.jpg") as gone:
        ap.Table(table)
    assert "hunter2" not in str(gone.value)


@pytest.mark.parametrize("when", ["sample", "table"])
@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "is denied"), (401, "is denied"), (500, "cannot be read"), (CUT, "ServerDisconnectedError")],
)
def test_what_a_server_refuses_is_no_bad_sample(web: Server, table: Path, status: int, said: str, when: str) -> None:
    data = ap.Table(table)
    web.status["/photos/1.jpg"] = status
    with pytest.raises(ap.DataError, match=said) as caught:
        ap.Table(table) if when == "table" else data.read(1)
    assert not isinstance(caught.value, ap.BadSampleError)
    assert "hunter2" not in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_records_are_read_by_their_bytes(web: Server) -> None:
    web.files["/all.tfrecord"] = records(*range(4))
    data = ap.TFRecords([f"{web.url}/all.tfrecord"])
    assert data.read(2) == record(2)
    web.ranges = False
    with pytest.raises(ap.DataError, match="cannot send a part of a file"):
        data.read(2)
