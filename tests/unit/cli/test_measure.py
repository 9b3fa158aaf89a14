"""`autopipe measure --formats`, which starts no process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Autopipe, photos


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(photos(tmp_path / "photos", each=2))


def test_the_document_has_every_form_and_nothing_else_is_printed(autopipe: Autopipe, images: str) -> None:
    ended = autopipe("measure", "--images", images, "--image-size", "16", "--formats", "--json")
    assert (ended.status, ended.err) == (0, "")
    forms = json.loads(ended.out)["forms"]
    assert {form["part"] for form in forms} == {"x"}
    assert [form["name"] for form in forms] == ["as they are", "JPEG 95", "JPEG 90", "PNG, fast", "raw pixels"]


def test_a_folder_without_images_is_refused(autopipe: Autopipe, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "There are no images" in autopipe("measure", "--images", tmp_path / "empty", "--formats").refused()


def test_a_folder_smaller_than_a_batch_is_converted(autopipe: Autopipe, images: str, tmp_path: Path) -> None:
    assert autopipe("convert", "--images", images, "--image-size", "16").status == 0
    assert list((tmp_path / "converted" / "array").iterdir()) != []
