"""What a command writes and says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.text import Text

from autopipe import again
from autopipe.api.request import Target
from autopipe.artifact import factory, schema
from autopipe.cli import screen
from autopipe.cli.output import folder_of, reserved, say_next, use_beside, write_outputs
from autopipe.errors import ArtifactError
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.workload import Workload
from tests.fakes.profiles import profile

CONFIG = PipelineConfig(loader=Threads(workers=2))


TRAIN = Target(name="", workload=WorkloadName(text="train.py:workload"))
IMAGES = schema.ImagesReference(path="/my photos", model="vgg16", image_size=96)


@pytest.mark.parametrize(
    ("chosen", "storage", "options"),
    [
        (TRAIN, {}, None),
        (TRAIN, {"keep": "array"}, "train.py:workload --to array --out {0}array'"),
        (
            Target(name="", workload=TRAIN.workload, named=IMAGES),
            {"keep": "array:1"},
            "--images '/my photos' --image-size 96 --to array --cut 1 --out {0}array-1'",
        ),
    ],
    ids=["files", "array", "images"],
)
def test_what_to_do_next_is_said(
    tmp_path: Path, chosen: Target, storage: dict[str, Any], options: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    known = profile(config=CONFIG.model_copy(update=storage).model_dump(mode="json"))
    named = schema.ModuleReference(module="project.train")
    (folder := tmp_path / "my models").mkdir()
    tuned = factory.of_profile(known, lambda: pytest.fail("imported"), named=named)
    written, module = write_outputs(tuned, [folder])
    say_next(written, known, chosen.arguments, [str(written)])
    lines = capsys.readouterr().err.splitlines()
    assert module.is_file()
    assert f"report    {folder / 'report.html'}" in lines
    assert lines[-2] == f"next      {use_beside(written, known)}"
    before = None if options is None else options.format(f"'{folder}/converted/")
    assert [line for line in lines if line.startswith("before")] == (
        [] if before is None else [f"before    {again.autopipe('convert')} {before}"]
    )
    assert lines[-1] == f"          {again.autopipe('check', written)}"


def test_a_folder_that_was_made_for_nothing_is_gone_again(tmp_path: Path) -> None:
    def fail() -> None:
        raise ArtifactError("no such workload")

    def study_fails(folder: Path) -> None:
        (folder / "study.db").touch()
        fail()

    (tmp_path / "old").mkdir()
    with reserved(tmp_path / "old"):
        assert list((tmp_path / "old").iterdir()) == []  # the room is kept by a file without a name
    for name in ("old", "new"):
        with pytest.raises(ArtifactError, match="no such workload"), reserved(tmp_path / name):
            fail()
    with pytest.raises(ArtifactError, match="no such workload"), reserved(tmp_path / "begun"):
        study_fails(tmp_path / "begun")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun", "old"]


def test_a_folder_without_room_is_refused_before_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(ArtifactError, match=r"must have room for 512 KiB, but: No space left"), reserved(tmp_path):
        pytest.fail("it went on")


def tuned() -> factory.Tuned:
    named = schema.ModuleReference(module="project.train")
    return factory.of_profile(profile(), Workload(data=Arrays(np.zeros((4, 2))), ops=[], batch_size=2), named=named)


def test_what_does_not_fit_into_one_folder_is_written_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    gone, there = tmp_path / "file" / "gone", tmp_path / "there"
    artifact, module = write_outputs(tuned(), [gone, there])
    assert artifact == there / "autopipe.json"
    assert module.is_file()


def test_what_fits_nowhere_is_told_with_the_configuration_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot be written") as raised:
        write_outputs(tuned(), [tmp_path / "file" / "gone", tmp_path / "file" / "gone too"])
    assert "gone too" in raised.value.message
    assert tuned().config.model_dump_json() in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("url", "folders"), [(None, []), ("postgresql://host/studies", []), ("sqlite:////data/study.db", [Path("/data")])]
)
def test_the_folder_of_a_study_is_known_where_it_is_a_file(url: str | None, folders: list[Path]) -> None:
    assert folder_of(url) == folders


def test_what_is_said_is_no_markup_and_leaves_stdout_to_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"photos[red]/{'a' * 200}/autopipe.json"
    screen.say(f"wrote     {name}")
    screen.show(Text("the result"))
    assert capsys.readouterr() == ("the result\n", f"wrote     {name}\n")


def test_a_bar_is_for_a_terminal_alone_and_a_short_work_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with screen.bar("looking", unit="samples") as told:
        told(40, 40)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen.bar("looking", unit="samples") as told:
        told(10, 40)
        told(40, 40)
    out, error = capsys.readouterr()
    assert out == ""
    assert "looking" in error
    assert "40/40" in error
