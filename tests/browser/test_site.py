"""The site of `make docs` in a real browser: its links lead on, and nothing comes from elsewhere."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
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
