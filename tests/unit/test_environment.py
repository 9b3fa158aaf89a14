"""The table of environment variables is complete, and none of it is made up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
