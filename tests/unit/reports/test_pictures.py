"""The pictures of README and docs are those that the script draws today, and the run that they are of is told alike."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.reports import text
from tests.fakes.reports import printed

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "pictures" / "draw.py"))
PICTURES = SCRIPT["pictures"](files.read(SCRIPT["RECORDED"]).profiles[0])


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_as_the_script_draws_it_today(name: str) -> None:
    assert (SCRIPT["FOLDER"] / name).read_text() == PICTURES[name], "run: python docs/pictures/draw.py"


def test_there_are_no_others_and_each_that_a_page_shows_is_there() -> None:
    assert {path.name for path in SCRIPT["FOLDER"].glob("*.svg")} == set(PICTURES)
    shown = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        shown |= {path.rpartition("/")[2] for path in re.findall(r"pictures/\w+\.svg", page.read_text())}
    assert shown
    assert shown <= set(PICTURES)


def test_the_readme_tells_the_recorded_run_as_a_tune_tells_it_today() -> None:
    result = files.read(SCRIPT["RECORDED"]).profiles[0].result
    lines = [" ".join(line.split()) for line in printed(text.render(result), 102).splitlines()]
    readme = [" ".join(line.split()) for line in (ROOT / "README.md").read_text().splitlines()]
    assert [line for line in lines if line not in readme] == []


def test_the_recorded_run_tells_nothing_of_where_it_lay() -> None:
    text = SCRIPT["RECORDED"].read_text()
    assert 'origin": "/' not in text
    assert "/home/" not in text
    assert "sqlite" not in text
