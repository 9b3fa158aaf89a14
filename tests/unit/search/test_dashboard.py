"""Pictures and a note in a study, read back as the dashboard's own server reads them."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest

from autopipe.reports import plots
from autopipe.search import dashboard
from tests.fakes import findings

optuna_dashboard = pytest.importorskip("optuna_dashboard")


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    return optuna.create_study(storage=f"sqlite:///{tmp_path / 'study.db'}", study_name="autopipe")


def shown(study: optuna.Study) -> dict[str, dict[str, object]]:
    from optuna_dashboard._custom_plot_data import get_plotly_graph_objects

    attributes = study._storage.get_study_system_attrs(study._study_id)
    return {name: json.loads(text) for name, text in get_plotly_graph_objects(attributes).items()}


def test_every_picture_of_a_report_is_in_the_study_as_often_as_it_is_written(study: optuna.Study) -> None:
    profile = findings.profile()
    for _ in range(2):
        dashboard.show(study, plots.figures(profile), plots.note(profile))
    found = shown(study)
    assert set(found) == {f"autopipe-{key}" for key in ("ladder", "costs", "proof", "settings", "history", "payback")}
    assert all(each["data"] and each["layout"] for each in found.values())
    assert "lift you from" in optuna_dashboard.get_note(study)


def test_a_plot_has_the_figures_of_the_report() -> None:
    profile = findings.profile()
    assert profile.findings is not None
    data = plots.figures(profile)["proof"]["data"]
    assert data[1]["x"] == [each.ratio for each in profile.findings.contests]
    assert data[1]["error_x"]["arrayminus"][0] == pytest.approx(
        profile.findings.contests[0].ratio - profile.findings.contests[0].low
    )
