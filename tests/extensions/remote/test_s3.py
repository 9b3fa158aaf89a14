"""Sources on a real S3 server on loopback, with a proxy before it that delays, refuses and cuts connections."""

import json
import pickle
import re
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import fsspec
import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import converting
from autopipe.extensions.remote import filesystem
from autopipe.measure.fingerprint import storage_of
from tests.fakes.commands import autopipe, python, succeeded
from tests.fakes.s3 import PATIENCE_SECONDS, Fault, Handler, Proxy, server

pytestmark = pytest.mark.slow

SECRET = "hunter2hunter2"
PER_CLASS = 32
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """An S3 server with 64 photographs in two classes at s3://photos/train, behind a proxy that s3fs finds."""
    with server() as port, pytest.MonkeyPatch.context() as environment:
        between = Proxy(port)
        place = {"HOME": str(tmp_path_factory.mktemp("home")), "AWS_ENDPOINT_URL": between.url}
        once = {"AWS_MAX_ATTEMPTS": "1"}  # botocore waits seconds between attempts
        for name, value in (KEYS | place | once).items():
            environment.setenv(name, value)
        filesystem._SYSTEMS.clear()
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        system = fsspec.filesystem("s3")
        system.mkdir("photos")
        system.pipe({f"photos/train/{name}": content for name, content in PHOTOGRAPHS.items()})
        yield between
        between.close()
        filesystem._SYSTEMS.clear()
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def photograph(number: int) -> bytes:
    image = np.random.default_rng(number).integers(0, 255, (24, 24, 3), np.uint8)
    return cv2.imencode(".jpg", image)[1].tobytes()


PHOTOGRAPHS = {f"{'cat' if n < PER_CLASS else 'dog'}/{n:03d}.jpg": photograph(n) for n in range(2 * PER_CLASS)}


@pytest.fixture
def photos(proxy: Proxy) -> Iterator[str]:
    proxy.reset()
    yield "s3://photos/train"
    proxy.reset()


def workload(data: object, **settings: object) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(16, 16), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=data, ops=ops, **{"batch_size": 8, **settings})  # type: ignore[arg-type]  # of any kind


def loader(work: ap.Workload, loader: Any = None, **settings: Any) -> ap.Loader:
    return ap.make_loader(work, ap.PipelineConfig(loader=loader or ap.Threads(workers=2), **settings))


def test_a_bucket_holds_what_was_put_there_a_read_is_one_request_and_a_pickle_holds_no_credential(
    photos: str, proxy: Proxy
) -> None:
    data = ap.ImageFolder(photos)
    found = {data.name(index).removeprefix(f"{photos}/"): data.read(index)[0] for index in range(len(data))}
    assert (data.classes, found, storage_of(data)) == (("cat", "dog"), PHOTOGRAPHS, "s3")
    proxy.requests.clear()
    packed = pickle.dumps(data)
    again = pickle.loads(packed)
    again.read(0), again.mean_bytes(), len(again)
    assert SECRET not in f"{again.digest()} {data!r} {data.name(0)} {packed!r}"
    assert proxy.requests == [("GET", "/photos/train/cat/000.jpg")]
    with pytest.raises(ap.DataError, match="There is nothing at `s3://no-such-bucket/train`"):
        ap.ImageFolder("s3://no-such-bucket/train")


def meeting(proxy: Proxy, count: int) -> threading.Barrier:
    """Have the first reads wait for each other; if fewer are in flight, the barrier breaks, and a connection is cut."""
    together, first = threading.Barrier(count), iter(range(count))

    def wait_for_all(handler: Handler) -> bool:
        if next(first, None) is not None:
            together.wait(PATIENCE_SECONDS)
        return False

    proxy.fault = wait_for_all
    return together


@pytest.mark.parametrize(
    "kind",
    [
        ap.Threads(workers=16, queue_size=2),
        ap.Threads(workers=2, queue_size=2, read_ahead=16),
        ap.Processes(workers=2, queue_size=2, read_ahead=16),
        ap.TfData(num_parallel_calls=16),
        ap.TfData(num_parallel_calls=2, read_ahead=16),
    ],
    ids=lambda kind: f"{kind.kind}-{kind.read_ahead}",
)
def test_as_many_reads_wait_at_a_time_as_a_loader_was_told(kind: Any, photos: str, proxy: Proxy) -> None:
    with loader(workload(ap.ImageFolder(photos), batch_size=2), kind) as built:
        together = meeting(proxy, 16)
        assert len(list(built.batches(0))) == 32
    assert not together.broken


def test_64_reads_and_those_of_a_conversion_are_in_flight_at_a_time(photos: str, proxy: Proxy, tmp_path: Path) -> None:
    data, together = ap.ImageFolder(photos), meeting(proxy, 64)
    with ThreadPoolExecutor(64) as pool:
        assert [content for content, _ in pool.map(data.read, range(64))] == list(PHOTOGRAPHS.values())
    job = converting.job(workload(data), "tfrecord", tmp_path / "set", cut=0)
    eight = meeting(proxy, 8)  # there are eight shards
    assert job.run().samples == 64
    assert (together.broken, eight.broken) == (False, False)


READS = """
import os, pickle, sys
from concurrent.futures import ThreadPoolExecutor
data = pickle.load(open(sys.argv[1], "rb"))
with ThreadPoolExecutor(32) as pool:
    read = list(pool.map(data.read, range(32)))
print(open(sys.argv[2]).read())
child = os.fork()
if child == 0:
    os._exit(0 if [data.read(index) for index in range(32)] == read else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_credentials_are_looked_for_once_and_a_forked_process_reads_with_a_connection_of_its_own(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from a program that `~/.aws/config` names, as one for a role or single sign-on."""
    keys = json.dumps({"Version": 1, "AccessKeyId": "testing", "SecretAccessKey": SECRET})
    program, config = tmp_path / "credentials.sh", tmp_path / "config"
    program.write_text(f"echo asked >> {tmp_path}/asked\necho '{keys}'\n")
    config.write_text(f"[profile role]\ncredential_process = /bin/sh {program}\n")
    (tmp_path / "data").write_bytes(pickle.dumps(ap.ImageFolder(photos)))
    for name in KEYS.keys() - {"AWS_DEFAULT_REGION"}:
        monkeypatch.delenv(name)
    role = {"AWS_PROFILE": "role", "AWS_CONFIG_FILE": str(config)}
    done = succeeded(python("-W", "ignore", "-c", READS, tmp_path / "data", tmp_path / "asked", **role))
    assert done.stdout.split() == ["asked"]


def refuse(part: str, status: int, code: str, *commands: str) -> Fault:
    def fault(handler: Handler) -> bool:
        if part not in handler.path or handler.command not in (commands or ("GET", "HEAD")):
            return False
        handler.answer(status, code)
        return True

    return fault


def test_an_object_that_is_gone_or_empty_may_be_skipped_and_replaced(photos: str, proxy: Proxy, tmp_path: Path) -> None:
    system, url = fsspec.filesystem("s3"), f"{photos.rpartition('/')[0]}/with-an-empty-one"
    system.pipe({f"{url}/{name}": content for name, content in PHOTOGRAPHS.items()})
    system.pipe_file(f"{url}/cat/007.jpg", b"")
    proxy.fault = refuse("train/cat/009.jpg", 404, "NoSuchKey")
    for data, said in ((url, "cat/007.jpg` is empty (0 bytes)"), (photos, "cat/009.jpg` does not exist")):
        log = tmp_path / data.rpartition("/")[2]
        with loader(workload(ap.ImageFolder(data), on_bad_sample="skip", bad_sample_log=str(log))) as made:
            assert sum(len(x) for x, _ in made.batches(0)) == 2 * PER_CLASS
        assert f"`{data}/{said}" in log.read_text()


def test_denied_access_is_named_no_credential_is_and_bad_samples_that_are_skipped_are_others(
    photos: str, proxy: Proxy, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    data = ap.ImageFolder(photos)
    with loader(workload(data, on_bad_sample="skip", bad_sample_log=str(tmp_path / "bad.jsonl"))) as made:
        proxy.fault = refuse("cat/007.jpg", 403, "ExpiredToken")
        with pytest.raises(ap.DataError, match=r"Access to `s3://photos/train/cat/007\.jpg` is denied"):
            list(made.batches(0))
    proxy.fault = refuse("denied", 403, "AccessDenied", "PUT", "POST")
    with pytest.raises(ap.DataError, match=r"Access to `s3://photos/denied/part-0-of-1\.json` is denied"):
        converting.job(workload(data), "tfrecord", "s3://photos/denied").run()
    proxy.fault = refuse("photos", 403, "AccessDenied")
    caplog.set_level("DEBUG", "autopipe")
    with pytest.raises(ap.DataError, match="Access to `s3://photos/train` is denied") as caught:
        ap.ImageFolder(photos)
    assert SECRET not in f"{caught.value!r}{caught.value.__cause__!r}{caplog.text}"


def test_a_connection_that_is_cut_is_tried_once_more_and_then_names_the_object(photos: str, proxy: Proxy) -> None:
    data = ap.ImageFolder(photos)
    cuts = iter([True, False, *[True] * 99])

    def fault(handler: Handler) -> bool:
        is_cut = next(cuts)
        if is_cut:
            handler.cut()
        return is_cut

    proxy.fault = fault
    proxy.requests.clear()
    assert data.read(0)[0] == PHOTOGRAPHS["cat/000.jpg"]
    assert len(proxy.requests) == 2
    with pytest.raises(ap.DataError, match=r"`s3://photos/train/cat/000\.jpg` cannot be read") as caught:
        data.read(0)
    assert not isinstance(caught.value, ap.BadSampleError)


def test_a_bucket_is_converted_and_trained_from(photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    convert = ("convert", "--images", photos, "--image-size", "16", "--to", "tfrecord", "--out")
    target, parts = "s3://photos/kept/tfrecord", "s3://photos/parts"
    said = run(tmp_path, *convert, target, "--verify")
    assert f"wrote     64 samples to {target}" in said
    assert "verified  every file, and 32 samples against the source" in said
    assert "64 were there already" in run(tmp_path, *convert, target)
    for part in ("0/2", "1/2"):
        said = run(tmp_path, *convert, parts, "--shard", part)
    assert f"autopipe {shlex.join((*convert, parts))}" in said
    assert f"wrote     0 samples to {parts}" in run(tmp_path, *convert, parts)

    kept, data = ap.Processes(workers=2, queue_size=2), ap.ImageFolder(photos)
    there = loader(workload(data, converted="s3://photos/kept"), kept, keep="tfrecord")
    with there, loader(workload(data)) as here:
        for mine, theirs in zip(there.batches(0), here.batches(0), strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])
            np.testing.assert_array_equal(mine[1], theirs[1])


def test_the_python_of_the_documentation_runs(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(filesystem.__file__).with_name("README.md").read_text()
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)), {})
    assert capsys.readouterr().out == f"64 ('cat', 'dog') {photos}/cat/000.jpg\n1\n"


@pytest.mark.timeout(300)
def test_a_bucket_is_tuned_without_code_and_no_credential_is_written(photos: str, tmp_path: Path, proxy: Proxy) -> None:
    proxy.latency_seconds = 0.005
    tune = ("tune", "--images", photos, "--image-size", "16", "--batch-size", "8", "--simulate-step", "5ms")
    said = run(tmp_path, *tune, "--space", "quick", "--trials", "1", "--budget", "15s")
    counts = "import tuned_pipeline as t; print(sum(1 for _ in t.make_loader().batches(0)))"
    said += succeeded(python("-c", counts, cwd=tmp_path / "tuned")).stdout
    assert said.endswith("8\n")
    tuned = json.loads((tmp_path / "tuned" / "autopipe.json").read_text())
    assert tuned["workload"]["path"] == photos
    assert tuned["profiles"][0]["hardware"]["storage"] == "s3"
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert SECRET not in said
    assert SECRET.encode() not in written


def run(folder: Path, *arguments: str) -> str:
    done = succeeded(autopipe(*arguments, cwd=folder))
    return done.stderr + done.stdout
