"""What a command writes and says."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text

from autopipe import again
from autopipe.artifact import factory
from autopipe.artifact.schema import ImagesReference, ModuleReference
from autopipe.cli import screen
from autopipe.cli.options import Chosen
from autopipe.cli.output import Written, folder_of, reserved, say_where, write_outputs
from autopipe.errors import ArtifactError
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.workload import Workload
from tests.fakes.profiles import profile

CONFIG = PipelineConfig(loader=Threads(workers=2))


def _tuned(config: PipelineConfig) -> factory.Tuned:
    known = profile(config=config.model_dump(mode="json"))
    return factory.of_profile(known, lambda: pytest.fail("imported"))


def test_a_conversion_into_a_folder_with_a_space_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my models"
    written = Written(artifact=folder / "autopipe.json", module=folder / "tuned_pipeline.py")
    config = CONFIG.model_copy(update={"storage": "array", "cut": 1})
    named = ImagesReference(path="/my photos", model="vgg16", image_size=96)
    chosen = Chosen(workload="unused", named=named)
    say_where(written, "study.db", _tuned(config), chosen.arguments)
    command = f"{again.autopipe('convert')} --images '/my photos' --image-size 96 --to array --cut 1"
    assert f"before    {command} --out '{folder}/converted/array-1'" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("storage", "converts"), [("files", False), ("array", True)])
def test_what_to_do_next_is_said(
    tmp_path: Path, storage: str, converts: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    written = Written(artifact=tmp_path / "autopipe.json", module=tmp_path / "tuned_pipeline.py")
    config = CONFIG.model_copy(update={"storage": storage})
    say_where(written, "study.db", _tuned(config), "train.py:workload")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"wrote     {written.artifact}, {written.module} and the study study.db"
    before = f"before    {again.autopipe('convert')} train.py:workload --to array --out {tmp_path}/converted/array"
    assert (before in lines) == converts
    assert lines[-1] == f"          {again.autopipe('check', written.artifact)}"


def test_room_for_the_artefact_is_kept_and_leaves_no_file(tmp_path: Path) -> None:
    with reserved(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_nothing_is_gone_again(tmp_path: Path) -> None:
    def fail() -> None:
        raise ArtifactError("no such workload")

    def study_fails(folder: Path) -> None:
        (folder / "study.db").touch()
        fail()

    (tmp_path / "old").mkdir()
    for name in ("old", "new"):
        with pytest.raises(ArtifactError, match="no such workload"), reserved(tmp_path / name):
            fail()
    with pytest.raises(ArtifactError, match="no such workload"), reserved(tmp_path / "begun"):
        study_fails(tmp_path / "begun")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun", "old"]


def test_a_folder_without_room_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(ArtifactError, match=r"must have room for 512 KiB, but: No space left"), reserved(tmp_path):
        pytest.fail("it went on")


def tuned() -> factory.Tuned:
    named = ModuleReference(module="project.train")
    return factory.of_profile(profile(), Workload(data=Arrays(np.zeros((4, 2))), ops=[], batch_size=2), named=named)


def test_what_does_not_fit_into_one_folder_is_written_to_the_next(tmp_path: Path) -> None:
    gone, there = tmp_path / "gone", tmp_path / "there"
    there.mkdir()
    written = write_outputs(tuned(), [gone, there])
    assert written.artifact == there / "autopipe.json"
    assert written.module.is_file()


def test_what_fits_nowhere_is_told_with_the_configuration_itself(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written") as raised:
        write_outputs(tuned(), [tmp_path / "gone", tmp_path / "gone too"])
    assert "gone too" in raised.value.message
    assert tuned().config.model_dump_json() in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("url", "folders"),
    [(None, []), ("postgresql://host/studies", []), ("sqlite:////data/study.db", [Path("/data")])],
)
def test_the_folder_of_a_study_is_known_where_it_is_a_file(url: str | None, folders: list[Path]) -> None:
    assert folder_of(url) == folders


def test_what_is_said_is_no_markup_and_leaves_stdout_to_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"photos[red]/{'a' * 200}/autopipe.json"
    screen.say(f"wrote     {name}")
    screen.show(Text("the result"))
    assert capsys.readouterr() == ("the result\n", f"wrote     {name}\n")


def test_a_bar_tells_on_a_terminal_how_much_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen.bar("looking", unit="samples") as told:
        told(10, 40)
        told(40, 40)
    out, error = capsys.readouterr()
    assert out == ""
    assert "looking" in error
    assert "40/40" in error


def test_a_bar_writes_nothing_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.bar("looking", unit="samples") as told:
        told(40, 40)
    assert capsys.readouterr() == ("", "")
