"""What is handed on as a source distribution has the pages that its README leads to."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_what_the_pages_at_the_top_lead_to_is_in_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    links = {link for page in ROOT.glob("*.md") for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())}
    folders = {link.partition("/")[0] for link in links if "/" in link}
    assert "docs" in folders
    assert {f"/{folder}" for folder in folders} <= set(settings["include"])


def _anchors(page: Path) -> set[str]:
    """Return how a page's headings are linked to on GitHub."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_leads_somewhere() -> None:
    extensions = ROOT / "autopipe" / "extensions"
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    pages += extensions.rglob("*.md")
    pages += [ROOT / "benchmarks" / "RESULTS.md", ROOT / "search_spaces" / "README.md"]
    broken = []
    for page in pages:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not extensions.exists() and extensions in target.parents:  # a copy without any
                continue
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_the_extra_for_jax_brings_what_keras_writes_tensorboards_by() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"jax", "tensorboard"} <= {re.split(r"\W", requirement)[0] for requirement in extras["jax"]}
