"""What people read is what was meant: rich changes nothing in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.table import Table

import autopipe
from autopipe.reports.terminal import Console

FOREIGN = "it failed: 'photos[final]' [/data] [bold]a:dog:b"


def test_brackets_and_colons_are_printed_as_they_are_in_lines_and_in_cells(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(FOREIGN)
    table.add_row(FOREIGN)
    Console(stderr=True).print(FOREIGN, soft_wrap=True)
    Console().print(table, soft_wrap=True)
    said = capsys.readouterr()
    assert said.err == f"{FOREIGN}\n"
    assert said.out.count(FOREIGN) == 2


def test_what_is_printed_for_people_goes_no_other_way() -> None:
    package = Path(autopipe.__file__).parent
    printing = [*(package / "cli" / "commands").glob("*.py"), *(package / "api").glob("*.py")]
    assert [file.name for file in printing if "rich.console" in file.read_text()] == []
