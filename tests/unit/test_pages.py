"""The pages: their links lead somewhere, and what they define and list is in the code.

What the source distribution holds, too, has the pages that its README leads to.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = ROOT / "docs" / "vocabulary.md"
MOST_TERMS = 25


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


def test_each_approved_text_is_compared_by_a_test() -> None:
    for file in (ROOT / "tests").rglob("approved/*.txt"):
        module, _, test = file.stem.partition("-")
        assert f"def test_{test}(" in (file.parents[1] / f"test_{module}.py").read_text(), file


VARIABLE = re.compile(r"\bAUTOPIPE_[A-Z]+(?:_[A-Z]+)*\b")


def documented() -> list[str]:
    table = (ROOT / "docs" / "reference.md").read_text().partition("## Environment variables")[2].partition("\n## ")[0]
    return re.findall(rf"^\| `({VARIABLE.pattern})` \|", table, re.MULTILINE)


def used() -> Iterator[str]:
    for folder in ("autopipe", "examples"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".sh", ".yaml", ".service"):
                yield from VARIABLE.findall(file.read_text())


def test_each_variable_is_documented_once_and_used() -> None:
    assert sorted(documented()) == sorted(set(used()))


def rows() -> list[list[str]]:
    lines = [line for line in VOCABULARY.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def defined(path: str) -> bool:
    """Tell whether a dotted path below `autopipe` is a class, function or method of a module."""
    *names, last = path.split(".")
    owner = names.pop() if names[-1][0].isupper() else None
    body = ast.parse(ROOT.joinpath("autopipe", *names).with_suffix(".py").read_text()).body
    if owner is not None:
        (body,) = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == last for node in body)


def words() -> str:
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").glob("*.md") if page != VOCABULARY)]
    return "\n".join(path.read_text() for path in [*pages, *(ROOT / "autopipe").rglob("*.py")]).casefold()


def test_each_term_is_there_once_and_there_are_few() -> None:
    terms = [term for row in rows() for term in row[0].split(", ")]
    assert len(terms) == len(set(terms))
    assert 0 < len(rows()) <= MOST_TERMS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_term_is_at_home_where_the_page_says(row: list[str]) -> None:
    assert defined(row[2].strip("`")), row[2]


def test_every_term_is_used() -> None:
    text = words()
    assert not [term for row in rows() for term in row[0].split(", ") if not re.search(rf"\b{term}", text)]
