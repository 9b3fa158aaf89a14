"""`docs/vocabulary.md` is no page of its own making: what it defines is in the code, and its words are used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "vocabulary.md"
MOST_TERMS = 25


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
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
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").glob("*.md") if page != PAGE)]
    code = (ROOT / "autopipe").rglob("*.py")
    return "\n".join(path.read_text() for path in [*pages, *code]).casefold()


def test_each_term_is_there_once_and_there_are_few() -> None:
    terms = [term for row in rows() for term in row[0].split(", ")]
    assert len(terms) == len(set(terms))
    assert 0 < len(rows()) <= MOST_TERMS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_term_is_at_home_where_the_page_says(row: list[str]) -> None:
    assert defined(row[2].strip("`")), row[2]


def test_every_term_is_used() -> None:
    text = words()
    unused = [term for row in rows() for term in row[0].split(", ") if not re.search(rf"\b{term}", text)]
    assert not unused


def test_pages_call_the_confirmation_run_by_its_name() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    other = re.compile(r"(?<![-/])\bproofs?\b(?!\.svg)")  # neither an option nor a file
    lines = [f"{page.name}: {line}" for page in pages for line in page.read_text().splitlines()]
    assert [line for line in lines if other.search(line)] == []
