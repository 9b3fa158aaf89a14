"""`autopipe measure --formats`, which starts no process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autopipe.hardware import disk
from tests.unit.cli.conftest import Autopipe, photos


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(photos(tmp_path / "photos", each=2))


def test_the_document_has_every_form_and_nothing_else_is_printed(autopipe: Autopipe, images: str) -> None:
    ended = autopipe("measure", "--images", images, "--image-size", "16", "--formats", "--json")
    assert (ended.status, ended.err) == (0, "")
    (part,) = json.loads(ended.out)["parts"]
    assert part["found"] == {"PNG": 2, "JPEG": 2}
    assert [form["name"] for form in part["forms"]][-2:] == ["JPEG 95 at 16x16", "raw pixels at 16x16"]


@pytest.mark.parametrize("free", [100 << 20, 100])
def test_a_conversion_is_the_next_step_if_the_disk_has_room(
    autopipe: Autopipe, images: str, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr(disk, "detect", lambda path: disk.Disk(kind="ext4", free_bytes=free))
    ended = autopipe("measure", "--images", images, "--image-size", "16", "--formats")
    assert ended.status == 0
    assert "samples after 2 ops take" in ended.err
    assert ("\nnext " in ended.err) == (free > 100)


def test_a_folder_without_images_is_refused(autopipe: Autopipe, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "There are no images" in autopipe("measure", "--images", tmp_path / "empty", "--formats").refused()


def test_a_folder_smaller_than_a_batch_is_converted(autopipe: Autopipe, images: str, tmp_path: Path) -> None:
    assert autopipe("convert", "--images", images, "--image-size", "16").status == 0
    assert list((tmp_path / "converted" / "array").iterdir()) != []
