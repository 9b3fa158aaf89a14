from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from autopipe.reports import drawing as pictures
from autopipe.reports import page
from autopipe.reports.drawing import Drawing, Scale
from tests.fakes.findings import HOSTILE


def drawing() -> Drawing:
    drawn = Drawing(100.0, f"a plot of {HOSTILE}", height=20.0)
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


def test_a_picture_alone_is_svg_with_its_style_and_its_size() -> None:
    root = ET.fromstring(page.alone(drawing()))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.attrib["width"], root.attrib["viewBox"]) == ("100", "0 0 100 20")
    style = root[0].text or ""
    assert style.startswith("svg {")
    assert "prefers-color-scheme: dark" in style


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
