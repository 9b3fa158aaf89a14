"""A note in a study, read back as the dashboard's own server reads it."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from autopipe.extensions import dashboard
from autopipe.reports import profile_report
from tests.fakes import findings

optuna_dashboard = pytest.importorskip("optuna_dashboard")


def test_the_verdict_is_in_the_study_once_however_often_it_is_written(tmp_path: Path) -> None:
    study = optuna.create_study(storage=f"sqlite:///{tmp_path / 'study.db'}", study_name="autopipe")
    note = profile_report.note(findings.profile())
    for _ in range(2):
        dashboard.write(study, note)
    assert optuna_dashboard.get_note(study) == note
    assert " -> " in note


def test_without_the_dashboard_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    dashboard.write(study, "note")
    assert optuna_dashboard.get_note(study) == ""
