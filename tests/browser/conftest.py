"""A real Chromium without a window, and a report to look at with it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autopipe.api import loading
from tests.fakes import findings, profiles

HOW = "make test-browser installs it: playwright by pip, and chromium by apt-get, or by `playwright install chromium`"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start the browser; where there is none the tests are skipped, but never in CI."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    with sync_playwright() as started:
        try:
            path = shutil.which("chromium") or shutil.which("google-chrome")
            running = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error as error:
            _missing(str(error).splitlines()[0])
        yield running
        running.close()


def _missing(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{why}. {HOW}")
    pytest.skip(f"{why}. {HOW}")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report of a profile with all findings, and return its file."""
    profile = findings.profile()
    use = "(cd tuned && python -c 'import tuned_pipeline')"
    made = loading.of_profile(profiles.artifact(profile), profile, use=use)
    return made.save(tmp_path_factory.mktemp("report") / "report.html")
