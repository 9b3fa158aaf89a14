from __future__ import annotations

import json
from pathlib import Path

import pytest

import autopipe as ap
from autopipe.api import loading
from autopipe.artifact import artifact as files
from tests.fakes import findings, profiles
from tests.fakes.facts import known


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return files.write(profiles.artifact(findings.profile()), tmp_path / "autopipe.json")


def test_a_report_is_made_of_an_artefact_alone_or_of_its_folder(artifact: Path, tmp_path: Path) -> None:
    one, other = ap.report(artifact), ap.report(tmp_path)
    assert one == other
    written = one.save(tmp_path / "report.html")
    assert written.read_text() == one.html
    assert json.loads((tmp_path / "report.json").read_text()) == one.document


@pytest.mark.filterwarnings("ignore:.*not of a machine like this one")
def test_a_notebook_shows_a_tuned_pipeline_by_verdict_and_ladder(artifact: Path) -> None:
    tuned = loading.load(artifact)
    shown = known(tuned._repr_html_())
    assert shown.count("<svg") == 2
    assert "body {" not in shown.replace("body.ap {", "")
    assert " -&gt; " in shown
    assert ap.report(tuned).document == ap.report(artifact).document


def test_a_notebook_shows_a_report_in_a_frame_and_a_console_its_verdict_alone(artifact: Path) -> None:
    report = ap.report(artifact)
    shown = report._repr_html_()
    assert shown.startswith("<iframe ")
    assert "<script" not in shown
    assert " sandbox " in shown
    assert report.document["verdict"] in repr(report)
    assert "<svg" not in repr(report)
    assert len(repr(report)) < 500
