"""A report in a real browser: nothing fetched, no error, readable at every width and by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WIDTHS = [360, 414, 640, 768, 1024, 1600]
SCHEMES = ["light", "dark"]
OVERFLOWING = """() => [...document.querySelectorAll('body *')].filter(each => {
    const box = each.getBoundingClientRect();
    return box.right > innerWidth + 1 && !each.closest('.scroll') && !each.closest('svg');
}).map(each => each.tagName + '.' + each.className)"""
CLIPPED = """() => [...document.querySelectorAll('svg')].filter(each => each.checkVisibility()).flatMap(svg => {
    const outer = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(each => {
        const box = each.getBoundingClientRect();
        return box.left < outer.left - 1.5 || box.right > outer.right + 1.5 || box.bottom > outer.bottom + 1.5;
    }).map(each => each.textContent);
})"""
OVERLAPPING = """() => [...document.querySelectorAll('svg')].filter(each => each.checkVisibility()).flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(each => [each.textContent, each.getBoundingClientRect()]);
    const found = [];
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
        const [a, b] = [boxes[i][1], boxes[j][1]];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 4) found.push(boxes[i][0] + ' | ' + boxes[j][0]);
    }
    return found;
})"""
SMALLEST = """() => Math.min(...[...document.querySelectorAll('svg')].filter(each => each.checkVisibility()).flatMap(
    svg => [...svg.querySelectorAll('text')].map(each => parseFloat(getComputedStyle(each).fontSize)
        * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)))"""
CONTRAST = """() => {
    const light = text => { const [r, g, b] = text.match(/[0-9.]+/g).map(Number).map(
        each => { const s = each / 255; return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    return [...document.querySelectorAll('p, li, h1, h2, td, summary, figcaption, svg text:not(.on)')].map(each => {
        const own = getComputedStyle(each);
        const ink = light(each.tagName === 'text' ? own.fill : own.color);
        return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), each.textContent.slice(0, 40)];
    }).filter(each => each[0] < 4.5);
}"""

Open = Callable[..., Any]


@pytest.fixture
def show(browser: Any) -> Iterator[Open]:
    pages, wrong, asked, files = list[Any](), list[str](), set[str](), set[str]()

    def opened(file: Path, width: int = 1024, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda sent: asked.add(sent.url))
        page.goto(file.as_uri())
        files.add(file.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert (wrong, asked) == ([], files)  # nothing else was fetched


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width_and_words_neither_overlap_nor_leave_their_picture(
    show: Open, report: Path, width: int, scheme: str
) -> None:
    page = show(report, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(OVERLAPPING) == []
    assert page.evaluate(SMALLEST) >= 9.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_words_stand_out_from_the_paper_in_both_colour_schemes(show: Open, report: Path, scheme: str) -> None:
    page = show(report, 1024, scheme)
    assert page.evaluate(CONTRAST) == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 23, 30)"}[scheme]


@pytest.mark.parametrize("width", [360, 1600])
def test_every_picture_has_its_text_and_every_section_is_a_named_region(show: Open, report: Path, width: int) -> None:
    page = show(report, width)
    seen = [each for each in page.query_selector_all("figure svg") if each.is_visible()]
    assert len(seen) == len(page.query_selector_all("figure")) == 6
    for each in seen:
        assert len(each.get_attribute("aria-label")) > 30
        assert each.get_attribute("role") == "img"
    counts = [len(page.query_selector_all("h1")), page.get_by_role("heading", level=2).count()]
    assert counts == [1, 8]
    assert page.get_by_role("region", name="Is it proved?").count() == 1
    assert page.get_attribute("html", "lang") == "en"


def test_a_table_opens_by_keyboard_alone(show: Open, report: Path) -> None:
    page = show(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert page.locator("table").first.is_visible()
    page.keyboard.press("Tab")
    assert "as a table" in page.evaluate("document.activeElement.getAttribute('aria-label')")
