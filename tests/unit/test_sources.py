"""The package as text: no file is too long, and no text is written in the encoding of the user's locale."""

from __future__ import annotations

import ast
from pathlib import Path

import autopipe

FILES = sorted(Path(autopipe.__file__).parent.rglob("*.py"))


def test_no_file_of_the_package_has_more_than_600_lines() -> None:
    """A file is a topic that a reader wants whole, and no more (CONTRIBUTING.md)."""
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > 600} == {}


def leaves_it_to_the_locale(call: ast.Call) -> bool:
    """Tell whether a call writes text in an encoding that it does not name."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    mode = "".join(
        each.value for each in call.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
    return name == "write_text" or (name == "open" and "b" not in mode and not set("wax+").isdisjoint(mode))


def test_no_text_is_written_in_the_encoding_of_the_locale() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and leaves_it_to_the_locale(node)
    ]
    assert found == []
