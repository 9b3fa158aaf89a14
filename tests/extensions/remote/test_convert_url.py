"""Sets behind URLs, on fsspec's own memory file system. On a server: test_s3.py."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import fsspec
import numpy as np
import pytest

from autopipe.errors import BadSampleError, ConfigError, StorageError
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.eject.module import eject
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.storage.layout import find, open_set, verify
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.ops.decode import Decode
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from autopipe.workload.workload import Workload
from tests.unit.pipeline.storage import test_convert
from tests.unit.pipeline.storage.test_convert import COUNT, fail_at

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
    workload = Workload(data=ImageFolder("memory://ejected"), ops=[Decode()], batch_size=2)
    with pytest.raises(ConfigError, match=r"behind a URL \(memory://\)"):
        eject(workload, form)
