"""The site of `make docs` in a real browser: its links lead on, and nothing comes from elsewhere."""

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import pytest

import autopipe
from tests.fakes.commands import ROOT

pytest.importorskip("mkdocs", reason="make test-browser installs it")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site, serve it on loopback, and return its address."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    asked, failed = list[str](), list[str]()
    opened.on("request", lambda sent: asked.append(sent.url))
    opened.on("response", lambda got: failed.append(got.url) if got.status >= 400 else None)
    opened.on("pageerror", lambda error: failed.append(str(error)))
    opened.goto(site)
    yield opened
    opened.close()
    assert failed == []
    assert [url for url in asked if not url.startswith((site, "data:", "blob:"))] == []


def test_links_of_the_first_page_lead_to_pages_with_what_they_point_at(page: Any, site: str) -> None:
    links = page.eval_on_selector_all("article a[href]", "all => all.map(each => each.href)")
    inside = [each for each in dict.fromkeys(links) if each.startswith(site) and urldefrag(each)[0] != site]
    assert len(inside) >= 10
    for link in inside:
        page.goto(link)
        assert page.locator("article h1").count() >= 1
        if anchor := urldefrag(link).fragment:
            assert page.evaluate("name => document.getElementById(name) !== null", anchor), link


def test_the_search_finds_pages_by_a_word_of_theirs(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("DriftMonitor")
    found = page.locator("a.md-search-result__link")
    found.first.wait_for(state="visible")
    places = found.evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert any("docs/retune/" in each for each in places)
    page.goto(found.first.evaluate("each => each.href"))
    assert "DriftMonitor" in page.locator("article").text_content()


def test_each_public_name_and_each_command_has_its_place(page: Any, site: str) -> None:
    page.goto(f"{site}reference/python/")
    headings = {each.split("\u00b6")[0] for each in page.locator("article h3").all_text_contents()}
    assert headings >= {f"ap.{name}" for name in dir(autopipe) if name != "__version__"}
    page.goto(f"{site}reference/commands/")
    assert page.locator("#autopipe-tune").count() == page.locator("#autopipe-diagnose").count() == 1


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
