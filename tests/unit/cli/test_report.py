from __future__ import annotations

import json
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from tests.fakes import findings, profiles
from tests.unit.cli.conftest import Autopipe


@pytest.fixture(autouse=True)
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tuned"
    folder.mkdir()
    files.write(profiles.artifact(findings.profile()), folder / "autopipe.json")
    return folder


@pytest.mark.parametrize("named", [(), ("tuned",)])
def test_a_report_is_written_beside_the_artefact(autopipe: Autopipe, tuned: Path, named: tuple[str, ...]) -> None:
    ended = autopipe("report", *named)
    assert (ended.status, ended.out) == (0, "")
    assert ended.err == "wrote     tuned/report.html\n"
    assert (tuned / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tuned / "report.json").read_text())["schema_version"] == 1


def test_its_figures_are_printed_as_json_and_nothing_is_written(autopipe: Autopipe, tuned: Path) -> None:
    ended = autopipe("report", "--json")
    assert json.loads(ended.out)["verdict"]
    assert not (tuned / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "nowhere/report.html"), "cannot be written"),
        (("--out", "mine.json"), "\nhint: Name the page: mine.html\n"),
    ],
)
def test_what_cannot_be_written_is_refused(autopipe: Autopipe, arguments: tuple[str, ...], said: str) -> None:
    assert said in autopipe("report", *arguments).refused()
    assert not Path("mine.json").exists()
