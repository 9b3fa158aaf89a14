from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest

from autopipe.artifact import artifact as files
from autopipe.search import record
from tests.fakes.profiles import artifact
from tests.unit.cli.conftest import Autopipe


def test_a_fleet_or_one_artefact_is_a_table_and_a_document(autopipe: Autopipe, tmp_path: Path) -> None:
    path = files.write(artifact(), tmp_path / "a.json")
    ended = autopipe("fleet", tmp_path)
    assert (ended.status, "Imaginary" in ended.out) == (0, True)
    (member,) = json.loads(autopipe("fleet", path, "--json").out)
    assert (member["place"], member["images_per_second"]) == (str(path), 1000.0)


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_has_a_line_for_each_figure(
    autopipe: Autopipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    files.write(artifact(), tmp_path / "a.json")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = autopipe("fleet", tmp_path).out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(lines)
    assert [" ".join(line.split()) for line in lines if line.startswith(("machine", "images/s"))] == [
        "machine 2 x Imaginary 9000",
        "images/s 1,000",
    ]


def test_studies_are_found_in_a_folder_whatever_it_is_called(autopipe: Autopipe, tmp_path: Path) -> None:
    folder = tmp_path / "50%?"
    folder.mkdir()
    url = f"sqlite:///{tmp_path}/50%25%3F/studies"
    record.open_record(url, "one", sampler=optuna.samplers.RandomSampler(), digests={"workload": "w"}, fresh=False)
    assert (folder / "studies").is_file()
    ended = autopipe("fleet", url, "--json")
    assert (ended.status, [each["place"] for each in json.loads(ended.out)]) == (0, ["one"])


def test_a_study_that_is_not_there_is_not_made_by_looking_for_it(autopipe: Autopipe, tmp_path: Path) -> None:
    error = autopipe("fleet", f"sqlite:///{tmp_path}/studeis").refused()
    assert f"There is no study in `sqlite:///{tmp_path}/studeis`: no such file." in error
    assert list(tmp_path.iterdir()) == []
