"""Pictures: how they are drawn, and that those of README and docs are as the script draws them today."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.reports import drawing as pictures
from autopipe.reports import text
from autopipe.reports.drawing import Drawing, Scale
from tests.fakes.findings import HOSTILE
from tests.fakes.reports import printed


def drawing() -> Drawing:
    drawn = Drawing(f"a plot of {HOSTILE}", 100.0, height=20.0)
    drawn.rect(0.0, 0.0, 10.25, 5.0, "win")
    drawn.text(0.0, 10.0, HOSTILE, 'x" onload="alert(1)', "end")
    drawn.behind(0.0, 0.0, 1.0, 1.0, "grid")
    return drawn


def test_words_and_classes_are_escaped() -> None:
    root = ET.fromstring(drawing().render())
    assert root.attrib["aria-label"] == f"a plot of {HOSTILE}"
    (text,) = root.iter("text")
    assert (text.text, text.attrib["class"]) == (HOSTILE, 'x" onload="alert(1)')
    assert not [each for each in root.iter() if each.tag == "script" or "onload" in each.attrib]


def test_what_is_behind_comes_first_and_a_bar_without_width_not_at_all() -> None:
    drawn = drawing()
    drawn.rect(0.0, 0.0, 0.0, 5.0, "none")
    assert [each.tag for each in ET.fromstring(drawn.render())] == ["line", "rect", "text"]


@pytest.mark.parametrize(
    ("scale", "value", "at"),
    [
        (Scale(0.0, 10.0, 100.0, 200.0), 5.0, 150.0),
        (Scale(0.0, 10.0, 200.0, 100.0), 2.0, 180.0),
        (Scale(0.0, 10.0, 100.0, 200.0), 99.0, 200.0),
        (Scale(0.1, 10.0, 0.0, 100.0, log=True), 1.0, 50.0),
    ],
)
def test_a_scale_places_values_and_keeps_them_on_the_axis(scale: Scale, value: float, at: float) -> None:
    assert scale(value) == pytest.approx(at)


@pytest.mark.parametrize(
    ("scale", "fewest", "most"),
    [(Scale(0.0, last, 0.0, 1.0), 3, 7) for last in (0.0003, 0.9, 1.0, 7.0, 12.5, 4480.0, 1e7)]
    + [(Scale(*ends, 0.0, 1.0, log=True), 1, 6) for ends in ((0.94, 1.4), (0.5, 4.0), (0.01, 60.0), (1.0, 1.06))],
)
def test_ticks_are_few_round_and_on_the_axis(scale: Scale, fewest: int, most: int) -> None:
    ticks = scale.ticks(6)
    assert fewest <= len(ticks) <= most
    assert all(0.99 * scale.first <= tick <= scale.last * 1.01 for tick in ticks)


def test_a_long_name_is_cut_in_its_middle() -> None:
    short = pictures.fitted("processes(workers=4) keep=memory", 100.0, 13.0)
    assert len(short) <= 14
    assert short.startswith("processe")
    assert short.endswith("mory")


# ---------------------------------------------------------------- the pictures of README and docs

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "pictures" / "draw.py"))
PICTURES = SCRIPT["pictures"](files.read(SCRIPT["RECORDED"]).profiles[0])


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_as_the_script_draws_it_today(name: str) -> None:
    assert (SCRIPT["FOLDER"] / name).read_text() == PICTURES[name], "run: python docs/pictures/draw.py"


def test_there_are_no_others_and_each_that_a_page_shows_is_there() -> None:
    assert {path.name for path in SCRIPT["FOLDER"].glob("*.svg")} == set(PICTURES)
    shown = set()
    for each in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        shown |= {path.rpartition("/")[2] for path in re.findall(r"pictures/\w+\.svg", each.read_text())}
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
