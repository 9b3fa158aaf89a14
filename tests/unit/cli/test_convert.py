"""`autopipe convert`. Converting imports the workload into the command's own process, and so do these tests."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autopipe.measure.trial.workload_import import load_workload
from autopipe.pipeline.assembly import build_loader
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from tests.unit.cli.conftest import Autopipe, photos

TRAIN = """
import autopipe as ap
workload = ap.Workload(data={data}, ops=[{ops}], batch_size=2)
"""
OPS = "ap.Decode(), ap.Resize(16, 16), ap.RandomFlip()"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two classes of four images."""
    photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def workload(home: Path, data: str = "ap.ImageFolder('photos')", ops: str = OPS) -> str:
    """Write a workload file, and return its name."""
    (home / "train.py").write_text(TRAIN.format(data=data, ops=ops))
    return f"{home / 'train.py'}:workload"


def test_the_size_of_each_cut_is_shown(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("convert", workload(home))
    assert "keeps     samples after 2 ops: 6.1 KiB" in ended.err  # 8 times 16 x 16 x 3 and a label of 8 bytes
    assert "or        samples after 1 op: 56.3 KiB  (--cut 1)" in ended.err


def test_parts_are_written_apart_and_joined_in_a_folder_that_is_named_as_it_is(home: Path, autopipe: Autopipe) -> None:
    for part in ("0/2", "1/2"):
        ended = autopipe("convert", workload(home), "--out", "set [final]", "--shard", part)
        assert "--finish 'set [final]'\n" in ended.err
        half = autopipe("convert", "--finish", "set [final]") if part == "0/2" else None
        assert half is None or (half.status, "error: `set [final]` is not complete" in half.err) == (2, True)
    assert "joined    8 samples in set [final]\n" in autopipe("convert", "--finish", "set [final]").err


def test_a_folder_of_images_needs_no_code(home: Path, autopipe: Autopipe) -> None:
    ended = autopipe("convert", "--images", "photos", "--image-size", 16, "--batch-size", 2)
    assert "wrote     8 samples" in ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "aray"), "Did you mean `array`?"),
        (("--to", "parquet"), "`to` must be a form that is written, one of array, tfrecord"),
        (("--to", "files"), "`to` must be a form that is written, one of array, tfrecord"),
        (("--cut", "0"), 'storage="array" keeps these samples after 1 or 2 of the first ops, but got cut=0'),
        (("--shard", "2/2"), "`--shard` must be I/N with 0 <= I < N"),
        (("--out", "photos"), "must hold nothing else, but `photos` has 2 other files"),
    ],
)
def test_wrong_options_are_named(home: Path, autopipe: Autopipe, options: tuple[str, ...], said: str) -> None:
    ended = autopipe("convert", workload(home), *options)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert said in ended.err


# ---------------------------------------------------------------- bad data, named


@pytest.mark.parametrize("kind", ["missing", "truncated"])
def test_bad_data_is_named(home: Path, autopipe: Autopipe, kind: str) -> None:
    if kind == "missing":
        shutil.rmtree(home / "photos")
    else:
        file = home / "photos" / "cat" / "1.jpg"
        file.write_bytes(file.read_bytes()[:-200])
    ended = autopipe("convert", workload(home))
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert ("photos` does not exist." if kind == "missing" else "cat/1.jpg") in ended.err
    assert "Traceback" not in ended.err


def test_a_class_of_one_image_is_warned_of(home: Path, autopipe: Autopipe) -> None:
    (home / "photos" / "emu").mkdir()
    shutil.copy(home / "photos" / "cat" / "0.png", home / "photos" / "emu")
    ended = autopipe("convert", workload(home))
    assert ended.status == 0
    assert ended.err.startswith("warning: Only one image is in `emu`")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train.py:worklaod"], "Did you mean `workload`?"),
        ([], "A workload must be given"),
        (["train.py:workload", "--images", "photos"], "A workload must be given"),
        (["unread.py:workload"], "NameError"),
    ],
    ids=str,
)
def test_a_workload_that_cannot_be_had_is_named(
    home: Path, autopipe: Autopipe, arguments: list[str], said: str
) -> None:
    workload(home)
    (home / "unread.py").write_text(TRAIN.format(data="photos", ops=OPS))
    ended = autopipe("convert", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert said in ended.err


def test_a_password_in_the_url_of_images_is_refused_and_not_repeated(autopipe: Autopipe) -> None:
    ended = autopipe("convert", "--images", "s3://me:hunter2@bucket/photos")
    assert ended.status != 0
    assert "must not hold a user name or password" in ended.err
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(
    ("options", "name", "cut"), [(("--to", "array"), "array", "deepest"), (("--cut", 1), "array-1", 1)]
)
def test_it_writes_where_loaders_look(
    home: Path, autopipe: Autopipe, monkeypatch: pytest.MonkeyPatch, options: tuple[Any, ...], name: str, cut: Any
) -> None:
    named = workload(home)
    monkeypatch.chdir("/")
    ended = autopipe("convert", named, *options, "--verify")
    assert (ended.status, ended.out) == (0, "")
    assert f"wrote     8 samples to {home}/converted/{name}" in ended.err
    assert "verified  every file, and 8 samples against the source" in ended.err
    monkeypatch.chdir(home.parent)
    made, files = load_workload(named), PipelineConfig(loader=Threads(workers=1))
    kept = files.model_copy(update={"storage": "array", "cut": cut})
    with build_loader(made, files) as one, build_loader(made, kept) as other:
        for batch, kept_batch in zip(one.epoch(0), other.epoch(0), strict=True):
            for part, kept_part in zip(batch, kept_batch, strict=True):
                np.testing.assert_array_equal(part, kept_part)
