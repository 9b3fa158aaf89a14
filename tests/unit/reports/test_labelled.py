"""What is shown behind labels, on a narrow terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from autopipe.reports import fleet_table, fleets, labelled
from autopipe.tuned import artifact as files
from tests.fakes.profiles import NOON, artifact

PATH = "/home/somebody/projects/segmentation-of-streets/train_with_a_long_name.py:workload"


def narrow(shown: RenderableType) -> str:
    """Return what a terminal of 40 columns shows, without its line breaks."""
    written = io.StringIO()
    Console(file=written, width=40).print(shown)
    return "".join(written.getvalue().split())


def test_of_a_path_that_is_longer_than_a_line_nothing_is_left_out() -> None:
    assert f"note{PATH}" in narrow(labelled.table([("note", PATH)]))


@pytest.mark.parametrize("width", [40, 80])
def test_a_fleet_leaves_nothing_out_either(tmp_path: Path, width: int) -> None:
    files.write(artifact(), tmp_path / "a.json")
    shown = narrow(fleet_table.render(fleets.of_folder(tmp_path, NOON), NOON, width=width))
    assert "…" not in shown
